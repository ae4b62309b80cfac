//! The events that Holdpoint sends, and the two dialects of them that clients read.

use serde::Serialize;
use serde_json::{Map, Value};

use super::message::AgUiMessage;

/// The version of the protocol that the newer dialect declares.
pub const AG_UI_VERSION: &str = "1.0";

/// Which peers a stream is for. The client decides with `protocolVersion` in its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgUiDialect {
    V1_0,
    /// `@ag-ui/client` up to 0.0.59, which CopilotKit pins. An event type, an outcome or a field of an outcome that it
    /// does not know ends the client's run with an error.
    Before,
}

impl AgUiDialect {
    /// A version that cannot be interpreted counts as a newer one: additions are safe, and guessing downward would
    /// degrade the stream for no reason.
    #[must_use]
    pub fn from_version(declared: Option<&str>) -> Self {
        let Some(declared) = declared else { return Self::Before };
        let major = declared.split('.').next().map(str::parse::<u64>);
        if matches!(major, Some(Ok(0))) { Self::Before } else { Self::V1_0 }
    }

    /// The version that `RUN_STARTED` declares.
    #[must_use]
    pub const fn version(self) -> Option<&'static str> {
        match self {
            Self::V1_0 => Some(AG_UI_VERSION),
            Self::Before => None,
        }
    }
}

/// One event of a stream. Optional fields are absent, never null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgUiEvent {
    #[serde(flatten)]
    pub kind: AgUiKind,
    /// Milliseconds since the Unix epoch. Absent where no item of the feed caused the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl AgUiEvent {
    #[must_use]
    pub fn new(kind: AgUiKind, timestamp: Option<i64>) -> Self {
        Self { kind, timestamp, metadata: Map::new() }
    }

    /// One line of JSON: the content of one `data:` line.
    #[must_use]
    pub fn to_json(&self) -> String {
        // All keys are strings and every number comes from JSON, so it can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl From<AgUiKind> for AgUiEvent {
    fn from(kind: AgUiKind) -> Self {
        Self::new(kind, None)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub enum AgUiKind {
    RunStarted {
        thread_id: String,
        run_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        protocol_version: Option<&'static str>,
    },
    RunFinished {
        thread_id: String,
        run_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<AgUiOutcome>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        usage: Vec<AgUiUsage>,
    },
    RunError {
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
    StepStarted {
        step_name: String,
    },
    StepFinished {
        step_name: String,
    },
    TextMessageStart {
        message_id: String,
        role: &'static str,
    },
    TextMessageContent {
        message_id: String,
        delta: String,
    },
    TextMessageEnd {
        message_id: String,
    },
    ReasoningStart {
        message_id: String,
    },
    ReasoningMessageStart {
        message_id: String,
        role: &'static str,
    },
    ReasoningMessageContent {
        message_id: String,
        delta: String,
    },
    ReasoningMessageEnd {
        message_id: String,
    },
    ReasoningEnd {
        message_id: String,
    },
    ToolCallStart {
        tool_call_id: String,
        tool_call_name: String,
        parent_message_id: String,
    },
    ToolCallArgs {
        tool_call_id: String,
        delta: String,
    },
    ToolCallEnd {
        tool_call_id: String,
    },
    ToolCallResult {
        message_id: String,
        tool_call_id: String,
        content: String,
        role: &'static str,
    },
    StateSnapshot {
        snapshot: Value,
    },
    /// An RFC 6902 patch.
    StateDelta {
        delta: Value,
    },
    MessagesSnapshot {
        messages: Vec<AgUiMessage>,
    },
    Custom {
        name: &'static str,
        value: Value,
    },
    SubagentStarted {
        subagent_run_id: String,
        name: String,
        parent_tool_call_id: String,
        parent_message_id: String,
    },
    SubagentFinished {
        subagent_run_id: String,
        /// Absent: success.
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<AgUiSubagentOutcome>,
    },
    SubagentError {
        subagent_run_id: String,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<&'static str>,
    },
}

/// How a protocol run ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum AgUiOutcome {
    Success {
        /// Calls that the client's own tools have to answer in the next input. Never sent to the older dialect.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pending_tool_call_ids: Vec<String>,
    },
    Interrupt {
        interrupts: Vec<AgUiInterrupt>,
    },
    /// Never sent to the older dialect.
    Cancelled,
}

/// A question to the user. The next input answers it in `resume`, by its id.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiInterrupt {
    pub id: String,
    pub reason: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<String>,
}

/// Why a subagent's part of the stream ended, if it did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum AgUiSubagentOutcome {
    /// It continues in a later protocol run under the same id.
    Suspended {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        interrupt_ids: Vec<String>,
    },
}

/// Tokens of the model calls of one protocol run. A count that is not known is absent, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiUsage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
}
