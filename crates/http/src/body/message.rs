//! A message to an agent, as a client posts it.

use std::sync::Arc;

use engine::posting::{self, INLINE_TOOLS_MAX};
use engine::store::Tenant;
use engine::tool::{Performer, ToolDefinition};
use machine::id::{AgentName, MessageId, Principal, ThreadId};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa::openapi::{Array, Object, OneOf, Schema, Type};

use super::policy::{ApprovalScope, OnBusy, PolicyFields};
use super::strict::{object, present, present_object};
use super::text::{ForeignId, Id, Text};
use crate::error::{ApiError, bad_field};

/// Body of `POST /v1/threads/{id}/messages`.
#[derive(Clone, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostMessage {
    pub agent: Text<1, 128>,
    /// The message as text. Send either `text` or `content`.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub text: Option<String>,
    /// A text, or a list of parts.
    #[serde(default, deserialize_with = "content")]
    #[schema(schema_with = text_or_parts)]
    pub content: Option<Value>,
    /// The id of the new message. Default: the server generates one.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub message_id: Option<Id>,
    /// The id of the message to continue after, to edit or regenerate what followed it. Default: the newest message of
    /// the thread.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub after: Option<ForeignId>,
    /// If true, calls of this run are not held by policy. Needs the role `approve`.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub auto_approve: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub on_busy: Option<OnBusy>,
    #[serde(default, deserialize_with = "present_object")]
    #[schema(nullable = false)]
    pub policy: Option<PolicyFields>,
    /// Tools that the caller's front end executes, for this run only.
    #[serde(default, deserialize_with = "client_tools")]
    #[schema(nullable = false)]
    pub tools: Option<Vec<ClientTool>>,
    /// JSON Schema for the final answer of the run. Takes precedence over the agent's own.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub output_schema: Option<Map<String, Value>>,
}

/// A tool that the caller's front end executes.
#[derive(Clone, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientTool {
    pub name: Id,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub description: Option<Text<0, 4_000>>,
    /// JSON Schema of its arguments.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub parameters: Option<Map<String, Value>>,
}

impl ClientTool {
    fn definition(self) -> ToolDefinition {
        let description = self.description.as_deref().unwrap_or_default();
        let definition = ToolDefinition::new(&self.name, description).performed_by(Performer::Client);
        match self.parameters {
            Some(parameters) => definition.parameters(Value::Object(parameters)),
            None => definition,
        }
    }
}

impl PostMessage {
    /// The message for the engine. `may_loosen`: the caller has the role `approve`, so it may loosen the policy.
    pub fn into_message(
        self,
        tenant: Tenant,
        thread: ThreadId,
        principal: Principal,
        may_loosen: bool,
    ) -> Result<posting::Message, ApiError> {
        let mut policy = self.policy.unwrap_or_default();
        if self.auto_approve == Some(true) {
            match policy.approval {
                None | Some(ApprovalScope::Never) => policy.approval = Some(ApprovalScope::Never),
                Some(ApprovalScope::Policy | ApprovalScope::WriteTools | ApprovalScope::AllTools) => {
                    return Err(bad_field(
                        "auto_approve",
                        "it contradicts `policy.approval`, and no run was started; send one of the two",
                    ));
                }
            }
        }
        let content = match (self.text, self.content) {
            (Some(_), Some(_)) => {
                return Err(bad_field("content", "the message also has a `text`; send one of the two"));
            }
            (Some(text), None) => Some(Value::String(text)),
            (None, content) => content,
        };
        if content.is_none() && self.after.is_none() {
            return Err(bad_field("text", "the message is empty; send `text` or `content`"));
        }
        Ok(posting::Message {
            tenant,
            thread: posting::ThreadTarget::Existing(thread),
            agent: AgentName::from(&*self.agent),
            content,
            message_id: self.message_id.map(|id| MessageId::from(&*id)),
            after: self.after.map(|id| MessageId::from(&*id)),
            key: None,
            on_busy: self.on_busy.map(Into::into),
            policy: policy.into(),
            tools: self.tools.into_iter().flatten().map(ClientTool::definition).collect(),
            output_schema: self.output_schema.map(|schema| Arc::new(Value::Object(schema))),
            by: principal,
            may_approve: may_loosen,
        })
    }
}

fn text_or_parts() -> Schema {
    let parts = Array::new(Object::with_type(Type::Object));
    OneOf::builder().item(Object::with_type(Type::String)).item(parts).build().into()
}

fn content<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let content = Value::deserialize(deserializer)?;
    match &content {
        Value::String(_) => Ok(Some(content)),
        Value::Array(parts) if parts.iter().all(Value::is_object) => Ok(Some(content)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(D::Error::custom("expected a text, or a list of parts that are objects"))
        }
    }
}

fn client_tools<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<ClientTool>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Entry(#[serde(deserialize_with = "object")] ClientTool);

    let tools = Vec::<Entry>::deserialize(deserializer)?;
    if tools.len() > INLINE_TOOLS_MAX {
        return Err(D::Error::custom(format!("{} tools, at most {INLINE_TOOLS_MAX}", tools.len())));
    }
    Ok(Some(tools.into_iter().map(|Entry(tool)| tool).collect()))
}
