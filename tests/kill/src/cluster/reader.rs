//! Reads the shared store directly, without going through a node.

use std::collections::BTreeSet;
use std::io;

use stores::postgres::PostgresStore;

use crate::evidence::{self, Attempt, Evidence, Traces};
use crate::node::Failure;
use crate::people::People;
use crate::store_at::{StoreAt, settings};

/// The reader's process number.
const READER: u32 = 0;

pub(super) fn evidence(store: &StoreAt, traces: &Traces, people: &People) -> io::Result<Evidence> {
    with(store, async |store| evidence::read(store, traces, people).await)
}

/// The attempts that have been recorded as lost so far.
pub(super) fn lost_attempts(store: &StoreAt) -> io::Result<BTreeSet<Attempt>> {
    with(store, async |store| evidence::lost_attempts(store).await)
}

fn with<T>(store: &StoreAt, work: impl AsyncFnOnce(&PostgresStore) -> Result<T, Failure>) -> io::Result<T> {
    let StoreAt::Schema(schema) = store else {
        return Err(io::Error::other("nodes cannot share a store in a file"));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = PostgresStore::open_with(&schema.address, settings(schema, READER, None)).await;
        let store = store.map_err(io::Error::other)?;
        work(&store).await.map_err(io::Error::other)
    })
}
