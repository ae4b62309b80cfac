//! Inputs to a run. Any of them may be rejected.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decision::Decision;
use crate::event::{InterruptCause, Origin, Usage};
use crate::grant::Grant;
use crate::id::{CallId, MessageId, RunId, ToolName};
use crate::json_value;
use crate::output::OutputFit;
use crate::phase::{HookAnswers, SuspendRequest};
use crate::rules::PatternHit;
use crate::time::Timestamp;
use crate::tool::{Arguments, ToolLookup};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// The run now holds its thread. Its input begins after this message.
    Start {
        after: Option<MessageId>,
    },
    /// Another worker took over the run. A lost `write` may be offered as in doubt from `doubt_at` on: until then the
    /// old worker could still send it.
    LeaseAcquired {
        epoch: u64,
        doubt_at: Timestamp,
    },
    /// After a take-over: everything accepted before it has been processed, so lost attempts may be replaced.
    InboxDrained,
    /// Answers of the hooks of RunStart, StepStart, BeforeInference, StepEnd or RunEnd.
    PhaseAnswered {
        phase: crate::phase::Phase,
        hooks: HookAnswers,
    },
    ModelAnswered(ModelAnswered),
    ModelFailed {
        step: u32,
        attempt: u32,
        failure: ModelFailure,
    },
    Gated(GateInput),
    ToolReturned {
        step: u32,
        call: CallId,
        attempt: u32,
        outcome: Outcome,
    },
    /// Answers of the hooks of AfterToolExecute since the last event that recorded one, including empty answers. An
    /// empty answer leaves no event, so it counts only together with the rest.
    AfterTools {
        heard: Vec<(CallId, HookAnswers)>,
    },
    Decide(Decision),
    ChildEnded(ChildEnded),
    Interrupt {
        cause: InterruptCause,
    },
    /// The clock reached the run's next deadline.
    DeadlineReached,
}

/// A finished model call, with the answers of the hooks of AfterInference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelAnswered {
    pub step: u32,
    pub attempt: u32,
    pub text: String,
    pub reasoning: Option<String>,
    pub calls: Vec<RequestedCall>,
    pub usage: Usage,
    pub origin: Origin,
    /// Indices of the agent's stop conditions whose pattern the text matches.
    pub matched: Vec<u16>,
    /// Whether the text is the output that the run has to end with. None if no output is wanted.
    pub output: Option<OutputFit>,
    /// Call ids already used in the thread that equal a requested id, or such an id followed by `~` and a number.
    pub taken: BTreeSet<CallId>,
    pub hooks: HookAnswers,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestedCall {
    /// The id as the model gave it: it may be empty or already used.
    pub id: String,
    pub tool: ToolName,
    pub arguments: Arguments,
}

/// Why a model call gave no answer, and whether a retry may help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    pub message: String,
    pub retryable: bool,
    pub retry_after_ms: Option<u64>,
}

/// Everything the gate needs to know about a call that is next in line or resumes, or whose tool changed before an
/// attempt was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateInput {
    pub call: CallId,
    pub tool: ToolLookup,
    /// The arguments that will really be sent, validated and canonicalised again.
    pub arguments: Arguments,
    pub hits: Vec<PatternHit>,
    /// What approvers have granted for calls of this tool in this thread, as far as it is valid now.
    pub grants: Vec<Grant>,
    /// The caller who loosened this run's policy may no longer approve, so the agent's own policy applies.
    pub loosening_ended: bool,
    /// The running attempt, if nothing of it was sent because the tool is no longer what the gate saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsent_attempt: Option<u32>,
    pub hooks: HookAnswers,
}

/// How an attempt ended. There are three ways, and only one of them knows what happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Answered(ToolAnswer),
    /// Nothing was sent from this machine.
    NotSent {
        why: String,
        retry_after_ms: Option<u64>,
    },
    Unknown {
        why: String,
        retry_after_ms: Option<u64>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolAnswer {
    Success { value: Arc<Value>, warning: Option<String> },
    Error { message: String },
    Pending(SuspendRequest),
}

impl ToolAnswer {
    /// The text that replaces an answer which could not be read back from the log. The call did run: a reader must not
    /// take it for a call that did nothing.
    #[must_use]
    pub(crate) fn unstorable(&self) -> Option<String> {
        match self {
            Self::Success { value, .. } => json_value::fault(value)
                .map(|fault| format!("the call succeeded, but its result cannot be stored: {fault}")),
            Self::Pending(request) => request
                .value_fault()
                .map(|fault| format!("the question's schema or state cannot be stored: {fault}")),
            Self::Error { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildEnded {
    pub call: CallId,
    pub run: RunId,
    pub end: ChildEnd,
    /// Tokens used by the child and its own children.
    pub usage: Usage,
    /// Number of runs that it started, directly and through others.
    #[serde(default)]
    pub descendants: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildEnd {
    Completed { answer: Arc<Value> },
    Failed { message: String },
    Interrupted,
}
