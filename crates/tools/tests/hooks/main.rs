//! Hooks over HTTP, asked by an engine, against a server that answers, stalls, hangs up and lies.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and looks for one event among many"
)]

mod actions;
mod failures;
mod harness;
mod questions;
mod recorded;
mod server;
