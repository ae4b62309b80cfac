//! The power is lost at every write of a recording. Unsynced data is lost, kept or torn.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::disk::{DiskState, Op, Part, Unsynced};
use crate::ledger::Account;
use crate::recording::Recording;
use crate::recovery_check::{Trial, assert_recovers};

/// The store copies the log into the file once it has this size.
const CHECKPOINT_PAGE_COUNT: usize = 1_024;

/// What may happen to the unsynced writes of the file and of its log. These are two files: one may have reached the
/// disk without the other.
pub(crate) fn fates(moment: usize) -> [(Unsynced, Unsynced); 5] {
    let torn = Unsynced::Torn { seed: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(moment as u64 + 1) };
    [
        (Unsynced::Lost, Unsynced::Lost),
        (Unsynced::Kept, Unsynced::Kept),
        (Unsynced::Lost, Unsynced::Kept),
        (Unsynced::Kept, Unsynced::Lost),
        (torn, torn),
    ]
}

/// Checks the images of a recording. Returns how many different ones there were.
async fn lose_power(
    ops: &[Op],
    account: &Account,
    is_looked_at: impl Fn(usize, &DiskState) -> bool,
) -> usize {
    let mut disk_state = DiskState::default();
    let mut seen = BTreeSet::new();
    for (moment, op) in ops.iter().enumerate() {
        disk_state.record_op(op);
        if !is_looked_at(moment, &disk_state) {
            continue;
        }
        for (main, log) in fates(moment) {
            let image = disk_state.image(main, log);
            let mut hasher = DefaultHasher::new();
            (&image, disk_state.promised).hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                // Every image is read; only some are also resumed, to save time.
                let trial = if seen.len() % 8 == 1 { Trial::Resume } else { Trial::Read };
                let context = format!("operation {moment}, unsynced pages {main:?}, unsynced log {log:?}");
                assert_recovers(&context, &image, account, disk_state.promised, trial).await;
            }
        }
    }
    seen.len()
}

#[tokio::test]
async fn what_was_acknowledged_is_there_whenever_the_power_is_lost() {
    let recording = Recording::begin();
    recording.approved_run("first").await;
    recording.run_with_a_child("parent").await;
    recording.concurrent_runs("crowd", 4, 1).await;
    let account = recording.account().await;
    let ops = recording.disk.ops();
    let images = lose_power(&ops, &account, |_, _| true).await;
    assert!(images > ops.len(), "{images} images of {} operations", ops.len());
}

#[tokio::test]
async fn what_was_acknowledged_is_there_when_the_power_is_lost_while_the_log_is_copied_and_restarted() {
    let recording = Recording::begin();
    recording.concurrent_runs("crowd", 4, 0).await;
    recording.checkpoint();
    recording.ends_of("crowd_01", "crowd_02").await;
    recording.checkpoint();
    recording.approved_run("late").await;
    let recording = recording.reopen();
    recording.approved_run("last").await;
    let account = recording.account().await;
    let ops = recording.disk.ops();
    // Once when the store is opened, once after each checkpoint, and once when it is opened again.
    assert!(times_begun(&ops) >= 4, "the log was restarted {} times", times_begun(&ops));
    let images = lose_power(&ops, &account, |moment, disk_state| {
        disk_state.has_pending(Part::Main) || moment % 3 == 0
    })
    .await;
    assert!(images > ops.len() / 2, "{images} images of {} operations", ops.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_when_the_power_is_lost_during_the_stores_own_checkpoint() {
    let recording = Recording::begin();
    let opened = recording.disk.ops().len();
    recording.long_messages_until_the_log_has(CHECKPOINT_PAGE_COUNT).await;
    let copied = async {
        while !recording.disk.has_seen(opened, |op| matches!(op, Op::Sync { part: Part::Main })) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), copied).await.expect("the log is copied and synced");
    let copied = recording.disk.ops().len();
    recording.approved_run("late").await;
    let account = recording.account().await;
    let ops = recording.disk.ops();
    assert_eq!(times_begun(&ops[copied..]), 1, "the log restarts over the copied part");
    let images = lose_power(&ops, &account, |moment, disk_state| {
        let often = if disk_state.has_pending(Part::Main) { 61 } else { 797 };
        moment % often == 0 || (copied..copied + 40).contains(&moment)
    });
    assert!(images.await > 60);
}

/// How often the log was restarted from its beginning.
fn times_begun(ops: &[Op]) -> usize {
    ops.iter().filter(|op| matches!(op, Op::Write { part: Part::Log, at: 0, .. })).count()
}

#[tokio::test]
async fn nothing_is_acknowledged_before_it_is_synced() {
    let recording = Recording::begin();
    recording.approved_run("first").await;
    recording.run_with_a_child("parent").await;
    let (mut disk_state, mut promises) = (DiskState::default(), 0);
    for op in recording.disk.ops() {
        disk_state.record_op(&op);
        if matches!(op, Op::Acknowledged { .. }) {
            promises += 1;
            assert!(
                !disk_state.has_pending(Part::Log),
                "promise {promises} was made before its data was synced"
            );
        }
    }
    assert_eq!(promises, recording.ledger.promise_count());
}

#[tokio::test]
async fn the_syncs_that_a_store_counts_are_those_that_the_disk_sees() {
    let recording = Recording::begin();
    let opened = recording.disk.ops().len();
    recording.approved_run("first").await;
    recording.concurrent_runs("crowd", 24, 2).await;
    let ops = recording.disk.ops();
    let seen = ops[opened..].iter().filter(|op| matches!(op, Op::Sync { part: Part::Log })).count();
    assert_eq!(recording.world.store.metrics().syncs, seen as u64);
    assert!(seen < recording.ledger.promise_count(), "{seen} syncs, and no two commits shared one");
}
