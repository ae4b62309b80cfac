//! Retention: which threads go, which stay, and in what order.

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

use crate::crowd::{assert_healthy, child, freeze_agent};
use crate::fixture::{Clock, World};
use crate::sqlite_fixture::{Folder, open};
use crate::worker::{Worker, bringing, claim, enqueued, order, parked, queued, started};

/// A store under its own name, and as everybody else sees it.
struct Kept {
    folder: Folder,
    store: Arc<SqliteStore>,
    world: World,
}

impl Kept {
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
        worker.says("done");
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

    /// Everything that goes now, batch by batch.
    async fn sweep(&self, batch: usize) -> Vec<Pruned> {
        let before = self.world.clock.now();
        let expected = survey(self.folder.file(), before, |_| {}).unwrap();
        let mut sweep = self.store.sweep(before, batch);
        let mut batches = Vec::new();
        while let Some(pruned) = sweep.next().await.unwrap() {
            batches.push(pruned);
        }
        let all = batches.iter().fold(Pruned::default(), |all, batch| all.plus(*batch));
        assert_eq!(all, expected, "a survey says what a sweep does");
        assert_healthy(&self.folder.file());
        batches
    }

    /// How many threads went with each batch.
    async fn swept(&self, batch: usize) -> Vec<u64> {
        self.sweep(batch).await.iter().map(|pruned| pruned.threads).collect()
    }
}

#[tokio::test]
async fn threads_whose_runs_ended_long_ago_go_and_all_others_stay() {
    let kept = Kept::new().await;
    kept.ended("thr_old", "old_1").await;
    kept.ended("thr_old", "old_2").await;
    kept.ended("thr_waits", "ended").await;
    parked(&kept.world, "thr_waits", "waits", "transfer").await;
    kept.ended("thr_runs", "ended_too").await;
    let under_way = started(&kept.world, "thr_runs", "runs").await;
    enqueued(&kept.world, "thr_runs", "behind").await;
    queued(&kept.world, "thr_queued", "queued").await;
    kept.world.store.put_thread(&kept.world.tenant, &"thr_empty".into(), &"mine".into()).await.unwrap();
    kept.world.clock.advance(1_000);
    let cutoff = kept.world.clock.now();
    kept.ended("thr_young", "young").await;
    kept.ended("thr_both", "late").await;
    let found = survey(kept.folder.file(), cutoff, |_| {}).unwrap();
    assert_eq!((found.threads, found.runs), (1, 2));
    let mut sweep = kept.store.sweep(cutoff, 10);
    assert_eq!(sweep.next().await.unwrap(), Some(found));
    assert_eq!(sweep.next().await.unwrap(), None);
    assert!(!kept.has("thr_old").await);
    for thread in ["thr_waits", "thr_runs", "thr_queued", "thr_empty", "thr_young", "thr_both"] {
        assert!(kept.has(thread).await, "{thread}");
    }
    assert!(kept.world.run("runs").await.control.as_ref().unwrap().seq >= under_way.run.control.seq);
    assert_healthy(&kept.folder.file());
}

#[tokio::test]
async fn a_batch_is_as_large_as_it_may_be() {
    let kept = Kept::new().await;
    for index in 0..5 {
        kept.ended(&format!("thr_{index}"), &format!("run_{index}")).await;
    }
    kept.world.clock.advance(1);
    assert_eq!(kept.swept(2).await, [2, 2, 1]);
    assert_eq!(kept.swept(2).await, [0; 0]);
}

#[tokio::test]
async fn every_tenant_is_swept() {
    let kept = Kept::new().await;
    for tenant in ["acme", "other"] {
        let world = kept.world.of(tenant);
        let mut worker = started(&world, "thr", "run").await;
        worker.says("done");
        worker.commit(&world).await.unwrap();
    }
    kept.world.clock.advance(1);
    assert_eq!(kept.swept(10).await, [2]);
}

/// A parent, a child and a grandchild, each waiting for the next.
async fn family(kept: &Kept) -> [Worker; 3] {
    let mut parent = started(&kept.world, "thr_parent", "parent").await;
    parent.asks(&[("delegate", "researcher")]);
    parent.commit(&kept.world).await.unwrap();
    let mut middle = child(&kept.world, &parent, "delegate").await;
    middle.asks(&[("deeper", "researcher")]);
    middle.commit(&kept.world).await.unwrap();
    let last = child(&kept.world, &middle, "deeper").await;
    [parent, middle, last]
}

/// Hears of its child's end, and ends.
async fn hear_and_end(kept: &Kept, worker: &mut Worker) {
    worker.reload(&kept.world).await;
    worker.drain();
    kept.end(worker).await;
}

#[tokio::test]
async fn a_family_goes_together_and_its_parents_go_first() {
    let kept = Kept::new().await;
    let [mut parent, mut middle, mut last] = family(&kept).await;
    let threads = [&parent, &middle, &last].map(|worker| worker.lease.thread.to_string());
    kept.end(&mut last).await;
    hear_and_end(&kept, &mut middle).await;
    kept.world.clock.advance(1_000);
    // Both children ended long ago; their parent has not.
    assert_eq!(kept.swept(10).await, [0; 0]);
    hear_and_end(&kept, &mut parent).await;
    kept.world.clock.advance(1);
    let before = kept.world.clock.now();
    let mut sweep = kept.store.sweep(before, 1);
    let mut left = Vec::new();
    while let Some(pruned) = sweep.next().await.unwrap() {
        assert_eq!((pruned.threads, pruned.runs), (1, 1));
        let mut there = Vec::new();
        for thread in &threads {
            there.push(kept.has(thread).await);
        }
        left.push(there);
        assert_healthy(&kept.folder.file());
    }
    assert_eq!(left, [[false, true, true], [false, false, true], [false, false, false]]);
}

#[tokio::test]
async fn what_a_stopped_sweep_left_of_a_family_goes_with_the_next() {
    let kept = Kept::new().await;
    let [mut parent, mut middle, mut last] = family(&kept).await;
    kept.end(&mut last).await;
    hear_and_end(&kept, &mut middle).await;
    hear_and_end(&kept, &mut parent).await;
    kept.world.clock.advance(1);
    kept.store.sweep(kept.world.clock.now(), 1).next().await.unwrap();
    assert_eq!(kept.swept(10).await, [2]);
}

#[tokio::test]
async fn a_thread_whose_child_run_has_not_ended_stays() {
    let kept = Kept::new().await;
    let [mut parent, middle, mut last] = family(&kept).await;
    // An interrupt waits for nobody: the parent ends, and its child hears of it later.
    parent.say(&Input::Interrupt { cause: InterruptCause::Person("bob".into()) });
    parent.commit(&kept.world).await.unwrap();
    kept.world.clock.advance(1_000);
    assert_eq!(kept.swept(10).await, [0; 0]);
    let mut middle = middle;
    middle.reload(&kept.world).await;
    middle.drain();
    middle.commit(&kept.world).await.unwrap();
    assert!(middle.run.control.ended().is_some());
    kept.world.clock.advance(1_000);
    assert_eq!(kept.swept(10).await, [0; 0], "its grandchild has not ended");
    last.reload(&kept.world).await;
    last.drain();
    last.commit(&kept.world).await.unwrap();
    assert_eq!(kept.swept(10).await, [0; 0], "its grandchild ended a moment ago");
    kept.world.clock.advance(1);
    assert_eq!(kept.swept(10).await, [3]);
}

#[tokio::test]
async fn a_thread_that_somebody_posts_to_meanwhile_stays() {
    let kept = Kept::new().await;
    for name in ["a", "b", "c"] {
        kept.ended(name, &format!("run_{name}")).await;
    }
    kept.world.clock.advance(1);
    let mut sweep = kept.store.sweep(kept.world.clock.now(), 1);
    assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(1));
    // All three were found by then.
    parked(&kept.world, "b", "again", "transfer").await;
    assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(0));
    kept.world.store.delete_thread(&kept.world.tenant, &"c".into()).await.unwrap();
    assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(0));
    assert_eq!(sweep.next().await.unwrap(), None);
    assert!(kept.has("b").await);
    assert_eq!(
        claim(&kept.world, "again").await.map(|worker| worker.lease.run.to_string()),
        Some("again".into())
    );
    assert_healthy(&kept.folder.file());
}

/// A thread by itself and a family behind it, all of which have ended. Gives the threads of the family.
async fn ended_family(kept: &Kept) -> [String; 3] {
    kept.ended("alone", "run_alone").await;
    let [mut parent, mut middle, mut last] = family(kept).await;
    let threads = [&parent, &middle, &last].map(|worker| worker.lease.thread.to_string());
    kept.end(&mut last).await;
    hear_and_end(kept, &mut middle).await;
    hear_and_end(kept, &mut parent).await;
    kept.world.clock.advance(1);
    threads
}

#[tokio::test]
async fn a_family_stays_together_if_somebody_posts_to_any_of_its_threads_meanwhile() {
    for posted_to in 0..3 {
        let kept = Kept::new().await;
        let threads = ended_family(&kept).await;
        let mut sweep = kept.store.sweep(kept.world.clock.now(), 1);
        assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(1));
        assert!(!kept.has("alone").await);
        // All were found by then.
        parked(&kept.world, &threads[posted_to], "again", "transfer").await;
        while let Some(pruned) = sweep.next().await.unwrap() {
            assert_eq!(pruned, Pruned::default(), "posted to {posted_to}");
        }
        for thread in &threads {
            assert!(kept.has(thread).await, "posted to {posted_to}: {thread} is gone");
        }
        assert_healthy(&kept.folder.file());
    }
}

#[tokio::test]
async fn what_is_left_of_a_family_stays_if_somebody_posts_to_it_meanwhile() {
    let kept = Kept::new().await;
    let [parent, middle, last] = ended_family(&kept).await;
    let mut sweep = kept.store.sweep(kept.world.clock.now(), 2);
    assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(2));
    assert!(!kept.has(&parent).await);
    parked(&kept.world, &last, "again", "transfer").await;
    assert_eq!(sweep.next().await.unwrap(), Some(Pruned::default()));
    assert_eq!(sweep.next().await.unwrap(), None);
    assert!(kept.has(&middle).await && kept.has(&last).await);
}

#[tokio::test]
async fn a_thread_that_cannot_be_read_stays_and_keeps_no_other_from_going() {
    let kept = Kept::new().await;
    let threads = ended_family(&kept).await;
    kept.ended("behind", "run_behind").await;
    kept.world.clock.advance(1);
    let raw = Connection::open(kept.folder.file()).unwrap();
    let broken = "UPDATE commits SET body = replace(body, '\"type\":\"', '\"type\":\"x') \
                  WHERE run = (SELECT row FROM runs WHERE id = 'parent')";
    assert!(raw.execute(broken, []).unwrap() > 0);
    let before = kept.world.clock.now();
    let expected = survey(kept.folder.file(), before, |_| {}).unwrap();
    assert_eq!((expected.threads, expected.unreadable), (2, 1));
    let mut sweep = kept.store.sweep(before, 10);
    assert_eq!(sweep.next().await.unwrap(), Some(expected));
    assert_eq!(sweep.next().await.unwrap(), None);
    assert!(!kept.has("alone").await && !kept.has("behind").await);
    for thread in &threads {
        assert!(kept.has(thread).await, "{thread}");
    }
    // Where nothing may go, it is said all the same.
    let mut sweep = kept.store.sweep(before, 10);
    assert_eq!(sweep.next().await.unwrap(), Some(Pruned { unreadable: 1, ..Pruned::default() }));
    assert_eq!(sweep.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_file_that_cannot_give_pages_back_says_so() {
    let kept = Kept::new().await;
    let Kept { folder, store, world } = kept;
    let clock = world.clock.clone();
    drop((store, world));
    // As a file is that was rebuilt elsewhere.
    let rebuild = "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM;";
    Connection::open(folder.file()).unwrap().execute_batch(rebuild).unwrap();
    let store = Arc::new(open(&folder, &clock, false));
    let kept = Kept { folder, world: World::new(store.clone(), clock), store };
    let mut worker = started(&kept.world, "thr", "run").await;
    worker.says(&"word ".repeat(100_000));
    worker.commit(&kept.world).await.unwrap();
    kept.world.clock.advance(1);
    assert_eq!(kept.swept(1).await, [1]);
    assert_ne!(assert_healthy(&kept.folder.file()).size.unwrap().free_bytes, 0);
    assert!(!kept.store.give_back().await.unwrap(), "there is more to give back for ever");
}

#[tokio::test]
async fn nothing_pending_goes_and_what_goes_makes_room() {
    let kept = Kept::new().await;
    for index in 0..8 {
        let mut worker = started(&kept.world, &format!("thr_{index}"), &format!("run_{index}")).await;
        worker.says(&"word ".repeat(500_000));
        worker.commit(&kept.world).await.unwrap();
    }
    let held = parked(&kept.world, "thr_held", "held", "transfer").await;
    let decision = held.decision("call_held", Some("d"), crate::worker::approve());
    kept.world.tell("held", Item::Decision(decision)).await;
    kept.world.clock.advance(1);
    let before = assert_healthy(&kept.folder.file()).size.unwrap();
    assert_eq!(kept.swept(100).await, [8]);
    while kept.store.give_back().await.unwrap() {}
    let after = assert_healthy(&kept.folder.file()).size.unwrap();
    assert_eq!((before.runs, after.runs, after.free_bytes), (9, 1, 0));
    assert!(after.file_bytes < before.file_bytes / 50, "{before:?} {after:?}");
    let mut held = claim(&kept.world, "held").await.unwrap();
    held.take_over();
    held.commit(&kept.world).await.unwrap();
    assert!(held.call("call_held").running_attempt().is_some(), "the decision was heard");
}

/// The tables in which these words stand, anywhere.
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
    let kept = Kept::new().await;
    let mut workers = Vec::new();
    for name in ["deleted", "pruned", "held"] {
        let order = order(&format!("thr_{name}"), name);
        let words = format!("the words of {name}");
        let create = bringing(&kept.world, order, OnBusy::Reject, true, &words).await;
        workers.push(Worker::created(&kept.world, create).await);
    }
    let mut held = workers.pop().unwrap();
    for worker in &mut workers {
        kept.end(worker).await;
    }
    let found = |name: &str| tables_with(&kept.folder.file(), &format!("the words of {name}"));
    assert_eq!([found("deleted"), found("pruned"), found("held")], [["brought"], ["brought"], ["brought"]]);
    kept.world.store.delete_thread(&kept.world.tenant, &"thr_deleted".into()).await.unwrap();
    assert_eq!(found("deleted"), [""; 0]);
    assert_eq!(found("pruned"), ["brought"]);
    kept.world.clock.advance(1);
    assert_eq!(kept.swept(10).await, [1]);
    assert_eq!(found("pruned"), [""; 0]);
    assert_eq!(found("held"), ["brought"], "its run has not ended");
    kept.end(&mut held).await;
    kept.world.clock.advance(1);
    assert_eq!(kept.swept(10).await, [1]);
    assert_eq!(tables_with(&kept.folder.file(), "the words of"), [""; 0]);
    assert_eq!(tables_with(&kept.folder.file(), "revision"), ["revisions"], "a configured agent stays");
}

#[tokio::test]
async fn a_survey_of_nothing_finds_nothing() {
    let kept = Kept::new().await;
    kept.ended("thr", "run").await;
    assert_eq!(survey(kept.folder.file(), Timestamp(0), |_| {}).unwrap(), Pruned::default());
    assert!(kept.has("thr").await);
}
