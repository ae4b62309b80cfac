//! A message of a thread, and the form in which it is sent to the model.

use engine::store::MessageView;
use machine::Timestamp;
use machine::event::Message as Stored;
use machine::id::{Principal, RunId};
use machine::transcript::{AssistantCall, ModelMessage};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::enums::{CallStatus, Role};
use super::time::Time;
use super::{is_false, principal_parts};

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Message {
    pub id: String,
    pub run_id: String,
    pub role: Role,
    /// The text. For a user message: the content that the client sent. For a tool message: the text that the model
    /// reads.
    #[schema(value_type = Value)]
    pub content: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// Only in a tool message or a note: the call that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub call_id: Option<String>,
    /// Only in a tool message: the status of its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<CallStatus>,
    /// Only in a user message: the caller who sent it. Absent if another run delegated the task, or if the message was
    /// stored before senders were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// The key that acted for `by`. Absent if `by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
    /// The model that answered. Absent unless the agent has several models.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub model: Option<String>,
    /// Only in an assistant message: the model's reasoning, if it sent any. Only the translators of front-end protocols
    /// show it.
    #[serde(skip)]
    #[schema(ignore)]
    pub reasoning: Option<String>,
    /// When the message was added. Null only if the message cannot be decoded.
    pub created_at: Option<Time>,
    /// True if the message cannot be decoded. Then `content` is null. Absent otherwise.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    pub unreadable: bool,
}

/// A tool call that an assistant message requests.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ToolCall {
    pub call_id: String,
    pub tool: String,
    /// The model's own arguments, even if the call ran with others.
    #[schema(value_type = Value)]
    pub arguments: Value,
}

/// What other events of the log contain of a message, of a call, or of the end of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HydratedBody {
    pub content: Value,
    pub tool_calls: Vec<ToolCall>,
    /// The caller who sent the message, or whose interrupt ended the run.
    pub by: Option<Principal>,
    /// The output with which the run ended.
    pub output: Option<Value>,
    /// The tool of the call that the event is about. Empty for any other event.
    pub tool: String,
    /// The arguments of the call, for an event that shows them and does not contain them.
    pub arguments: Option<Value>,
}

impl Message {
    #[must_use]
    pub fn from_stored(run: &RunId, stored: &Stored, body: HydratedBody, at: Timestamp) -> Self {
        let (role, call_id, status) = match stored {
            Stored::User { .. } => (Role::User, None, None),
            Stored::Assistant { .. } => (Role::Assistant, None, None),
            Stored::Tool { call_id, status, .. } => (Role::Tool, Some(call_id), Some(*status)),
            Stored::Note { call_id, .. } => (Role::Note, Some(call_id), None),
            Stored::Correction { .. } | Stored::CallsDropped { .. } | Stored::Interruption { .. } => {
                (Role::Note, None, None)
            }
        };
        let (by, via) = principal_parts(body.by.as_ref());
        Self {
            id: stored.id().as_str().into(),
            run_id: run.as_str().into(),
            role,
            content: body.content,
            tool_calls: (!body.tool_calls.is_empty()).then_some(body.tool_calls),
            call_id: call_id.map(|call| call.as_str().into()),
            status: status.map(Into::into),
            by,
            via,
            model: model_of(stored),
            reasoning: reasoning_of(stored),
            created_at: Some(at.into()),
            unreadable: false,
        }
    }

    /// Built from the row of a message alone, because its event cannot be decoded.
    #[must_use]
    pub fn unreadable(view: &MessageView) -> Self {
        Self {
            id: view.id.as_str().into(),
            run_id: view.run.as_str().into(),
            role: view.role.into(),
            content: Value::Null,
            tool_calls: None,
            call_id: None,
            status: None,
            by: None,
            via: None,
            model: None,
            reasoning: None,
            created_at: view.said.as_ref().map(|said| said.at.into()),
            unreadable: true,
        }
    }
}

fn reasoning_of(stored: &Stored) -> Option<String> {
    match stored {
        Stored::Assistant { reasoning, .. } => reasoning.clone(),
        Stored::User { .. }
        | Stored::Tool { .. }
        | Stored::Note { .. }
        | Stored::Correction { .. }
        | Stored::CallsDropped { .. }
        | Stored::Interruption { .. } => None,
    }
}

fn model_of(stored: &Stored) -> Option<String> {
    match stored {
        Stored::Assistant { origin, .. } => origin.model.clone(),
        Stored::User { .. }
        | Stored::Tool { .. }
        | Stored::Note { .. }
        | Stored::Correction { .. }
        | Stored::CallsDropped { .. }
        | Stored::Interruption { .. } => None,
    }
}

/// A message as the model sees it now. Placeholders and the results of cancelled calls are included.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ModelSees {
    /// Absent in tool results and notes, which the model receives without an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub id: Option<String>,
    pub role: Role,
    /// Only in a user message: the caller who sent it. The name is not sent to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// The key that acted for `by`. Absent if `by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
    #[schema(value_type = Value)]
    pub content: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tool_calls: Option<Vec<ToolCall>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub call_id: Option<String>,
}

impl ModelSees {
    #[must_use]
    pub fn from_model_message(message: &ModelMessage) -> Self {
        let text = |text: &String| Value::String(text.clone());
        let (id, role, content, calls, call) = match message {
            ModelMessage::User { id, content, .. } => (Some(id), Role::User, (**content).clone(), None, None),
            ModelMessage::Assistant { id, text: said, calls, .. } => {
                (Some(id), Role::Assistant, text(said), Some(calls), None)
            }
            ModelMessage::Tool { call, text: said } => (None, Role::Tool, text(said), None, Some(call)),
            ModelMessage::Note { call, text: said, .. } => (None, Role::Note, text(said), None, Some(call)),
            ModelMessage::Notice { text: said } => (None, Role::Note, text(said), None, None),
        };
        let (by, via) = principal_parts(sender_of(message));
        Self {
            id: id.map(|id| id.as_str().into()),
            role,
            by,
            via,
            content,
            tool_calls: calls
                .filter(|calls| !calls.is_empty())
                .map(|calls| calls.iter().map(ToolCall::from_assistant_call).collect()),
            call_id: call.map(|call| call.as_str().into()),
        }
    }
}

const fn sender_of(message: &ModelMessage) -> Option<&Principal> {
    match message {
        ModelMessage::User { by, .. } => by.as_ref(),
        ModelMessage::Assistant { .. }
        | ModelMessage::Tool { .. }
        | ModelMessage::Note { .. }
        | ModelMessage::Notice { .. } => None,
    }
}

impl ToolCall {
    fn from_assistant_call(call: &AssistantCall) -> Self {
        Self {
            call_id: call.id.as_str().into(),
            tool: call.tool.as_str().into(),
            arguments: super::arguments(&call.arguments),
        }
    }
}

/// Response of `GET /v1/runs/{id}/transcript`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Transcript {
    pub messages: Vec<ModelSees>,
}
