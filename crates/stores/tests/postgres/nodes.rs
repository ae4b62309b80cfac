//! Several nodes on one schema, each with its own store, and somebody who looks at the database past all of them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::store::{Notification, Store, StoreError, StoreFailure};
use stores::postgres::{PostgresSettings, PostgresStore};
use tokio_postgres::{Client, NoTls};

use crate::fixture::{Clock, World};
use crate::postgres_server::{Server, server};

/// Long enough for a busy machine. Nothing that goes well takes as long.
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

    /// The database's clock counts, and the lease is longer than any test.
    pub(crate) fn settings(&self) -> PostgresSettings {
        PostgresSettings { schema: self.schema.clone(), lease: NEVER, ..PostgresSettings::default() }
    }

    pub(crate) async fn node(&self) -> Node {
        self.node_with(self.settings()).await
    }

    pub(crate) async fn node_with(&self, settings: PostgresSettings) -> Node {
        self.node_at(&self.server.address(), settings).await
    }

    /// The address of another database on the same server, made with these words.
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

    /// Past every store.
    pub(crate) async fn client(&self) -> Client {
        self.client_at(&self.server.address()).await
    }

    pub(crate) async fn client_at(&self, address: &str) -> Client {
        let (client, connection) = tokio_postgres::connect(address, NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client
            .batch_execute(&format!("SET search_path = {}", self.schema))
            .await
            .expect("the schema is there");
        client
    }
}

impl Node {
    /// The ear of a new node may not be open yet; once it has heard anything, it is.
    pub(crate) async fn wait_until_listening(&self, cluster: &Cluster<'_>) {
        let client = cluster.client().await;
        let channel = format!("holdpoint_{}", cluster.schema);
        until("an open ear", || async {
            client.execute("SELECT pg_notify($1, '*')", &[&channel]).await.unwrap();
            let heard = self.receives(|ring| *ring == Notification::Ready);
            tokio::time::timeout(Duration::from_millis(200), heard).await.is_ok()
        })
        .await;
    }

    /// Waits for the bell, passing over what is not wanted.
    pub(crate) async fn receives(&self, wanted: impl Fn(&Notification) -> bool) {
        with_timeout("a ring", async { while !wanted(&self.store.next_notification().await) {} }).await;
    }
}

pub(crate) async fn with_timeout<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, work).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// Asks again until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let began = Instant::now();
    let mut often = tokio::time::interval(Duration::from_millis(5));
    while !is_so().await {
        assert!(began.elapsed() < TEST_TIMEOUT, "{what} did not come");
        often.tick().await;
    }
}

pub(crate) fn is_unavailable<T>(result: &Result<T, StoreError>, because: &str) -> bool {
    matches!(result, Err(StoreError::Failed(StoreFailure::Unavailable(why))) if why.contains(because))
}
