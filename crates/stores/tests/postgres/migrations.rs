//! Migrations run once, even if several nodes start at the same time.

use std::time::Duration;

use stores::postgres::{PostgresOpenError, PostgresSettings, PostgresStore};

use crate::nodes::{Cluster, until};
use crate::worker::{next, queued, started};

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
        node.await.expect("no panic").expect("each node opens");
    }
    let client = cluster.client().await;
    let steps = client.query("SELECT version FROM migrations ORDER BY version", &[]).await.unwrap();
    let versions: Vec<i32> = steps.iter().map(|row| row.get(0)).collect();
    let newest = versions.iter().copied().max().expect("a migrated store has a version");
    assert!(newest >= 10, "version 10 is the first whose functions have these names: {newest}");
    assert_eq!(versions, (1..=newest).collect::<Vec<_>>());
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
    assert!(matches!(opened, Err(PostgresOpenError::Newer { found: 1_000, .. })), "{opened:?}");
}

#[tokio::test]
async fn an_invalid_address_or_schema_is_reported() {
    let opened = PostgresStore::open("nonsense").await;
    assert!(matches!(opened, Err(PostgresOpenError::Address(_))), "{opened:?}");
    for schema in ["", "a b", "Upper", "a;drop", &"a".repeat(41)] {
        let settings = PostgresSettings { schema: schema.into(), ..PostgresSettings::default() };
        let opened = PostgresStore::open_with("host=127.0.0.1 user=u", settings).await;
        assert!(matches!(opened, Err(PostgresOpenError::Schema(_))), "{schema}: {opened:?}");
    }
}

/// A transaction that waited for a lock must see what was committed meanwhile. So the store sets the isolation level,
/// whatever the database's default is.
#[tokio::test]
async fn every_session_reads_what_is_committed_where_the_database_asks_for_more() {
    let cluster = Cluster::new();
    let address = cluster.database("").await;
    let strict = format!(
        "ALTER DATABASE {}_database SET default_transaction_isolation = 'repeatable read'",
        cluster.schema
    );
    cluster.client().await.batch_execute(&strict).await.unwrap();
    let settings = PostgresSettings { renew_every: Duration::from_millis(50), ..cluster.settings() };
    let node = cluster.node_at(&address, settings).await;
    let client = cluster.client_at(&address).await;
    let isolation = client.query_one("SHOW transaction_isolation", &[]).await.unwrap();
    assert_eq!(
        isolation.get::<_, &str>(0),
        "repeatable read",
        "a session without a setting of its own uses the database's default"
    );
    let notes = "CREATE TABLE sessions (isolation text, kind text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO sessions VALUES (current_setting('transaction_isolation'), TG_TABLE_NAME || TG_OP);
            RETURN NULL;
        END $$;
        CREATE TRIGGER note AFTER INSERT OR UPDATE ON runs FOR EACH STATEMENT EXECUTE FUNCTION note()";
    client.batch_execute(notes).await.unwrap();
    // In a transaction of its own: the node locks these tables in the other order.
    let notes =
        "CREATE TRIGGER note AFTER INSERT OR UPDATE ON nodes FOR EACH STATEMENT EXECUTE FUNCTION note()";
    client.batch_execute(notes).await.unwrap();
    let mut worker = started(&node.world, "thr", "run").await;
    worker.finish_with("done");
    worker.commit(&node.world).await.unwrap();
    let kinds = "SELECT count(DISTINCT kind) FROM sessions";
    until("a creation, a commit, a node and its heartbeat", || async {
        client.query_one(kinds, &[]).await.unwrap().get::<_, i64>(0) == 4
    })
    .await;
    let seen = client.query("SELECT DISTINCT isolation FROM sessions", &[]).await.unwrap();
    let seen: Vec<&str> = seen.iter().map(|row| row.get(0)).collect();
    assert_eq!(seen, ["read committed"]);
}

#[tokio::test]
async fn a_database_that_cannot_keep_every_text_is_refused() {
    let cluster = Cluster::new();
    let address = cluster.database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0").await;
    let opened = PostgresStore::open_with(&address, cluster.settings()).await;
    assert!(matches!(&opened, Err(PostgresOpenError::Encoding(found)) if found == "LATIN1"), "{opened:?}");
}
