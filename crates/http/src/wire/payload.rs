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

/// The type of the event says which one it is.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
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

/// `event.unreadable`: the event is stored and cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Unreadable {}

/// `run.queued`, `run.started`, `run.waiting`, `run.resumed`, `run.interrupting`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Status {
    pub status: RunStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pending: Option<Vec<Pending>>,
    /// Of `run.interrupting`: the caller who interrupted the run. Absent where a later message or its parent's end did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
}

/// `run.ending`: the end is decided; what executes is still awaited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Ending {
    pub termination: Termination,
}

/// `run.completed`, `run.failed`, `run.interrupted`
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Ended {
    pub status: RunStatus,
    pub termination: Termination,
    pub usage: Usage,
    pub error: Option<RunError>,
    /// Of `run.interrupted`: the caller who interrupted the run, as in `run.interrupting`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// Where an output was wanted and the run ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub output: Option<Value>,
}

/// `run.recovered`: another worker took over.
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

/// `step.started`, `step.ended`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Step {
    pub step: u32,
    pub message_id: String,
}

/// `message.added`
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Added {
    pub message: Message,
}

/// `model.retrying`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Retrying {
    pub attempt: u32,
    pub error: String,
    pub at: Time,
}

/// `phase.answered`
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Answered {
    pub phase: Phase,
    pub plugin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub call_id: Option<String>,
    /// Each with its name in `type`.
    #[schema(value_type = Vec<Object>)]
    pub actions: Vec<Value>,
    /// Why the hook gave no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub failed: Option<String>,
}

/// `state.changed`: what changed in the document of `GET /v1/runs/{id}/state`, as RFC 6902.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Changed {
    pub patch: Vec<Patch>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Patch {
    pub op: PatchOp,
    /// RFC 6901.
    pub path: String,
    #[schema(value_type = Value)]
    pub value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatchOp {
    Add,
}

/// `tool.requested`
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Requested {
    pub call_id: String,
    pub tool: String,
    #[schema(value_type = Value)]
    pub arguments: Value,
    /// `RUN:STEP`
    pub turn_id: String,
}

/// `tool.approval_requested`
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

/// `tool.approval_voided`: the approval counts for nothing, because the tool is not the one that was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApprovalVoided {
    pub call_id: String,
    pub approval_id: String,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
}

/// `tool.approved`, `tool.denied`
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Decided {
    pub call_id: String,
    pub by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    /// What will run, where the approver changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub arguments: Option<Value>,
}

/// `tool.suspended`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Suspended {
    pub call_id: String,
    pub kind: SuspensionKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub question: Option<String>,
    /// The rule that let the call through to the client or service that performs it, counted from 0 in the agent's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rule: Option<u16>,
    /// Who gave the standing approval that let this call through.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub let_through_by: Option<String>,
}

/// `tool.resumed`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Resumed {
    pub call_id: String,
    pub mode: ResumeMode,
    pub by: String,
}

/// `tool.execution_started`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Started {
    pub call_id: String,
    pub tool: String,
    pub attempt: u32,
    /// The rule that let the call through, counted from 0 in the agent's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rule: Option<u16>,
    /// Who gave the standing approval that let this call through.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub let_through_by: Option<String>,
}

/// `tool.execution_succeeded`
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Succeeded {
    pub call_id: String,
    #[schema(value_type = Value)]
    pub result: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub warning: Option<String>,
}

/// `tool.execution_failed`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Failed {
    pub call_id: String,
    pub error: CallError,
    /// An earlier attempt may have taken effect.
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

/// `tool.cancelled`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Cancelled {
    pub call_id: String,
    /// The reason that the canceller gave, or one word for the cause.
    pub reason: String,
    /// It may have taken effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub outcome_unknown: Option<bool>,
}

/// `child.started`, `child.ended`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Child {
    pub call_id: String,
    pub run_id: String,
}
