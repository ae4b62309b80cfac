//! Reads one run as a client sees it: the stored events as envelopes, and then new events and live updates for a client
//! that follows the run.
//!
//! The log stores every text once: the result of a call is in the event that settled it, and the message that gives
//! it to the model only refers to that event. So reading starts a little before the first event that is asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::Engine;
use engine::feed::{FeedItem, Subscription};
use engine::store::{LogEntry, RunView, Store, StoreError, Tenant};
use machine::event::Fact;
use machine::id::{RunId, ThreadId};
use machine::policy::Continuation;

use crate::wire::event::Envelope;
use crate::wire::hydrate::EventHydrator;
use crate::wire::live::Frame;

/// Events per read.
const READ_MAX: usize = 256;

/// The stored events of a run after a given one. At most one page of them is in memory, and the envelopes of one event.
pub(crate) struct LogReader {
    store: Arc<dyn Store>,
    tenant: Tenant,
    thread: ThreadId,
    run: RunId,
    hydrator: EventHydrator,
    /// Envelopes up to this seq are not returned.
    after: u64,
    /// Events up to this seq were read from the store.
    read: u64,
    page: VecDeque<LogEntry>,
    ready: VecDeque<Envelope>,
}

impl LogReader {
    pub(crate) async fn open(
        engine: &Engine,
        tenant: &Tenant,
        view: &RunView,
        after: u64,
    ) -> Result<Self, StoreError> {
        let store = engine.store().clone();
        Ok(Self {
            read: replay_start(&*store, tenant, view, after).await?,
            store,
            tenant: tenant.clone(),
            thread: view.thread.clone(),
            run: view.id.clone(),
            hydrator: EventHydrator::new(view.thread.clone(), view.id.clone()).dropping_large_events(),
            after,
            page: VecDeque::new(),
            ready: VecDeque::new(),
        })
    }

    /// The next envelope; None at the end of what is stored.
    pub(crate) async fn next(&mut self) -> Result<Option<Envelope>, StoreError> {
        loop {
            if let Some(envelope) = self.ready.pop_front() {
                return Ok(Some(envelope));
            }
            if self.page.is_empty() {
                self.page = self.store.events(&self.tenant, &self.run, self.read, READ_MAX).await?.into();
            }
            let Some(entry) = self.page.pop_front() else { return Ok(None) };
            self.push(&entry).await?;
        }
    }

    /// From here on, events and live updates as they happen.
    pub(crate) fn follow(self, engine: &Engine) -> RunFollower {
        RunFollower { subscription: engine.subscribe(&self.tenant, &self.run, self.read), reader: self }
    }

    /// Hydrates one event. Reads the event that the hydrator is missing, if any.
    async fn push(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        self.read = entry.seq();
        if let LogEntry::Event(committed) = entry
            && let Some(seq) = self.hydrator.missing_event(committed)
        {
            let read = self.store.events(&self.tenant, &self.run, seq.saturating_sub(1), 1).await?;
            let found = read.iter().filter_map(LogEntry::readable);
            found.for_each(|found| self.hydrator.supply_event(found));
        }
        let envelopes = self.hydrator.hydrate_entry(entry).into_iter();
        self.ready.extend(envelopes.filter(|envelope| envelope.seq > self.after));
        Ok(())
    }
}

/// What a client that follows a run receives.
pub(crate) enum RunFrame {
    Event(Envelope),
    Live(Frame),
}

/// A run from a given event until its end, as it happens.
pub(crate) struct RunFollower {
    reader: LogReader,
    subscription: Subscription,
}

impl RunFollower {
    /// None after the terminal event.
    pub(crate) async fn next(&mut self) -> Result<Option<RunFrame>, StoreError> {
        loop {
            if let Some(envelope) = self.reader.ready.pop_front() {
                return Ok(Some(RunFrame::Event(envelope)));
            }
            let entry = match self.subscription.next().await.transpose()? {
                None => return Ok(None),
                Some(FeedItem::Live(item)) => {
                    let frame = Frame::from_live_item(&self.reader.thread, &self.reader.run, &item);
                    return Ok(Some(RunFrame::Live(frame)));
                }
                Some(FeedItem::Event(committed)) => LogEntry::Event(committed),
                Some(FeedItem::Unreadable(event)) => LogEntry::Unreadable(event),
            };
            self.reader.push(&entry).await?;
        }
    }
}

/// The seq after which reading has to start so that every event after `after` can be hydrated: the start of the step
/// that was open then. Under `eager` a call may settle many steps later, so the whole log is read.
async fn replay_start(
    store: &dyn Store,
    tenant: &Tenant,
    run: &RunView,
    after: u64,
) -> Result<u64, StoreError> {
    match run.control.as_ref().map(|control| control.policy.continuation) {
        Some(Continuation::Eager) | None => return Ok(0),
        Some(Continuation::AllSettled) => {}
    }
    let mut until = after;
    while until > 0 {
        let from = until.saturating_sub(READ_MAX as u64);
        if let Some(begun) = last_step_between(store, tenant, &run.id, from, until).await? {
            return Ok(begun - 1);
        }
        until = from;
    }
    Ok(0)
}

/// The seq at which the last step starts that starts after `from` and no later than `until`.
async fn last_step_between(
    store: &dyn Store,
    tenant: &Tenant,
    run: &RunId,
    from: u64,
    until: u64,
) -> Result<Option<u64>, StoreError> {
    let (mut read, mut begun) = (from, None);
    while read < until {
        let events = store.events(tenant, run, read, READ_MAX).await?;
        let Some(last) = events.last() else { break };
        read = last.seq();
        let events = events.iter().filter_map(LogEntry::readable);
        let steps = events.filter(|committed| matches!(committed.event.fact, Fact::StepStarted { .. }));
        let mut seqs = steps.map(|committed| committed.event.seq);
        begun = seqs.rfind(|seq| *seq <= until).or(begun);
    }
    Ok(begun)
}
