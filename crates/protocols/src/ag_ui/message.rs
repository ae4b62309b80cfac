//! The messages of a conversation as AG-UI writes them.

use serde::Serialize;
use serde_json::Value;

use crate::feed::RequestedCall;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum AgUiMessage {
    User {
        id: String,
        /// A text, or a list of parts as the client sent them.
        content: Value,
    },
    Assistant {
        id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<AgUiToolCall>,
    },
    Tool {
        id: String,
        tool_call_id: String,
        content: String,
    },
    Reasoning {
        id: String,
        content: String,
    },
}

/// A call in an assistant message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgUiToolCall {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: AgUiFunction,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgUiFunction {
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

impl AgUiToolCall {
    #[must_use]
    pub fn from_call(call: &RequestedCall) -> Self {
        let function = AgUiFunction { name: call.tool.clone(), arguments: call.arguments.to_string() };
        Self { id: call.call_id.clone(), kind: "function", function }
    }
}

impl AgUiMessage {
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::User { id, .. }
            | Self::Assistant { id, .. }
            | Self::Tool { id, .. }
            | Self::Reasoning { id, .. } => id,
        }
    }

    /// A reasoning message stays at the client even if a snapshot does not contain it.
    #[must_use]
    pub const fn is_reasoning(&self) -> bool {
        match self {
            Self::Reasoning { .. } => true,
            Self::User { .. } | Self::Assistant { .. } | Self::Tool { .. } => false,
        }
    }

    const fn is_tool(&self) -> bool {
        match self {
            Self::Tool { .. } => true,
            Self::User { .. } | Self::Assistant { .. } | Self::Reasoning { .. } => false,
        }
    }

    fn owns(&self, call_id: &str) -> bool {
        match self {
            Self::Assistant { tool_calls, .. } => tool_calls.iter().any(|call| call.id == call_id),
            Self::User { .. } | Self::Tool { .. } | Self::Reasoning { .. } => false,
        }
    }
}

/// The id of the reasoning that belongs to an assistant message. The two are separate messages in AG-UI.
pub(super) fn reasoning_id(message_id: &str) -> String {
    format!("{message_id}_reasoning")
}

/// The id of the tool message of a call, as Holdpoint derives it.
pub(super) fn tool_message_id(call_id: &str) -> String {
    format!("msg_{call_id}")
}

/// Adds a call to its assistant message. A message without text begins to exist with its first call.
pub(super) fn add_call(messages: &mut Vec<AgUiMessage>, message_id: &str, call: &RequestedCall) {
    for message in messages.iter_mut() {
        if let AgUiMessage::Assistant { id, tool_calls, .. } = message
            && id == message_id
        {
            tool_calls.push(AgUiToolCall::from_call(call));
            return;
        }
    }
    let tool_calls = vec![AgUiToolCall::from_call(call)];
    messages.push(AgUiMessage::Assistant { id: message_id.to_owned(), content: None, tool_calls });
}

/// Puts the result of a call where a client puts it: after the assistant message and the results that it has already.
/// Replaces the text if the call has a result. Returns false if the same text was there.
pub(super) fn set_result(
    messages: &mut Vec<AgUiMessage>,
    call_id: &str,
    message_id: String,
    text: &str,
) -> bool {
    for message in messages.iter_mut() {
        if let AgUiMessage::Tool { tool_call_id, content, .. } = message
            && tool_call_id == call_id
        {
            let differs = content != text;
            text.clone_into(content);
            return differs;
        }
    }
    let owner = messages.iter().position(|message| message.owns(call_id));
    let mut at = owner.map_or(messages.len(), |owner| owner + 1);
    while owner.is_some() && messages.get(at).is_some_and(AgUiMessage::is_tool) {
        at += 1;
    }
    let result =
        AgUiMessage::Tool { id: message_id, tool_call_id: call_id.to_owned(), content: text.to_owned() };
    messages.insert(at, result);
    true
}
