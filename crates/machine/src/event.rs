//! Events: numbered facts. They are the log, the audit trail and what clients read; everything else is derived.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod questions;

pub use questions::{ArgumentsFrom, CallChange, Closing, Settlement, Subject};

pub use crate::call_error::{CallError, CallErrorCode};
pub use crate::message::{CallInMessage, Message, NoteBody, Origin, Sealed, ToolBody};
pub use crate::termination::InterruptCause;

use crate::grant::HoldReason;
use crate::id::{
    AgentName, CallId, DecisionId, Digest, MessageId, PluginName, Principal, RunId, SuspensionId, ThreadId,
    ToolName,
};
use crate::json::Json;
use crate::named_enum::named_enum;
use crate::phase::{Action, Phase, Scope};
use crate::policy::Policy;
use crate::rules::Asker;
use crate::status::WaitingOn;
use crate::suspension::{Expiry, Held, ResumeMode, SuspensionKind};
use crate::termination::Termination;
use crate::time::Timestamp;
use crate::tool::{Arguments, EffectClass, ExpiryTerms};

/// The version of the stored form that this code writes. All older versions stay readable.
pub const EVENT_VERSION: u16 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Consecutive within the run, starting at 1.
    pub seq: u64,
    /// Never decreases within the run.
    pub at: Timestamp,
    /// None outside a step.
    pub step: Option<u32>,
    pub fact: Fact,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "payload")]
pub enum Fact {
    /// What the run was asked to do. Always event 1.
    #[serde(rename = "run.queued")]
    RunQueued(RunRequest),
    /// The run now holds its thread. Its input begins after this message.
    #[serde(rename = "run.started")]
    RunStarted {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<MessageId>,
    },
    /// Nothing executes and something is held. Recorded at every entry into a waiting status.
    #[serde(rename = "run.waiting")]
    RunWaiting { on: WaitingOn, pending: Vec<Pending> },
    /// Something executes again.
    #[serde(rename = "run.resumed")]
    RunResumed {},
    /// The run no longer waits for anything. Its end follows in the same commit.
    #[serde(rename = "run.interrupting")]
    RunInterrupting { cause: InterruptCause },
    /// The end is decided, but executing calls or the hooks of RunEnd are still awaited.
    #[serde(rename = "run.ending")]
    RunEnding { termination: Termination },
    /// The last event of every log.
    #[serde(rename = "run.ended")]
    RunEnded {
        termination: Termination,
        usage: Usage,
        /// The event with the answer that is the output. Set if an output was wanted and the run ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<u64>,
    },
    /// Another worker took over; these attempts were lost with the old one.
    #[serde(rename = "run.recovered")]
    RunRecovered {
        epoch: u64,
        lost: Vec<LostAttempt>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost_model_attempt: Option<u32>,
        /// From this time on, a lost `write` may be offered as in doubt.
        doubt_at: Timestamp,
    },
    /// The model is called; its answer will have this id.
    #[serde(rename = "step.started")]
    StepStarted { step: u32, message_id: MessageId },
    /// Nothing in the step is left to do.
    #[serde(rename = "step.ended")]
    StepEnded { step: u32, message_id: MessageId },
    /// A message was added to the transcript.
    #[serde(rename = "message.added")]
    MessageAdded(Message),
    /// A model call gave no answer. This attempt follows, no earlier than `at`.
    #[serde(rename = "model.retrying")]
    ModelRetrying {
        attempt: u32,
        error: String,
        at: Timestamp,
        /// The model did answer, but with neither text nor a call. Such an answer is retried once.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        empty_answer: bool,
    },
    /// Hooks of one plugin answered with actions, or failed.
    #[serde(rename = "phase.answered")]
    PhaseAnswered {
        phase: Phase,
        plugin: PluginName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<CallId>,
        actions: Vec<Action>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// A plugin stores a value for the run or its thread.
    #[serde(rename = "state.changed")]
    StateChanged { plugin: PluginName, scope: Scope, key: String, value: Arc<Value> },
    /// The model asked for a call. The call is New.
    #[serde(rename = "tool.requested")]
    ToolRequested { call_id: CallId, tool: ToolName, arguments: Arguments },
    /// The call is Suspended until a person approves or denies it.
    #[serde(rename = "tool.approval_requested")]
    ApprovalRequested(OpenedSuspension),
    /// The tool's definition differs from the one that was shown. An approval given for the old one is void.
    #[serde(rename = "tool.approval_voided")]
    ApprovalVoided {
        call_id: CallId,
        approval_id: SuspensionId,
        reason: VoidReason,
        /// The approver of the old definition.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Principal>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision_id: Option<DecisionId>,
    },
    /// The call is Resuming: it passes the gate again, then it runs.
    #[serde(rename = "tool.approved")]
    ToolApproved {
        call_id: CallId,
        approval_id: SuspensionId,
        by: Principal,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision_id: Option<DecisionId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// The arguments that will run, if the approver changed them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Arguments>,
        apply_to_future: bool,
        /// With `apply_to_future`: reasons for which later calls are not held. Older events have none and grant
        /// nothing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        covers: Vec<HoldReason>,
    },
    /// The call is Cancelled: a person denied it, or it expired.
    #[serde(rename = "tool.denied")]
    ToolDenied {
        call_id: CallId,
        approval_id: SuspensionId,
        by: Principal,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision_id: Option<DecisionId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        expired: bool,
    },
    /// The call is Suspended for a reason other than an approval.
    #[serde(rename = "tool.suspended")]
    ToolSuspended(OpenedSuspension),
    /// The call is Resuming: its suspension was answered.
    #[serde(rename = "tool.resumed")]
    ToolResumed {
        call_id: CallId,
        suspension_id: SuspensionId,
        mode: ResumeMode,
        by: Principal,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision_id: Option<DecisionId>,
        /// The attempt in doubt that answered after all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        late_attempt: Option<u32>,
        /// What the tool receives in addition to its own `resume_state`, if it runs again.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "crate::event_codec::deserialize_present"
        )]
        answer: Option<Arc<Value>>,
        /// The arguments that will run, if the answer became the arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Arguments>,
    },
    /// The call is Running: the intent is stored, and the attempt may be sent.
    #[serde(rename = "tool.execution_started")]
    ExecutionStarted {
        call_id: CallId,
        tool: ToolName,
        attempt: u32,
        class: EffectClass,
        /// The attempt is sent no earlier than this. Delays a repeated attempt.
        not_before: Timestamp,
        /// The rule that allowed the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<u16>,
        /// The person whose grant or looser policy lifted the hold that this call would have met.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        let_through_by: Option<Principal>,
        /// When a suspension that this attempt leads to expires.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires: Option<ExpiryTerms>,
    },
    /// The call is Succeeded, with a result from the tool or from an answer given in its place.
    #[serde(rename = "tool.execution_succeeded")]
    ExecutionSucceeded {
        call_id: CallId,
        result: Json,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warning: Option<String>,
        by: ResultFrom,
    },
    /// The call is Failed, in the tool or before it could run.
    #[serde(rename = "tool.execution_failed")]
    ExecutionFailed {
        call_id: CallId,
        error: CallError,
        /// An earlier attempt may have taken effect.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        outcome_unknown: bool,
    },
    /// The call is Cancelled without a verdict on the call itself.
    #[serde(rename = "tool.cancelled")]
    ToolCancelled {
        call_id: CallId,
        reason: CancelReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        by: Principal,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision_id: Option<DecisionId>,
        outcome_unknown: bool,
        /// The suspension that is closed together with the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        suspension_id: Option<SuspensionId>,
    },
    /// A child run exists and works on the call.
    #[serde(rename = "child.started")]
    ChildStarted {
        call_id: CallId,
        run_id: RunId,
        thread_id: ThreadId,
        agent: AgentName,
        depth: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant_tokens: Option<u64>,
        /// Number of runs that the child may start, directly and through others.
        #[serde(default)]
        grant_descendants: u32,
    },
    /// The child run has ended, and returns the part of its grant that it did not use.
    #[serde(rename = "child.ended")]
    ChildEnded {
        call_id: CallId,
        run_id: RunId,
        usage: Usage,
        /// Number of runs of the grant that it used.
        #[serde(default)]
        descendants: u32,
    },
}

/// What a run was asked to do, and under which policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    pub run_id: RunId,
    pub thread_id: ThreadId,
    pub agent: AgentName,
    /// The frozen agent revision that this run is pinned to.
    pub revision: Digest,
    pub policy: Policy,
    /// The caller who made fewer calls wait than the agent's own policy would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loosened_by: Option<Principal>,
    /// None if the run answers an earlier message again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<UserMessage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    pub id: MessageId,
    pub content: Arc<Value>,
    /// The caller who sent it. None if another run delegated the task, and in logs from before this was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub run_id: RunId,
    pub call_id: CallId,
    /// This run's depth: one more than its parent's.
    pub depth: u16,
    pub grant_tokens: Option<u64>,
    /// Number of runs this one may start, directly and through others. None in logs from before this limit existed.
    #[serde(default)]
    pub grant_descendants: Option<u32>,
}

/// Tokens used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

impl Usage {
    #[must_use]
    pub const fn total(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
        }
    }
}

/// One open suspension, as clients see it in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    pub call_id: CallId,
    pub tool: ToolName,
    pub kind: SuspensionKind,
    pub suspension_id: SuspensionId,
    /// The run that works on the call, if it is held for a child run. Lines written before this field lack it.
    #[serde(default, rename = "run_id", skip_serializing_if = "Option::is_none")]
    pub child_run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostAttempt {
    pub call_id: CallId,
    pub attempt: u32,
}

/// A suspension as it opens, with everything that a person needs to see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenedSuspension {
    pub call_id: CallId,
    pub tool: ToolName,
    pub suspension_id: SuspensionId,
    pub held: Held,
    pub mode: ResumeMode,
    /// The final arguments, exactly as they will run. None if nothing is left to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::event_codec::deserialize_present"
    )]
    pub schema: Option<Arc<Value>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::event_codec::deserialize_present"
    )]
    pub resume_state: Option<Arc<Value>>,
    pub asked_by: Vec<Asker>,
    /// The tool itself is pending, or a hook in its place: the answer is for the tool.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub by_the_tool: bool,
    /// The rule that allowed the call to get here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<u16>,
    /// The person whose grant or looser policy lifted the hold that this call would have met before it got here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_through_by: Option<Principal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
}

impl OpenedSuspension {
    /// The arguments that a person sees, and that will run.
    #[must_use]
    pub fn shown_arguments(&self) -> Option<&Value> {
        self.arguments.as_ref().and_then(Arguments::value).map(|value| &**value)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoidReason {
    ToolChanged,
}

impl VoidReason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolChanged => "tool_changed",
        }
    }
}

/// Where a result comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultFrom {
    Tool,
    Hook,
    Decision,
    Child,
}

named_enum! {
    pub enum CancelReason {
        /// A person cancelled this call.
        Decided = "decided",
        /// The call was in doubt, and was given up.
        GivenUp = "given_up",
        Expired = "expired",
        RunEnded = "run_ended",
        Interrupted = "interrupted",
        Superseded = "superseded",
        ChildInterrupted = "child_interrupted",
    }
}

impl CancelReason {
    /// Whether a person decided about this call, who may have given a reason of their own.
    #[must_use]
    pub const fn is_decided(self) -> bool {
        match self {
            Self::Decided | Self::GivenUp => true,
            Self::Expired
            | Self::RunEnded
            | Self::Interrupted
            | Self::Superseded
            | Self::ChildInterrupted => false,
        }
    }
}
