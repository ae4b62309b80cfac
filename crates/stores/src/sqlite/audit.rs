//! The audit record: rows written with the change, then sealed into the chain of their tenant.

use std::path::PathBuf;

use engine::store::{
    AUDIT_RECORDS_MAX, AuditFilter, AuditStore, BoxFuture, ConfigurationRecord, Sealed, StoreError, Tenant,
    TenantChain,
};
use machine::Timestamp;
use machine::audit::{AuditAction, AuditChain, AuditEntry, AuditRecord, SealedRecord};
use machine::id::{Digest, Principal, RunId, ThreadId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::errors::{SqliteError, impossible};
use super::inspect::{InspectError, inspect};
use super::store::ready_task;
use super::write_tx::WriteTx;
use crate::audit_reader::{AuditRow, AuditSource, StoredChain};
use crate::columns::{digest, millis, to_i64, to_u64};

pub(super) const INSERT: &str =
    "INSERT INTO audit (tenant, at, action, actor, body) VALUES (?1, ?2, ?3, ?4, ?5)";
const UNSEALED_TENANTS: &str = "SELECT DISTINCT tenant FROM audit WHERE seq IS NULL ORDER BY tenant";
const UNSEALED: &str =
    "SELECT place, body FROM audit WHERE tenant = ?1 AND seq IS NULL ORDER BY place LIMIT ?2";
const SEALED: &str = "SELECT seq, hash, body FROM audit \
    WHERE tenant = ?1 AND seq > max(?2, (SELECT pruned_seq FROM audit_chains WHERE tenant = ?1)) \
    AND seq <= (SELECT seq FROM audit_chains WHERE tenant = ?1) \
    AND at >= ?3 AND at < ?4 AND (?5 IS NULL OR actor = ?5) \
    AND (?6 IS NULL OR action = ?6) ORDER BY seq LIMIT ?7";
const CHAINS: &str = "SELECT tenant, pruned_seq, pruned_hash, seq, hash FROM audit_chains ORDER BY tenant";
/// One statement, so that a chain and its rows are of the same moment. Tenants with rows and no chain are in it.
const STORED_CHAINS: &str = "WITH tenants AS (SELECT tenant FROM audit_chains UNION SELECT tenant FROM audit) \
    SELECT t.tenant, c.pruned_seq, c.pruned_hash, c.seq, c.hash, \
        (SELECT count(*) FROM audit a WHERE a.tenant = t.tenant AND a.seq IS NULL), \
        (SELECT count(*) FROM audit a WHERE a.tenant = t.tenant AND a.seq <= c.pruned_seq) \
    FROM tenants t LEFT JOIN audit_chains c ON c.tenant = t.tenant WHERE ?1 IS NULL OR t.tenant = ?1 ORDER BY t.tenant";
/// Old records from the beginning of the chain, before the first one that is not old, and before the newest record of
/// the configuration: changes of keys are found by comparing with it.
const PRUNABLE: &str = "SELECT seq, hash FROM audit WHERE tenant = ?1 AND seq > ?2 AND seq <= ?3 AND seq < coalesce( \
    (SELECT min(seq) FROM audit WHERE tenant = ?1 AND seq > ?2 AND seq <= ?3 AND at >= ?4), ?3 + 1) \
    AND seq < coalesce( \
    (SELECT max(seq) FROM audit WHERE tenant = ?1 AND seq > ?2 AND action LIKE 'configuration.%'), ?3 + 1) \
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

/// Checks first, so that a refused call changes nothing.
fn record_configuration(tx: &WriteTx<'_>, records: &[ConfigurationRecord]) -> Result<(), SqliteError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM audit WHERE tenant = ?1 AND action LIKE 'configuration.%' \
        AND (seq IS NULL OR seq > ?2))";
    for ConfigurationRecord { tenant, known, .. } in records {
        let Some(known) = known else { continue };
        let newer: bool =
            tx.prepare(sql)?.query_row(params![tenant.as_str(), to_i64(*known)], |row| row.get(0))?;
        if newer {
            return Err(StoreError::Behind.into());
        }
    }
    for ConfigurationRecord { tenant, entries, .. } in records {
        let tenant = tenant.as_str();
        entries.iter().try_for_each(|entry| insert(tx, tenant, &entry.to_record(tenant)))?;
    }
    Ok(())
}

pub(super) fn has_unsealed(connection: &Connection) -> Result<bool, SqliteError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM audit WHERE seq IS NULL)";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// A tenant whose chain cannot be continued does not stop the others.
pub(super) fn seal(tx: &WriteTx<'_>) -> Result<Sealed, SqliteError> {
    let mut statement = tx.prepare(UNSEALED_TENANTS)?;
    let tenants = statement.query_map([], |row| row.get(0))?;
    let tenants: Vec<String> = tenants.collect::<rusqlite::Result<_>>()?;
    let mut sealed = Sealed::default();
    for tenant in tenants {
        let left = (AUDIT_RECORDS_MAX as u64).saturating_sub(sealed.records);
        match seal_tenant(tx, &tenant, left)? {
            Some(records) => sealed.records += records,
            None => sealed.stopped.push(Tenant::from(tenant.as_str())),
        }
    }
    Ok(sealed)
}

/// Returns the number of records that it sealed, or none if the chain cannot be continued.
fn seal_tenant(tx: &WriteTx<'_>, tenant: &str, count_max: u64) -> Result<Option<u64>, SqliteError> {
    let Some(mut head) = head_to_continue(tx, tenant)? else { return Ok(None) };
    let mut statement = tx.prepare(UNSEALED)?;
    let rows =
        statement.query_map(params![tenant, to_i64(count_max)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows: Vec<(i64, String)> = rows.collect::<rusqlite::Result<_>>()?;
    let count = rows.len() as u64;
    for (place, body) in rows {
        let sealed = head.seal(body);
        let seals = "UPDATE audit SET seq = ?2, hash = ?3 WHERE place = ?1 AND seq IS NULL";
        if tx.execute(seals, params![place, to_i64(sealed.seq), sealed.hash.0])? == 0 {
            return Err(impossible(format!("audit row {place} was sealed twice")));
        }
    }
    if count > 0 {
        put_head(tx, tenant, head)?;
    }
    Ok(Some(count))
}

/// The stored head, unless it cannot be read or rows follow it.
fn head_to_continue(tx: &WriteTx<'_>, tenant: &str) -> Result<Option<AuditChain>, SqliteError> {
    let sql = "SELECT seq, hash, EXISTS (SELECT 1 FROM audit a WHERE a.tenant = ?1 AND a.seq > c.seq) \
        FROM audit_chains c WHERE c.tenant = ?1";
    let mut statement = tx.prepare(sql)?;
    let mut found = statement.query([tenant])?;
    if let Some(row) = found.next()? {
        let is_followed: bool = row.get(2)?;
        return Ok(chain_end(row, 0).ok().filter(|_| !is_followed));
    }
    let sql = "SELECT EXISTS (SELECT 1 FROM audit WHERE tenant = ?1 AND seq IS NOT NULL)";
    let is_without_head: bool = tx.prepare(sql)?.query_row([tenant], |row| row.get(0))?;
    Ok((!is_without_head).then_some(AuditChain::START))
}

fn put_head(tx: &WriteTx<'_>, tenant: &str, head: AuditChain) -> Result<(), SqliteError> {
    let start = AuditChain::START;
    let sql = "INSERT INTO audit_chains (tenant, seq, hash, pruned_seq, pruned_hash) VALUES (?1, ?2, ?3, ?4, ?5) \
        ON CONFLICT (tenant) DO UPDATE SET seq = excluded.seq, hash = excluded.hash";
    tx.execute(sql, params![tenant, to_i64(head.seq), head.hash.0, to_i64(start.seq), start.hash.0])?;
    Ok(())
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
        filter.action.map(AuditAction::as_str),
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

    pub(super) fn read<T>(
        &self,
        mut read: impl FnMut(&Connection) -> Result<T, SqliteError>,
    ) -> Result<T, StoreError> {
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
    async fn chains(&self, only: Option<&Tenant>) -> Result<Vec<StoredChain>, StoreError> {
        self.read(|connection| stored_chains(connection, only))
    }

    async fn rows(&self, tenant: &Tenant, after: u64) -> Result<Vec<AuditRow>, StoreError> {
        self.read(|connection| rows_after(connection, tenant, after))
    }
}

pub(super) fn stored_chains(
    connection: &Connection,
    only: Option<&Tenant>,
) -> Result<Vec<StoredChain>, SqliteError> {
    let mut statement = connection.prepare_cached(STORED_CHAINS)?;
    let mut rows = statement.query([only.map(Tenant::as_str)])?;
    let mut chains = Vec::new();
    while let Some(row) = rows.next()? {
        let tenant = Tenant::from(row.get::<_, String>(0)?.as_str());
        let has_chain = row.get::<_, Option<i64>>(1)?.is_some();
        let end = |first| if has_chain { chain_end(row, first) } else { Ok(AuditChain::START) };
        let chain = TenantChain { tenant, pruned: end(1)?, head: end(3)? };
        chains.push(StoredChain { chain, unsealed: to_u64(row.get(5)?), before_start: to_u64(row.get(6)?) });
    }
    Ok(chains)
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

/// Returns the number of records that it deleted. A chain that cannot be continued is left as it is.
pub(super) fn prune(tx: &WriteTx<'_>, older_than: Timestamp) -> Result<u64, SqliteError> {
    let mut count = 0;
    for TenantChain { tenant, pruned, .. } in chains(tx.connection())? {
        let Some(mut head) = head_to_continue(tx, tenant.as_str())? else { continue };
        if !is_recorded(tx, &tenant, pruned)? {
            continue;
        }
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
        insert_sealed(tx, &tenant, &AuditEntry::of_pruned_records(tx.now, through), &mut head)?;
        count += through.seq.saturating_sub(pruned.seq);
    }
    Ok(count)
}

/// Whether a record says that everything before this was pruned. Otherwise another prune would cover up that the
/// beginning was removed.
fn is_recorded(tx: &WriteTx<'_>, tenant: &Tenant, pruned: AuditChain) -> Result<bool, SqliteError> {
    if pruned == AuditChain::START {
        return Ok(true);
    }
    let sql = "SELECT seq, hash, body FROM audit WHERE tenant = ?1 AND seq > ?2 AND action = ?3";
    let mut statement = tx.prepare(sql)?;
    let action = AuditAction::AuditPruned.as_str();
    let mut rows = statement.query(params![tenant.as_str(), to_i64(pruned.seq), action])?;
    while let Some(row) = rows.next()? {
        let AuditChain { seq, hash } = chain_end(row, 0)?;
        if (SealedRecord { seq, hash, body: row.get(2)? }).pruned_through() == Some(pruned) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sealed at once: without this record the chain would look as if its beginning had been removed.
fn insert_sealed(
    tx: &WriteTx<'_>,
    tenant: &Tenant,
    entry: &AuditEntry,
    head: &mut AuditChain,
) -> Result<(), SqliteError> {
    let AuditRecord { at, action, by, body } = entry.to_record(tenant.as_str());
    let SealedRecord { seq, hash, body } = head.seal(body);
    let sql =
        "INSERT INTO audit (tenant, at, action, actor, body, seq, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let (at, action, by) = (millis(at), action.as_str(), by.as_str());
    tx.execute(sql, params![tenant.as_str(), at, action, by, body, to_i64(seq), hash.0])?;
    put_head(tx, tenant.as_str(), *head)
}

impl AuditStore for SqliteStore {
    fn record_audit(&self, tenant: &Tenant, entry: &AuditEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        let (tenant, record) = (tenant.clone(), entry.to_record(tenant.as_str()));
        Box::pin(self.writer_handle.send(move |tx| insert(tx, tenant.as_str(), &record)))
    }

    fn record_configuration(&self, records: &[ConfigurationRecord]) -> BoxFuture<'_, Result<(), StoreError>> {
        let records = records.to_vec();
        Box::pin(self.writer_handle.send(move |tx| record_configuration(tx, &records)))
    }

    fn seal_audit(&self) -> BoxFuture<'_, Result<Sealed, StoreError>> {
        Box::pin(async {
            // The writer is not disturbed if there is nothing to seal.
            if !self.read_point(has_unsealed)? {
                return Ok(Sealed::default());
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

    fn sink_progress(&self, sink: &Digest, tenant: &Tenant) -> BoxFuture<'_, Result<u64, StoreError>> {
        let (sink, tenant) = (sink.to_string(), tenant.clone());
        ready_task(self.read_point(move |connection| {
            let sql = "SELECT seq FROM audit_sinks WHERE sink = ?1 AND tenant = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let found = statement.query_row(params![sink, tenant.as_str()], |row| row.get(0)).optional()?;
            Ok(found.map_or(0, to_u64))
        }))
    }

    fn set_sink_progress(
        &self,
        sink: &Digest,
        tenant: &Tenant,
        seq: u64,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (sink, tenant) = (sink.to_string(), tenant.clone());
        Box::pin(self.writer_handle.send(move |tx| {
            let sql = "INSERT INTO audit_sinks (sink, tenant, seq) VALUES (?1, ?2, ?3) \
                ON CONFLICT (sink, tenant) DO UPDATE SET seq = max(seq, excluded.seq)";
            tx.execute(sql, params![sink, tenant.as_str(), to_i64(seq)])?;
            Ok(())
        }))
    }

    fn prune_audit(&self, older_than: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(self.writer_handle.send(move |tx| prune(tx, older_than)))
    }
}
