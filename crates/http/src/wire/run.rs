//! A run as a client sees it: its status, what it waits for, and how it ended.

use engine::store::RunView;
use machine::termination::{ErrorCode, Termination as DomainTermination};
use machine::{Control, event};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::enums::{RunStatus, SuspensionKind};
use super::is_false;
use super::time::Time;

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Run {
    pub id: String,
    pub thread_id: String,
    pub agent: String,
    pub status: RunStatus,
    /// How the run ended; null until it has ended.
    pub termination: Option<Termination>,
    /// Number of the last step that started; 0 if none has started.
    pub step: u32,
    /// Every open suspension, in call order, whatever the status of the run.
    pub pending: Vec<Pending>,
    pub usage: Usage,
    /// The final answer. Absent unless the run completed and its last step asked for no tool calls. Always absent in
    /// lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub text: Option<String>,
    /// The call that this run works on. Absent unless another run delegated it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub parent: Option<ParentCall>,
    /// Why the run failed; null unless it failed.
    pub error: Option<RunError>,
    /// The structured output. Absent unless one was requested and the run ended by itself. Always absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub output: Option<Value>,
    pub created_at: Time,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    /// True if the state of the run cannot be decoded. Then `termination`, `step`, `pending`, `usage` and `error` are
    /// empty, but the run can still be interrupted. Absent otherwise.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    pub unreadable: bool,
}

impl Run {
    #[must_use]
    pub fn from_view(view: &RunView) -> Self {
        let control = view.control.as_ref();
        let ended = control.and_then(Control::ended);
        let pending = control.map(Control::pending).unwrap_or_default();
        Self {
            id: view.id.as_str().into(),
            thread_id: view.thread.as_str().into(),
            agent: view.agent.as_str().into(),
            status: view.shown_status().into(),
            termination: ended.map(Termination::from_domain),
            step: control.map_or(0, |control| control.step),
            pending: pending.iter().map(Pending::from_domain).collect(),
            usage: Usage::from_domain(control.map(|control| control.usage).unwrap_or_default()),
            text: None,
            parent: control.and_then(|control| control.parent.as_ref()).map(ParentCall::from_domain),
            error: ended.and_then(RunError::from_termination),
            output: None,
            created_at: view.created_at.into(),
            started_at: view.started_at.map(Time),
            ended_at: view.ended_at.map(Time),
            unreadable: control.is_none(),
        }
    }
}

/// The call of another run that a run works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ParentCall {
    pub run_id: String,
    pub call_id: String,
}

impl ParentCall {
    #[must_use]
    pub fn from_domain(parent: &event::Parent) -> Self {
        Self { run_id: parent.run_id.as_str().into(), call_id: parent.call_id.as_str().into() }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Termination {
    pub reason: Reason,
    /// For `stopped`: `rejected`, `expired` or the type of the stop condition. For `cancelled`: `superseded` or
    /// `by_parent`; absent if a caller interrupted the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub detail: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    NaturalEnd,
    BehaviorRequested,
    Stopped,
    Blocked,
    Error,
    Cancelled,
}

impl Termination {
    #[must_use]
    pub fn from_domain(ended: &DomainTermination) -> Self {
        let reason = match ended {
            DomainTermination::NaturalEnd => Reason::NaturalEnd,
            DomainTermination::BehaviorRequested => Reason::BehaviorRequested,
            DomainTermination::Stopped(_) => Reason::Stopped,
            DomainTermination::Blocked(_) => Reason::Blocked,
            DomainTermination::Error(_) => Reason::Error,
            DomainTermination::Cancelled(_) => Reason::Cancelled,
        };
        Self { reason, code: ended.code().map(str::to_owned), detail: ended.detail().map(str::to_owned) }
    }
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RunError {
    pub code: RunErrorCode,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RunErrorCode {
    ModelError,
    HookError,
    OutputInvalid,
    Blocked,
    UnknownError,
}

impl RunErrorCode {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ModelError => "MODEL_ERROR",
            Self::HookError => "HOOK_ERROR",
            Self::OutputInvalid => "OUTPUT_INVALID",
            Self::Blocked => "BLOCKED",
            Self::UnknownError => "UNKNOWN_ERROR",
        }
    }
}

impl RunError {
    /// None for an end that is not a failure.
    #[must_use]
    pub fn from_termination(ended: &DomainTermination) -> Option<Self> {
        match ended {
            DomainTermination::Error(error) => {
                let code = match error.code {
                    ErrorCode::Model => RunErrorCode::ModelError,
                    ErrorCode::Hook => RunErrorCode::HookError,
                    ErrorCode::Output => RunErrorCode::OutputInvalid,
                    ErrorCode::Unknown => RunErrorCode::UnknownError,
                };
                Some(Self { code, message: error.text.clone() })
            }
            DomainTermination::Blocked(text) => {
                Some(Self { code: RunErrorCode::Blocked, message: text.clone() })
            }
            DomainTermination::NaturalEnd
            | DomainTermination::BehaviorRequested
            | DomainTermination::Stopped(_)
            | DomainTermination::Cancelled(_) => None,
        }
    }
}

/// An open suspension, in short form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Pending {
    pub call_id: String,
    pub tool: String,
    pub kind: SuspensionKind,
    pub suspension_id: String,
    /// The run that works on the call. Absent unless `kind` is `child_run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub run_id: Option<String>,
    /// The approval with which a person answers. Absent if no person has to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub approval_id: Option<String>,
}

impl Pending {
    #[must_use]
    pub fn from_domain(pending: &event::Pending) -> Self {
        Self {
            call_id: pending.call_id.as_str().into(),
            tool: pending.tool.as_str().into(),
            kind: pending.kind.into(),
            suspension_id: pending.suspension_id.as_str().into(),
            run_id: pending.child_run.as_ref().map(|run| run.as_str().into()),
            approval_id: pending.kind.needs_person().then(|| pending.suspension_id.as_str().into()),
        }
    }
}

/// The number of tokens that the run has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

impl Usage {
    #[must_use]
    pub const fn from_domain(usage: event::Usage) -> Self {
        Self { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens }
    }
}

/// The run that a message started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Posted {
    pub run_id: String,
    pub thread_id: String,
    pub status: RunStatus,
}

impl Posted {
    #[must_use]
    pub fn from_domain(posted: &engine::posting::Posted) -> Self {
        Self {
            run_id: posted.run.as_str().into(),
            thread_id: posted.thread.as_str().into(),
            status: posted.status.into(),
        }
    }
}
