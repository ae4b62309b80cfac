//! The audit record: rows written with the change, then sealed into the chain of their tenant.

use std::path::PathBuf;

use engine::store::{AUDIT_RECORDS_MAX, AuditFilter, AuditStore, BoxFuture, StoreError, Tenant, TenantChain};
use machine::Timestamp;
use machine::audit::{AuditChain, AuditEntry, AuditRecord, SealedRecord};
use machine::id::{Principal, RunId, ThreadId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::errors::{SqliteError, impossible};
use super::inspect::{InspectError, inspect};
use super::store::ready_task;
use super::write_tx::WriteTx;
use crate::audit_reader::{AuditRow, AuditSource};
use crate::columns::{digest, millis, to_i64, to_u64};

const INSERT: &str = "INSERT INTO audit (tenant, at, action, actor, body) VALUES (?1, ?2, ?3, ?4, ?5)";
const UNSEALED_TENANTS: &str = "SELECT DISTINCT tenant FROM audit WHERE seq IS NULL ORDER BY tenant";
const UNSEALED: &str =
    "SELECT place, body FROM audit WHERE tenant = ?1 AND seq IS NULL ORDER BY place LIMIT ?2";
const SEALED: &str = "SELECT seq, hash, body FROM audit \
    WHERE tenant = ?1 AND seq > ?2 AND at >= ?3 AND at < ?4 AND (?5 IS NULL OR actor = ?5) \
    AND (?6 IS NULL OR action = ?6) ORDER BY seq LIMIT ?7";
const CHAINS: &str = "SELECT tenant, pruned_seq, pruned_hash, seq, hash FROM audit_chains ORDER BY tenant";
/// Old records from the beginning of the chain, before the first one that is not old.
const PRUNABLE: &str = "SELECT seq, hash FROM audit WHERE tenant = ?1 AND seq > ?2 AND seq <= ?3 AND seq < coalesce( \
    (SELECT min(seq) FROM audit WHERE tenant = ?1 AND seq > ?2 AND seq <= ?3 AND at >= ?4), ?3 + 1) \
    ORDER BY seq DESC LIMIT 1";

pub(super) fn insert(tx: &WriteTx<'_>, tenant: &str, record: &AuditRecord) -> Result<(), SqliteError> {
    let AuditRecord { at, action, by, body } = record;
    tx.execute(INSERT, params![tenant, millis(*at), action.as_str(), by.as_str(), body])?;
    Ok(())
}

/// What a commit of a run records.
pub(super) fn insert_of_run(
    tx: &WriteTx<'_>,
    tenant: &str,
    thread: &ThreadId,
    run: &RunId,
    entries: &[AuditEntry],
) -> Result<(), SqliteError> {
    entries.iter().try_for_each(|entry| insert(tx, tenant, &entry.to_record_of_run(tenant, thread, run)))
}

pub(super) fn has_unsealed(connection: &Connection) -> Result<bool, SqliteError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM audit WHERE seq IS NULL)";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Returns the number of records that it sealed.
pub(super) fn seal(tx: &WriteTx<'_>) -> Result<u64, SqliteError> {
    let mut statement = tx.prepare(UNSEALED_TENANTS)?;
    let tenants = statement.query_map([], |row| row.get(0))?;
    let tenants: Vec<String> = tenants.collect::<rusqlite::Result<_>>()?;
    let mut count = 0;
    for tenant in tenants {
        let left = AUDIT_RECORDS_MAX.saturating_sub(count);
        count += seal_tenant(tx, &tenant, left)?;
    }
    Ok(count as u64)
}

fn seal_tenant(tx: &WriteTx<'_>, tenant: &str, count_max: usize) -> Result<usize, SqliteError> {
    let mut statement = tx.prepare(UNSEALED)?;
    let rows = statement
        .query_map(params![tenant, to_i64(count_max as u64)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows: Vec<(i64, String)> = rows.collect::<rusqlite::Result<_>>()?;
    if rows.is_empty() {
        return Ok(0);
    }
    let mut statement = tx.prepare("SELECT seq, hash FROM audit_chains WHERE tenant = ?1")?;
    let mut found = statement.query([tenant])?;
    let mut head = found.next()?.map(|row| chain_end(row, 0)).transpose()?.unwrap_or(AuditChain::START);
    drop(found);
    let count = rows.len();
    for (place, body) in rows {
        let sealed = head.seal(body);
        let seals = "UPDATE audit SET seq = ?2, hash = ?3 WHERE place = ?1 AND seq IS NULL";
        if tx.execute(seals, params![place, to_i64(sealed.seq), sealed.hash.0])? == 0 {
            return Err(impossible(format!("audit row {place} was sealed twice")));
        }
    }
    let start = AuditChain::START;
    let ends = "INSERT INTO audit_chains (tenant, seq, hash, pruned_seq, pruned_hash) VALUES (?1, ?2, ?3, ?4, ?5) \
        ON CONFLICT (tenant) DO UPDATE SET seq = excluded.seq, hash = excluded.hash";
    tx.execute(ends, params![tenant, to_i64(head.seq), head.hash.0, to_i64(start.seq), start.hash.0])?;
    Ok(count)
}

pub(super) fn sealed(
    connection: &Connection,
    tenant: &Tenant,
    filter: &AuditFilter,
    after: u64,
    limit: usize,
) -> Result<Vec<SealedRecord>, SqliteError> {
    let mut statement = connection.prepare_cached(SEALED)?;
    let params = params![
        tenant.as_str(),
        to_i64(after),
        filter.since.map_or(0, millis),
        filter.until.map_or(i64::MAX, millis),
        filter.by.as_ref().map(Principal::as_str),
        filter.action.map(machine::audit::AuditAction::as_str),
        to_i64(limit.min(AUDIT_RECORDS_MAX) as u64),
    ];
    let mut rows = statement.query(params)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let AuditChain { seq, hash } = chain_end(row, 0)?;
        records.push(SealedRecord { seq, hash, body: row.get(2)? });
    }
    Ok(records)
}

pub(super) fn chains(connection: &Connection) -> Result<Vec<TenantChain>, SqliteError> {
    let mut statement = connection.prepare_cached(CHAINS)?;
    let mut rows = statement.query([])?;
    let mut chains = Vec::new();
    while let Some(row) = rows.next()? {
        let tenant = Tenant::from(row.get::<_, String>(0)?.as_str());
        chains.push(TenantChain { tenant, pruned: chain_end(row, 1)?, head: chain_end(row, 3)? });
    }
    Ok(chains)
}

/// A number and a hash, from this column on.
fn chain_end(row: &Row<'_>, first: usize) -> Result<AuditChain, SqliteError> {
    let hash: Vec<u8> = row.get(first + 1)?;
    Ok(AuditChain { seq: to_u64(row.get(first)?), hash: digest(&hash)? })
}

/// The audit record in a file, read without its lock.
#[derive(Clone, Debug)]
pub struct SqliteAudit {
    path: PathBuf,
}

impl SqliteAudit {
    /// Refuses what is not a store of this version.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, InspectError> {
        let path = path.into();
        inspect(&path, |_| Ok::<_, InspectError>(()))?;
        Ok(Self { path })
    }

    fn read<T>(&self, mut read: impl FnMut(&Connection) -> Result<T, SqliteError>) -> Result<T, StoreError> {
        let found = inspect(&self.path, |connection| match read(connection) {
            Ok(found) => Ok(Ok(found)),
            Err(SqliteError(refused)) => Ok(Err(refused)),
        });
        found.map_err(|failed: InspectError| match failed {
            InspectError::Trouble(trouble) => trouble.into(),
            other @ (InspectError::NotFound { .. }
            | InspectError::NotAStore { .. }
            | InspectError::NotSqlite { .. }
            | InspectError::Older { .. }
            | InspectError::Newer { .. }
            | InspectError::UnreadableLog { .. }) => StoreError::Impossible(other.to_string()),
        })?
    }
}

impl AuditSource for SqliteAudit {
    async fn chains(&self) -> Result<Vec<TenantChain>, StoreError> {
        self.read(all_chains)
    }

    async fn rows(&self, tenant: &Tenant, after: u64) -> Result<Vec<AuditRow>, StoreError> {
        self.read(|connection| rows_after(connection, tenant, after))
    }
}

/// Also names tenants that have sealed records and no chain.
pub(super) fn all_chains(connection: &Connection) -> Result<Vec<TenantChain>, SqliteError> {
    let mut all = chains(connection)?;
    let mut statement =
        connection.prepare_cached("SELECT DISTINCT tenant FROM audit WHERE seq IS NOT NULL")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let tenant = Tenant::from(row.get::<_, String>(0)?.as_str());
        if all.iter().all(|chain| chain.tenant != tenant) {
            all.push(TenantChain { tenant, pruned: AuditChain::START, head: AuditChain::START });
        }
    }
    Ok(all)
}

pub(super) fn rows_after(
    connection: &Connection,
    tenant: &Tenant,
    after: u64,
) -> Result<Vec<AuditRow>, SqliteError> {
    let sql = "SELECT seq, hash, body, at, action, actor FROM audit WHERE tenant = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows =
        statement.query(params![tenant.as_str(), to_i64(after), to_i64(AUDIT_RECORDS_MAX as u64)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let AuditChain { seq, hash } = chain_end(row, 0)?;
        let sealed = SealedRecord { seq, hash, body: row.get(2)? };
        found.push(AuditRow { sealed, at: row.get(3)?, action: row.get(4)?, actor: row.get(5)? });
    }
    Ok(found)
}

/// Returns the number of records that it deleted.
pub(super) fn prune(tx: &WriteTx<'_>, older_than: Timestamp) -> Result<u64, SqliteError> {
    let mut count = 0;
    for TenantChain { tenant, pruned, head } in chains(tx.connection())? {
        let last = head.seq.min(pruned.seq.saturating_add(AUDIT_RECORDS_MAX as u64));
        let mut statement = tx.prepare(PRUNABLE)?;
        let params = params![tenant.as_str(), to_i64(pruned.seq), to_i64(last), millis(older_than)];
        let through = statement
            .query_row(params, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))
            .optional()?;
        let Some((seq, hash)) = through else { continue };
        let through = AuditChain { seq: to_u64(seq), hash: digest(&hash)? };
        tx.execute("DELETE FROM audit WHERE tenant = ?1 AND seq <= ?2", params![tenant.as_str(), seq])?;
        let ends = "UPDATE audit_chains SET pruned_seq = ?2, pruned_hash = ?3 WHERE tenant = ?1";
        tx.execute(ends, params![tenant.as_str(), seq, through.hash.0])?;
        let entry = AuditEntry::of_pruned_records(tx.now, through);
        insert(tx, tenant.as_str(), &entry.to_record(tenant.as_str()))?;
        count += through.seq.saturating_sub(pruned.seq);
    }
    Ok(count)
}

impl AuditStore for SqliteStore {
    fn record_audit(&self, tenant: &Tenant, entry: &AuditEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        let (tenant, record) = (tenant.clone(), entry.to_record(tenant.as_str()));
        Box::pin(self.writer_handle.send(move |tx| insert(tx, tenant.as_str(), &record)))
    }

    fn seal_audit(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(async {
            // The writer is not disturbed if there is nothing to seal.
            if !self.read_point(has_unsealed)? {
                return Ok(0);
            }
            self.writer_handle.send(seal).await
        })
    }

    fn audit(
        &self,
        tenant: &Tenant,
        filter: &AuditFilter,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SealedRecord>, StoreError>> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        Box::pin(self.list(move |connection| sealed(connection, &tenant, &filter, after, limit)))
    }

    fn audit_chains(&self) -> BoxFuture<'_, Result<Vec<TenantChain>, StoreError>> {
        ready_task(self.read_point(chains))
    }

    fn prune_audit(&self, older_than: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(self.writer_handle.send(move |tx| prune(tx, older_than)))
    }
}
