//! Messages as stored in the log. Texts are stored once: a message refers to the event that has them.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::event::Usage;
use crate::id::{CallId, MessageId, ToolName};
use crate::output::OutputFit;
use crate::status::CallStatus;
use crate::suspension::SuspensionKind;
use crate::tool::Arguments;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// The content is in `run.queued`.
    User {
        id: MessageId,
    },
    Assistant {
        id: MessageId,
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<String>,
        calls: Vec<CallInMessage>,
        usage: Usage,
        /// Stop conditions whose pattern the text matches.
        matched: Vec<u16>,
        /// If the run's last answer has to fit a schema: whether this one does. Never set together with calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<OutputFit>,
        #[serde(default, skip_serializing_if = "Origin::is_empty")]
        origin: Origin,
    },
    Tool {
        id: MessageId,
        call_id: CallId,
        status: CallStatus,
        body: ToolBody,
    },
    Note {
        id: MessageId,
        call_id: CallId,
        body: NoteBody,
    },
    /// Informs the model, in the user role, that its last answer does not fit the wanted output.
    Correction {
        id: MessageId,
        why: String,
    },
    /// Informs the model, in the user role, that its last answer asked for more calls than the run could take.
    CallsDropped {
        id: MessageId,
        taken: u32,
        dropped: u32,
    },
    /// Informs the model that answers next, in the user role, that the run was interrupted during a model call.
    Interruption {
        id: MessageId,
    },
}

impl Message {
    #[must_use]
    pub const fn id(&self) -> &MessageId {
        match self {
            Self::User { id }
            | Self::Assistant { id, .. }
            | Self::Tool { id, .. }
            | Self::Note { id, .. }
            | Self::Correction { id, .. }
            | Self::CallsDropped { id, .. }
            | Self::Interruption { id } => id,
        }
    }
}

/// Where an answer comes from, as far as later steps need it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Which of the agent's models answered, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Sealed>,
}

impl Origin {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.model.is_none() && self.sealed.is_none()
    }
}

/// Reasoning that a provider signed or encrypted and wants back with the results of the calls. Only it can read this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The provider that made it. It is sent to no other provider.
    pub by: String,
    pub content: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallInMessage {
    pub call_id: CallId,
    pub tool: ToolName,
    /// The model's own arguments, if a hook replaced them. Otherwise they are in `tool.requested`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_arguments: Option<Arguments>,
}

/// Where the text of a tool message comes from. Results are stored once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolBody {
    /// The event that made the call terminal.
    Settled { seq: u64 },
    /// The call is held, and the model is called without its result.
    Placeholder { kind: Option<SuspensionKind> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteBody {
    /// The result of a call that had a placeholder.
    Late { seq: u64 },
    /// A note that a hook of AfterToolExecute asked for, in its recorded answer.
    Plugin { seq: u64 },
}
