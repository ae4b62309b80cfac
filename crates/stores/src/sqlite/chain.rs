//! Reads the hash chain of a run: its head, and the last commit to compare it with.

use engine::store::{StoreError, Tenant};
use machine::chain::ChainHead;
use machine::id::{Digest, RunId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::errors::SqliteError;
use crate::chain::{ChainColumns, ChainEnd, LastCommit};
use crate::columns::to_u64;

/// Two columns of a run's row, from this column on: where its chain starts, and its head. A head that is no blob does
/// not match any commit.
pub(super) fn chain_columns(row: &Row<'_>, first: usize) -> rusqlite::Result<ChainColumns> {
    let starts_at: Option<i64> = row.get(first)?;
    Ok(ChainColumns { starts_at: starts_at.map(to_u64), hash: blob(row, first + 1)? })
}

/// `None` if the column is NULL; nothing if its value is no blob.
pub(super) fn blob(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Vec<u8>>> {
    Ok(row.get_ref(column)?.as_blob_or_null().unwrap_or(Some(&[])).map(<[u8]>::to_vec))
}

/// The head for the next link: `None` if the run has none, or none that a commit could have.
pub(super) fn previous_hash(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Digest>> {
    let found = blob(row, column)?;
    Ok(found.and_then(|found| <[u8; 32]>::try_from(found).ok()).map(Digest))
}

/// Must run in the same read transaction as the one that read the head.
pub(super) fn chain_end(
    connection: &Connection,
    run: i64,
    head: ChainColumns,
) -> Result<ChainEnd, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/chain_end.sql"))?;
    let last = statement.query_row([run], |row| {
        Ok(LastCommit {
            first_seq: to_u64(row.get(0)?),
            last_seq: to_u64(row.get(1)?),
            checkpoint: row.get(2)?,
            // A body that is not text matches no hash.
            body: row.get_ref(3)?.as_str().unwrap_or_default().to_owned(),
            hash: blob(row, 4)?,
            hash_before: blob(row, 5)?,
        })
    });
    Ok(ChainEnd { head, last: last.optional()? })
}

pub(super) fn chain_head(
    connection: &Connection,
    tenant: &Tenant,
    run: &RunId,
) -> Result<Option<ChainHead>, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/chain_head.sql"))?;
    let found = statement.query_row(params![tenant.as_str(), run.as_str()], |row| chain_columns(row, 0));
    Ok(found.optional()?.ok_or(StoreError::NotFound)?.decoded()?)
}
