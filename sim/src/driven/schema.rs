//! The tables of one world in PostgreSQL: cleared for the next world, and taken away from a process that is lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::store::Store as _;
use machine::Timestamp;
use stores::postgres::{PostgresSettings, PostgresStore};
use tokio::runtime::Handle;
use tokio_postgres::{Client, NoTls};

use super::real_time::{real_time, wait_for};
use super::server;

/// The lease of a node is measured in real time too, and renewed in it. So in a world it does not run out by itself:
/// it is over when the world says that its process is lost.
const LEASE: Duration = Duration::from_secs(365 * 24 * 3_600);
/// The lease that a lost process had, as far as its calls in doubt are concerned.
const LOST_LEASE_MS: u64 = 10_000;
/// Calls come one after the other, so one connection is enough; a store has two more of its own.
const CONNECTION_COUNT_MAX: usize = 2;

/// Nothing happens in a world that a pulse would have to find.
const PULSE_EVERY: Duration = Duration::from_secs(60);

/// Faster than new tables, and than `TRUNCATE`, which makes new files.
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
    /// None once they are given back.
    tables: Option<Tables>,
    /// The stores that processes of this world had.
    used: Mutex<Vec<Arc<PostgresStore>>>,
    real_time: Handle,
}

/// They outlive the world.
struct Tables {
    name: String,
    /// The simulator's own connection.
    client: Client,
    /// The world's clock, as its stores read it on any thread.
    now: Arc<AtomicU64>,
    /// Stores that are connected. Most of the time of a world would go into connecting new ones.
    spare: Mutex<Vec<Arc<PostgresStore>>>,
}

impl Schema {
    /// Empty tables for a world.
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

    /// A store for a process that starts: one that holds nothing, and that no other process of this world had.
    pub(crate) fn open(&self) -> Result<Arc<PostgresStore>, String> {
        let tables = self.tables()?;
        let spare = tables.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let store = match spare {
            Some(store) => {
                // What it held was in another world, and is gone.
                wait_for(&self.real_time, store.release_all()).map_err(|why| why.to_string())?;
                store
            }
            None => Arc::new(wait_for(&self.real_time, tables.open())?),
        };
        self.used.lock().unwrap_or_else(PoisonError::into_inner).push(store.clone());
        Ok(store)
    }

    /// Every lease is over. What was held is freed by the store's own means, as another node would do it.
    pub(crate) fn end_leases(&self, now: Timestamp) -> Result<(), String> {
        let sql = format!("DELETE FROM nodes; SELECT take_over({LOST_LEASE_MS}, {})", now.0);
        let ended = self.wait_for(now, self.tables()?.client.batch_execute(&sql));
        ended.map_err(|why| format!("the leases cannot be ended: {why:?}"))
    }

    /// The answer to a call that is made at this time of the world.
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
        // It ends with its client; what is wrong with it is heard by whoever asks.
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
