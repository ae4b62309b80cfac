//! Heads of runs, read from a file without its lock.

use engine::store::{StoreError, Tenant};
use rusqlite::{Connection, OptionalExtension, params};

use super::audit::SqliteAudit;
use super::chain::blob;
use super::errors::SqliteError;
use crate::columns::{digest, to_i64, to_u64};
use crate::run_heads::{PAGE, RunAtHead, RunHead, RunHeadPage, RunHeadSource, compare};

impl RunHeadSource for SqliteAudit {
    async fn run_heads(&self, tenant: Option<&Tenant>, after: i64) -> Result<RunHeadPage, StoreError> {
        self.read(|connection| heads_after(connection, tenant, after))
    }

    async fn compare_runs(&self, heads: &[RunHead]) -> Result<Vec<RunAtHead>, StoreError> {
        self.read(|connection| heads.iter().map(|head| compare_run(connection, head)).collect())
    }
}

fn heads_after(
    connection: &Connection,
    tenant: Option<&Tenant>,
    after: i64,
) -> Result<RunHeadPage, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/run_heads.sql"))?;
    let mut rows = statement.query(params![after, tenant.map(Tenant::as_str), to_i64(PAGE as u64)])?;
    let mut page = RunHeadPage::default();
    while let Some(row) = rows.next()? {
        page.last = Some(row.get(0)?);
        let Some(hash) = blob(row, 5)? else { continue };
        page.heads.push(RunHead {
            tenant: Tenant::from(row.get::<_, String>(1)?.as_str()),
            thread: row.get(2)?,
            run: row.get(3)?,
            seq: to_u64(row.get(4)?),
            hash: digest(&hash)?,
        });
    }
    Ok(page)
}

fn compare_run(connection: &Connection, head: &RunHead) -> Result<RunAtHead, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/run_at_head.sql"))?;
    let params = params![head.tenant.as_str(), head.run.as_str(), to_i64(head.seq)];
    let found = statement.query_row(params, |row| {
        let is_there: bool = row.get(1)?;
        let hash = if is_there { Some(blob(row, 2)?) } else { None };
        Ok(compare(head, to_u64(row.get(0)?), hash))
    });
    Ok(found.optional()?.unwrap_or(RunAtHead::NotFound))
}
