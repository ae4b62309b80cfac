//! Several nodes on one schema, each with its own store, and a client that queries the database directly.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::store::{ClusterStore, Notification, StoreError, StoreFailure};
use stores::postgres::{PostgresSettings, PostgresStore};
use tokio_postgres::{Client, NoTls};

use crate::fixture::{Clock, World};
use crate::postgres_server::{Server, server};

/// Long enough for a busy machine. A passing test never takes as long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const NEVER: Duration = Duration::from_secs(3_600);

pub(crate) struct Cluster<'s> {
    pub(crate) server: &'s Server,
    pub(crate) schema: String,
}

pub(crate) struct Node {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) world: World,
}

impl Cluster<'static> {
    pub(crate) fn new() -> Self {
        Self::on(server())
    }
}

impl<'s> Cluster<'s> {
    pub(crate) fn on(server: &'s Server) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self { server, schema: format!("nodes_{}", COUNT.fetch_add(1, Ordering::Relaxed)) }
    }

    /// Uses the database's clock, and a lease that is longer than any test.
    pub(crate) fn settings(&self) -> PostgresSettings {
        PostgresSettings { schema: self.schema.clone(), lease: NEVER, ..PostgresSettings::default() }
    }

    pub(crate) async fn node(&self) -> Node {
        self.node_with(self.settings()).await
    }

    pub(crate) async fn node_with(&self, settings: PostgresSettings) -> Node {
        self.node_at(&self.server.address(), settings).await
    }

    /// Creates another database on the same server with these options, and returns its address.
    pub(crate) async fn database(&self, words: &str) -> String {
        let name = format!("{}_database", self.schema);
        let make = format!("CREATE DATABASE {name} {words}");
        self.client().await.batch_execute(&make).await.expect("a database");
        self.server.address().replace("dbname=postgres", &format!("dbname={name}"))
    }

    pub(crate) async fn node_at(&self, address: &str, settings: PostgresSettings) -> Node {
        let store = Arc::new(PostgresStore::open_with(address, settings).await.expect("the store opens"));
        Node { world: World::new(store.clone(), Clock::new()), store }
    }

    /// Connects to the database directly, without a store.
    pub(crate) async fn client(&self) -> Client {
        self.client_at(&self.server.address()).await
    }

    pub(crate) async fn client_at(&self, address: &str) -> Client {
        let (client, connection) = tokio_postgres::connect(address, NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client
            .batch_execute(&format!("SET search_path = {}", self.schema))
            .await
            .expect("the search path can be set");
        client
    }
}

impl Node {
    /// Waits until the node has received a notification: the listener of a new node may not be connected yet.
    pub(crate) async fn wait_until_listening(&self, cluster: &Cluster<'_>) {
        let client = cluster.client().await;
        let channel = format!("holdpoint_{}", cluster.schema);
        until("a connected listener", || async {
            client.execute("SELECT pg_notify($1, '*')", &[&channel]).await.unwrap();
            let heard = self.receives(|ring| *ring == Notification::Ready);
            tokio::time::timeout(Duration::from_millis(200), heard).await.is_ok()
        })
        .await;
    }

    /// Waits for a wanted notification, and ignores all others.
    pub(crate) async fn receives(&self, wanted: impl Fn(&Notification) -> bool) {
        with_timeout("a notification", async { while !wanted(&self.store.next_notification().await) {} })
            .await;
    }
}

pub(crate) async fn with_timeout<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, work).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

/// Polls until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let began = Instant::now();
    let mut often = tokio::time::interval(Duration::from_millis(5));
    while !is_so().await {
        assert!(began.elapsed() < TEST_TIMEOUT, "timed out waiting for {what}");
        often.tick().await;
    }
}

pub(crate) fn is_unavailable<T>(result: &Result<T, StoreError>, because: &str) -> bool {
    matches!(result, Err(StoreError::Failed(StoreFailure::Unavailable(why))) if why.contains(because))
}
