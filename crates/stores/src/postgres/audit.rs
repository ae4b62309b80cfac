//! The audit record: rows written with the change, then sealed into the chain of their tenant by the database.

use engine::store::{
    AUDIT_RECORDS_MAX, AuditFilter, AuditStore, BoxFuture, ConfigurationRecord, Sealed, StoreError, Tenant,
    TenantChain,
};
use machine::Timestamp;
use machine::audit::{Actor, AuditAction, AuditChain, AuditEntry, AuditRecord, SealedRecord};
use machine::id::Digest;
use serde::Serialize;
use tokio_postgres::Row;

use super::binding::BoundAudit;
use super::commit::json;
use super::connection::{Connections, Parameters};
use super::errors::{PostgresError, corrupt};
use super::nul_escape::{EscapedText, escape, unescape};
use super::store::task;
use super::upkeep::Upkeep;
use super::{PostgresShared, PostgresStore};
use crate::audit_reader::{AuditRow, AuditSource, StoredChain};
use crate::columns::{digest, millis, to_i64, to_u64};

#[derive(Serialize)]
struct BoundActor<'a> {
    by: EscapedText<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<EscapedText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<EscapedText<'a>>,
}

#[derive(Serialize)]
struct BoundConfiguration<'a> {
    tenant: EscapedText<'a>,
    known: Option<i64>,
    audit: Vec<BoundAudit>,
}

impl<'a> BoundConfiguration<'a> {
    fn from_record(record: &'a ConfigurationRecord) -> Self {
        let ConfigurationRecord { tenant, known, entries } = record;
        let entry = |entry: &AuditEntry| BoundAudit::from_record(entry.to_record(tenant.as_str()));
        let audit = entries.iter().map(entry).collect();
        Self { tenant: EscapedText(tenant.as_str()), known: known.map(to_i64), audit }
    }
}

/// The actor as the database's functions take it.
pub(super) fn bound_actor(actor: &Actor) -> Result<String, PostgresError> {
    json(&BoundActor {
        by: EscapedText(actor.by.as_str()),
        via: actor.via.as_deref().map(EscapedText),
        address: actor.address.as_deref().map(EscapedText),
    })
}

impl PostgresShared {
    pub(super) async fn record_audit(
        &self,
        tenant: &Tenant,
        record: &AuditRecord,
    ) -> Result<(), PostgresError> {
        let AuditRecord { at, action, by, body } = record;
        let sql = "INSERT INTO audit (tenant, at, action, actor, body) VALUES ($1, $2, $3, $4, $5)";
        let (tenant, by) = (escape(tenant.as_str()), escape(by.as_str()));
        self.change(sql, &[&tenant, &millis(*at), &action.as_str(), &by, body]).await?;
        Ok(())
    }

    pub(super) async fn record_configuration(
        &self,
        records: &[ConfigurationRecord],
    ) -> Result<(), PostgresError> {
        let bound: Vec<BoundConfiguration<'_>> =
            records.iter().map(BoundConfiguration::from_record).collect();
        let rows = self.change("SELECT record_configuration($1::text::jsonb)", &[&json(&bound)?]).await?;
        let row = rows.first().ok_or_else(|| corrupt("record_configuration returned no row"))?;
        if row.try_get(0)? { Ok(()) } else { Err(StoreError::Behind.into()) }
    }

    pub(super) async fn seal_audit(&self) -> Result<Sealed, PostgresError> {
        // Most of the time there is nothing to seal, and then nothing is locked.
        let sql = "SELECT true FROM audit WHERE seq IS NULL ORDER BY tenant, place LIMIT 1";
        if self.connections.read(sql, &[]).await?.is_empty() {
            return Ok(Sealed::default());
        }
        let row = self.connections.write_one("SELECT * FROM seal_audit($1)", &[&records_max()]).await?;
        let stopped: Vec<String> = row.try_get(1)?;
        let stopped = stopped.into_iter().map(|tenant| Tenant::from(unescape(tenant).as_str())).collect();
        Ok(Sealed { records: to_u64(row.try_get(0)?), stopped })
    }

    pub(super) async fn prune_audit(&self, older_than: Timestamp) -> Result<u64, PostgresError> {
        let sql = "SELECT prune_audit($1, $2, $3)";
        let parameters: Parameters<'_> = &[&millis(older_than), &records_max(), &self.clock.override_ms()];
        Ok(to_u64(self.connections.write_one(sql, parameters).await?.try_get(0)?))
    }
}

fn records_max() -> i64 {
    to_i64(AUDIT_RECORDS_MAX as u64)
}

pub(super) async fn sealed(
    connections: &Connections,
    tenant: &Tenant,
    filter: &AuditFilter,
    after: u64,
    limit: usize,
) -> Result<Vec<SealedRecord>, PostgresError> {
    let sql = "SELECT seq, hash, body FROM audit
        WHERE tenant = $1 AND seq > greatest($2, (SELECT c.pruned_seq FROM audit_chains c WHERE c.tenant = $1))
            AND seq <= (SELECT c.seq FROM audit_chains c WHERE c.tenant = $1)
            AND at >= $3 AND at < $4 AND ($5::text IS NULL OR actor = $5)
            AND ($6::text IS NULL OR action = $6)
        ORDER BY seq LIMIT $7";
    let parameters: Parameters<'_> = &[
        &escape(tenant.as_str()),
        &to_i64(after),
        &filter.since.map_or(0, millis),
        &filter.until.map_or(i64::MAX, millis),
        &filter.by.as_ref().map(|by| escape(by.as_str())),
        &filter.action.map(AuditAction::as_str),
        &to_i64(limit.min(AUDIT_RECORDS_MAX) as u64),
    ];
    let rows = connections.read(sql, parameters).await?;
    rows.iter()
        .map(|row| {
            let AuditChain { seq, hash } = chain_end(row, 0)?;
            Ok(SealedRecord { seq, hash, body: row.try_get(2)? })
        })
        .collect()
}

pub(super) async fn chains(connections: &Connections) -> Result<Vec<TenantChain>, PostgresError> {
    let sql =
        "SELECT tenant, pruned_seq, pruned_hash, seq, hash FROM audit_chains WHERE seq > 0 ORDER BY tenant";
    let rows = connections.read(sql, &[]).await?;
    rows.iter()
        .map(|row| {
            let tenant = Tenant::from(unescape(row.try_get(0)?).as_str());
            Ok(TenantChain { tenant, pruned: chain_end(row, 1)?, head: chain_end(row, 3)? })
        })
        .collect()
}

/// A number and a hash, from this column on.
fn chain_end(row: &Row, first: usize) -> Result<AuditChain, PostgresError> {
    let hash: Vec<u8> = row.try_get(first + 1)?;
    Ok(AuditChain { seq: to_u64(row.try_get(first)?), hash: digest(&hash)? })
}

impl AuditSource for Upkeep {
    async fn chains(&self, only: Option<&Tenant>) -> Result<Vec<StoredChain>, StoreError> {
        stored_chains(&self.connections, only).await.map_err(|PostgresError(refused)| refused)
    }

    async fn rows(&self, tenant: &Tenant, after: u64) -> Result<Vec<AuditRow>, StoreError> {
        rows_after(&self.connections, tenant, after).await.map_err(|PostgresError(refused)| refused)
    }
}

/// Reads with one statement, so that a chain and its rows are of the same moment. Tenants with rows and no chain are in
/// it.
async fn stored_chains(
    connections: &Connections,
    only: Option<&Tenant>,
) -> Result<Vec<StoredChain>, PostgresError> {
    let sql = "WITH tenants AS (SELECT tenant FROM audit_chains UNION SELECT tenant FROM audit)
        SELECT t.tenant, c.pruned_seq, c.pruned_hash, c.seq, c.hash,
            (SELECT count(*) FROM audit a WHERE a.tenant = t.tenant AND a.seq IS NULL),
            (SELECT count(*) FROM audit a WHERE a.tenant = t.tenant AND a.seq <= c.pruned_seq)
        FROM tenants t LEFT JOIN audit_chains c ON c.tenant = t.tenant
        WHERE $1::text IS NULL OR t.tenant = $1 ORDER BY t.tenant";
    let rows = connections.read(sql, &[&only.map(|only| escape(only.as_str()))]).await?;
    rows.iter()
        .map(|row| {
            let tenant = Tenant::from(unescape(row.try_get(0)?).as_str());
            let has_chain = row.try_get::<_, Option<i64>>(1)?.is_some();
            let end = |first| if has_chain { chain_end(row, first) } else { Ok(AuditChain::START) };
            let chain = TenantChain { tenant, pruned: end(1)?, head: end(3)? };
            let (unsealed, before_start) = (to_u64(row.try_get(5)?), to_u64(row.try_get(6)?));
            Ok(StoredChain { chain, unsealed, before_start })
        })
        .collect()
}

async fn rows_after(
    connections: &Connections,
    tenant: &Tenant,
    after: u64,
) -> Result<Vec<AuditRow>, PostgresError> {
    let sql = "SELECT seq, hash, body, at, action, actor FROM audit WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    let rows = connections.read(sql, &[&escape(tenant.as_str()), &to_i64(after), &records_max()]).await?;
    rows.iter()
        .map(|row| {
            let AuditChain { seq, hash } = chain_end(row, 0)?;
            let sealed = SealedRecord { seq, hash, body: row.try_get(2)? };
            let actor = unescape(row.try_get(5)?);
            Ok(AuditRow { sealed, at: row.try_get(3)?, action: row.try_get(4)?, actor })
        })
        .collect()
}

impl AuditStore for PostgresStore {
    fn record_audit(&self, tenant: &Tenant, entry: &AuditEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        let (tenant, record) = (tenant.clone(), entry.to_record(tenant.as_str()));
        task(async move { self.shared.record_audit(&tenant, &record).await })
    }

    fn record_configuration(&self, records: &[ConfigurationRecord]) -> BoxFuture<'_, Result<(), StoreError>> {
        let records = records.to_vec();
        task(async move { self.shared.record_configuration(&records).await })
    }

    fn seal_audit(&self) -> BoxFuture<'_, Result<Sealed, StoreError>> {
        task(self.shared.seal_audit())
    }

    fn audit(
        &self,
        tenant: &Tenant,
        filter: &AuditFilter,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SealedRecord>, StoreError>> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        self.list(
            move |shared| async move { sealed(&shared.connections, &tenant, &filter, after, limit).await },
        )
    }

    fn audit_chains(&self) -> BoxFuture<'_, Result<Vec<TenantChain>, StoreError>> {
        task(async { chains(&self.shared.connections).await })
    }

    fn sink_progress(&self, sink: &Digest, tenant: &Tenant) -> BoxFuture<'_, Result<u64, StoreError>> {
        let (sink, tenant) = (sink.to_string(), tenant.clone());
        task(async move {
            let sql = "SELECT seq FROM audit_sinks WHERE sink = $1 AND tenant = $2";
            let rows = self.shared.connections.read(sql, &[&sink, &escape(tenant.as_str())]).await?;
            Ok(rows.first().map(|row| row.try_get(0)).transpose()?.map_or(0, to_u64))
        })
    }

    fn set_sink_progress(
        &self,
        sink: &Digest,
        tenant: &Tenant,
        seq: u64,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (sink, tenant) = (sink.to_string(), tenant.clone());
        task(async move {
            let sql = "INSERT INTO audit_sinks AS s (sink, tenant, seq) VALUES ($1, $2, $3)
                ON CONFLICT (sink, tenant) DO UPDATE SET seq = greatest(s.seq, excluded.seq)";
            self.shared.change(sql, &[&sink, &escape(tenant.as_str()), &to_i64(seq)]).await?;
            Ok(())
        })
    }

    fn prune_audit(&self, older_than: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>> {
        task(self.shared.prune_audit(older_than))
    }
}
