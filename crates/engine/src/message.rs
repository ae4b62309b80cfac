//! A message to an agent, and the thread it is posted to.

use std::sync::Arc;

use machine::id::{AgentName, MessageId, Principal, ThreadId};
use machine::policy::{OnBusy, PolicyRequest};
use serde_json::Value;

use crate::store::{PostKey, Tenant};
use crate::tool::ToolDefinition;

/// The thread that a message is posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadTarget {
    /// A new one, for which the engine generates an id.
    New,
    /// The thread with this id. The message creates it if it does not exist.
    Named(ThreadId),
    /// The thread with this id. The message is refused if it does not exist
    /// ([`PostError::NoSuchThread`](crate::posting::PostError::NoSuchThread)).
    Existing(ThreadId),
}

impl ThreadTarget {
    /// None for a thread that has no id yet.
    #[must_use]
    pub const fn id(&self) -> Option<&ThreadId> {
        match self {
            Self::New => None,
            Self::Named(id) | Self::Existing(id) => Some(id),
        }
    }
}

/// A message from a user to an agent.
#[derive(Clone, Debug)]
pub struct Message {
    pub tenant: Tenant,
    pub thread: ThreadTarget,
    pub agent: AgentName,
    /// None answers the message before it again.
    pub content: Option<Value>,
    /// The id of the message; None generates one.
    pub message_id: Option<MessageId>,
    /// The message after which it begins: edit and regenerate begin after an earlier one. None: after the thread's
    /// last.
    pub after: Option<MessageId>,
    pub on_busy: Option<OnBusy>,
    pub policy: PolicyRequest,
    /// Tools that the sender's front end performs, only for this run.
    pub tools: Vec<ToolDefinition>,
    /// A JSON Schema that the last answer of this run has to match, whatever the agent's own setting.
    pub output_schema: Option<Arc<Value>>,
    pub by: Principal,
    /// The sender may approve calls, and therefore may also ask that fewer calls wait.
    pub may_approve: bool,
    /// Identifies a repeat. It is scoped to the thread, so it has no effect if the message begins a new one.
    pub key: Option<PostKey>,
}

impl Message {
    pub fn to(agent: &str, text: impl Into<String>) -> Self {
        Self {
            tenant: Tenant::default(),
            thread: ThreadTarget::New,
            agent: AgentName::from(agent),
            content: Some(Value::from(text.into())),
            message_id: None,
            after: None,
            on_busy: None,
            policy: PolicyRequest::default(),
            tools: Vec::new(),
            output_schema: None,
            by: Principal::from("anonymous"),
            may_approve: false,
            key: None,
        }
    }

    /// The thread is created if it does not exist.
    #[must_use]
    pub fn on_thread(mut self, thread: impl Into<ThreadId>) -> Self {
        self.thread = ThreadTarget::Named(thread.into());
        self
    }

    /// The message is refused if the thread does not exist.
    #[must_use]
    pub fn on_existing_thread(mut self, thread: impl Into<ThreadId>) -> Self {
        self.thread = ThreadTarget::Existing(thread.into());
        self
    }

    #[must_use]
    pub fn for_tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// The sender. The name must come from the code that authenticated it, never from the message itself.
    #[must_use]
    pub fn by(mut self, principal: &str) -> Self {
        self.by = Principal::from(principal);
        self
    }

    #[must_use]
    pub fn with_key(mut self, key: PostKey) -> Self {
        self.key = Some(key);
        self
    }

    #[must_use]
    pub const fn if_busy(mut self, on_busy: OnBusy) -> Self {
        self.on_busy = Some(on_busy);
        self
    }
}
