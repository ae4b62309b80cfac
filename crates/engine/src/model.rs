//! Models: the trait that answers requests.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use machine::event::Usage;
pub use machine::event::{Origin, Sealed};
use machine::id::{MessageId, RunId, ThreadId};
pub use machine::input::ModelFailure;
pub use machine::transcript::{AssistantCall, Messages, ModelMessage};
use serde_json::Value;

use crate::live::Deltas;
use crate::store::{BoxFuture, Tenant};
use crate::tool::ToolDefinition;

/// Answers requests. Implement it for a provider, or use one from the crate `models`.
pub trait Model: Send + Sync + 'static {
    /// Answers once. Partial output goes to `deltas`; the answer contains everything. Dropping the future cancels the
    /// call. A failure says whether a retry may help.
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>>;

    /// Whether the answer is usually available at once and never blocks a thread: then the worker polls it before it
    /// spawns a task. Not for a model that computes or blocks before it first awaits.
    fn answers_at_once(&self) -> bool {
        false
    }
}

/// One call of a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    pub tenant: Tenant,
    pub thread: ThreadId,
    pub run: RunId,
    pub step: u32,
    pub attempt: u32,
    /// Ordinal of this answer in the run, starting at 1. A failed call counts; one that was lost with its worker does
    /// not.
    pub ordinal: u32,
    /// The id that the answer will have.
    pub message_id: MessageId,
    pub instructions: Arc<str>,
    /// Shared with the run: reading it copies nothing.
    pub messages: Messages,
    pub tools: Vec<Arc<ToolDefinition>>,
    /// The schema that the run's last answer has to match. The instructions contain it too: pass it on if the provider
    /// has a field for it.
    pub output_schema: Option<Arc<Value>>,
    /// Parameters that plugins set for this call.
    pub params: Vec<(String, Arc<Value>)>,
}

impl ModelRequest {
    /// The user's last message, if it is text.
    #[must_use]
    pub fn last_user_text(&self) -> Option<&str> {
        let user = self.messages.iter().rev().find_map(|message| match message {
            ModelMessage::User { content, .. } => Some(content),
            ModelMessage::Assistant { .. }
            | ModelMessage::Tool { .. }
            | ModelMessage::Note { .. }
            | ModelMessage::Notice { .. } => None,
        })?;
        user.as_str()
    }
}

/// A complete answer: text, calls, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelAnswer {
    pub text: String,
    pub reasoning: Option<String>,
    pub calls: Vec<ModelCall>,
    pub usage: Usage,
    /// What the log keeps about the model that answered, and what is sent back to its provider.
    pub origin: Origin,
}

impl ModelAnswer {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    #[must_use]
    pub fn calling(mut self, id: &str, tool: &str, arguments: impl Borrow<Value>) -> Self {
        let arguments = arguments.borrow().to_string();
        self.calls.push(ModelCall { id: id.into(), tool: tool.into(), arguments });
        self
    }
}

/// A call as the model requested it: nothing is checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCall {
    /// May be empty, or used before.
    pub id: String,
    pub tool: String,
    /// JSON, if the model complied.
    pub arguments: String,
}

impl fmt::Debug for dyn Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Model")
    }
}
