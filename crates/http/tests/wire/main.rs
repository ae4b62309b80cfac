//! How our things look in JSON: golden envelopes of whole logs, the keys of every payload, and what is folded from them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

mod approvals;
mod calls;
mod hydrate;
mod keys;
mod live;
mod page;
mod runs;
mod snapshots;
mod stories;
mod streams;
mod tool_events;
mod typescript;
mod union;
