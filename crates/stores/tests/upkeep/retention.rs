//! Retention: which threads are deleted, which are kept, and in what order.

use std::path::Path;
use std::sync::Arc;

use machine::event::InterruptCause;
use machine::id::ThreadId;
use machine::inbox::Item;
use machine::policy::OnBusy;
use machine::{Input, Timestamp};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use stores::sqlite::SqliteStore;
use stores::sqlite::retention::{Pruned, survey};

use crate::fixture::{Clock, World};
use crate::populated_file::{assert_healthy, child, freeze_agent};
use crate::sqlite_fixture::{Folder, open};
use crate::worker::{Worker, claim, creation_with_inline_agent, enqueued, order, parked, queued, started};

/// A store as its own type, and as the trait object in [`World`].
struct RetentionFixture {
    folder: Folder,
    store: Arc<SqliteStore>,
    world: World,
}

impl RetentionFixture {
    async fn new() -> Self {
        let (folder, clock) = (Folder::new(), Clock::new());
        let store = Arc::new(open(&folder, &clock, false));
        let world = World::new(store.clone(), clock);
        freeze_agent(&world).await;
        Self { folder, store, world }
    }

    async fn ended(&self, thread: &str, run: &str) {
        let mut worker = started(&self.world, thread, run).await;
        self.end(&mut worker).await;
    }

    async fn end(&self, worker: &mut Worker) {
        worker.finish_with("done");
        worker.commit(&self.world).await.unwrap();
    }

    async fn has(&self, thread: &str) -> bool {
        self.world
            .store
            .thread(&self.world.tenant, &ThreadId::from(thread))
            .await
            .unwrap()
            .created_at
            .is_some()
    }

    /// Deletes everything that is due, batch by batch.
    async fn sweep(&self, batch: usize) -> Vec<Pruned> {
        let before = self.world.clock.now();
        let expected = survey(self.folder.file(), before, |_| {}).unwrap();
        let mut sweep = self.store.sweep(before, batch);
        let mut batches = Vec::new();
        while let Some(pruned) = sweep.next().await.unwrap() {
            batches.push(pruned);
        }
        let all = batches.iter().fold(Pruned::default(), |all, batch| all.plus(*batch));
        assert_eq!(all, expected, "a survey counts what a sweep deletes");
        assert_healthy(&self.folder.file());
        batches
    }

    /// How many threads each batch deleted.
    async fn swept(&self, batch: usize) -> Vec<u64> {
        self.sweep(batch).await.iter().map(|pruned| pruned.threads).collect()
    }
}

#[tokio::test]
async fn threads_whose_runs_ended_long_ago_go_and_all_others_stay() {
    let fixture = RetentionFixture::new().await;
    fixture.ended("thr_old", "old_1").await;
    fixture.ended("thr_old", "old_2").await;
    fixture.ended("thr_waits", "ended").await;
    parked(&fixture.world, "thr_waits", "waits", "transfer").await;
    fixture.ended("thr_runs", "ended_too").await;
    let under_way = started(&fixture.world, "thr_runs", "runs").await;
    enqueued(&fixture.world, "thr_runs", "behind").await;
    queued(&fixture.world, "thr_queued", "queued").await;
    fixture.world.store.put_thread(&fixture.world.tenant, &"thr_empty".into(), &"mine".into()).await.unwrap();
    fixture.world.clock.advance(1_000);
    let cutoff = fixture.world.clock.now();
    fixture.ended("thr_young", "young").await;
    fixture.ended("thr_both", "late").await;
    let found = survey(fixture.folder.file(), cutoff, |_| {}).unwrap();
    assert_eq!((found.threads, found.runs), (1, 2));
    let mut sweep = fixture.store.sweep(cutoff, 10);
    assert_eq!(sweep.next().await.unwrap(), Some(found));
    assert_eq!(sweep.next().await.unwrap(), None);
    assert!(!fixture.has("thr_old").await);
    for thread in ["thr_waits", "thr_runs", "thr_queued", "thr_empty", "thr_young", "thr_both"] {
        assert!(fixture.has(thread).await, "{thread}");
    }
    assert!(fixture.world.run("runs").await.control.as_ref().unwrap().seq >= under_way.run.control.seq);
    assert_healthy(&fixture.folder.file());
}

#[tokio::test]
async fn a_batch_is_as_large_as_it_may_be() {
    let fixture = RetentionFixture::new().await;
    for index in 0..5 {
        fixture.ended(&format!("thr_{index}"), &format!("run_{index}")).await;
    }
    fixture.world.clock.advance(1);
    assert_eq!(fixture.swept(2).await, [2, 2, 1]);
    assert_eq!(fixture.swept(2).await, [0; 0]);
}

#[tokio::test]
async fn every_tenant_is_swept() {
    let fixture = RetentionFixture::new().await;
    for tenant in ["acme", "other"] {
        let world = fixture.world.for_tenant(tenant);
        let mut worker = started(&world, "thr", "run").await;
        worker.finish_with("done");
        worker.commit(&world).await.unwrap();
    }
    fixture.world.clock.advance(1);
    assert_eq!(fixture.swept(10).await, [2]);
}

/// A parent, a child and a grandchild, each waiting for the next.
async fn family(fixture: &RetentionFixture) -> [Worker; 3] {
    let mut parent = started(&fixture.world, "thr_parent", "parent").await;
    parent.asks(&[("delegate", "researcher")]);
    parent.commit(&fixture.world).await.unwrap();
    let mut middle = child(&fixture.world, &parent, "delegate").await;
    middle.asks(&[("deeper", "researcher")]);
    middle.commit(&fixture.world).await.unwrap();
    let last = child(&fixture.world, &middle, "deeper").await;
    [parent, middle, last]
}

/// The worker processes the end of its child run, and ends its own run.
async fn end_after_child(fixture: &RetentionFixture, worker: &mut Worker) {
    worker.reload(&fixture.world).await;
    worker.drain();
    fixture.end(worker).await;
}

#[tokio::test]
async fn a_family_goes_together_and_its_parents_go_first() {
    let fixture = RetentionFixture::new().await;
    let [mut parent, mut middle, mut last] = family(&fixture).await;
    let threads = [&parent, &middle, &last].map(|worker| worker.lease.thread.to_string());
    fixture.end(&mut last).await;
    end_after_child(&fixture, &mut middle).await;
    fixture.world.clock.advance(1_000);
    // Both children ended long ago; their parent has not ended.
    assert_eq!(fixture.swept(10).await, [0; 0]);
    end_after_child(&fixture, &mut parent).await;
    fixture.world.clock.advance(1);
    let before = fixture.world.clock.now();
    let mut sweep = fixture.store.sweep(before, 1);
    let mut left = Vec::new();
    while let Some(pruned) = sweep.next().await.unwrap() {
        assert_eq!((pruned.threads, pruned.runs), (1, 1));
        let mut there = Vec::new();
        for thread in &threads {
            there.push(fixture.has(thread).await);
        }
        left.push(there);
        assert_healthy(&fixture.folder.file());
    }
    assert_eq!(left, [[false, true, true], [false, false, true], [false, false, false]]);
}

#[tokio::test]
async fn what_a_stopped_sweep_left_of_a_family_goes_with_the_next() {
    let fixture = RetentionFixture::new().await;
    let [mut parent, mut middle, mut last] = family(&fixture).await;
    fixture.end(&mut last).await;
    end_after_child(&fixture, &mut middle).await;
    end_after_child(&fixture, &mut parent).await;
    fixture.world.clock.advance(1);
    fixture.store.sweep(fixture.world.clock.now(), 1).next().await.unwrap();
    assert_eq!(fixture.swept(10).await, [2]);
}

#[tokio::test]
async fn a_thread_whose_child_run_has_not_ended_stays() {
    let fixture = RetentionFixture::new().await;
    let [mut parent, middle, mut last] = family(&fixture).await;
    // The interrupted parent ends at once. Its child processes the interrupt later.
    parent.apply_input(&Input::Interrupt { cause: InterruptCause::Person("bob".into()) });
    parent.commit(&fixture.world).await.unwrap();
    fixture.world.clock.advance(1_000);
    assert_eq!(fixture.swept(10).await, [0; 0]);
    let mut middle = middle;
    middle.reload(&fixture.world).await;
    middle.drain();
    middle.commit(&fixture.world).await.unwrap();
    assert!(middle.run.control.ended().is_some());
    fixture.world.clock.advance(1_000);
    assert_eq!(fixture.swept(10).await, [0; 0], "the grandchild has not ended");
    last.reload(&fixture.world).await;
    last.drain();
    last.commit(&fixture.world).await.unwrap();
    assert_eq!(fixture.swept(10).await, [0; 0], "the grandchild ended too recently");
    fixture.world.clock.advance(1);
    assert_eq!(fixture.swept(10).await, [3]);
}

#[tokio::test]
async fn a_thread_posted_to_meanwhile_stays() {
    let fixture = RetentionFixture::new().await;
    for name in ["a", "b", "c"] {
        fixture.ended(name, &format!("run_{name}")).await;
    }
    fixture.world.clock.advance(1);
    let mut sweep = fixture.store.sweep(fixture.world.clock.now(), 1);
    assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(1));
    // The sweep has already listed all three threads.
    parked(&fixture.world, "b", "again", "transfer").await;
    assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(0));
    fixture.world.store.delete_thread(&fixture.world.tenant, &"c".into(), &"tester".into()).await.unwrap();
    assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(0));
    assert_eq!(sweep.next().await.unwrap(), None);
    assert!(fixture.has("b").await);
    assert_eq!(
        claim(&fixture.world, "again").await.map(|worker| worker.lease.run.to_string()),
        Some("again".into())
    );
    assert_healthy(&fixture.folder.file());
}

/// A single thread and a family of threads after it; all their runs have ended. Returns the threads of the family.
async fn ended_family(fixture: &RetentionFixture) -> [String; 3] {
    fixture.ended("alone", "run_alone").await;
    let [mut parent, mut middle, mut last] = family(fixture).await;
    let threads = [&parent, &middle, &last].map(|worker| worker.lease.thread.to_string());
    fixture.end(&mut last).await;
    end_after_child(fixture, &mut middle).await;
    end_after_child(fixture, &mut parent).await;
    fixture.world.clock.advance(1);
    threads
}

#[tokio::test]
async fn a_family_stays_together_if_a_message_is_posted_to_one_of_its_threads_meanwhile() {
    for posted_to in 0..3 {
        let fixture = RetentionFixture::new().await;
        let threads = ended_family(&fixture).await;
        let mut sweep = fixture.store.sweep(fixture.world.clock.now(), 1);
        assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(1));
        assert!(!fixture.has("alone").await);
        // The sweep has already listed all threads.
        parked(&fixture.world, &threads[posted_to], "again", "transfer").await;
        while let Some(pruned) = sweep.next().await.unwrap() {
            assert_eq!(pruned, Pruned::default(), "posted to {posted_to}");
        }
        for thread in &threads {
            assert!(fixture.has(thread).await, "posted to {posted_to}: {thread} is gone");
        }
        assert_healthy(&fixture.folder.file());
    }
}

#[tokio::test]
async fn the_rest_of_a_family_stays_if_a_message_is_posted_to_it_meanwhile() {
    let fixture = RetentionFixture::new().await;
    let [parent, middle, last] = ended_family(&fixture).await;
    let mut sweep = fixture.store.sweep(fixture.world.clock.now(), 2);
    assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(2));
    assert!(!fixture.has(&parent).await);
    parked(&fixture.world, &last, "again", "transfer").await;
    assert_eq!(sweep.next().await.unwrap(), Some(Pruned::default()));
    assert_eq!(sweep.next().await.unwrap(), None);
    assert!(fixture.has(&middle).await && fixture.has(&last).await);
}

#[tokio::test]
async fn an_unreadable_thread_stays_and_blocks_no_other() {
    let fixture = RetentionFixture::new().await;
    let threads = ended_family(&fixture).await;
    fixture.ended("behind", "run_behind").await;
    fixture.world.clock.advance(1);
    let raw = Connection::open(fixture.folder.file()).unwrap();
    let broken = "UPDATE commits SET body = replace(body, '\"type\":\"', '\"type\":\"x') \
                  WHERE run = (SELECT row FROM runs WHERE id = 'parent')";
    assert!(raw.execute(broken, []).unwrap() > 0);
    let before = fixture.world.clock.now();
    let expected = survey(fixture.folder.file(), before, |_| {}).unwrap();
    assert_eq!((expected.threads, expected.unreadable), (2, 1));
    let mut sweep = fixture.store.sweep(before, 10);
    assert_eq!(sweep.next().await.unwrap(), Some(expected));
    assert_eq!(sweep.next().await.unwrap(), None);
    assert!(!fixture.has("alone").await && !fixture.has("behind").await);
    for thread in &threads {
        assert!(fixture.has(thread).await, "{thread}");
    }
    // A sweep that deletes nothing still reports the unreadable thread.
    let mut sweep = fixture.store.sweep(before, 10);
    assert_eq!(sweep.next().await.unwrap(), Some(Pruned { unreadable: 1, ..Pruned::default() }));
    assert_eq!(sweep.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_file_that_cannot_give_pages_back_says_so() {
    let fixture = RetentionFixture::new().await;
    let RetentionFixture { folder, store, world } = fixture;
    let clock = world.clock.clone();
    drop((store, world));
    // Like a file that another tool has rebuilt without auto-vacuum.
    let rebuild = "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM;";
    Connection::open(folder.file()).unwrap().execute_batch(rebuild).unwrap();
    let store = Arc::new(open(&folder, &clock, false));
    let fixture = RetentionFixture { folder, world: World::new(store.clone(), clock), store };
    let mut worker = started(&fixture.world, "thr", "run").await;
    worker.finish_with(&"word ".repeat(100_000));
    worker.commit(&fixture.world).await.unwrap();
    fixture.world.clock.advance(1);
    assert_eq!(fixture.swept(1).await, [1]);
    assert_ne!(assert_healthy(&fixture.folder.file()).size.unwrap().free_bytes, 0);
    assert!(
        !fixture.store.release_free_pages().await.unwrap(),
        "a file that cannot shrink has no pages to release"
    );
}

#[tokio::test]
async fn nothing_pending_goes_and_what_goes_makes_room() {
    let fixture = RetentionFixture::new().await;
    for index in 0..8 {
        let mut worker = started(&fixture.world, &format!("thr_{index}"), &format!("run_{index}")).await;
        worker.finish_with(&"word ".repeat(500_000));
        worker.commit(&fixture.world).await.unwrap();
    }
    let held = parked(&fixture.world, "thr_held", "held", "transfer").await;
    let decision = held.decision("call_held", Some("d"), crate::worker::approve());
    fixture.world.submit_accepted("held", Item::Decision(decision)).await;
    fixture.world.clock.advance(1);
    let before = assert_healthy(&fixture.folder.file()).size.unwrap();
    assert_eq!(fixture.swept(100).await, [8]);
    while fixture.store.release_free_pages().await.unwrap() {}
    let after = assert_healthy(&fixture.folder.file()).size.unwrap();
    assert_eq!((before.runs, after.runs, after.free_bytes), (9, 1, 0));
    assert!(after.file_bytes < before.file_bytes / 50, "{before:?} {after:?}");
    let mut held = claim(&fixture.world, "held").await.unwrap();
    held.take_over();
    held.commit(&fixture.world).await.unwrap();
    assert!(held.call("call_held").running_attempt().is_some(), "the decision was processed");
}

/// The tables that contain these words in any column.
fn tables_with(file: &Path, words: &str) -> Vec<String> {
    let raw = Connection::open(file).unwrap();
    let mut statement = raw.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
    let names = statement.query_map([], |row| row.get(0)).unwrap();
    let mut names = names.collect::<rusqlite::Result<Vec<String>>>().unwrap();
    names.retain(|table| {
        let mut statement = raw.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        let mut found = false;
        while let Some(row) = rows.next().unwrap() {
            found |= (0..columns).any(|column| match row.get_ref(column).unwrap() {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                    bytes.windows(words.len()).any(|part| part == words.as_bytes())
                }
                ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => false,
            });
        }
        found
    });
    names
}

#[tokio::test]
async fn what_came_with_a_message_goes_with_its_thread() {
    let fixture = RetentionFixture::new().await;
    let mut workers = Vec::new();
    for name in ["deleted", "pruned", "held"] {
        let order = order(&format!("thr_{name}"), name);
        let words = format!("the words of {name}");
        let create = creation_with_inline_agent(&fixture.world, order, OnBusy::Reject, true, &words).await;
        workers.push(Worker::created(&fixture.world, create).await);
    }
    let mut held = workers.pop().unwrap();
    for worker in &mut workers {
        fixture.end(worker).await;
    }
    let found = |name: &str| tables_with(&fixture.folder.file(), &format!("the words of {name}"));
    assert_eq!([found("deleted"), found("pruned"), found("held")], [["brought"], ["brought"], ["brought"]]);
    fixture
        .world
        .store
        .delete_thread(&fixture.world.tenant, &"thr_deleted".into(), &"tester".into())
        .await
        .unwrap();
    assert_eq!(found("deleted"), [""; 0]);
    assert_eq!(found("pruned"), ["brought"]);
    fixture.world.clock.advance(1);
    assert_eq!(fixture.swept(10).await, [1]);
    assert_eq!(found("pruned"), [""; 0]);
    assert_eq!(found("held"), ["brought"], "the thread's run has not ended");
    fixture.end(&mut held).await;
    fixture.world.clock.advance(1);
    assert_eq!(fixture.swept(10).await, [1]);
    assert_eq!(tables_with(&fixture.folder.file(), "the words of"), [""; 0]);
    assert_eq!(tables_with(&fixture.folder.file(), "revision"), ["revisions"], "a configured agent is kept");
}

#[tokio::test]
async fn a_survey_of_nothing_finds_nothing() {
    let fixture = RetentionFixture::new().await;
    fixture.ended("thr", "run").await;
    assert_eq!(survey(fixture.folder.file(), Timestamp(0), |_| {}).unwrap(), Pruned::default());
    assert!(fixture.has("thr").await);
}
