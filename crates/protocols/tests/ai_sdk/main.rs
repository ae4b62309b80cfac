//! The UI message stream of the AI SDK: what is streamed, continued, resumed, reloaded, posted and refused.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

mod chat_client;
mod run_script;

mod approvals;
mod client_tools;
mod cut_points;
mod endings;
mod golden_streams;
mod hydration;
mod illegal_streams;
mod page;
mod random_runs;
mod random_story;
mod requests;
mod streaming;
mod suspensions;
