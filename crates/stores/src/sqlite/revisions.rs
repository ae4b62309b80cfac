//! Frozen agents. Those of the configuration are available to every thread and are never deleted. Inline agents belong
//! to the thread of the message they came with and are deleted with it.

use engine::store::{InlineAgent, Tenant};
use machine::id::{Digest, ThreadId};
use rusqlite::{Connection, OptionalExtension, params};

use super::errors::SqliteError;
use super::write_tx::WriteTx;

const OF_THREAD: &str = "SELECT b.text FROM threads t JOIN brought b ON b.thread = t.row \
        WHERE t.tenant = ?1 AND t.id = ?2 AND b.digest = ?3 \
    UNION ALL SELECT text FROM revisions WHERE digest = ?3 LIMIT 1";
const OF_RUN: &str = "SELECT b.text FROM runs r JOIN brought b ON b.thread = r.thread \
        WHERE r.row = ?1 AND b.digest = ?2 \
    UNION ALL SELECT text FROM revisions WHERE digest = ?2 LIMIT 1";

/// Stores a frozen agent of the configuration.
pub(super) fn put(tx: &WriteTx<'_>, digest: &Digest, text: &str) -> Result<(), SqliteError> {
    let sql = "INSERT INTO revisions (digest, text) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    tx.execute(sql, params![digest.0, text])?;
    Ok(())
}

/// Stores an agent that came with a message of this thread.
pub(super) fn put_inline_agent(
    tx: &WriteTx<'_>,
    tenant: &str,
    thread: i64,
    inline_agent: &InlineAgent,
) -> Result<(), SqliteError> {
    let sql =
        "INSERT INTO brought (tenant, thread, digest, text) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
    tx.execute(sql, params![tenant, thread, inline_agent.digest().0, inline_agent.text()])?;
    Ok(())
}

pub(super) fn for_thread(
    connection: &Connection,
    tenant: &Tenant,
    thread: &ThreadId,
    digest: &Digest,
) -> Result<Option<String>, SqliteError> {
    let mut statement = connection.prepare_cached(OF_THREAD)?;
    let asked = params![tenant.as_str(), thread.as_str(), digest.0];
    Ok(statement.query_row(asked, |row| row.get(0)).optional()?)
}

/// The frozen agent that a run is pinned to, found by the run's row.
pub(super) fn for_run(
    connection: &Connection,
    run: i64,
    digest: &Digest,
) -> rusqlite::Result<Option<String>> {
    connection.prepare_cached(OF_RUN)?.query_row(params![run, digest.0], |row| row.get(0)).optional()
}
