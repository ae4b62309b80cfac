//! Decides what follows from an input: facts, or a rejection that changed nothing.

mod children;
mod deadlines;
mod decisions;
mod draft;
mod ending;
mod gate;
mod inference;
mod recovery;
mod results;
mod turn;

pub(crate) use turn::wants_after_hooks;

use alloc::vec::Vec;

use crate::control::Control;
use crate::event::{Event, Fact, RunRequest};
use crate::id::SuspensionId;
use crate::input::Input;
use crate::rejection::Rejection;
use crate::revision::Revision;
use crate::time::Timestamp;

use draft::Draft;

/// The result of an input. The events count once they are stored and applied; the outcome is returned to the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    pub events: Vec<Event>,
    /// The state after these events, so that a driver need not apply them again.
    pub control: Control,
    pub outcome: InputOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputOutcome {
    Done,
    /// The input repeats an earlier one. Nothing changed.
    Duplicate,
    /// The approval was for another definition of the tool: it is void, and the call will be held again.
    ToolChanged {
        voided: SuspensionId,
    },
}

/// The first event of a run. The code that accepts the user's message must limit its size and depth
/// ([`VALUE_DEPTH_MAX`](crate::json_value::VALUE_DEPTH_MAX)).
#[must_use]
pub fn queue(order: RunRequest, now: Timestamp) -> Event {
    Event { seq: 1, at: now, step: None, fact: Fact::RunQueued(order) }
}

pub(crate) fn decide(
    revision: &Revision,
    control: &Control,
    input: &Input,
    now: Timestamp,
    interrupted: bool,
) -> Result<Decided, Rejection> {
    if let Some(termination) = control.ended() {
        return Err(Rejection::RunEnded(termination.clone()));
    }
    let mut draft = Draft { interrupted, ..Draft::new(revision, control, now) };
    let outcome = match input {
        Input::Start { after } => draft.start(after.as_ref())?,
        Input::LeaseAcquired { epoch, doubt_at } => draft.lease_acquired(*epoch, *doubt_at)?,
        Input::InboxDrained => draft.inbox_drained()?,
        Input::PhaseAnswered { phase, hooks } => draft.phase_answered(*phase, hooks)?,
        Input::ModelAnswered(answered) => draft.model_answered(answered)?,
        Input::ModelFailed { step, attempt, failure } => draft.model_failed(*step, *attempt, failure)?,
        Input::Gated(gated) => draft.gated(gated)?,
        Input::ToolReturned { step, call, attempt, outcome } => {
            draft.tool_returned(*step, call, *attempt, outcome)?
        }
        Input::AfterTools { heard } => draft.after_tools(heard)?,
        Input::Decide(decision) => draft.decision(decision)?,
        Input::ChildEnded(ended) => draft.child_ended(ended)?,
        Input::Interrupt { cause } => draft.interrupt(cause)?,
        Input::DeadlineReached => draft.deadline_reached()?,
    };
    if interrupted {
        draft.announce_status()?
    } else {
        draft.advance()?
    }
    Ok(Decided { events: draft.events, control: draft.control, outcome })
}
