//! Event payloads, one type for each type of event.

use machine::event::{CallError as StoredError, CallErrorCode, LostAttempt};
use machine::json::Json;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::enums::{Phase, ResumeMode, RunStatus, SuspensionKind};
use super::message::Message;
use super::run::{Pending, RunError, Termination, Usage};
use super::time::Time;

/// The payload of an event. The `type` of the event determines which of these it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Payload {
    Status(Status),
    Ending(Ending),
    Ended(Ended),
    Recovered(Recovered),
    Step(Step),
    Message(Added),
    Retrying(Retrying),
    Phase(Answered),
    State(Changed),
    Requested(Requested),
    ApprovalRequested(ApprovalRequested),
    ApprovalVoided(ApprovalVoided),
    Decided(Decided),
    Suspended(Suspended),
    Resumed(Resumed),
    Started(Started),
    Succeeded(Succeeded),
    Failed(Failed),
    Cancelled(Cancelled),
    Child(Child),
    Unreadable(Unreadable),
}

/// Payload of `event.unreadable`: the stored event cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Unreadable {}

/// Payload of `run.queued`, `run.started`, `run.waiting`, `run.resumed` and `run.interrupting`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Status {
    pub status: RunStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pending: Option<Vec<Pending>>,
    /// Only in `run.interrupting`: the caller who interrupted the run. Absent if a later message or the end of its
    /// parent run interrupted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// The key that acted for `by`. Absent if `by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
}

/// Payload of `run.ending`: how the run will end is decided, and it waits for calls that are still executing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Ending {
    pub termination: Termination,
}

/// Payload of `run.completed`, `run.failed` and `run.interrupted`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Ended {
    pub status: RunStatus,
    pub termination: Termination,
    pub usage: Usage,
    pub error: Option<RunError>,
    /// Only in `run.interrupted`: the caller who interrupted the run, as in `run.interrupting`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// The key that acted for `by`. Absent if `by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
    /// The structured output. Absent unless one was requested and the run ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub output: Option<Value>,
}

/// Payload of `run.recovered`: another worker took over the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Recovered {
    pub epoch: u64,
    pub lost: Vec<Lost>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Lost {
    pub call_id: String,
    pub attempt: u32,
}

impl Lost {
    pub(crate) fn from_attempt(lost: &LostAttempt) -> Self {
        Self { call_id: lost.call_id.as_str().into(), attempt: lost.attempt }
    }
}

/// Payload of `step.started` and `step.ended`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Step {
    pub step: u32,
    pub message_id: String,
}

/// Payload of `message.added`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Added {
    pub message: Message,
}

/// Payload of `model.retrying`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Retrying {
    pub attempt: u32,
    pub error: String,
    pub at: Time,
}

/// Payload of `phase.answered`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Answered {
    pub phase: Phase,
    pub plugin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub call_id: Option<String>,
    /// The actions that the hook returned. Each has its name in `type`.
    #[schema(value_type = Vec<Object>)]
    pub actions: Vec<Value>,
    /// Why the hook gave no valid answer. Absent if it gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub failed: Option<String>,
}

/// Payload of `state.changed`: an RFC 6902 patch of the document that `GET /v1/runs/{id}/state` returns.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Changed {
    pub patch: Vec<Patch>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Patch {
    pub op: PatchOp,
    /// An RFC 6901 JSON Pointer.
    pub path: String,
    #[schema(value_type = Value)]
    pub value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatchOp {
    Add,
}

/// Payload of `tool.requested`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Requested {
    pub call_id: String,
    pub tool: String,
    #[schema(value_type = Value)]
    pub arguments: Value,
    /// The step that requested the call, as `RUN_ID:STEP`.
    pub turn_id: String,
}

/// Payload of `tool.approval_requested`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ApprovalRequested {
    pub call_id: String,
    pub tool: String,
    #[schema(value_type = Value)]
    pub arguments: Value,
    pub approval_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expires_at: Option<Time>,
}

/// Payload of `tool.approval_voided`: the approval has no effect, because the tool has changed since the approver was
/// shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApprovalVoided {
    pub call_id: String,
    /// Empty only if the events that name the tool cannot be decoded.
    pub tool: String,
    pub approval_id: String,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// The key that acted for `by`. Absent if `by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
}

/// Payload of `tool.approved` and `tool.denied`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Decided {
    pub call_id: String,
    /// Empty only if the events that name the tool cannot be decoded.
    pub tool: String,
    pub approval_id: String,
    pub by: String,
    /// The key that acted for `by`. Absent if `by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
    /// The approver's note or reason, `expired` for an expiry, and `no reason given` if there is none.
    pub reason: String,
    /// The arguments that will run. Absent unless the approver edited them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub arguments: Option<Value>,
}

/// Payload of `tool.suspended`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Suspended {
    pub call_id: String,
    pub tool: String,
    pub kind: SuspensionKind,
    pub suspension_id: String,
    /// The arguments with which the call runs, or ran. Null only if the events with them cannot be decoded.
    #[schema(value_type = Value)]
    pub arguments: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub question: Option<String>,
    /// JSON Schema for the answer. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub schema: Option<Value>,
    pub resume_mode: ResumeMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expires_at: Option<Time>,
    /// Only for the kind `child_run`: the run that works on the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub child_run_id: Option<String>,
    /// The rule because of which the call went to the client or service that executes it without waiting for approval:
    /// its index in the agent's configuration, counted from 0. Absent if no rule was involved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rule: Option<u16>,
    /// Who gave the grant, or loosened the policy, because of which the call did not wait for approval. Absent if no
    /// grant or looser policy was involved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub let_through_by: Option<String>,
    /// The key that acted for `let_through_by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub let_through_via: Option<String>,
}

/// Payload of `tool.resumed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Resumed {
    pub call_id: String,
    /// Empty only if the events that name the tool cannot be decoded.
    pub tool: String,
    pub suspension_id: String,
    pub mode: ResumeMode,
    pub by: String,
    /// The key that acted for `by`. Absent if `by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
}

/// Payload of `tool.execution_started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Started {
    pub call_id: String,
    pub tool: String,
    pub attempt: u32,
    /// The rule because of which the call did not wait for approval: its index in the agent's configuration, counted
    /// from 0. Absent if no rule was involved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rule: Option<u16>,
    /// Who gave the grant, or loosened the policy, because of which the call did not wait for approval. Absent if no
    /// grant or looser policy was involved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub let_through_by: Option<String>,
    /// The key that acted for `let_through_by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub let_through_via: Option<String>,
}

/// Payload of `tool.execution_succeeded`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Succeeded {
    pub call_id: String,
    /// Empty only if the events that name the tool cannot be decoded.
    pub tool: String,
    #[schema(value_type = Value)]
    pub result: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub warning: Option<String>,
}

/// Payload of `tool.execution_failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Failed {
    pub call_id: String,
    /// Empty only if the events that name the tool cannot be decoded.
    pub tool: String,
    pub error: CallError,
    /// True if an earlier attempt may have taken effect. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub outcome_unknown: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CallError {
    #[schema(value_type = String)]
    pub code: CallErrorCode,
    pub message: String,
}

impl CallError {
    pub(crate) fn from_stored(error: &StoredError) -> Self {
        Self { code: error.code, message: error.message.clone() }
    }
}

/// Payload of `tool.cancelled`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Cancelled {
    pub call_id: String,
    /// Empty only if the events that name the tool cannot be decoded.
    pub tool: String,
    /// The reason given with the cancelling decision, or one word for the cause, such as `run_ended`.
    pub reason: String,
    /// True if the call may have taken effect. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub outcome_unknown: Option<bool>,
}

/// Payload of `child.started` and `child.ended`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Child {
    pub call_id: String,
    pub run_id: String,
}
