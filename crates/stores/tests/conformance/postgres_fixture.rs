//! A store in a schema of its own, and a crash after which the lease of the lost node runs out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stores::postgres::{PostgresSettings, PostgresStore};
use tokio_postgres::NoTls;

use crate::fixture::{Clock, Fixture, World};
use crate::postgres_server::server;

/// Longer than any test advances its clock.
const LEASE: Duration = Duration::from_secs(24 * 60 * 60);
const LEASE_MS: u64 = 24 * 60 * 60 * 1_000;

pub(crate) struct Postgres {
    schema: String,
}

/// Schemas that no test uses at the moment: emptying an old schema is much faster than creating a new one.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

const EMPTY: &str = "DELETE FROM commits; DELETE FROM inbox; DELETE FROM suspensions; DELETE FROM decisions;
    DELETE FROM remembered; DELETE FROM post_keys; DELETE FROM messages; DELETE FROM call_ids; DELETE FROM grants; DELETE FROM plugin_state; DELETE FROM brought; DELETE FROM runs;
    DELETE FROM threads; DELETE FROM nodes; DELETE FROM revisions;
    DELETE FROM callback_key; DELETE FROM audit; DELETE FROM audit_chains; DELETE FROM audit_sinks";

async fn fresh_schema() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let free = FREE.lock().unwrap().pop();
    match free {
        Some(schema) => {
            say(&format!("SET search_path = {schema}; {EMPTY}")).await;
            schema
        }
        None => format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed)),
    }
}

/// Runs SQL directly on the database, without a store.
async fn say(sql: &str) {
    let (client, connection) = tokio_postgres::connect(&server().address(), NoTls).await.unwrap();
    let traffic = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
    drop(client);
    traffic.await.unwrap().unwrap();
}

async fn open(schema: &str, clock: &Clock) -> PostgresStore {
    let clock = clock.clone();
    let settings = PostgresSettings {
        schema: schema.into(),
        connection_count_max: 8,
        lease: LEASE,
        clock: Some(Arc::new(move || clock.now())),
        ..PostgresSettings::default()
    };
    PostgresStore::open_with(&server().address(), settings).await.unwrap()
}

impl Fixture for Postgres {
    const LATE_MS: u64 = LEASE_MS;

    async fn open() -> (Self, World) {
        let (schema, clock) = (fresh_schema().await, Clock::new());
        let store = open(&schema, &clock).await;
        (Self { schema }, World::new(Arc::new(store), clock))
    }

    async fn crash(&mut self, world: World) -> World {
        let World { store, clock, tenant } = world;
        drop(store);
        let now = clock.now().0;
        say(&format!(
            "SET search_path = {}; UPDATE nodes SET expires_at = started_at; SELECT take_over({LEASE_MS}, {now})",
            self.schema
        ))
        .await;
        let store = open(&self.schema, &clock).await;
        World { store: Arc::new(store), clock, tenant }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Tasks that a failed test has started may still be writing.
        if !std::thread::panicking() {
            FREE.lock().unwrap().push(std::mem::take(&mut self.schema));
        }
    }
}
