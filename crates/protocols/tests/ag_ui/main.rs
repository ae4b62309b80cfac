//! AG-UI streams and requests, judged by the rules and by a model of the client.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

mod ask;
mod client;
mod copilot_kit;
mod decisions;
mod feed_story;
mod property;
mod reader;
mod requests;
mod stories;
mod stories_of_waiting;
mod verifier;
mod world;
