//! What every translator reads: the stored events and live frames of one run, in order, with all texts filled in.

use serde_json::Value;
use serde_json::value::RawValue;

/// One stored event or live frame of a run.
#[derive(Clone, Debug)]
pub struct Item {
    pub thread_id: String,
    pub run_id: String,
    /// The sequence number of a stored event. None for a live frame.
    pub seq: Option<u64>,
    /// None outside a step.
    pub step: Option<u32>,
    /// Milliseconds since the Unix epoch.
    pub at: i64,
    pub body: Body,
}

#[derive(Clone, Debug)]
pub enum Body {
    RunQueued,
    RunStarted,
    RunWaiting {
        on: WaitingOn,
    },
    RunResumed,
    RunInterrupting,
    /// The end of the run is decided; calls that still execute are awaited.
    RunEnding,
    RunEnded {
        end: RunEnd,
        usage: Usage,
    },
    /// Another worker took over the run.
    RunRecovered,
    StepStarted {
        message_id: String,
    },
    StepEnded {
        message_id: String,
    },
    UserMessage {
        id: String,
        content: Value,
    },
    /// The whole answer of the model in this step.
    AssistantMessage {
        id: String,
        text: String,
        reasoning: Option<String>,
        calls: Vec<RequestedCall>,
    },
    /// The result of a call as the model reads it.
    ToolMessage {
        id: String,
        call_id: String,
        text: String,
    },
    /// A message to the model that is not from the user: a late result, a correction, a note of a hook.
    Note {
        id: String,
        call_id: Option<String>,
        text: String,
    },
    ModelRetrying {
        attempt: u32,
    },
    CallRequested {
        call: RequestedCall,
    },
    ApprovalRequested {
        call: RequestedCall,
        approval_id: String,
        expires_at: Option<String>,
    },
    /// The tool changed after the approver was shown it. The call is held again, with another approval.
    ApprovalVoided {
        call_id: String,
        approval_id: String,
    },
    Approved {
        call_id: String,
        tool: String,
        approval_id: String,
        by: String,
        reason: String,
        arguments: Option<Value>,
    },
    Denied {
        call_id: String,
        tool: String,
        approval_id: String,
        by: String,
        reason: String,
    },
    Suspended {
        call: RequestedCall,
        suspension: Suspension,
    },
    CallResumed {
        call_id: String,
        tool: String,
        suspension_id: String,
    },
    ExecutionStarted {
        call_id: String,
        tool: String,
        attempt: u32,
    },
    Succeeded {
        call_id: String,
        tool: String,
        result: Box<RawValue>,
        warning: Option<String>,
    },
    Failed {
        call_id: String,
        tool: String,
        message: String,
        outcome_unknown: bool,
    },
    Cancelled {
        call_id: String,
        tool: String,
        reason: String,
        outcome_unknown: bool,
    },
    /// An RFC 6902 patch of the run's state document.
    StateChanged {
        patch: Value,
    },
    ChildStarted {
        call_id: String,
        run_id: String,
    },
    ChildEnded {
        call_id: String,
        run_id: String,
    },
    /// A hook answered.
    PhaseAnswered,
    /// The stored event cannot be decoded.
    Unreadable,
    /// Part of the answer while the model is still writing it. `offset` counts characters within the part and attempt.
    TextDelta {
        message_id: String,
        attempt: u32,
        offset: u64,
        text: String,
    },
    ReasoningDelta {
        message_id: String,
        attempt: u32,
        offset: u64,
        text: String,
    },
    /// Part of the arguments of the call with this index in the answer. The call has no id yet.
    ArgumentsDelta {
        message_id: String,
        attempt: u32,
        index: u16,
        offset: u64,
        text: String,
    },
    /// The deltas of earlier attempts of this answer do not count any more.
    StepReset {
        message_id: String,
        attempt: u32,
    },
    ToolLog {
        call_id: String,
        tool: String,
        text: String,
    },
    ToolProgress {
        call_id: String,
        tool: String,
        progress: Value,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingOn {
    /// An approval, a question or a call in doubt.
    Approval,
    /// A front end's or an external service's result, or a delegated run.
    Tool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// `code` and `detail` only if the run was stopped.
    Completed {
        reason: CompletedReason,
        code: Option<String>,
        detail: Option<String>,
    },
    Failed {
        code: String,
        message: String,
        blocked: bool,
    },
    Interrupted {
        code: Option<String>,
        by: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletedReason {
    NaturalEnd,
    BehaviorRequested,
    Stopped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RequestedCall {
    pub call_id: String,
    pub tool: String,
    pub arguments: Value,
}

/// Why a call is held, if not for an approval, and who can answer it.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspension {
    pub id: String,
    pub kind: SuspensionKind,
    pub question: Option<String>,
    /// JSON Schema of the answer.
    pub schema: Option<Value>,
    pub expires_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuspensionKind {
    /// The front end runs the tool.
    ClientTool,
    /// An external service posts the result.
    External,
    /// The tool asks the user.
    Question,
    /// Whether the call took effect is unknown.
    InDoubt,
    ChildRun {
        run_id: String,
    },
}
