//! Reads the hash chain of a run: its head, and the last commit to compare it with.

use engine::store::{StoreError, Tenant};
use machine::chain::ChainHead;
use machine::id::RunId;
use tokio_postgres::Row;

use super::connection::Connections;
use super::errors::PostgresError;
use super::nul_escape::escape;
use crate::chain::{ChainColumns, ChainEnd, LastCommit};
use crate::columns::to_u64;

/// The columns of `chain_end`, from the column `first` on.
pub(super) fn parse_chain_end(row: &Row, first: usize) -> Result<ChainEnd, PostgresError> {
    let last = match row.try_get::<_, Option<i64>>(first + 2)? {
        Some(first_seq) => Some(LastCommit {
            first_seq: to_u64(first_seq),
            last_seq: to_u64(row.try_get(first + 3)?),
            checkpoint: row.try_get(first + 4)?,
            body: row.try_get(first + 5)?,
            hash: row.try_get(first + 6)?,
            hash_before: row.try_get(first + 7)?,
        }),
        None => None,
    };
    Ok(ChainEnd { head: parse_chain_columns(row, first)?, last })
}

/// Where a chain starts, and its head.
pub(super) fn parse_chain_columns(row: &Row, first: usize) -> Result<ChainColumns, PostgresError> {
    let starts_at: Option<i64> = row.try_get(first)?;
    Ok(ChainColumns { starts_at: starts_at.map(to_u64), hash: row.try_get(first + 1)? })
}

pub(super) async fn chain_head(
    connections: &Connections,
    tenant: &Tenant,
    run: &RunId,
) -> Result<Option<ChainHead>, PostgresError> {
    let sql = "SELECT chain_from, chain_head FROM runs WHERE tenant = $1 AND id = $2";
    let rows = connections.read(sql, &[&escape(tenant.as_str()), &escape(run.as_str())]).await?;
    Ok(parse_chain_columns(rows.first().ok_or(StoreError::NotFound)?, 0)?.decoded()?)
}
