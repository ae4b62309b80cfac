//! The server as its clients meet it: a real port, a real engine, a scripted model, real tools, every store.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod acting_for;
mod addressing;
mod ag_ui;
mod audit;
mod bounds;
mod browser_origins;
mod browser_tokens;
mod callbacks;
mod capacity;
mod changed_tools;
mod client;
mod client_tools;
mod concurrency;
mod connections;
mod contract;
mod decisions;
mod deferred_decisions;
mod document;
mod draining;
mod endings;
mod error_pages;
mod fuzz;
mod grants;
mod half_sent;
mod in_doubt;
mod json_texts;
mod keys;
mod limits;
mod lists;
mod metrics;
mod open_mode;
mod origins;
mod outputs;
#[path = "../../../stores/tests/postgres/server.rs"]
#[allow(dead_code, reason = "stories need little of what the store's own tests need")]
mod postgres_server;
mod probe_store;
mod questions;
mod records;
mod response_budget;
mod roles;
mod rotation;
mod scopes;
mod senders;
mod stories;
mod streams;
mod strictness;
mod tenant_isolation;
mod test_server;
mod thread_races;
mod thread_stream;
mod waits;
