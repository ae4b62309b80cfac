//! For every commit of a story, and every way in which it can fail: the runs still end right, no effect is repeated,
//! and no decision is lost.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

#[path = "../driver/harness.rs"]
#[allow(dead_code, reason = "the tests of the driver use all of it")]
mod harness;
mod refusing_store;
mod story;

use std::path::PathBuf;
use std::sync::Arc;

use engine::clock::{Clock, RuntimeClock};
use engine::store::Store;
use stores::memory::MemoryStore;
use stores::sqlite::{SqliteSettings, SqliteStore};

use refusing_store::{Fate, RefusingStore};
use story::Story;

/// Until the story is over before its k-th commit.
async fn fail_every_commit(fate: Fate, mut open: impl FnMut(RuntimeClock) -> Arc<dyn Store>) {
    let (mut refused, mut doubts) = (0, 0);
    for number in 1.. {
        let clock = RuntimeClock::starting_at(harness::BEGIN);
        let store = RefusingStore::new(open(clock), number, fate);
        doubts += Story::begin(number, fate, store.clone(), clock).await.play().await;
        refused += u64::from(store.has_refused());
        if !store.was_reached() {
            assert!(number > 15, "only {number} commits");
            // Each commit can be refused, but a creation and a submitted item need no lease.
            assert!(refused >= number / 2, "{refused} of {number} were refused");
            // A lease that is lost while a write runs leaves it in doubt: that is among them.
            assert_eq!(doubts > 0, fate == Fate::Fenced, "{doubts} calls were in doubt");
            return;
        }
    }
}

fn in_memory(clock: RuntimeClock) -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_clock(Arc::new(move || clock.now())))
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("holdpoint-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn fail_every_commit_in_sqlite(fate: Fate) {
    let folder = Folder::new(&format!("every-append-{fate:?}"));
    let mut count = 0;
    fail_every_commit(fate, |clock| {
        count += 1;
        let settings = SqliteSettings {
            clock: Some(Arc::new(move || clock.now())),
            on_fatal: Some(Arc::new(|why| panic!("{why}"))),
            inline: true,
        };
        let file = folder.0.join(format!("{count}.db"));
        Arc::new(SqliteStore::open_with(file, settings).unwrap())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn in_memory_every_commit_may_fail_in_every_way() {
    for fate in Fate::ALL {
        fail_every_commit(fate, in_memory).await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_sqlite_every_commit_may_be_refused_because_the_store_is_unreachable() {
    fail_every_commit_in_sqlite(Fate::Unreachable).await;
}

#[tokio::test(start_paused = true)]
async fn in_sqlite_every_commit_may_be_refused_for_lack_of_space() {
    fail_every_commit_in_sqlite(Fate::Full).await;
}

#[tokio::test(start_paused = true)]
async fn in_sqlite_every_commit_may_be_stored_without_an_answer() {
    fail_every_commit_in_sqlite(Fate::AnswerLost).await;
}

#[tokio::test(start_paused = true)]
async fn in_sqlite_every_append_may_find_that_its_lease_is_lost() {
    fail_every_commit_in_sqlite(Fate::Fenced).await;
}
