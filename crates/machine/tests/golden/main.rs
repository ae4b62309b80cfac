//! Stored logs that replay for ever. Each was written out by hand as a story, with the state and the model input that
//! must follow from it.
//!
//! A story file has lines with `#` that tell the story, and lines with one stored event each. After them come
//! sections: `== control` (or `== control after event N`) with the state as JSON, of which every field that is named
//! must be equal, and `== model input` (or `== model input after event N`) with what the model reads, line by line.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a story that cannot be told fails"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

mod file;
#[path = "../behaviours/plain_transcript.rs"]
mod plain_transcript;
mod replay;
#[path = "../behaviours/story.rs"]
#[allow(dead_code, reason = "these stories need little of what the behaviours need")]
mod story;
mod view;
