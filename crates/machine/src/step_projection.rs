//! Derives the state of a step from the states of its calls.

use crate::call::Call;
use crate::control::Control;
use crate::policy::Execution;
use crate::status::{CallStatus, WaitingOn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepProjection {
    /// A call runs, resumes, or is new and next in line.
    Executing,
    /// Nothing executes, and a call is held.
    Waiting,
    Settled,
}

/// Computed again at every transition. In sequential mode a new call is next in line only when every call before it
/// has settled.
#[must_use]
pub fn project_calls(statuses: impl IntoIterator<Item = CallStatus>, execution: Execution) -> StepProjection {
    let mut held = false;
    let mut all_before_settled = true;
    for status in statuses {
        match status {
            CallStatus::Running | CallStatus::Resuming => return StepProjection::Executing,
            CallStatus::New if execution == Execution::Parallel || all_before_settled => {
                return StepProjection::Executing;
            }
            CallStatus::New => {}
            CallStatus::Suspended => held = true,
            CallStatus::Succeeded | CallStatus::Failed | CallStatus::Cancelled => {}
        }
        all_before_settled &= status.terminal();
    }
    if held { StepProjection::Waiting } else { StepProjection::Settled }
}

/// Projection of the last step.
#[must_use]
pub fn project_step(control: &Control) -> StepProjection {
    project_calls(control.step_calls().map(Call::status), control.policy.execution)
}

/// Projection of all open calls, including those that `eager` left open in earlier steps. Each step is its own
/// sequence.
#[must_use]
pub fn project_run(control: &Control) -> StepProjection {
    let mut held = false;
    let mut rest = control.calls.as_slice();
    while let Some(first) = rest.first() {
        let end = rest.iter().position(|call| call.step != first.step).unwrap_or(rest.len());
        let (step, later) = rest.split_at(end);
        match project_calls(step.iter().map(Call::status), control.policy.execution) {
            StepProjection::Executing => return StepProjection::Executing,
            StepProjection::Waiting => held = true,
            StepProjection::Settled => {}
        }
        rest = later;
    }
    if held { StepProjection::Waiting } else { StepProjection::Settled }
}

/// Whether the call may pass the gate now.
#[must_use]
pub fn is_at_gate(control: &Control, call: &Call) -> bool {
    match call.status() {
        CallStatus::Resuming => true,
        CallStatus::New => {
            control.policy.execution == Execution::Parallel
                || control
                    .calls
                    .iter()
                    .take_while(|before| before.id != call.id)
                    .all(|before| before.step != call.step || before.settled())
        }
        // The attempt was lost with its worker. The live configuration is checked again before another attempt.
        CallStatus::Running => call.lost() && !call.may_have_written(),
        CallStatus::Suspended | CallStatus::Succeeded | CallStatus::Failed | CallStatus::Cancelled => false,
    }
}

/// A person takes precedence over a tool, because an approver may be looking at the inbox.
#[must_use]
pub fn waiting_on(control: &Control) -> WaitingOn {
    let person = control
        .calls
        .iter()
        .filter_map(Call::suspension)
        .any(|suspension| suspension.held.kind().needs_person());
    if person { WaitingOn::Person } else { WaitingOn::Tool }
}
