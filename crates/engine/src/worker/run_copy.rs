//! The worker's copy of its run: what is stored, what the current pass adds to it, and the inbox.

use std::sync::Arc;

use machine::delivery::Delivery;
use machine::event::{Event, RunRequest};
use machine::id::MessageId;
use machine::inbox::{self, Item, Ticket};
use machine::projection_rows::StateRow;
use machine::{
    Control, Deadline, Effect, ImpossibleEvent, Input, InputOutcome, Rejection, Revision, Run, Timestamp,
    fold, queue,
};

use super::run_metrics::RunMetrics;
use super::{Batch, committed};
use crate::feed::RunFeed;
use crate::history::History;
use crate::node::Node;
use crate::store::{Append, Loaded, NewChildRun};

pub(crate) struct RunCopy {
    /// Within a pass it runs ahead of the store; if the store refuses, it is loaded again.
    run: Run<Arc<Control>>,
    pub(super) committed: Arc<Control>,
    /// Every item that was accepted up to `version` and is not processed.
    pub(super) inbox: Vec<(Ticket, Item)>,
    pub(super) version: u64,
    pub(super) holds_thread: bool,
    pub(super) begins_after: Option<MessageId>,
    /// The transcript, if it was read. It contains every stored event.
    pub(super) history: Option<History>,
    metrics: RunMetrics,
}

/// What is needed once the store has answered a commit.
pub(crate) struct SentCommit {
    control: Arc<Control>,
    pub(super) events: Vec<Arc<Event>>,
    consumed: Vec<Ticket>,
    pub(super) state: Vec<StateRow>,
    pub(super) changes_suspensions: bool,
}

impl RunCopy {
    pub(super) fn loaded(revision: Arc<Revision>, loaded: Loaded, history: Option<History>) -> Self {
        let Loaded { control, inbox, version, holds_thread, begins_after } = loaded;
        let control = Arc::new(control);
        Self {
            committed: control.clone(),
            run: Run::new(revision, control),
            inbox,
            version,
            holds_thread,
            begins_after,
            history,
            metrics: RunMetrics::default(),
        }
    }

    /// A run that does not exist yet, and the batch that creates it.
    pub(crate) fn for_new_run(
        order: RunRequest,
        revision: Arc<Revision>,
        now: Timestamp,
    ) -> Result<(Batch, Self), ImpossibleEvent> {
        let first = queue(order, now);
        let control = fold([&first])?;
        let loaded =
            Loaded { control, inbox: Vec::new(), version: 0, holds_thread: true, begins_after: None };
        Ok((Batch::for_new_run(first), Self::loaded(revision, loaded, None)))
    }

    /// The thread has no earlier message, so there is no history to read.
    pub(crate) fn starts_thread(&mut self) {
        self.history = Some(History::default());
    }

    pub(crate) fn control(&self) -> &Control {
        &self.run.control
    }

    pub(super) fn wanted(&self) -> std::collections::BTreeSet<Effect> {
        self.run.wanted()
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        self.run.next_deadline()
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline.at <= now)
    }

    pub(super) fn begin_batch(&self) -> Batch {
        Batch::after(self.committed.clone())
    }

    /// Decides an input and continues from the state after its events. A rejection changes nothing.
    pub(crate) fn apply(
        &mut self,
        batch: &mut Batch,
        input: &Input,
        ticket: Option<Ticket>,
        now: Timestamp,
    ) -> Result<InputOutcome, Rejection> {
        let decided = self.run.decide(input, now)?;
        Ok(batch.take(&mut self.run, decided, ticket))
    }

    /// The same if an accepted interrupt follows it.
    pub(super) fn apply_before_interrupt(
        &mut self,
        batch: &mut Batch,
        input: &Input,
        ticket: Option<Ticket>,
        now: Timestamp,
    ) -> Result<InputOutcome, Rejection> {
        let decided = self.run.decide_before_interrupt(input, now)?;
        Ok(batch.take(&mut self.run, decided, ticket))
    }

    /// The inbox without what the batch has processed.
    pub(super) fn unprocessed<'c>(
        &'c self,
        batch: &'c Batch,
    ) -> impl Iterator<Item = &'c (Ticket, Item)> + Clone {
        self.inbox.iter().filter(|(ticket, _)| !batch.consumed.contains(ticket))
    }

    /// Whether the inbox has rows that can be processed at this moment.
    pub(super) fn has_processable_items(&self, include_deferred: bool) -> bool {
        let items = self.inbox.iter().map(|(_, item)| item);
        !self.inbox.is_empty() && !inbox::drain(self.control(), items, include_deferred).is_empty()
    }

    pub(crate) fn prepare(
        &mut self,
        batch: Batch,
        spawn: Vec<NewChildRun>,
        deliver: Vec<Delivery>,
    ) -> (Append, SentCommit) {
        let append = batch.into_append(self.version, self.run.control.clone(), spawn, deliver);
        self.metrics.before_commit(&append, &self.inbox);
        let sent = SentCommit {
            control: append.control.clone(),
            events: append.events.clone(),
            consumed: append.consumed.clone(),
            state: append.rows.state.clone(),
            changes_suspensions: append.rows.changes_suspensions(),
        };
        (append, sent)
    }

    /// Called after the commit; only now are its events published.
    pub(crate) fn stored(&mut self, sent: &SentCommit, version: u64, node: &Node, feed: &RunFeed) {
        self.committed = sent.control.clone();
        self.version = version;
        self.inbox.retain(|(ticket, _)| !sent.consumed.contains(ticket));
        if let Some(history) = &mut self.history {
            sent.events.iter().for_each(|event| history.push(event));
        }
        self.metrics.after_commit(&node.counters, &sent.events, &self.run.control, node.clock.now());
        if !sent.events.is_empty() {
            feed.publish(committed(&sent.events));
        }
    }

    /// Replaces the copy by what is stored.
    pub(super) fn adopt(&mut self, loaded: Loaded) {
        let Loaded { control, inbox, version, holds_thread, begins_after } = loaded;
        self.committed = Arc::new(control);
        self.discard_pass();
        self.set_inbox(inbox, version);
        self.holds_thread = holds_thread;
        self.begins_after = begins_after;
    }

    /// The log has not advanced; only the inbox and the run's place in its thread may have changed.
    pub(super) fn adopt_inbox(&mut self, loaded: Loaded) {
        self.set_inbox(loaded.inbox, loaded.version);
        self.holds_thread = loaded.holds_thread;
        self.begins_after = loaded.begins_after;
    }

    fn set_inbox(&mut self, inbox: Vec<(Ticket, Item)>, version: u64) {
        self.inbox = inbox;
        self.version = version;
    }

    /// Starts again from the last known stored state.
    pub(super) fn discard_pass(&mut self) {
        self.run.control = self.committed.clone();
    }
}
