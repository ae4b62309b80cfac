//! What a worker records for the metrics: duration of steps, time from decision to start, how runs end.

use std::collections::BTreeMap;
use std::sync::Arc;

use machine::event::{Event, Fact};
use machine::id::CallId;
use machine::inbox::{Item, Ticket};
use machine::projection_rows::PublicRunStatus;
use machine::{Control, Timestamp};

use crate::metrics::{EngineCounters, ms_between};
use crate::store::Append;

#[derive(Default)]
pub(super) struct RunMetrics {
    /// The current step, if it began under this worker.
    step: Option<(u32, Timestamp)>,
    /// Calls that were decided but have not started, with the time of the decision.
    decided: BTreeMap<CallId, Timestamp>,
}

impl RunMetrics {
    /// Called before the commit: afterwards the consumed items are no longer known.
    pub(super) fn before_commit(&mut self, append: &Append, inbox: &[(Ticket, Item)]) {
        let consumed = inbox.iter().filter(|(ticket, _)| append.consumed.contains(ticket));
        let heard = consumed.map(|(_, item)| item).chain(&append.accepted);
        for item in heard {
            // An early decision waited for its call, not the other way round.
            if let Item::Decision(decision) = item {
                self.decided.insert(decision.call.clone(), decision.accepted_at);
            }
        }
    }

    pub(super) fn after_commit(
        &mut self,
        counters: &EngineCounters,
        events: &[Arc<Event>],
        control: &Control,
        now: Timestamp,
    ) {
        for event in events {
            if let Fact::StepStarted { step, .. } = event.fact {
                self.step = Some((step, event.at));
            } else if let Fact::StepEnded { step: ended, .. } = event.fact
                && let Some((_, began)) = self.step.take_if(|(step, _)| *step == ended)
            {
                counters.step_ms.record(ms_between(began, event.at));
            } else if let Fact::ExecutionStarted { call_id, .. } = &event.fact
                && let Some(decided) = self.decided.remove(call_id)
            {
                counters.decision_to_start_ms.record(ms_between(decided, now));
            } else if matches!(event.fact, Fact::RunEnded { .. }) {
                counters.record_end(PublicRunStatus::from_status(&control.status));
            }
        }
        self.decided.retain(|id, _| control.call(id).is_some_and(|call| !call.settled()));
    }
}
