//! The fold: the only place where control state changes. An impossible fact is an error, never skipped.

mod calls;
mod runs;
mod steps;

use alloc::string::String;
use core::fmt;

use crate::call::{Attempt, CallState};
use crate::control::Control;
use crate::event::{Event, Fact};
use crate::status::RunStatus;

use calls::Resumption;
pub(crate) use steps::consecutive_errors;

/// A stored fact that contradicts earlier ones. The run must be halted and the error reported: its log cannot be
/// trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpossibleEvent {
    pub seq: u64,
    pub why: String,
}

impl fmt::Display for ImpossibleEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} is impossible: {}", self.seq, self.why)
    }
}

/// The state after these events, starting from nothing.
pub fn fold<'e>(events: impl IntoIterator<Item = &'e Event>) -> Result<Control, ImpossibleEvent> {
    let mut events = events.into_iter();
    let first = events.next().ok_or_else(|| impossible(0, "the log is empty"))?;
    let mut control = initial_control(first)?;
    for event in events {
        apply(&mut control, event)?;
    }
    Ok(control)
}

/// The initial state of a run.
pub fn initial_control(event: &Event) -> Result<Control, ImpossibleEvent> {
    if let Fact::RunQueued(order) = &event.fact
        && event.seq == 1
    {
        return Ok(runs::queued(order, event.at));
    }
    Err(impossible(event.seq, "a log begins with run.queued as event 1"))
}

pub fn apply(control: &mut Control, event: &Event) -> Result<(), ImpossibleEvent> {
    if event.seq != control.seq + 1 {
        return Err(impossible(event.seq, "the numbers have a gap"));
    }
    if event.at < control.at {
        return Err(impossible(event.seq, "time runs backwards"));
    }
    if control.status.ended() {
        return Err(impossible(event.seq, "the run has ended"));
    }
    change(control, event).map_err(|why| impossible(event.seq, &why))?;
    control.seq = event.seq;
    control.at = event.at;
    Ok(())
}

/// Dispatches each fact to the code that applies it.
fn change(control: &mut Control, event: &Event) -> Result<(), String> {
    let (seq, at) = (event.seq, event.at);
    match &event.fact {
        Fact::RunQueued(_) => Err("a run is queued once".into()),
        Fact::RunStarted { after } => runs::start(control, after.as_ref(), at),
        Fact::RunWaiting { on, .. } => runs::wait(control, *on, at),
        Fact::RunResumed {} => runs::set_status(control, RunStatus::Running, at),
        Fact::RunInterrupting { .. } => runs::set_status(control, RunStatus::Interrupting, at),
        Fact::RunEnding { termination } => runs::begin_ending(control, termination),
        Fact::RunEnded { termination, output, .. } => runs::end(control, termination, *output, at),
        Fact::RunRecovered { lost, lost_model_attempt, doubt_at, .. } => {
            runs::recover(control, lost, *lost_model_attempt, *doubt_at)
        }
        Fact::StepStarted { step, .. } => steps::start(control, *step, at),
        Fact::StepEnded { step, .. } => steps::end(control, *step),
        Fact::MessageAdded(message) => steps::add_message(control, message, seq),
        Fact::ModelRetrying { attempt, at: not_before, empty_answer, .. } => {
            steps::retry_model(control, *attempt, *not_before, *empty_answer)
        }
        Fact::PhaseAnswered { phase, call_id, actions, .. } => {
            steps::answer_phase(control, *phase, call_id.as_ref(), actions, seq)
        }
        Fact::StateChanged { .. } => Ok(()),
        Fact::ToolRequested { call_id, tool, arguments } => {
            calls::request(control, call_id, tool, arguments.digest(), seq)
        }
        Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) => calls::open(control, opened, seq),
        Fact::ApprovalVoided { call_id, .. } => calls::void(control, call_id),
        Fact::ToolApproved { call_id, approval_id, arguments, .. } => {
            calls::approve(control, call_id, approval_id, arguments.as_ref(), seq)
        }
        Fact::ToolResumed { call_id, mode, arguments, late_attempt, .. } => {
            let resumption =
                Resumption { mode: *mode, arguments: arguments.as_ref(), late_attempt: *late_attempt };
            calls::resume(control, call_id, &resumption, seq)
        }
        Fact::ExecutionStarted { call_id, attempt, class, not_before, expires, .. } => {
            let attempt = Attempt { number: *attempt, not_before: *not_before, lost: None };
            calls::start_attempt(control, call_id, attempt, *class, *expires)
        }
        Fact::ExecutionSucceeded { call_id, .. } => {
            calls::settle(control, call_id, CallState::Succeeded { seq })
        }
        Fact::ExecutionFailed { call_id, .. } => calls::settle(control, call_id, CallState::Failed { seq }),
        Fact::ToolDenied { call_id, .. } | Fact::ToolCancelled { call_id, .. } => {
            calls::settle(control, call_id, CallState::Cancelled { seq })
        }
        Fact::ChildStarted { call_id, grant_tokens, grant_descendants, .. } => {
            calls::grant(control, call_id, *grant_tokens, *grant_descendants)
        }
        Fact::ChildEnded { call_id, usage, descendants, .. } => {
            control.usage = control.usage.plus(*usage);
            calls::return_descendants(control, call_id, *descendants)
        }
    }
}

fn impossible(seq: u64, why: &str) -> ImpossibleEvent {
    ImpossibleEvent { seq, why: why.into() }
}
