//! Claims from a damaged file: a run that cannot be read is skipped, and blocks no other claim.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use engine::store::{Claim, StoreError, StoreFailure};
use rusqlite::{Connection, params};

use crate::fixture::World;
use crate::populated_file::world;
use crate::sqlite_fixture::{Folder, open};
use crate::worker::{claim, next, parked, queued};

const PAGE_BYTES: usize = 4_096;
/// Large enough to fill overflow pages of its row.
const LARGE_BYTES: usize = 5 * PAGE_BYTES;
/// Longer than any claim that ends.
const PATIENCE: Duration = Duration::from_secs(60);

fn say(folder: &Folder, sql: &str) {
    Connection::open(folder.file()).unwrap().execute_batch(sql).unwrap();
}

/// Makes the first overflow page of the row point to a page that does not exist.
fn damage_the_control_of(folder: &Folder, run: &str) {
    let raw = Connection::open(folder.file()).unwrap();
    let sql = "UPDATE runs SET control = ?1 WHERE id = ?2";
    assert_eq!(raw.execute(sql, params![vec![0xA5_u8; LARGE_BYTES], run]).unwrap(), 1);
    raw.close().unwrap();
    let mut bytes = fs::read(folder.file()).unwrap();
    let page = bytes.chunks_exact_mut(PAGE_BYTES).find(|page| page[4..].iter().all(|byte| *byte == 0xA5));
    page.expect("the control has overflow pages")[..4].copy_from_slice(&[0, 0xFF, 0xFF, 0xFF]);
    fs::write(folder.file(), bytes).unwrap();
}

#[tokio::test]
async fn a_run_on_a_damaged_page_blocks_no_other_claim() {
    for first in ["wake_at = 1", "ready = 1, ready_at = 1", "ready = 1, ready_at = 1, interrupt_accepted = 1"]
    {
        let folder = Folder::new();
        let world = world(&folder);
        parked(&world, "thr_1", "bad", "transfer").await;
        parked(&world, "thr_2", "woken", "transfer").await;
        queued(&world, "thr_3", "queued").await;
        let clock = world.clock.clone();
        drop(world);
        say(&folder, &format!("UPDATE runs SET {first} WHERE id = 'bad'"));
        say(&folder, "UPDATE runs SET ready = 1, ready_at = 2 WHERE id = 'woken'");
        damage_the_control_of(&folder, "bad");
        let world = World::new(Arc::new(open(&folder, &clock, false)), clock);
        assert!(world.store.claim(Claim::Urgent { limit: 10 }).await.unwrap().is_empty(), "{first}");
        assert_eq!(next(&world, 10).await, ["woken", "queued"], "{first}");
        // The damaged run is not tried again.
        assert_eq!(next(&world, 10).await, Vec::<String>::new(), "{first}");
        assert_eq!(world.store.next_wake().await, Ok(None), "{first}");
        let asked = Claim::Run { tenant: world.tenant.clone(), run: "bad".into() };
        let refused = world.store.claim(asked).await;
        assert!(matches!(refused, Err(StoreError::Failed(StoreFailure::Corrupt(_)))), "{refused:?}");
    }
}

/// Changes runs without updating some indexes, so that these keep the old values.
fn change_unseen_by(folder: &Folder, indexes: &str, sql: &str) {
    let hide = format!(
        "PRAGMA writable_schema = ON;
        CREATE TABLE hidden AS SELECT * FROM sqlite_schema WHERE name IN ({indexes});
        DELETE FROM sqlite_schema WHERE name IN ({indexes});"
    );
    say(folder, &hide);
    say(folder, sql);
    let show = "PRAGMA writable_schema = ON;
        INSERT INTO sqlite_schema SELECT * FROM hidden;
        DROP TABLE hidden;";
    say(folder, show);
}

#[tokio::test]
async fn an_entry_of_an_index_that_is_not_true_any_more_is_passed_over() {
    let folder = Folder::new();
    let world = world(&folder);
    parked(&world, "thr_1", "waits", "transfer").await;
    queued(&world, "thr_2", "queued").await;
    let clock = world.clock.clone();
    drop(world);
    say(
        &folder,
        "UPDATE runs SET ready = 1, ready_at = 1, wake_at = 1, interrupt_accepted = 1 WHERE id = 'waits'",
    );
    let lines = "'runs_woken', 'runs_interrupted', 'runs_by_deadline'";
    let rests = "UPDATE runs SET ready = 0, ready_at = NULL, wake_at = NULL, interrupt_accepted = 0 WHERE id = 'waits'";
    change_unseen_by(&folder, lines, rests);
    let (sender, ends) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new(Arc::new(open(&folder, &clock, false)), clock);
            let pressing = world.store.claim(Claim::Urgent { limit: 10 }).await.unwrap().len();
            let given = next(&world, 10).await;
            // A wake time in the past would make the engine poll without a pause.
            let wake = world.store.next_wake().await;
            // The run itself can still be claimed.
            let waits = claim(&world, "waits").await.is_some();
            let _ = sender.send((pressing, given, wake, waits));
        });
    });
    let ended = ends.recv_timeout(PATIENCE).expect("the claim ends");
    assert_eq!(ended, (0, vec!["queued".to_owned()], Ok(None), true));
}
