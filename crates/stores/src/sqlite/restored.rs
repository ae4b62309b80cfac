//! A backup that becomes a store again: its audit record says so, so that a restore is not mistaken for tampering.

use engine::store::Tenant;
use machine::Timestamp;
use machine::audit::{AuditChain, AuditEntry, AuditRecord};
use rusqlite::{Connection, OptionalExtension, params};

use super::audit::INSERT;
use crate::columns::{digest, millis, timestamp, to_u64};

/// If the file is a backup, adds a record for every tenant, and removes the mark.
pub(super) fn record_restore(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let mark = "SELECT taken_at FROM backup_mark";
    let Some(taken_at) = connection.query_row(mark, [], |row| row.get(0)).optional()? else { return Ok(()) };
    let mut restored = heads(connection)?;
    if restored.is_empty() {
        restored.push((Tenant::default(), AuditChain::START));
    }
    for (tenant, head) in restored {
        let entry = AuditEntry::of_restored_store(now, timestamp(taken_at), head);
        let AuditRecord { at, action, by, body } = entry.to_record(tenant.as_str());
        let (at, action, by) = (millis(at), action.as_str(), by.as_str());
        connection.execute(INSERT, params![tenant.as_str(), at, action, by, body])?;
    }
    connection.execute("DELETE FROM backup_mark", [])?;
    Ok(())
}

/// A head that cannot be read must not keep the store from opening: the doctor reports it.
fn heads(connection: &Connection) -> rusqlite::Result<Vec<(Tenant, AuditChain)>> {
    let mut statement = connection.prepare("SELECT tenant, seq, hash FROM audit_chains ORDER BY tenant")?;
    let mut rows = statement.query([])?;
    let mut heads = Vec::new();
    while let Some(row) = rows.next()? {
        let (tenant, seq, hash): (String, i64, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let head = digest(&hash).map_or(AuditChain::START, |hash| AuditChain { seq: to_u64(seq), hash });
        heads.push((Tenant::from(tenant.as_str()), head));
    }
    Ok(heads)
}
