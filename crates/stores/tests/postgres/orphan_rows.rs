//! Every row belongs to an existing run or thread, even in the tables that have no foreign key.

use engine::store::{RunStore, StoreError, ViewStore};
use machine::id::ThreadId;

use crate::nodes::Cluster;
use crate::worker::started;

/// Counts the rows of those tables whose run or thread does not exist.
const STRAYS: &str = "SELECT
    (SELECT count(*) FROM runs r WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.thread = r.thread))
    + (SELECT count(*) FROM commits c WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.run = c.run))
    + (SELECT count(*) FROM messages m WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.thread = m.thread))
    + (SELECT count(*) FROM call_ids c WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.thread = c.thread))";

#[tokio::test]
async fn a_commit_of_a_run_that_is_gone_leaves_no_rows() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let world = &node.world;
    let client = cluster.client().await;
    let strays = async || client.query_one(STRAYS, &[]).await.unwrap().get::<_, i64>(0);
    let mut worker = started(world, "thr", "run").await;
    worker.asks(&[("a", "echo")]);
    let late = worker.append();
    worker.reload(world).await;
    worker.finish_with("done");
    worker.commit(world).await.unwrap();
    node.store.delete_thread(&world.tenant, &ThreadId::from("thr"), &"tester".into()).await.unwrap();
    assert_eq!(strays().await, 0, "no row of the thread is left");
    assert_eq!(node.store.append(&worker.lease, late).await, Err(StoreError::Fenced));

    // The statement itself writes no row for a run number that does not exist.
    let number = worker.lease.row;
    let holder: i64 = client.query_one("SELECT max(node) FROM nodes", &[]).await.unwrap().get(0);
    let together = "SELECT append_batch($1, NULL, ARRAY[$2::bigint], '{acme}', '{run}', '{1}', '{1}', '{1}', '{2}', '{running}', '{NULL}',
        '{false}', '{NULL}', '{NULL}', '{waiting}', '{NULL}', '{x}', '{NULL}', '{NULL}', '{1}', '{1}', '{msg}', '{2}', '{user}', '{1}', '{a}', '{}', '{}')";
    let answer = client.query_one(together, &[&holder, &number]).await.unwrap();
    assert_eq!(answer.get::<_, Vec<String>>(0), ["alone"]);
    assert_eq!(strays().await, 0);
}
