//! Upkeep of a file: the doctor finds what is wrong with it, a backup is whole, retention takes whole families,
//! and a file is opened only by whom it belongs to.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test may stop in the plainest way there is"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

#[path = "../conformance/fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod fixture;
#[path = "../conformance/sample_data.rs"]
mod sample_data;
#[path = "../conformance/sqlite_fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod sqlite_fixture;
#[path = "../conformance/worker.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod worker;

mod backup;
mod claims;
mod damage;
mod file;
mod planted_faults;
mod populated_file;
mod retention;
