//! Messages as the client keeps and posts them.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::chunk::{RawOutput, discarded_mark};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UiMessage {
    pub id: String,
    pub role: UiRole,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    pub parts: Vec<UiPart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UiRole {
    User,
    Assistant,
}

#[derive(Clone, Debug, PartialEq)]
pub enum UiPart {
    /// The boundary before each step of the model.
    StepStart,
    Text {
        text: String,
        state: Option<TextState>,
        /// The attempt of the model that wrote this was given up.
        discarded: bool,
    },
    Reasoning {
        text: String,
        state: Option<TextState>,
        discarded: bool,
    },
    File {
        media_type: String,
        url: String,
        filename: Option<String>,
    },
    Tool(UiToolPart),
    Data {
        /// With the prefix `data-`.
        name: String,
        id: Option<String>,
        data: Value,
    },
}

/// Whether the chunk that ends a text has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TextState {
    Streaming,
    Done,
}

/// A tool call in a message.
#[derive(Clone, Debug, PartialEq)]
pub struct UiToolPart {
    pub call_id: String,
    pub tool: String,
    /// False for a tool that the front end executes.
    pub dynamic: bool,
    pub state: ToolState,
    pub input: Option<Value>,
    pub output: Option<RawOutput>,
    pub error_text: Option<String>,
    pub approval: Option<UiApproval>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolState {
    InputStreaming,
    InputAvailable,
    ApprovalRequested,
    /// The user has answered. The client posts the answer.
    ApprovalResponded,
    OutputAvailable,
    OutputError,
    OutputDenied,
}

impl ToolState {
    pub(super) fn from_wire(name: &str) -> Option<Self> {
        Some(match name {
            "input-streaming" => Self::InputStreaming,
            "input-available" => Self::InputAvailable,
            "approval-requested" => Self::ApprovalRequested,
            "approval-responded" => Self::ApprovalResponded,
            "output-available" => Self::OutputAvailable,
            "output-error" => Self::OutputError,
            "output-denied" => Self::OutputDenied,
            _ => return None,
        })
    }

    #[must_use]
    pub const fn is_settled(self) -> bool {
        match self {
            Self::OutputAvailable | Self::OutputError | Self::OutputDenied => true,
            Self::InputStreaming
            | Self::InputAvailable
            | Self::ApprovalRequested
            | Self::ApprovalResponded => false,
        }
    }

    /// Whether an approval is pending as far as the client knows, or answered only by its own user.
    pub(super) const fn awaits_approval(self) -> bool {
        match self {
            Self::ApprovalRequested | Self::ApprovalResponded => true,
            Self::InputStreaming
            | Self::InputAvailable
            | Self::OutputAvailable
            | Self::OutputError
            | Self::OutputDenied => false,
        }
    }
}

/// The approval of a call. The client sets `approved` and `reason` when its user answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UiApproval {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Serialize for UiPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::StepStart => map.serialize_entry("type", "step-start")?,
            Self::Text { text, state, discarded } => {
                map.serialize_entry("type", "text")?;
                serialize_text::<S>(&mut map, text, *state, *discarded)?;
            }
            Self::Reasoning { text, state, discarded } => {
                map.serialize_entry("type", "reasoning")?;
                serialize_text::<S>(&mut map, text, *state, *discarded)?;
            }
            Self::File { media_type, url, filename } => {
                map.serialize_entry("type", "file")?;
                map.serialize_entry("mediaType", media_type)?;
                serialize_present::<S>(&mut map, "filename", filename.as_ref())?;
                map.serialize_entry("url", url)?;
            }
            Self::Tool(part) => part.serialize_fields::<S>(&mut map)?,
            Self::Data { name, id, data } => {
                map.serialize_entry("type", name)?;
                serialize_present::<S>(&mut map, "id", id.as_ref())?;
                map.serialize_entry("data", data)?;
            }
        }
        map.end()
    }
}

impl UiToolPart {
    fn serialize_fields<S: Serializer>(&self, map: &mut S::SerializeMap) -> Result<(), S::Error> {
        if self.dynamic {
            map.serialize_entry("type", "dynamic-tool")?;
            map.serialize_entry("toolName", &self.tool)?;
        } else {
            map.serialize_entry("type", &format!("tool-{}", self.tool))?;
        }
        map.serialize_entry("toolCallId", &self.call_id)?;
        map.serialize_entry("state", &self.state)?;
        serialize_present::<S>(map, "input", self.input.as_ref())?;
        serialize_present::<S>(map, "output", self.output.as_ref())?;
        serialize_present::<S>(map, "errorText", self.error_text.as_ref())?;
        serialize_present::<S>(map, "approval", self.approval.as_ref())
    }
}

fn serialize_text<S: Serializer>(
    map: &mut S::SerializeMap,
    text: &str,
    state: Option<TextState>,
    discarded: bool,
) -> Result<(), S::Error> {
    map.serialize_entry("text", text)?;
    serialize_present::<S>(map, "state", state.as_ref())?;
    if discarded {
        map.serialize_entry("providerMetadata", &discarded_mark())?;
    }
    Ok(())
}

fn serialize_present<S: Serializer>(
    map: &mut S::SerializeMap,
    key: &str,
    value: Option<&impl Serialize>,
) -> Result<(), S::Error> {
    match value {
        Some(value) => map.serialize_entry(key, value),
        None => Ok(()),
    }
}
