//! The questions that a fact answers about itself. Each match here names every fact, so a new fact has to answer each
//! question once. Readers of a log ask, and do not list the facts that they ignore.

use alloc::sync::Arc;
use serde_json::Value;

use super::{CallError, CancelReason, Fact, Message, OpenedSuspension};
use crate::id::{CallId, DecisionId, Principal, SuspensionId, ToolName};
use crate::json::Json;
use crate::model_text::ChangedBy;
use crate::projection_rows::ApprovalStatus;
use crate::status::CallStatus;
use crate::tool::Arguments;

/// What a fact belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'f> {
    /// The run as a whole, outside its steps.
    Run,
    Step(u32),
    Call(&'f CallId),
    /// The step that is open when the fact is recorded, or the run if none is open.
    OpenStep,
}

/// How a fact changes the status of its call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CallChange<'f> {
    Requested { tool: &'f ToolName, arguments: &'f Arguments },
    Suspended(&'f OpenedSuspension),
    Resumed,
    Started { attempt: u32 },
    Settled(Settlement<'f>),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Settlement<'f> {
    Succeeded { result: &'f Json, warning: Option<&'f str> },
    Failed { error: &'f CallError, outcome_unknown: bool },
    Denied { by: &'f Principal, reason: Option<&'f str> },
    Cancelled { reason: CancelReason, text: Option<&'f str>, outcome_unknown: bool },
}

/// How a fact closes a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing<'f> {
    pub id: &'f SuspensionId,
    pub status: ApprovalStatus,
    /// None if no person decided it.
    pub by: Option<&'f Principal>,
    pub reason: Option<&'f str>,
    pub note: Option<&'f str>,
}

/// Where the arguments in a fact come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentsFrom {
    Model,
    /// Shown to the person who is asked.
    Suspension,
    ChangedBy(ChangedBy),
}

impl CallChange<'_> {
    /// The status of the call after the fact.
    #[must_use]
    pub const fn status(self) -> CallStatus {
        match self {
            Self::Requested { .. } => CallStatus::New,
            Self::Suspended(_) => CallStatus::Suspended,
            Self::Resumed => CallStatus::Resuming,
            Self::Started { .. } => CallStatus::Running,
            Self::Settled(settlement) => settlement.status(),
        }
    }
}

impl Settlement<'_> {
    #[must_use]
    pub const fn status(self) -> CallStatus {
        match self {
            Self::Succeeded { .. } => CallStatus::Succeeded,
            Self::Failed { .. } => CallStatus::Failed,
            Self::Denied { .. } | Self::Cancelled { .. } => CallStatus::Cancelled,
        }
    }
}

impl Fact {
    /// The event's name in the log and on the wire.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RunQueued(_) => "run.queued",
            Self::RunStarted { .. } => "run.started",
            Self::RunWaiting { .. } => "run.waiting",
            Self::RunResumed { .. } => "run.resumed",
            Self::RunInterrupting { .. } => "run.interrupting",
            Self::RunEnding { .. } => "run.ending",
            Self::RunEnded { .. } => "run.ended",
            Self::RunRecovered { .. } => "run.recovered",
            Self::StepStarted { .. } => "step.started",
            Self::StepEnded { .. } => "step.ended",
            Self::MessageAdded(_) => "message.added",
            Self::ModelRetrying { .. } => "model.retrying",
            Self::PhaseAnswered { .. } => "phase.answered",
            Self::StateChanged { .. } => "state.changed",
            Self::ToolRequested { .. } => "tool.requested",
            Self::ApprovalRequested(_) => "tool.approval_requested",
            Self::ApprovalVoided { .. } => "tool.approval_voided",
            Self::ToolApproved { .. } => "tool.approved",
            Self::ToolDenied { .. } => "tool.denied",
            Self::ToolSuspended(_) => "tool.suspended",
            Self::ToolResumed { .. } => "tool.resumed",
            Self::ExecutionStarted { .. } => "tool.execution_started",
            Self::ExecutionSucceeded { .. } => "tool.execution_succeeded",
            Self::ExecutionFailed { .. } => "tool.execution_failed",
            Self::ToolCancelled { .. } => "tool.cancelled",
            Self::ChildStarted { .. } => "child.started",
            Self::ChildEnded { .. } => "child.ended",
        }
    }

    #[must_use]
    pub const fn subject(&self) -> Subject<'_> {
        match self {
            Self::RunQueued(_)
            | Self::RunStarted { .. }
            | Self::RunInterrupting { .. }
            | Self::RunEnding { .. }
            | Self::RunEnded { .. } => Subject::Run,
            Self::StepStarted { step, .. } | Self::StepEnded { step, .. } => Subject::Step(*step),
            Self::ApprovalRequested(opened) | Self::ToolSuspended(opened) => Subject::Call(&opened.call_id),
            Self::ToolRequested { call_id, .. }
            | Self::ApprovalVoided { call_id, .. }
            | Self::ToolApproved { call_id, .. }
            | Self::ToolDenied { call_id, .. }
            | Self::ToolResumed { call_id, .. }
            | Self::ExecutionStarted { call_id, .. }
            | Self::ExecutionSucceeded { call_id, .. }
            | Self::ExecutionFailed { call_id, .. }
            | Self::ToolCancelled { call_id, .. }
            | Self::ChildStarted { call_id, .. }
            | Self::ChildEnded { call_id, .. }
            | Self::PhaseAnswered { call_id: Some(call_id), .. }
            | Self::MessageAdded(Message::Tool { call_id, .. } | Message::Note { call_id, .. }) => {
                Subject::Call(call_id)
            }
            Self::RunWaiting { .. }
            | Self::RunResumed {}
            | Self::RunRecovered { .. }
            | Self::MessageAdded(
                Message::User { .. }
                | Message::Assistant { .. }
                | Message::Correction { .. }
                | Message::CallsDropped { .. }
                | Message::Interruption { .. },
            )
            | Self::ModelRetrying { .. }
            | Self::PhaseAnswered { call_id: None, .. }
            | Self::StateChanged { .. } => Subject::OpenStep,
        }
    }

    /// The call to which something happened. A message and a plugin's answer refer to a call, but nothing happens to it.
    #[must_use]
    pub const fn call_id(&self) -> Option<&CallId> {
        if matches!(self, Self::MessageAdded(_) | Self::PhaseAnswered { .. }) {
            return None;
        }
        match self.subject() {
            Subject::Call(call_id) => Some(call_id),
            Subject::Run | Subject::Step(_) | Subject::OpenStep => None,
        }
    }

    #[must_use]
    pub fn call_change(&self) -> Option<CallChange<'_>> {
        let settled = match self {
            Self::ToolRequested { tool, arguments, .. } => {
                return Some(CallChange::Requested { tool, arguments });
            }
            Self::ApprovalRequested(opened) | Self::ToolSuspended(opened) => {
                return Some(CallChange::Suspended(opened));
            }
            Self::ApprovalVoided { .. } | Self::ToolApproved { .. } | Self::ToolResumed { .. } => {
                return Some(CallChange::Resumed);
            }
            Self::ExecutionStarted { attempt, .. } => return Some(CallChange::Started { attempt: *attempt }),
            Self::ExecutionSucceeded { result, warning, .. } => {
                Settlement::Succeeded { result, warning: warning.as_deref() }
            }
            Self::ExecutionFailed { error, outcome_unknown, .. } => {
                Settlement::Failed { error, outcome_unknown: *outcome_unknown }
            }
            Self::ToolDenied { by, reason, .. } => Settlement::Denied { by, reason: reason.as_deref() },
            Self::ToolCancelled { reason, text, outcome_unknown, .. } => {
                let (reason, outcome_unknown) = (*reason, *outcome_unknown);
                Settlement::Cancelled { reason, text: text.as_deref(), outcome_unknown }
            }
            Self::RunQueued(_)
            | Self::RunStarted { .. }
            | Self::RunWaiting { .. }
            | Self::RunResumed {}
            | Self::RunInterrupting { .. }
            | Self::RunEnding { .. }
            | Self::RunEnded { .. }
            | Self::RunRecovered { .. }
            | Self::StepStarted { .. }
            | Self::StepEnded { .. }
            | Self::MessageAdded(_)
            | Self::ModelRetrying { .. }
            | Self::PhaseAnswered { .. }
            | Self::StateChanged { .. }
            | Self::ChildStarted { .. }
            | Self::ChildEnded { .. } => return None,
        };
        Some(CallChange::Settled(settled))
    }

    #[must_use]
    pub fn opened_suspension(&self) -> Option<&OpenedSuspension> {
        match self.call_change()? {
            CallChange::Suspended(opened) => Some(opened),
            CallChange::Requested { .. }
            | CallChange::Resumed
            | CallChange::Started { .. }
            | CallChange::Settled(_) => None,
        }
    }

    #[must_use]
    pub fn settlement(&self) -> Option<Settlement<'_>> {
        match self.call_change()? {
            CallChange::Settled(settlement) => Some(settlement),
            CallChange::Requested { .. }
            | CallChange::Suspended(_)
            | CallChange::Resumed
            | CallChange::Started { .. } => None,
        }
    }

    /// The call that the fact settles.
    #[must_use]
    pub fn settled_call(&self) -> Option<&CallId> {
        self.settlement().and_then(|_| self.call_id())
    }

    /// The decision that the fact follows from, if the decision had an id.
    #[must_use]
    pub const fn decision_id(&self) -> Option<&DecisionId> {
        match self {
            Self::ApprovalVoided { decision_id, .. }
            | Self::ToolApproved { decision_id, .. }
            | Self::ToolDenied { decision_id, .. }
            | Self::ToolResumed { decision_id, .. }
            | Self::ToolCancelled { decision_id, .. } => decision_id.as_ref(),
            Self::RunQueued(_)
            | Self::RunStarted { .. }
            | Self::RunWaiting { .. }
            | Self::RunResumed {}
            | Self::RunInterrupting { .. }
            | Self::RunEnding { .. }
            | Self::RunEnded { .. }
            | Self::RunRecovered { .. }
            | Self::StepStarted { .. }
            | Self::StepEnded { .. }
            | Self::MessageAdded(_)
            | Self::ModelRetrying { .. }
            | Self::PhaseAnswered { .. }
            | Self::StateChanged { .. }
            | Self::ToolRequested { .. }
            | Self::ApprovalRequested(_)
            | Self::ToolSuspended(_)
            | Self::ExecutionStarted { .. }
            | Self::ExecutionSucceeded { .. }
            | Self::ExecutionFailed { .. }
            | Self::ChildStarted { .. }
            | Self::ChildEnded { .. } => None,
        }
    }

    /// How the fact closes a suspension. `status` is for a suspension that is not an approval.
    #[must_use]
    pub fn closes_suspension(&self) -> Option<Closing<'_>> {
        let (id, status, by, reason, note) = match self {
            Self::ToolApproved { approval_id, by, note, .. } => {
                (approval_id, ApprovalStatus::Approved, Some(by), None, note.as_deref())
            }
            Self::ToolDenied { approval_id, by, reason, expired, .. } => {
                let status = if *expired { ApprovalStatus::Expired } else { ApprovalStatus::Rejected };
                (approval_id, status, Some(by), reason.as_deref(), None)
            }
            // The approver did not decide that: the event names the approver of the old definition.
            Self::ApprovalVoided { approval_id, reason, .. } => {
                (approval_id, ApprovalStatus::Expired, None, Some(reason.as_str()), None)
            }
            Self::ToolResumed { suspension_id, by, .. } => {
                (suspension_id, ApprovalStatus::Answered, Some(by), None, None)
            }
            Self::ToolCancelled { suspension_id, reason, text, by, .. } => {
                let why = text.as_deref().or_else(|| (!reason.is_decided()).then(|| reason.as_str()));
                (suspension_id.as_ref()?, reason.approval_status(), Some(by), why, None)
            }
            Self::RunQueued(_)
            | Self::RunStarted { .. }
            | Self::RunWaiting { .. }
            | Self::RunResumed {}
            | Self::RunInterrupting { .. }
            | Self::RunEnding { .. }
            | Self::RunEnded { .. }
            | Self::RunRecovered { .. }
            | Self::StepStarted { .. }
            | Self::StepEnded { .. }
            | Self::MessageAdded(_)
            | Self::ModelRetrying { .. }
            | Self::PhaseAnswered { .. }
            | Self::StateChanged { .. }
            | Self::ToolRequested { .. }
            | Self::ApprovalRequested(_)
            | Self::ToolSuspended(_)
            | Self::ExecutionStarted { .. }
            | Self::ExecutionSucceeded { .. }
            | Self::ExecutionFailed { .. }
            | Self::ChildStarted { .. }
            | Self::ChildEnded { .. } => return None,
        };
        Some(Closing { id, status, by, reason, note })
    }

    /// The arguments of the call that the fact sets.
    #[must_use]
    pub const fn arguments(&self) -> Option<(ArgumentsFrom, &Arguments)> {
        let (from, arguments) = match self {
            Self::ToolRequested { arguments, .. } => return Some((ArgumentsFrom::Model, arguments)),
            Self::ApprovalRequested(opened) | Self::ToolSuspended(opened) => {
                (ArgumentsFrom::Suspension, &opened.arguments)
            }
            Self::ToolApproved { arguments, .. } => {
                (ArgumentsFrom::ChangedBy(ChangedBy::Approver), arguments)
            }
            Self::ToolResumed { arguments, .. } => (ArgumentsFrom::ChangedBy(ChangedBy::Answer), arguments),
            Self::RunQueued(_)
            | Self::RunStarted { .. }
            | Self::RunWaiting { .. }
            | Self::RunResumed {}
            | Self::RunInterrupting { .. }
            | Self::RunEnding { .. }
            | Self::RunEnded { .. }
            | Self::RunRecovered { .. }
            | Self::StepStarted { .. }
            | Self::StepEnded { .. }
            | Self::MessageAdded(_)
            | Self::ModelRetrying { .. }
            | Self::PhaseAnswered { .. }
            | Self::StateChanged { .. }
            | Self::ApprovalVoided { .. }
            | Self::ToolDenied { .. }
            | Self::ExecutionStarted { .. }
            | Self::ExecutionSucceeded { .. }
            | Self::ExecutionFailed { .. }
            | Self::ToolCancelled { .. }
            | Self::ChildStarted { .. }
            | Self::ChildEnded { .. } => return None,
        };
        match arguments {
            Some(arguments) => Some((from, arguments)),
            None => None,
        }
    }

    /// The arguments that will run in place of the model's, if a person changed them.
    #[must_use]
    pub const fn changed_arguments(&self) -> Option<(ChangedBy, &Arc<Value>)> {
        match self.arguments() {
            Some((ArgumentsFrom::ChangedBy(by), Arguments::Valid { value, .. })) => Some((by, value)),
            Some((ArgumentsFrom::ChangedBy(_), Arguments::Invalid { .. }))
            | Some((ArgumentsFrom::Model | ArgumentsFrom::Suspension, _))
            | None => None,
        }
    }
}

impl CancelReason {
    /// The status of a suspension that is closed together with its call.
    const fn approval_status(self) -> ApprovalStatus {
        match self {
            Self::GivenUp => ApprovalStatus::Answered,
            Self::Expired => ApprovalStatus::Expired,
            Self::Decided
            | Self::RunEnded
            | Self::Interrupted
            | Self::Superseded
            | Self::ChildInterrupted => ApprovalStatus::Rejected,
        }
    }
}
