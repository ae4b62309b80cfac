//! Reads one run as a client sees it: the stored events as envelopes, and then new events and live updates for a client
//! that follows the run. A client that follows a thread reads its runs one after the other.
//!
//! The log stores every text once: the result of a call is in the event that settled it, and the message that gives
//! it to the model only refers to that event. So reading starts a little before the first event that is asked for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine::feed::{FeedItem, Subscription};
use engine::store::{LogEntry, Page, RunFilter, RunView, Store, StoreError, Tenant};
use engine::{Engine, ThreadFeed};
use machine::event::Fact;
use machine::id::{AgentName, RunId, ThreadId};
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
        self.next_up_to(u64::MAX).await
    }

    /// The next envelope, if its seq is at most `last`.
    pub(crate) async fn next_up_to(&mut self, last: u64) -> Result<Option<Envelope>, StoreError> {
        loop {
            if let Some(envelope) = self.ready.pop_front_if(|envelope| envelope.seq <= last) {
                return Ok(Some(envelope));
            }
            if !self.ready.is_empty() {
                return Ok(None);
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
        let subscription = engine.subscribe(&self.tenant, &self.run, self.read);
        RunFollower { subscription, received: None, reader: self }
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
    /// Not read yet. It is here while the reader reads what it needs of earlier events.
    received: Option<LogEntry>,
}

impl RunFollower {
    /// None after the terminal event. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<RunFrame>, StoreError> {
        loop {
            if let Some(envelope) = self.reader.ready.pop_front() {
                return Ok(Some(RunFrame::Event(envelope)));
            }
            if let Some(entry) = &self.received {
                self.reader.push(entry).await?;
                self.received = None;
                continue;
            }
            self.received = match self.subscription.next().await.transpose()? {
                None => return Ok(None),
                Some(FeedItem::Live(item)) => {
                    let frame = Frame::from_live_item(&self.reader.thread, &self.reader.run, &item);
                    return Ok(Some(RunFrame::Live(frame)));
                }
                Some(FeedItem::Event(committed)) => Some(LogEntry::Event(committed)),
                Some(FeedItem::Unreadable(event)) => Some(LogEntry::Unreadable(event)),
            };
        }
    }
}

/// How long a follower of a thread without unended runs waits before it reads the thread's runs again. Only for what no
/// notification reports, such as retention.
const THREAD_RECHECK: Duration = Duration::from_secs(15);
/// Runs per read.
const RUNS_MAX: usize = 100;

/// A position in the events of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadPosition {
    pub(crate) run: RunId,
    pub(crate) seq: u64,
}

impl ThreadPosition {
    /// None if the text is no position.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (run, seq) = text.trim().rsplit_once(':')?;
        Some(Self { run: RunId::from(run), seq: seq.parse().ok()? })
    }
}

impl fmt::Display for ThreadPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.run, self.seq)
    }
}

/// All runs of a thread from a given event on, then later runs as they are created. The runs follow one another in the
/// order in which they were admitted: the events of a run come after the last event of the run before it. So one
/// position says what a client has seen, and live events have the same order as past ones.
pub(crate) struct ThreadFollower {
    engine: Engine,
    tenant: Tenant,
    thread: ThreadId,
    feed: ThreadFeed,
    /// The run that is being read.
    reading: Option<RunFollower>,
    /// The last run of which anything was read.
    last: Option<RunId>,
    /// The runs after it, as far as they were listed.
    upcoming: VecDeque<RunId>,
}

impl ThreadFollower {
    /// Follows the thread from its first event on.
    pub(crate) fn new(engine: &Engine, tenant: &Tenant, thread: &ThreadId) -> Self {
        Self {
            // Before any run is listed, so that no later run is missed.
            feed: engine.thread_feed(tenant, thread),
            engine: engine.clone(),
            tenant: tenant.clone(),
            thread: thread.clone(),
            reading: None,
            last: None,
            upcoming: VecDeque::new(),
        }
    }

    /// Starts after this event, if the thread has it.
    pub(crate) async fn start_after(&mut self, position: &ThreadPosition) -> Result<(), StoreError> {
        let view = self.engine.view(&self.tenant, &position.run).await?;
        let known = view.filter(|view| view.thread == self.thread && position.seq <= view.seq);
        if let Some(view) = known {
            self.read(&view, position.seq).await?;
        }
        Ok(())
    }

    /// The newest event: that of the run in front, or of the newest run if all have ended. None if there is no run.
    pub(crate) async fn newest(&self, front: Option<&RunId>) -> Result<Option<ThreadPosition>, StoreError> {
        let view = match front {
            Some(front) => self.engine.view(&self.tenant, front).await?,
            None => {
                let filter = RunFilter { thread: Some(self.thread.clone()), ..RunFilter::default() };
                let page = Page { cursor: None, limit: 1 };
                self.engine.runs(&self.tenant, &filter, &page).await?.items.pop()
            }
        };
        Ok(view.map(|view| ThreadPosition { run: view.id, seq: view.seq }))
    }

    /// The next event or live update. None if the thread is gone, if a run begins that `may_see` excludes, or if the
    /// engine is gone.
    pub(crate) async fn next(
        &mut self,
        may_see: impl Fn(&AgentName) -> bool,
    ) -> Result<Option<RunFrame>, StoreError> {
        loop {
            if let Some(reading) = &mut self.reading
                && let Some(frame) = reading.next().await?
            {
                return Ok(Some(frame));
            }
            self.reading = None;
            let Some(run) = self.next_run().await? else { return Ok(None) };
            let Some(view) = self.engine.view(&self.tenant, &run).await? else { return Ok(None) };
            if !may_see(&view.agent) {
                return Ok(None);
            }
            self.read(&view, 0).await?;
        }
    }

    async fn read(&mut self, view: &RunView, after: u64) -> Result<(), StoreError> {
        let reader = LogReader::open(&self.engine, &self.tenant, view, after).await?;
        self.reading = Some(reader.follow(&self.engine));
        self.last = Some(view.id.clone());
        Ok(())
    }

    /// Waits for a run after the last one. None if the thread or the engine is gone.
    async fn next_run(&mut self) -> Result<Option<RunId>, StoreError> {
        loop {
            if let Some(run) = self.upcoming.pop_front() {
                return Ok(Some(run));
            }
            let store = self.engine.store();
            match store.runs_of_thread(&self.tenant, &self.thread, self.last.as_ref(), RUNS_MAX).await {
                Ok(runs) => self.upcoming = runs.into(),
                Err(StoreError::NotFound) => return Ok(None),
                Err(refused) => return Err(refused),
            }
            if self.upcoming.is_empty() {
                match tokio::time::timeout(THREAD_RECHECK, self.feed.changed()).await {
                    Ok(true) | Err(_) => {}
                    Ok(false) => return Ok(None),
                }
            }
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
