//! Retention while nodes run: which threads are deleted, which are kept, and that deleted threads leave no rows.

use std::time::Duration;

use engine::store::{RunStore, StoreError, StoreFailure, ViewStore};
use machine::Input;
use machine::event::InterruptCause;
use machine::id::{Digest, RunId, ThreadId};
use machine::policy::OnBusy;
use machine::suspension::Held;
use stores::Pruned;
use stores::postgres::upkeep::Upkeep;
use stores::postgres::{PostgresOpenError, PostgresSettings};
use tokio_postgres::Client;

use crate::fixture::World;
use crate::nodes::{Cluster, Node};
use crate::worker::{Worker, claim, creation_with_inline_agent, enqueued, order, parked, queued, started};

struct RetentionFixture {
    cluster: Cluster<'static>,
    node: Node,
    upkeep: Upkeep,
}

impl RetentionFixture {
    async fn new() -> Self {
        let cluster = Cluster::new();
        let node = cluster.node().await;
        let upkeep = Upkeep::open(&cluster.server.address(), cluster.settings()).await.expect("upkeep opens");
        Self { cluster, node, upkeep }
    }

    fn world(&self) -> &World {
        &self.node.world
    }

    async fn ended(&self, thread: &str, run: &str) {
        let mut worker = started(self.world(), thread, run).await;
        self.end(&mut worker).await;
    }

    async fn end(&self, worker: &mut Worker) {
        worker.finish_with("done");
        worker.commit(self.world()).await.unwrap();
    }

    async fn has(&self, thread: &str) -> bool {
        let thread = self.node.store.thread(&self.world().tenant, &ThreadId::from(thread));
        thread.await.unwrap().created_at.is_some()
    }

    /// Deletes everything that is due, batch by batch, and asserts that a survey has counted the same.
    async fn sweep(&self, batch: usize) -> Vec<Pruned> {
        let before = self.world().clock.now();
        let (mut survey, mut expected) = (self.upkeep.survey(before), Pruned::default());
        while let Some(found) = survey.next().await.unwrap() {
            expected = expected.plus(found);
        }
        let (mut sweep, mut batches) = (self.upkeep.sweep(before, batch), Vec::new());
        while let Some(pruned) = sweep.next().await.unwrap() {
            batches.push(pruned);
        }
        assert_eq!(batches.iter().fold(Pruned::default(), |all, batch| all.plus(*batch)), expected);
        batches.retain(|batch| batch.threads > 0);
        batches
    }

    async fn swept(&self, batch: usize) -> Vec<u64> {
        self.sweep(batch).await.iter().map(|pruned| pruned.threads).collect()
    }
}

async fn child(world: &World, parent: &Worker, call: &str) -> Worker {
    let id: RunId = match &parent.call(call).suspension().unwrap().held {
        Held::ChildRun { run, .. } => run.clone(),
        other => panic!("held by {other:?}"),
    };
    let mut child = claim(world, id.as_str()).await.expect("the child can be claimed");
    child.take_over();
    child.apply_input(&Input::Start { after: None });
    child.commit(world).await.unwrap();
    child
}

#[tokio::test]
async fn threads_whose_runs_ended_long_ago_go_and_all_others_stay() {
    let fixture = RetentionFixture::new().await;
    fixture.ended("thr_old", "old_1").await;
    fixture.ended("thr_old", "old_2").await;
    fixture.ended("thr_waits", "ended").await;
    parked(fixture.world(), "thr_waits", "waits", "transfer").await;
    fixture.ended("thr_runs", "ended_too").await;
    started(fixture.world(), "thr_runs", "runs").await;
    enqueued(fixture.world(), "thr_runs", "behind").await;
    queued(fixture.world(), "thr_queued", "queued").await;
    fixture
        .node
        .store
        .put_thread(&fixture.world().tenant, &"thr_empty".into(), &"mine".into())
        .await
        .unwrap();
    fixture.world().clock.advance(1_000);
    let cutoff = fixture.world().clock.now();
    fixture.ended("thr_young", "young").await;
    let mut sweep = fixture.upkeep.sweep(cutoff, 10);
    let pruned = sweep.next().await.unwrap().expect("a batch");
    assert_eq!((pruned.threads, pruned.runs), (1, 2));
    assert_eq!(sweep.next().await.unwrap(), None);
    assert!(!fixture.has("thr_old").await);
    for thread in ["thr_waits", "thr_runs", "thr_queued", "thr_empty", "thr_young"] {
        assert!(fixture.has(thread).await, "{thread}");
    }
}

#[tokio::test]
async fn a_pruned_thread_leaves_no_rows() {
    let fixture = RetentionFixture::new().await;
    for index in 0..5 {
        fixture.ended(&format!("thr_{index}"), &format!("run_{index}")).await;
    }
    let before = fixture.upkeep.size().await.unwrap();
    assert_eq!(before.runs, 5);
    assert!(before.events >= 5 && before.control_bytes > 0 && before.bytes_per_run() > Some(0));
    let names: Vec<&str> = before.tables.iter().map(|table| table.name.as_str()).collect();
    assert!(names.contains(&"commits") && !names.contains(&"commits_0"), "{names:?}");
    fixture.world().clock.advance(1);
    assert_eq!(fixture.swept(2).await, [2, 2, 1]);
    assert_eq!(fixture.swept(2).await, [0; 0]);
    let after = fixture.upkeep.size().await.unwrap();
    assert_eq!((after.runs, after.events), (0, 0));
    let client = fixture.cluster.client().await;
    for table in ["threads", "runs", "commits", "messages", "call_ids", "inbox", "suspensions", "decisions"] {
        let count = client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap();
        assert_eq!(count.get::<_, i64>(0), 0, "{table}");
    }
}

#[tokio::test]
async fn what_came_with_a_message_goes_with_its_thread() {
    let fixture = RetentionFixture::new().await;
    fixture.node.store.put_revision(&Digest::sha256(b"configured words"), "configured words").await.unwrap();
    let mut workers = Vec::new();
    for name in ["deleted", "pruned", "held"] {
        let order = order(&format!("thr_{name}"), name);
        let words = format!("the words of {name}");
        let create = creation_with_inline_agent(fixture.world(), order, OnBusy::Reject, true, &words).await;
        workers.push(Worker::created(fixture.world(), create).await);
    }
    let mut held = workers.pop().unwrap();
    for worker in &mut workers {
        fixture.end(worker).await;
    }
    let found =
        async |name: &str| tables_with(&fixture.cluster.client().await, &format!("words of {name}")).await;
    for name in ["deleted", "pruned", "held"] {
        assert_eq!(found(name).await, ["brought"], "{name}");
    }
    fixture
        .node
        .store
        .delete_thread(&fixture.world().tenant, &"thr_deleted".into(), &"tester".into())
        .await
        .unwrap();
    assert_eq!(found("deleted").await, [""; 0]);
    assert_eq!(found("pruned").await, ["brought"]);
    fixture.world().clock.advance(1);
    assert_eq!(fixture.swept(10).await, [1]);
    assert_eq!(found("pruned").await, [""; 0]);
    assert_eq!(found("held").await, ["brought"], "the thread's run has not ended");
    fixture.end(&mut held).await;
    fixture.world().clock.advance(1);
    assert_eq!(fixture.swept(10).await, [1]);
    assert_eq!(
        tables_with(&fixture.cluster.client().await, "words").await,
        ["revisions"],
        "configured revisions are kept"
    );
}

/// The tables that contain these words in any column.
async fn tables_with(client: &Client, words: &str) -> Vec<String> {
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1";
    let mut found = Vec::new();
    for row in client.query(tables, &[]).await.unwrap() {
        let table: String = row.get(0);
        let sql = format!("SELECT count(*) FROM {table} AS t WHERE strpos(t::text, $1) > 0");
        if client.query_one(&sql, &[&words]).await.unwrap().get::<_, i64>(0) > 0 {
            found.push(table);
        }
    }
    found
}

#[tokio::test]
async fn a_family_goes_together_when_all_of_it_has_ended() {
    let fixture = RetentionFixture::new().await;
    let mut parent = started(fixture.world(), "thr_parent", "parent").await;
    parent.asks(&[("delegate", "researcher")]);
    parent.commit(fixture.world()).await.unwrap();
    let mut middle = child(fixture.world(), &parent, "delegate").await;
    middle.asks(&[("deeper", "researcher")]);
    middle.commit(fixture.world()).await.unwrap();
    let mut last = child(fixture.world(), &middle, "deeper").await;
    // The interrupted parent ends at once. Its children process their interrupts later.
    parent.apply_input(&Input::Interrupt { cause: InterruptCause::Person("bob".into()) });
    parent.commit(fixture.world()).await.unwrap();
    fixture.world().clock.advance(1_000);
    assert_eq!(fixture.swept(10).await, [0; 0], "the children have not ended");
    fixture.end(&mut last).await;
    fixture.world().clock.advance(1_000);
    assert_eq!(fixture.swept(10).await, [0; 0], "one child has not ended");
    middle.reload(fixture.world()).await;
    middle.drain();
    middle.commit(fixture.world()).await.unwrap();
    assert!(middle.run.control.ended().is_some());
    fixture.world().clock.advance(1);
    assert_eq!(fixture.swept(10).await, [3]);
}

#[tokio::test]
async fn a_locked_thread_stays() {
    let fixture = RetentionFixture::new().await;
    fixture.ended("thr_a", "a").await;
    fixture.ended("thr_b", "b").await;
    fixture.world().clock.advance(1);
    let mut client = fixture.cluster.client().await;
    let change = client.transaction().await.unwrap();
    change.execute("SELECT 1 FROM threads WHERE id = 'thr_a' FOR NO KEY UPDATE", &[]).await.unwrap();
    let mut sweep = fixture.upkeep.sweep(fixture.world().clock.now(), 10);
    assert_eq!(sweep.next().await.unwrap().map(|pruned| pruned.threads), Some(1));
    assert!(fixture.has("thr_a").await && !fixture.has("thr_b").await);
    change.commit().await.unwrap();
    assert_eq!(fixture.swept(10).await, [1]);
}

#[tokio::test]
async fn upkeep_creates_no_store() {
    let cluster = Cluster::new();
    let failed = Upkeep::open(&cluster.server.address(), cluster.settings()).await;
    assert!(matches!(failed, Err(PostgresOpenError::NoStore { schema }) if schema == cluster.schema));
    let _node = cluster.node().await;
    let client = cluster.client().await;
    client.batch_execute("DELETE FROM migrations WHERE version > 1").await.unwrap();
    let failed = Upkeep::open(&cluster.server.address(), cluster.settings()).await;
    assert!(matches!(failed, Err(PostgresOpenError::Older { found: 1, .. })), "{failed:?}");
    client.batch_execute("INSERT INTO migrations VALUES (1000, now())").await.unwrap();
    let failed = Upkeep::open(&cluster.server.address(), cluster.settings()).await;
    assert!(matches!(failed, Err(PostgresOpenError::Newer { found: 1000, .. })), "{failed:?}");
}

#[tokio::test]
async fn a_family_that_cannot_be_deleted_blocks_no_other() {
    let fixture = RetentionFixture::new().await;
    for index in 0..5 {
        fixture.ended(&format!("thr_{index}"), &format!("run_{index}")).await;
    }
    fixture.world().clock.advance(1);
    let slow = "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF OLD.id IN ('run_1', 'run_3') THEN PERFORM pg_sleep(60); END IF;
            RETURN OLD;
        END $$;
        CREATE TRIGGER dawdle BEFORE DELETE ON runs FOR EACH ROW EXECUTE FUNCTION dawdle()";
    let client = fixture.cluster.client().await;
    client.batch_execute(slow).await.unwrap();
    let settings =
        PostgresSettings { statement_timeout: Duration::from_millis(300), ..fixture.cluster.settings() };
    let upkeep = Upkeep::open(&fixture.cluster.server.address(), settings).await.expect("upkeep opens");
    let mut sweep = upkeep.sweep(fixture.world().clock.now(), 10);
    let mut pruned = Pruned::default();
    while let Some(batch) = sweep.next().await.unwrap() {
        pruned = pruned.plus(batch);
    }
    assert_eq!((pruned.threads, sweep.threads_examined()), (3, 5));
    assert_eq!(sweep.stuck().count, 2);
    let names: Vec<(&str, &str)> =
        sweep.stuck().threads.iter().map(|thread| (thread.tenant.as_str(), thread.id.as_str())).collect();
    assert_eq!(names, [("acme", "thr_1"), ("acme", "thr_3")]);
    let why = &sweep.stuck().threads[0].why;
    assert!(
        matches!(why, StoreError::Failed(StoreFailure::Unavailable(why)) if why.contains("timeout")),
        "{why}"
    );
    client.batch_execute("DROP TRIGGER dawdle ON runs").await.unwrap();
    assert_eq!(fixture.swept(10).await, [2], "the threads are deleted once they can be");
}
