//! The UI message stream of the AI SDK, in the form that every client from 6.0.0 to the newest 7.x accepts.
//!
//! One run is one assistant message. Its id is derived from the run id, so the first stream, every continuation, a
//! resumed stream and a reload all describe the same message. A [`ChunkEncoder`] turns the items of a run into chunks,
//! a [`ChunkVerifier`] refuses chunks that some client would reject, and a [`MessageReducer`] folds chunks into the
//! message that the client shows. [`parse_request`] reads what the client posts.
//!
//! Rules that hold for all of them:
//!
//! - A tool that the front end executes is a static part (`tool-NAME`), so `onToolCall` and `addToolOutput` work for
//!   it. Every other tool is a dynamic part, because the front end need not know it when it is compiled.
//! - `tool-input-available` of a client tool makes the client execute it. It is sent only when the run hands the call
//!   over: while an approval is pending, the part has its input from `tool-input-delta`.
//! - Questions, calls in doubt, external calls and delegated runs are `data-suspension` parts. They are answered over
//!   REST.
//! - From the posted history only decisions and outputs of client tools are taken, and `http` checks those against the
//!   stored run.

mod chunk;
mod encode;
mod hydrate;
mod message;
mod reduce;
mod request;
mod seen;
mod verify;

pub use chunk::{Chunk, DataChunk, FinishReason, RawOutput};
pub use encode::ChunkEncoder;
pub use hydrate::{run_messages, user_message};
pub use message::{TextState, ToolState, UiApproval, UiMessage, UiPart, UiRole, UiToolPart};
pub use reduce::MessageReducer;
pub use request::{
    ANSWERS_MAX, AiDecision, ChatAction, ChatRequest, ChatRequestError, ClientToolOutput, MESSAGES_MAX,
    PARTS_MAX, parse_request,
};
pub use seen::{Seen, SeenTool};
pub use verify::{ChunkRule, ChunkVerifier, IllegalChunk};

/// Data of the last SSE frame of every stream.
pub const DONE: &str = "[DONE]";

/// The header that marks a UI message stream, with its value in v6 and v7.
pub const VERSION_HEADER: (&str, &str) = ("x-vercel-ai-ui-message-stream", "v1");

const MESSAGE_ID_PREFIX: &str = "msg_";

/// The id of the assistant message that shows this run.
#[must_use]
pub fn message_id(run_id: &str) -> String {
    format!("{MESSAGE_ID_PREFIX}{run_id}")
}

/// The run that an assistant message shows. None if the id is not one of ours.
#[must_use]
pub fn run_id_of(message_id: &str) -> Option<&str> {
    message_id.strip_prefix(MESSAGE_ID_PREFIX).filter(|run_id| !run_id.is_empty())
}
