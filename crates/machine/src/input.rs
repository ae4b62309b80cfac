//! What someone said to a run. Any of it may be rejected.

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
    /// The run holds its thread; its input begins after this message.
    Start {
        after: Option<MessageId>,
    },
    /// Another worker took the run over. A `write` that was lost may be offered as in doubt from `doubt_at` on:
    /// before that the old worker could still send it.
    LeaseAcquired {
        epoch: u64,
        doubt_at: Timestamp,
    },
    /// After a take-over: all that was accepted before has been heard, lost attempts may be replaced.
    InboxDrained,
    /// The hooks of RunStart, StepStart, BeforeInference, StepEnd or RunEnd.
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
    /// The hooks of AfterToolExecute that were heard since the last event that recorded one, empty answers
    /// included: an empty answer leaves no event, so it counts only together with the rest.
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

/// A finished model call, with what the hooks of AfterInference said of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelAnswered {
    pub step: u32,
    pub attempt: u32,
    pub text: String,
    pub reasoning: Option<String>,
    pub calls: Vec<RequestedCall>,
    pub usage: Usage,
    pub origin: Origin,
    /// Places in the agent's stop conditions whose pattern the text matches.
    pub matched: Vec<u16>,
    /// Whether the text is the output that the run has to end with. None where none is wanted.
    pub output: Option<OutputFit>,
    /// Call ids of the thread that equal an asked id, or such an id with `~` and a number behind it.
    pub taken: BTreeSet<CallId>,
    pub hooks: HookAnswers,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestedCall {
    /// As the model gave it: perhaps empty, perhaps used before.
    pub id: String,
    pub tool: ToolName,
    pub arguments: Arguments,
}

/// Why a model call gave no answer, and whether trying again may help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    pub message: String,
    pub retryable: bool,
    pub retry_after_ms: Option<u64>,
}

/// All that the gate needs to know of a call that is next in line or resumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateInput {
    pub call: CallId,
    pub tool: ToolLookup,
    /// Of the arguments that will really be sent, validated and canonicalised anew.
    pub arguments: Arguments,
    pub hits: Vec<PatternHit>,
    /// What approvers have granted for calls of this tool in this thread, as far as it counts now.
    pub grants: Vec<Grant>,
    /// The caller who loosened this run's policy may no longer approve: the agent's own policy counts.
    pub loosening_ended: bool,
    pub hooks: HookAnswers,
}

/// How an attempt ended. There are three ways, and only one of them knows what happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Answered(ToolAnswer),
    /// Nothing left this machine.
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
    /// What is said in place of an answer that could not be read back from the log. It did run: the reader must not take
    /// it for a call that did nothing.
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
    /// Its own and that of its children.
    pub usage: Usage,
    /// Runs that it started, directly and through others.
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
