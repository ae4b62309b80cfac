//! Hooks over HTTP, asked by an engine, against a server that answers, stalls, hangs up and lies.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod actions;
mod failures;
mod harness;
mod questions;
mod recorded;
mod server;
