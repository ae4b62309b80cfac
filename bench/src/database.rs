//! The database of a measurement: a private server or a named one, with a schema for each store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stores::postgres::{PostgresSettings, PostgresStore};
use tokio_postgres::{Client, NoTls};

use crate::failure::Failure;
use crate::postgres_server::PostgresServer;
use crate::postmaster::Postmaster;

static SCHEMA_COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Database {
    pub(crate) address: String,
    /// None if the server is on another machine.
    pub(crate) postmaster: Option<Postmaster>,
    /// Stopped and removed when the last user drops the database.
    _server: Option<PostgresServer>,
}

impl Database {
    /// The named database, or a private one with its data in this folder.
    pub(crate) async fn open(named: Option<&str>, folder: &Path) -> Result<Arc<Self>, Failure> {
        let (address, server) = match named {
            Some(address) => (address.to_owned(), None),
            None => {
                let server = PostgresServer::start(folder)?;
                (server.address.clone(), Some(server))
            }
        };
        let mut database = Self { address, postmaster: None, _server: server };
        let client = database.connect().await?;
        let sql = "SELECT pg_backend_pid(), current_setting('fsync') = 'on'";
        let row = client.query_one(sql, &[]).await?;
        if !row.try_get::<_, bool>(1)? {
            return Err(Failure::new(
                "the database has fsync switched off: its figures would be worth nothing",
            ));
        }
        database.postmaster = Postmaster::of_backend(row.try_get(0)?);
        Ok(Arc::new(database))
    }

    /// The connection closes when the client is dropped.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let (client, connection) = tokio_postgres::connect(&self.address, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Bytes of log that the whole server has written so far.
    pub(crate) async fn log_position(&self) -> Result<u64, Failure> {
        let sql = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
        let row = self.connect().await?.query_one(sql, &[]).await?;
        Ok(u64::try_from(row.try_get::<_, i64>(0)?)?)
    }
}

/// The tables of one store. They are left in a named database if the measurement fails.
pub(crate) struct Schema {
    pub(crate) database: Arc<Database>,
    pub(crate) name: String,
}

impl Schema {
    /// With a name that no other schema uses.
    pub(crate) fn of(database: &Arc<Database>) -> Self {
        let number = SCHEMA_COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench_{}_{number}", std::process::id());
        Self { database: database.clone(), name }
    }

    /// Opens a node on the schema. The first one creates the tables.
    pub(crate) async fn store(&self) -> Result<PostgresStore, Failure> {
        store_in(&self.database.address, &self.name).await
    }

    /// Bytes of tables, indexes and everything that belongs to them.
    pub(crate) async fn byte_count(&self) -> Result<u64, Failure> {
        let sql = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";
        let row = self.database.connect().await?.query_one(sql, &[&self.name]).await?;
        Ok(u64::try_from(row.try_get::<_, i64>(0)?)?)
    }

    pub(crate) async fn remove(self) -> Result<(), Failure> {
        let client = self.database.connect().await?;
        Ok(client.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.name)).await?)
    }
}

pub(crate) async fn store_in(address: &str, schema: &str) -> Result<PostgresStore, Failure> {
    let settings = PostgresSettings { schema: schema.to_owned(), ..PostgresSettings::default() };
    Ok(PostgresStore::open_with(address, settings).await?)
}
