//! Checks the frozen agents that came with the messages of a thread.

use std::collections::BTreeSet;

use machine::id::Digest;
use rusqlite::{Connection, params};

use crate::doctor::{Fault, FindingCode, Findings};

/// Each must be stored under the digest of its text, belong to the thread's tenant, and be one that a run of the thread
/// is pinned to. `pinned` has the digests that the runs are pinned to; none if an unreadable log leaves that unknown.
pub(super) fn examine(
    connection: &Connection,
    (thread, tenant): (i64, &str),
    pinned: Option<&BTreeSet<Digest>>,
    place: &str,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let sql = "SELECT digest, tenant = ?2, text FROM brought WHERE thread = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![thread, tenant])?;
    while let Some(row) = rows.next()? {
        let digest = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        let ours: bool = row.get(1)?;
        let actual = Digest::sha256(row.get_ref(2)?.as_bytes().map_err(rusqlite::Error::from)?);
        let is_unknown = |pinned: &BTreeSet<Digest>| pinned.iter().all(|known| known.0 != digest);
        let (code, what) = if digest != actual.0 {
            (FindingCode::RevisionDiffers, format!("has a text with the digest {actual}"))
        } else if !ours {
            (FindingCode::ThreadDiffers, "belongs to another tenant".into())
        } else if pinned.is_some_and(is_unknown) {
            (FindingCode::Orphan, "is one that no run of the thread is pinned to".into())
        } else {
            continue;
        };
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        findings.add(code, place, format!("the frozen agent {hex} that came with a message {what}"));
    }
    Ok(())
}
