//! The server as its clients meet it: a real port, a real engine, a scripted model, real tools, two stores.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a story that cannot be told fails"
)]

mod client;
mod client_tools;
mod crowds;
mod decisions;
mod document;
mod doors;
mod endings;
mod heard_later;
mod keys;
mod limits;
mod roles;
mod stage;
mod stories;
mod streams;
mod strictness;
