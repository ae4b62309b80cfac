//! A message of a thread, and what is sent to the model of it.

use engine::store::MessageView;
use machine::Timestamp;
use machine::event::Message as Stored;
use machine::id::{Principal, RunId};
use machine::transcript::{AssistantCall, ModelMessage};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::enums::{CallStatus, Role};
use super::is_false;
use super::time::Time;

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Message {
    pub id: String,
    pub run_id: String,
    pub role: Role,
    /// A text, or what the user sent. Of a tool: what the model reads.
    #[schema(value_type = Value)]
    pub content: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// The call that a tool message or a note is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub call_id: Option<String>,
    /// Of the call, in its tool message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<CallStatus>,
    /// Of a user's message: the caller who sent it. Absent where another run delegated the task, and in messages from before
    /// this was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// Which of the agent's models answered, where it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub model: Option<String>,
    /// Null where the message cannot be decoded.
    pub created_at: Option<Time>,
    /// True where the message cannot be decoded: `content` is null.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    pub unreadable: bool,
}

/// A call that an assistant message asks for.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ToolCall {
    pub call_id: String,
    pub tool: String,
    /// The model's own, also where something else ran.
    #[schema(value_type = Value)]
    pub arguments: Value,
}

/// What other events of the log say about a message, or about the end of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HydratedBody {
    pub content: Value,
    pub tool_calls: Vec<ToolCall>,
    /// The caller who sent the message, or whose interrupt ended the run.
    pub by: Option<String>,
    /// The output with which the run ended.
    pub output: Option<Value>,
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
        Self {
            id: stored.id().as_str().into(),
            run_id: run.as_str().into(),
            role,
            content: body.content,
            tool_calls: (!body.tool_calls.is_empty()).then_some(body.tool_calls),
            call_id: call_id.map(|call| call.as_str().into()),
            status: status.map(Into::into),
            by: body.by,
            model: model_of(stored),
            created_at: Some(at.into()),
            unreadable: false,
        }
    }

    /// What the row of a message contains, without its event.
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
            model: None,
            created_at: view.said.as_ref().map(|said| said.at.into()),
            unreadable: true,
        }
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

/// A message as the model sees it now, placeholders and cancelled results included.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ModelSees {
    /// Results and notes go to the model without an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub id: Option<String>,
    pub role: Role,
    /// Of a user's message: the caller who sent it. The model is not sent the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
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
        Self {
            id: id.map(|id| id.as_str().into()),
            role,
            by: sender_of(message).map(|by| by.as_str().into()),
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

/// `GET /v1/runs/{id}/transcript`
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Transcript {
    pub messages: Vec<ModelSees>,
}
