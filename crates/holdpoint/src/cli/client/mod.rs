//! Commands that ask a running server: `runs`, `approvals` and `replay`.
//!
//! What a model, a tool or a person has said reaches a terminal only through `escaped`: nobody's words move the cursor, and
//! nobody's words look like ours. With `--json` the server's own JSON goes out as it came in.

mod address;
mod api_error;
mod approvals;
mod connection;
mod event_formatter;
mod first_bytes;
mod live_text;
mod pagination;
mod replay;
mod runs;
mod sse;
mod terminal_text;
mod times;
mod wire;

pub(super) use api_error::ApiError;
pub(super) use approvals::Approvals;
pub(super) use replay::Replay;
pub(super) use runs::Runs;
pub(super) use terminal_text::escaped;
