//! The name of a commit, derived from the events that it stores.

use serde::{Deserialize, Serialize};

use crate::event::{Event, Fact, Message};
use crate::phase::Phase;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkpoint {
    UserMessage,
    AssistantTurn,
    ToolResults,
    ReplayResults,
    Waiting,
    RunFinished,
}

/// A commit is named after the furthest boundary that its events reach.
#[must_use]
pub fn from_events(events: &[Event]) -> Checkpoint {
    from_event_iter(events.iter())
}

/// Like [`from_events`], for an iterator of events.
#[must_use]
pub fn from_event_iter<'e>(events: impl DoubleEndedIterator<Item = &'e Event> + Clone) -> Checkpoint {
    let reached = events.clone().filter_map(|event| boundary(&event.fact)).max();
    let ends_waiting = events.rev().find_map(|event| waits(&event.fact));
    match (reached, ends_waiting) {
        (Some(Checkpoint::RunFinished), _) => Checkpoint::RunFinished,
        (_, Some(true)) => Checkpoint::Waiting,
        (Some(other), _) => other,
        // Retries, recoveries and hook answers before a model call belong to the turn they prepare.
        (None, _) => Checkpoint::AssistantTurn,
    }
}

const fn boundary(fact: &Fact) -> Option<Checkpoint> {
    match fact {
        Fact::RunQueued(_)
        | Fact::PhaseAnswered { phase: Phase::RunStart, .. }
        | Fact::RunStarted { .. }
        | Fact::MessageAdded(Message::User { .. }) => Some(Checkpoint::UserMessage),
        Fact::MessageAdded(
            Message::Assistant { .. }
            | Message::Correction { .. }
            | Message::CallsDropped { .. }
            | Message::Interruption { .. },
        )
        | Fact::ToolRequested { .. } => Some(Checkpoint::AssistantTurn),
        Fact::ExecutionSucceeded { .. }
        | Fact::ExecutionFailed { .. }
        | Fact::ToolCancelled { .. }
        | Fact::MessageAdded(Message::Tool { .. } | Message::Note { .. })
        | Fact::ChildEnded { .. } => Some(Checkpoint::ToolResults),
        Fact::ToolApproved { .. }
        | Fact::ToolDenied { .. }
        | Fact::ToolResumed { .. }
        | Fact::ApprovalVoided { .. } => Some(Checkpoint::ReplayResults),
        Fact::RunEnded { .. } => Some(Checkpoint::RunFinished),
        Fact::RunWaiting { .. }
        | Fact::RunResumed {}
        | Fact::RunInterrupting { .. }
        | Fact::RunEnding { .. }
        | Fact::RunRecovered { .. }
        | Fact::StepStarted { .. }
        | Fact::StepEnded { .. }
        | Fact::ModelRetrying { .. }
        | Fact::PhaseAnswered { .. }
        | Fact::StateChanged { .. }
        | Fact::ApprovalRequested(_)
        | Fact::ToolSuspended(_)
        | Fact::ExecutionStarted { .. }
        | Fact::ChildStarted { .. } => None,
    }
}

/// Whether the fact starts or ends the run's waiting, if it does either.
fn waits(fact: &Fact) -> Option<bool> {
    if matches!(fact, Fact::RunWaiting { .. }) {
        return Some(true);
    }
    matches!(fact, Fact::RunResumed {}).then_some(false)
}
