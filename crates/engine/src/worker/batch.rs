//! What one pass applies to the machine and will store in one commit.

use std::sync::Arc;

use machine::delivery::Delivery;
use machine::event::Event;
use machine::inbox::{self, Item, Ticket};
use machine::projection_rows::{InboxPosition, ProjectionRows};
use machine::{Control, Decided, InputOutcome, Run, checkpoint};

use crate::store::{Append, CommittedEvent, NewChildRun};

#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The state before the commit; None if the commit creates the run.
    before: Option<Arc<Control>>,
    pub(crate) events: Vec<Event>,
    pub(crate) consumed: Vec<Ticket>,
    pub(crate) accepted: Vec<Item>,
    rows: ProjectionRows,
}

impl Batch {
    pub(super) fn after(before: Arc<Control>) -> Self {
        Self { before: Some(before), ..Self::default() }
    }

    /// A batch that creates a run with this event.
    pub(super) fn for_new_run(first: Event) -> Self {
        let mut rows = ProjectionRows::default();
        rows.add_events(None, std::slice::from_ref(&first), InboxPosition::default());
        Self { events: vec![first], rows, ..Self::default() }
    }

    pub(crate) const fn before(&self) -> Option<&Arc<Control>> {
        self.before.as_ref()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.events.is_empty() && self.consumed.is_empty() && self.accepted.is_empty()
    }

    /// Adds what was decided, and moves the run to the state after it.
    pub(super) fn take(
        &mut self,
        run: &mut Run<Arc<Control>>,
        decided: Decided,
        ticket: Option<Ticket>,
    ) -> InputOutcome {
        let Decided { events, control, outcome } = decided;
        if !events.is_empty() {
            run.control = Arc::new(control);
            let heard = InboxPosition { count: self.consumed.len(), ticket };
            self.rows.add_events(self.before.as_deref(), &events, heard);
            self.events.extend(events);
        }
        outcome
    }

    /// Whether the batch closes a suspension without having processed the accepted answer for it in the inbox.
    pub(crate) fn overtakes(&self, inbox: &[(Ticket, Item)]) -> bool {
        let overtakes = |before: &Arc<Control>| {
            inbox::overrides_accepted_answer(before, inbox, &self.rows.closed, &self.consumed)
        };
        self.before.as_ref().is_some_and(overtakes)
    }

    /// `version` is the run's version as the worker has seen it.
    pub(crate) fn into_append(
        self,
        version: u64,
        control: Arc<Control>,
        spawn: Vec<NewChildRun>,
        deliver: Vec<Delivery>,
    ) -> Append {
        Append {
            expected_seq: self.before.as_ref().map_or(0, |before| before.seq),
            expected_version: version,
            events: self.events.into_iter().map(Arc::new).collect(),
            control,
            consumed: self.consumed,
            accepted: self.accepted,
            spawn,
            deliver,
            rows: self.rows,
        }
    }
}

/// The events of one commit, the last one with the commit's checkpoint.
pub(crate) fn committed(events: &[Arc<Event>]) -> Vec<CommittedEvent> {
    let last = events.len().saturating_sub(1);
    let name = checkpoint::from_event_iter(events.iter().map(|event| &**event));
    events
        .iter()
        .zip(0..)
        .map(|(event, index)| CommittedEvent {
            event: event.clone(),
            checkpoint: (index == last).then_some(name),
        })
        .collect()
}
