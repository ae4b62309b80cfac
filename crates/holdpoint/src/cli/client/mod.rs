//! Commands that ask a running server: `runs`, `approvals` and `replay`.
//!
//! What a model, a tool or a person has said reaches a terminal only through `plain`: nobody's words move the cursor, and
//! nobody's words look like ours. With `--json` the server's own JSON goes out as it came in.

mod address;
mod approvals;
mod connection;
mod first_bytes;
mod frames;
mod listed;
mod live;
mod plain;
mod refusal;
mod replay;
mod runs;
mod story;
mod times;
mod wire;

pub(super) use approvals::Approvals;
pub(super) use plain::plain;
pub(super) use refusal::Refusal;
pub(super) use replay::Replay;
pub(super) use runs::Runs;
