//! Upkeep of a file: the doctor finds its faults, a backup is complete, retention deletes whole families of threads,
//! and only the owner can open the file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test may panic")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and ignores the rest")]

#[path = "../conformance/fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod fixture;
#[path = "../conformance/sample_data.rs"]
mod sample_data;
#[path = "../conformance/sqlite_fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod sqlite_fixture;
#[path = "../conformance/tampering.rs"]
mod tampering;
#[path = "../conformance/worker.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod worker;

mod backup;
mod chains;
mod claims;
mod damage;
mod file;
mod planted_faults;
mod populated_file;
mod retention;
