//! Frozen agents that came with the messages of a thread.

use std::collections::BTreeSet;

use machine::id::Digest;

use super::examine_error::ExamineError;
use super::run::PostgresRunContext;
use crate::doctor::{FindingCode, Findings};
use crate::postgres::nul_escape::unescape;

/// Inline agents read at once, each with its text.
const INLINE_AGENT_COUNT_MAX: i64 = 16;

/// Checks that each is stored under its digest, belongs to the thread's tenant, and came with a run of the thread.
/// `pinned` contains the digests that these runs are pinned to; `None` if an unreadable log leaves that open.
pub(super) async fn examine(
    context: &PostgresRunContext<'_>,
    pinned: Option<&BTreeSet<Digest>>,
    place: &str,
    findings: &mut Findings,
) -> Result<(), ExamineError> {
    let sql =
        "SELECT digest, tenant, text FROM brought WHERE thread = $1 AND digest > $2 ORDER BY digest LIMIT $3";
    let mut after: Vec<u8> = Vec::new();
    loop {
        let rows =
            context.snapshot.read(sql, &[&context.thread_row, &after, &INLINE_AGENT_COUNT_MAX]).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        let last: Vec<u8> = last.try_get(0)?;
        for row in &rows {
            let digest: &[u8] = row.try_get(0)?;
            let (tenant, text) = (unescape(row.try_get(1)?), unescape(row.try_get(2)?));
            let found = Digest::sha256(text.as_bytes());
            let is_unknown = |pinned: &BTreeSet<Digest>| pinned.iter().all(|known| known.0 != digest);
            let (code, what) = if digest != found.0 {
                (FindingCode::RevisionDiffers, format!("has a text with the digest {found}"))
            } else if tenant != context.tenant {
                (FindingCode::ThreadDiffers, "belongs to another tenant".into())
            } else if pinned.is_some_and(is_unknown) {
                (FindingCode::Orphan, "is one that no run of the thread is pinned to".into())
            } else {
                continue;
            };
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            findings.add(code, place, format!("the frozen agent {hex} that came with a message {what}"));
        }
        // A damaged index could return the same rows again and again.
        if last <= after {
            return Ok(());
        }
        after = last;
    }
}
