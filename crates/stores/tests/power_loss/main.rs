//! The machine loses power: everything that the store acknowledged is found again, whatever happened to the rest.
//!
//! A recording of real runs contains every write and every sync of the store's files. For each moment of it, the tests
//! build the files that a machine could find: synced data is there; other data is lost, kept or torn.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failing test may panic"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and ignores the rest")]

mod cut_log;
#[allow(dead_code, reason = "the full-disk tests use the rest")]
mod disk;
mod failed_sync;
#[path = "../conformance/fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod fixture;
#[allow(dead_code, reason = "the full-disk tests use the rest")]
mod ledger;
mod recording;
mod recovery_check;
#[path = "../conformance/sqlite_fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod sqlite_fixture;
mod unsynced;
mod vfs;
#[path = "../conformance/worker.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod worker;
