//! A store that was restored from a dump: its audit record says so, so that the restore is not mistaken for tampering.

use engine::store::Tenant;
use machine::audit::{AuditChain, AuditEntry, AuditRecord};
use tokio_postgres::Transaction;

use super::errors::PostgresError;
use super::nul_escape::{escape, unescape};
use crate::columns::{digest, millis, timestamp, to_u64};

/// If the tables are not those that the store had, adds a record for every tenant, and remembers the new tables. The
/// dump does not say when it was taken: the newest time in it is recorded.
pub(super) async fn record_restore(transaction: &Transaction<'_>) -> Result<(), PostgresError> {
    let moves = "UPDATE audit_table SET id = 'audit'::regclass::oid::bigint WHERE id <> 'audit'::regclass::oid::bigint
        RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::bigint, greatest(
            (SELECT coalesce(max(at), 0) FROM audit), (SELECT coalesce(max(created_at), 0) FROM runs))";
    let Some(row) = transaction.query_opt(moves, &[]).await? else { return Ok(()) };
    let (now, taken_at) = (timestamp(row.try_get(0)?), timestamp(row.try_get(1)?));
    let mut restored = heads(transaction).await?;
    if restored.is_empty() {
        restored.push((Tenant::default(), AuditChain::START));
    }
    for (tenant, head) in restored {
        let entry = AuditEntry::of_restored_store(now, taken_at, head);
        let AuditRecord { at, action, by, body } = entry.to_record(tenant.as_str());
        let inserts = "INSERT INTO audit (tenant, at, action, actor, body) VALUES ($1, $2, $3, $4, $5)";
        let (tenant, by) = (escape(tenant.as_str()), escape(by.as_str()));
        transaction.execute(inserts, &[&tenant, &millis(at), &action.as_str(), &by, &body]).await?;
    }
    Ok(())
}

/// A head that cannot be read must not keep the store from opening: the doctor reports it.
async fn heads(transaction: &Transaction<'_>) -> Result<Vec<(Tenant, AuditChain)>, PostgresError> {
    let sql = "SELECT tenant, seq, hash FROM audit_chains ORDER BY tenant";
    let rows = transaction.query(sql, &[]).await?;
    let head = |row: &tokio_postgres::Row| {
        let hash: Vec<u8> = row.try_get(2)?;
        let seq = to_u64(row.try_get(1)?);
        let head = digest(&hash).map_or(AuditChain::START, |hash| AuditChain { seq, hash });
        Ok((Tenant::from(unescape(row.try_get(0)?).as_str()), head))
    };
    rows.iter().map(head).collect()
}
