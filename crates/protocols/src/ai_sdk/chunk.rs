//! Chunks of the UI message stream: those that every client since 6.0.0 accepts, with the fields that it accepts.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The data of one SSE frame. Optional fields are left out: `null` is fatal to clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Chunk {
    Start {
        message_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        message_metadata: Option<Value>,
    },
    TextStart {
        id: String,
    },
    TextDelta {
        id: String,
        delta: String,
    },
    TextEnd {
        id: String,
        /// The text belongs to an attempt of the model that was given up.
        #[serde(
            rename = "providerMetadata",
            skip_serializing_if = "core::ops::Not::not",
            serialize_with = "serialize_discarded"
        )]
        discarded: bool,
    },
    ReasoningStart {
        id: String,
    },
    ReasoningDelta {
        id: String,
        delta: String,
    },
    ReasoningEnd {
        id: String,
        /// The reasoning belongs to an attempt of the model that was given up.
        #[serde(
            rename = "providerMetadata",
            skip_serializing_if = "core::ops::Not::not",
            serialize_with = "serialize_discarded"
        )]
        discarded: bool,
    },
    ToolInputStart {
        tool_call_id: String,
        tool_name: String,
        #[serde(skip_serializing_if = "core::ops::Not::not")]
        dynamic: bool,
    },
    ToolInputDelta {
        tool_call_id: String,
        input_text_delta: String,
    },
    ToolInputAvailable {
        tool_call_id: String,
        tool_name: String,
        input: Value,
        #[serde(skip_serializing_if = "core::ops::Not::not")]
        dynamic: bool,
    },
    ToolApprovalRequest {
        approval_id: String,
        tool_call_id: String,
    },
    ToolOutputAvailable {
        tool_call_id: String,
        output: RawOutput,
        #[serde(skip_serializing_if = "core::ops::Not::not")]
        dynamic: bool,
    },
    ToolOutputError {
        tool_call_id: String,
        error_text: String,
        #[serde(skip_serializing_if = "core::ops::Not::not")]
        dynamic: bool,
    },
    ToolOutputDenied {
        tool_call_id: String,
    },
    StartStep,
    FinishStep,
    MessageMetadata {
        message_metadata: Value,
    },
    /// Clients stop reading at this chunk.
    Error {
        error_text: String,
    },
    /// The run was interrupted. Early clients reject a reason.
    Abort,
    Finish {
        finish_reason: FinishReason,
        #[serde(skip_serializing_if = "Option::is_none")]
        message_metadata: Option<Value>,
    },
    #[serde(untagged)]
    Data(DataChunk),
}

/// A `data-*` chunk: information that the protocol has no chunk for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataChunk {
    /// With the prefix `data-`.
    #[serde(rename = "type")]
    pub name: String,
    /// A part with the same name and id is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub data: Value,
    /// The client passes it to `onData` and does not keep it in the message.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub transient: bool,
}

/// Reasons of a finish that every client knows. Others are fatal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    Stop,
    ToolCalls,
    Error,
    ContentFilter,
}

impl FinishReason {
    pub(super) fn from_wire(name: &str) -> Option<Self> {
        Some(match name {
            "stop" => Self::Stop,
            "tool-calls" => Self::ToolCalls,
            "error" => Self::Error,
            "content-filter" => Self::ContentFilter,
            _ => return None,
        })
    }
}

/// The JSON text of a tool's result. A large result is passed on without building its value.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct RawOutput(Box<RawValue>);

impl RawOutput {
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl From<&RawValue> for RawOutput {
    fn from(text: &RawValue) -> Self {
        Self(text.to_owned())
    }
}

impl From<&Value> for RawOutput {
    fn from(value: &Value) -> Self {
        // A value has only string keys and numbers that JSON can represent, so it can always be written.
        Self(serde_json::value::to_raw_value(value).unwrap_or_default())
    }
}

impl PartialEq for RawOutput {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Chunk {
    /// A part of the message that later chunks with this id replace.
    pub(super) fn data(name: &str, id: &str, data: Value) -> Self {
        Self::Data(DataChunk { name: name.into(), id: Some(id.into()), data, transient: false })
    }

    /// News that the client does not keep.
    pub(super) fn transient(name: &str, data: Value) -> Self {
        Self::Data(DataChunk { name: name.into(), id: None, data, transient: true })
    }

    /// The `type` of the chunk.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Start { .. } => "start",
            Self::TextStart { .. } => "text-start",
            Self::TextDelta { .. } => "text-delta",
            Self::TextEnd { .. } => "text-end",
            Self::ReasoningStart { .. } => "reasoning-start",
            Self::ReasoningDelta { .. } => "reasoning-delta",
            Self::ReasoningEnd { .. } => "reasoning-end",
            Self::ToolInputStart { .. } => "tool-input-start",
            Self::ToolInputDelta { .. } => "tool-input-delta",
            Self::ToolInputAvailable { .. } => "tool-input-available",
            Self::ToolApprovalRequest { .. } => "tool-approval-request",
            Self::ToolOutputAvailable { .. } => "tool-output-available",
            Self::ToolOutputError { .. } => "tool-output-error",
            Self::ToolOutputDenied { .. } => "tool-output-denied",
            Self::StartStep => "start-step",
            Self::FinishStep => "finish-step",
            Self::MessageMetadata { .. } => "message-metadata",
            Self::Error { .. } => "error",
            Self::Abort => "abort",
            Self::Finish { .. } => "finish",
            Self::Data(data) => &data.name,
        }
    }
}

/// The provider metadata of a part whose text was given up. A front end can hide the part.
pub(super) fn discarded_mark() -> Value {
    json!({"holdpoint": {"discarded": true}})
}

fn serialize_discarded<S: Serializer>(_: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    discarded_mark().serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_the_names_and_fields_of_the_protocol() {
        let json = |chunk: &Chunk| serde_json::to_string(chunk).unwrap();
        assert_eq!(json(&Chunk::StartStep), r#"{"type":"start-step"}"#);
        assert_eq!(json(&Chunk::Abort), r#"{"type":"abort"}"#);
        assert_eq!(
            json(&Chunk::Start { message_id: "msg_1".into(), message_metadata: None }),
            r#"{"type":"start","messageId":"msg_1"}"#
        );
        assert_eq!(
            json(&Chunk::TextEnd { id: "t".into(), discarded: true }),
            r#"{"type":"text-end","id":"t","providerMetadata":{"holdpoint":{"discarded":true}}}"#
        );
        assert_eq!(
            json(&Chunk::ToolApprovalRequest { approval_id: "a".into(), tool_call_id: "c".into() }),
            r#"{"type":"tool-approval-request","approvalId":"a","toolCallId":"c"}"#
        );
        assert_eq!(
            json(&Chunk::Finish { finish_reason: FinishReason::ContentFilter, message_metadata: None }),
            r#"{"type":"finish","finishReason":"content-filter"}"#
        );
        assert_eq!(
            json(&Chunk::transient("data-run", json!({"status": "running"}))),
            r#"{"type":"data-run","data":{"status":"running"},"transient":true}"#
        );
    }

    #[test]
    fn a_result_is_copied_as_it_was_stored() {
        let stored = RawValue::from_string(r#"{"b":1.50,"a":[ ]}"#.into()).unwrap();
        let output = RawOutput::from(&*stored);
        let chunk = Chunk::ToolOutputAvailable { tool_call_id: "c".into(), output, dynamic: true };
        assert_eq!(
            serde_json::to_string(&chunk).unwrap(),
            r#"{"type":"tool-output-available","toolCallId":"c","output":{"b":1.50,"a":[ ]},"dynamic":true}"#
        );
    }

    #[test]
    fn every_chunk_is_serialized_under_its_kind() {
        for chunk in [
            Chunk::TextDelta { id: "t".into(), delta: "x".into() },
            Chunk::ToolInputStart { tool_call_id: "c".into(), tool_name: "n".into(), dynamic: false },
            Chunk::ToolOutputDenied { tool_call_id: "c".into() },
            Chunk::MessageMetadata { message_metadata: json!({}) },
            Chunk::data("data-suspension", "s", json!({})),
        ] {
            let value = serde_json::to_value(&chunk).unwrap();
            assert_eq!(value["type"], chunk.kind());
        }
    }
}
