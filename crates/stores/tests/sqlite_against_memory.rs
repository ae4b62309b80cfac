//! Random schedules, run against SQLite and against the memory store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test may panic")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and ignores the rest")]

#[path = "conformance/differential.rs"]
mod differential;
#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod fixture;
#[path = "conformance/snapshot.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod snapshot;
#[path = "conformance/sqlite_fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod sqlite_fixture;
#[path = "conformance/worker.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod worker;

use std::sync::Arc;

use fixture::{Clock, World};
use sqlite_fixture::{Folder, open};

const SEEDS: u64 = 10;

#[tokio::test]
async fn both_stores_agree() {
    for seed in 0..SEEDS {
        let (folder, clock) = (Folder::new(), Clock::new());
        let store = open(&folder, &clock, true);
        differential::assert_stores_agree(World::new(Arc::new(store), clock), seed).await;
    }
}
