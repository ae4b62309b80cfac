//! The machine loses its power: what the store acknowledged is found again, whatever became of the rest.
//!
//! A recording of real runs knows every write and every sync of the store's files. For each moment of it the files are
//! put together as a machine could find them: what was synced is there; what was not is lost, kept or torn.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failing test may stop in the plainest way there is"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

mod cut_log;
#[allow(dead_code, reason = "the tests of a full disk use the rest")]
mod disk;
mod failed_sync;
#[path = "../conformance/fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod fixture;
#[allow(dead_code, reason = "the tests of a full disk use the rest")]
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
