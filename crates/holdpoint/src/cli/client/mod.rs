//! Commands that talk to a running server: `runs`, `approvals` and `replay`.
//!
//! Text from a model, a tool or a person reaches a terminal only through `escaped`, so that it can neither move the
//! cursor nor imitate the program's own output. With `--json` the server's JSON is printed as received.

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
