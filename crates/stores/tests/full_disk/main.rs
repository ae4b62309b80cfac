//! The disk is full: a refused write leaves no trace, acknowledged writes are kept, and all runs continue when there is
//! space again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failing test may panic"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and ignores the rest")]

#[path = "../power_loss/disk.rs"]
#[allow(dead_code, reason = "the power-loss tests use all of it")]
mod disk;
mod driven;
mod every_write;
#[path = "../conformance/fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod fixture;
#[path = "../../../engine/tests/driver/harness.rs"]
#[allow(dead_code, reason = "the tests of the driver use all of it")]
mod harness;
#[path = "../power_loss/ledger.rs"]
#[allow(dead_code, reason = "the power-loss tests use all of it")]
mod ledger;
#[path = "../power_loss/recording.rs"]
#[allow(dead_code, reason = "the power-loss tests use all of it")]
mod recording;
#[path = "../power_loss/recovery_check.rs"]
#[allow(dead_code, reason = "the power-loss tests use all of it")]
mod recovery_check;
mod small_disk;
#[path = "../conformance/sqlite_fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod sqlite_fixture;
#[path = "../power_loss/vfs.rs"]
mod vfs;
#[path = "../conformance/worker.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod worker;
