//! The server as its clients meet it: a real port, a real engine, a scripted model, real tools, every store.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a story that cannot be told fails"
)]

mod addressing;
mod answers;
mod bounds;
mod callbacks;
mod changed_tools;
mod client;
mod client_tools;
mod connections;
mod contract;
mod crowds;
mod decisions;
mod document;
mod doors;
mod draining;
mod endings;
mod error_pages;
mod fuzz;
mod grants;
mod heard_later;
mod in_doubt;
mod json_texts;
mod keys;
mod limits;
mod lists;
mod metrics;
mod neighbours;
mod open_mode;
mod outputs;
mod places;
#[path = "../../../stores/tests/postgres/server.rs"]
#[allow(dead_code, reason = "stories need little of what the store's own tests need")]
mod postgres_server;
mod questions;
mod raw;
mod records;
mod roles;
mod rotation;
mod scopes;
mod senders;
mod stage;
mod stories;
mod streams;
mod strictness;
mod thread_races;
mod watched_store;
