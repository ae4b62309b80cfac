//! The tables of one world in PostgreSQL: cleared for the next world, and taken away from a lost process.

use engine::store::ClusterStore;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use machine::Timestamp;
use stores::postgres::{PostgresSettings, PostgresStore};
use tokio::runtime::Handle;
use tokio_postgres::{Client, NoTls};

use super::real_time::{real_time, wait_for};
use super::server;

/// A node's lease is also measured and renewed in real time. So in a world it never expires by itself: it ends when the
/// world says that its process is lost.
const LEASE: Duration = Duration::from_secs(365 * 24 * 3_600);
/// The lease that a lost process is assumed to have had. It determines when its calls become in doubt.
const LOST_LEASE_MS: u64 = 10_000;
/// Calls come one after the other, so one connection is enough. A store has two more of its own.
const CONNECTION_COUNT_MAX: usize = 2;

/// Nothing in a world needs to be found by polling.
const PULSE_EVERY: Duration = Duration::from_secs(60);

/// Faster than creating tables, and than `TRUNCATE`, which creates new files.
const CLEAR: &str = "
    DO $$
    DECLARE
        emptied regclass;
    BEGIN
        -- All goes, so nothing has to go before anything else.
        SET LOCAL session_replication_role = replica;
        FOR emptied IN
            SELECT c.oid FROM pg_class c
            WHERE c.relnamespace = to_regnamespace(current_schema()) AND c.relkind IN ('r', 'p')
                AND NOT c.relispartition AND c.relname <> 'migrations'
        LOOP
            EXECUTE 'DELETE FROM ' || emptied;
        END LOOP;
    END $$";

/// Schemas that no world uses at the moment.
static FREE: Mutex<Vec<Tables>> = Mutex::new(Vec::new());

pub(crate) struct Schema {
    /// `None` once they are returned to the pool.
    tables: Option<Tables>,
    /// The stores that processes of this world used.
    used: Mutex<Vec<Arc<PostgresStore>>>,
    real_time: Handle,
}

/// A schema's tables. They outlive the world.
struct Tables {
    name: String,
    /// The simulator's own connection.
    client: Client,
    /// The world's clock, which its stores read on any thread.
    now: Arc<AtomicU64>,
    /// Connected stores, for reuse. Connecting new ones would take most of a world's time.
    spare: Mutex<Vec<Arc<PostgresStore>>>,
}

impl Schema {
    /// Takes empty tables for a world.
    pub(crate) fn take() -> Result<Self, String> {
        let real_time = real_time()?;
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let tables = match free {
            Some(tables) => tables,
            None => wait_for(&real_time, Tables::connect())?,
        };
        let cleared = wait_for(&real_time, tables.client.batch_execute(CLEAR));
        cleared.map_err(|why| format!("the tables cannot be cleared: {why:?}"))?;
        Ok(Self { tables: Some(tables), used: Mutex::default(), real_time })
    }

    fn tables(&self) -> Result<&Tables, String> {
        self.tables.as_ref().ok_or_else(|| "the tables are given back".into())
    }

    /// A store for a starting process: one that holds nothing, and that no other process of this world used.
    pub(crate) fn open(&self) -> Result<Arc<PostgresStore>, String> {
        let tables = self.tables()?;
        let spare = tables.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let store = match spare {
            Some(store) => {
                // The runs that it held were in another world, and are gone.
                wait_for(&self.real_time, store.release_all()).map_err(|why| why.to_string())?;
                store
            }
            None => Arc::new(wait_for(&self.real_time, tables.open())?),
        };
        self.used.lock().unwrap_or_else(PoisonError::into_inner).push(store.clone());
        Ok(store)
    }

    /// Ends every lease. The store's own SQL function frees the runs, as it does when another node takes over.
    pub(crate) fn end_leases(&self, now: Timestamp) -> Result<(), String> {
        let sql = format!("DELETE FROM nodes; SELECT take_over({LOST_LEASE_MS}, {})", now.0);
        let ended = self.wait_for(now, self.tables()?.client.batch_execute(&sql));
        ended.map_err(|why| format!("the leases cannot be ended: {why:?}"))
    }

    /// Waits for the answer to a call that is made at this simulated time.
    pub(crate) fn wait_for<T>(&self, now: Timestamp, answer: impl Future<Output = T>) -> T {
        if let Some(tables) = &self.tables {
            tables.now.store(now.0, Ordering::Relaxed);
        }
        wait_for(&self.real_time, answer)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let Some(tables) = self.tables.take() else { return };
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        tables.spare.lock().unwrap_or_else(PoisonError::into_inner).extend(used);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(tables);
    }
}

impl Tables {
    async fn connect() -> Result<Self, String> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let name = format!("world_{}", LAST.fetch_add(1, Ordering::Relaxed));
        let address = format!("{} options='-c search_path={name}'", server::address()?);
        let (client, traffic) = tokio_postgres::connect(&address, NoTls)
            .await
            .map_err(|why| format!("no connection: {why:?}"))?;
        // It ends with its client. The caller of a query sees its errors.
        tokio::spawn(traffic);
        Ok(Self { name, client, now: Arc::default(), spare: Mutex::default() })
    }

    async fn open(&self) -> Result<PostgresStore, String> {
        let now = self.now.clone();
        let settings = PostgresSettings {
            schema: self.name.clone(),
            connection_count_max: CONNECTION_COUNT_MAX,
            lease: LEASE,
            renew_every: PULSE_EVERY,
            poll_every: PULSE_EVERY,
            clock: Some(Arc::new(move || Timestamp(now.load(Ordering::Relaxed)))),
            ..PostgresSettings::default()
        };
        PostgresStore::open_with(server::address()?, settings).await.map_err(|why| why.to_string())
    }
}
