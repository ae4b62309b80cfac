//! Opens the store of a server.

use std::sync::Arc;

use engine::store::Store;
use stores::memory::MemoryStore;
use stores::postgres::PostgresStore;
use stores::sqlite::SqliteStore;

use crate::cli::problem::Problem;
use crate::cli::store::StoreUrl;

pub(super) async fn open(url: &StoreUrl) -> Result<Arc<dyn Store>, Problem> {
    Ok(match url {
        StoreUrl::Sqlite { path } => Arc::new(SqliteStore::open(path)?),
        StoreUrl::Postgres { url } => Arc::new(PostgresStore::open(url).await?),
        StoreUrl::Memory => Arc::new(MemoryStore::new()),
    })
}
