//! What one pass says to the machine and will store in one commit.

use std::sync::Arc;

use machine::delivery::Delivery;
use machine::event::{Event, Order};
use machine::inbox::{Item, Ticket};
use machine::rows::{Heard, Rows};
use machine::{
    Answer, Control, Impossible, Input, Rejection, Revision, Run, Timestamp, checkpoint, fold, queue,
};

use crate::store::{Append, Birth, Committed};

#[derive(Debug)]
pub(crate) struct Batch {
    /// The state at the beginning of the commit; none where the run begins with it.
    before: Option<Arc<Control>>,
    pub(crate) events: Vec<Event>,
    pub(crate) consumed: Vec<Ticket>,
    pub(crate) accepted: Vec<Item>,
    rows: Rows,
}

impl Batch {
    pub(crate) fn after(before: Arc<Control>) -> Self {
        Self {
            before: Some(before),
            events: Vec::new(),
            consumed: Vec::new(),
            accepted: Vec::new(),
            rows: Rows::default(),
        }
    }

    /// A run that begins here.
    pub(crate) fn born(
        order: Order,
        revision: Arc<Revision>,
        now: Timestamp,
    ) -> Result<(Self, Run), Impossible> {
        let first = queue(order, now);
        let control = fold([&first])?;
        let batch = Self {
            before: None,
            events: vec![first],
            consumed: Vec::new(),
            accepted: Vec::new(),
            rows: Rows::default(),
        };
        Ok((batch, Run::new(revision, control)))
    }

    pub(crate) const fn before(&self) -> Option<&Arc<Control>> {
        self.before.as_ref()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.events.is_empty() && self.consumed.is_empty() && self.accepted.is_empty()
    }

    /// Decides, and applies to the worker's copy. A rejection changed nothing.
    pub(crate) fn say(
        &mut self,
        run: &mut Run,
        input: &Input,
        ticket: Option<Ticket>,
        now: Timestamp,
    ) -> Result<Answer, Rejection> {
        let decided = run.decide(input, now)?;
        for event in &decided.events {
            run.apply(event)?;
        }
        let heard = Heard { count: self.consumed.len(), ticket };
        self.rows.hear(self.before.as_deref(), &decided.events, heard);
        self.events.extend(decided.events);
        Ok(decided.answer)
    }

    pub(crate) fn into_append(
        self,
        control: Arc<Control>,
        spawn: Vec<Birth>,
        deliver: Vec<Delivery>,
    ) -> Append {
        Append {
            expected_seq: self.before.as_ref().map_or(0, |before| before.seq),
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

/// The events of one commit, the last one with the commit's name.
pub(crate) fn committed(events: &[Arc<Event>]) -> Vec<Committed> {
    let last = events.len().saturating_sub(1);
    let name = checkpoint::name_of(events.iter().map(|event| &**event));
    events
        .iter()
        .zip(0..)
        .map(|(event, index)| Committed { event: event.clone(), checkpoint: (index == last).then_some(name) })
        .collect()
}
