//! What a client may send: read strictly, turned into what the engine is asked, and never a panic.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a body that is misread fails the test"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

mod decisions;
mod fuzz;
mod messages;
mod strictness;
