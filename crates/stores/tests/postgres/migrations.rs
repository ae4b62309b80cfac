//! Migrations run once, also where several nodes start together.

use stores::postgres::{OpenFailed, PostgresStore, Settings};

use crate::nodes::Cluster;
use crate::worker::{next, queued};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_nodes_that_start_together_migrate_once() {
    let cluster = Cluster::new();
    let nodes: Vec<_> = (0..5)
        .map(|_| {
            let (address, settings) = (cluster.server.address(), cluster.settings());
            tokio::spawn(async move { PostgresStore::open_with(&address, settings).await })
        })
        .collect();
    for node in nodes {
        node.await.expect("no panic").expect("each of them opens");
    }
    let client = cluster.client().await;
    let steps = client.query("SELECT version FROM migrations ORDER BY version", &[]).await.unwrap();
    let versions: Vec<i32> = steps.iter().map(|row| row.get(0)).collect();
    assert_eq!(versions, [1, 2, 3, 4]);
    let node = cluster.node().await;
    queued(&node.world, "thr", "run").await;
    assert_eq!(next(&node.world, 10).await, ["run"]);
}

#[tokio::test]
async fn a_store_of_a_later_version_is_left_alone() {
    let cluster = Cluster::new();
    drop(cluster.node().await);
    let client = cluster.client().await;
    client.execute("INSERT INTO migrations VALUES (1000, now())", &[]).await.unwrap();
    let opened = PostgresStore::open_with(&cluster.server.address(), cluster.settings()).await;
    assert!(matches!(opened, Err(OpenFailed::Newer { found: 1_000, .. })), "{opened:?}");
}

#[tokio::test]
async fn an_address_or_a_schema_that_means_nothing_is_said_so() {
    let opened = PostgresStore::open("nonsense").await;
    assert!(matches!(opened, Err(OpenFailed::Address(_))), "{opened:?}");
    for schema in ["", "a b", "Upper", "a;drop", &"a".repeat(41)] {
        let settings = Settings { schema: schema.into(), ..Settings::default() };
        let opened = PostgresStore::open_with("host=127.0.0.1 user=u", settings).await;
        assert!(matches!(opened, Err(OpenFailed::Schema(_))), "{schema}: {opened:?}");
    }
}
