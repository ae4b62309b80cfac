//! Threads: the view for admission, the next holder, and deletion.

use engine::store::{StoreError, Tenant, ThreadView};
use machine::audit::{AuditEntry, DeletedThread};
use machine::id::{MessageId, Principal, RunId, ThreadId};
use machine::thread::{RunActivity, ThreadState, UnendedRun, promote};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use super::audit;
use super::errors::SqliteError;
use super::grants;
use super::write_tx::WriteTx;
use crate::columns::{millis, parse_status, timestamp};

/// Number of pages returned to the operating system with one deletion.
const VACUUM_PAGE_COUNT: u32 = 256;

/// True if the thread is new.
pub(super) fn put_thread(
    tx: &WriteTx<'_>,
    tenant: &str,
    thread: &ThreadId,
    metadata: &str,
) -> Result<bool, SqliteError> {
    let params = params![tenant, thread.as_str(), millis(tx.now), metadata];
    Ok(tx.execute(include_str!("sql/thread_insert.sql"), params)? == 1)
}

pub(super) fn thread_view(
    connection: &Connection,
    tenant: &str,
    thread: &ThreadId,
) -> Result<ThreadView, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/thread_by_id.sql"))?;
    let found =
        statement.query_row(params![tenant, thread.as_str()], SqliteThreadColumns::from_row).optional()?;
    match found {
        Some(columns) => columns.view(connection, thread.clone()),
        None => Ok(ThreadView::absent(thread.clone())),
    }
}

/// A row of `threads`.
pub(super) struct SqliteThreadColumns {
    row: i64,
    created_at: i64,
    /// None if it is not text.
    metadata: Option<String>,
    head: Option<String>,
    auto_approved_by: Option<String>,
}

impl SqliteThreadColumns {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            row: row.get(0)?,
            created_at: row.get(1)?,
            metadata: row.get_ref(2)?.as_str().ok().map(str::to_owned),
            head: row.get(3)?,
            auto_approved_by: row.get(4)?,
        })
    }

    pub(super) fn view(self, connection: &Connection, id: ThreadId) -> Result<ThreadView, SqliteError> {
        let metadata: Option<Value> = self.metadata.and_then(|text| serde_json::from_str(&text).ok());
        Ok(ThreadView {
            id,
            row: self.row,
            created_at: Some(timestamp(self.created_at)),
            metadata,
            head: self.head.map(MessageId::from),
            state: thread_state(connection, self.row)?,
            auto_approved_by: self.auto_approved_by.map(Principal::from),
            approved_tools: grants::tools(connection, self.row)?,
        })
    }
}

/// Summarizes the thread's unended runs.
fn thread_state(connection: &Connection, thread: i64) -> Result<ThreadState, SqliteError> {
    let columns = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let mut holder = connection.prepare_cached(include_str!("sql/thread_holder.sql"))?;
    let holder: Option<(String, String, bool, i64)> = holder.query_row([thread], columns).optional()?;
    let mut line = connection.prepare_cached(include_str!("sql/thread_queue.sql"))?;
    let line = line.query_map([thread], columns)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let queued = line.len();
    let Some((front, status, in_doubt, row)) = holder.or_else(|| line.into_iter().next()) else {
        return Ok(ThreadState::Free);
    };
    let activity = RunActivity { state: parse_status(&status)?.front_state(), in_doubt };
    let RunActivity { state, in_doubt } = activity.with_descendants(open_descendants(connection, row)?);
    Ok(ThreadState::Busy { front: RunId::from(front), front_is: state, in_doubt, queued })
}

/// The unended runs that work for a run, directly or through others.
fn open_descendants(connection: &Connection, run: i64) -> Result<Vec<RunActivity>, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/run_open_descendants.sql"))?;
    let mut rows = statement.query([run])?;
    let mut descendants = Vec::new();
    while let Some(row) = rows.next()? {
        let status: String = row.get(0)?;
        descendants.push(RunActivity { state: parse_status(&status)?.front_state(), in_doubt: row.get(1)? });
    }
    Ok(descendants)
}

/// The runs that a superseding message interrupts.
pub(super) fn to_supersede(tx: &WriteTx<'_>, thread: i64) -> Result<Vec<RunId>, SqliteError> {
    let unended = unended(tx, thread)?;
    Ok(machine::thread::to_supersede(unended.iter().map(UnendedColumns::as_unended)).cloned().collect())
}

/// Makes the next run in the queue hold the thread after its holder has ended.
pub(super) fn promote_next(tx: &WriteTx<'_>, thread: i64) -> Result<Option<RunId>, SqliteError> {
    // The holder has ended, so all unended runs are in the queue.
    let line = unended(tx, thread)?;
    let Some(next) = promote(line.iter().map(UnendedColumns::as_unended)).cloned() else { return Ok(None) };
    for one in line.iter().filter(|one| one.id == next) {
        tx.execute(include_str!("sql/run_promote.sql"), params![one.row, tx.next_arrival()])?;
    }
    Ok(Some(next))
}

struct UnendedColumns {
    id: RunId,
    row: i64,
    interrupt_accepted: bool,
}

impl UnendedColumns {
    const fn as_unended(&self) -> UnendedRun<'_> {
        UnendedRun { run: &self.id, interrupted: self.interrupt_accepted }
    }
}

/// The holder first, then the queued runs in order of arrival.
fn unended(tx: &WriteTx<'_>, thread: i64) -> Result<Vec<UnendedColumns>, SqliteError> {
    let mut statement = tx.prepare(include_str!("sql/thread_unended.sql"))?;
    let columns = |row: &Row<'_>| {
        let id = RunId::from(row.get::<_, String>(0)?);
        Ok(UnendedColumns { id, row: row.get(1)?, interrupt_accepted: row.get(2)? })
    };
    Ok(statement.query_map([thread], columns)?.collect::<rusqlite::Result<_>>()?)
}

/// Deletes only this thread, and records that: child runs have threads of their own.
pub(super) fn delete_thread(
    tx: &WriteTx<'_>,
    tenant: &Tenant,
    thread: &ThreadId,
    entry: &AuditEntry,
) -> Result<(), SqliteError> {
    let mut statement = tx.prepare("SELECT row FROM threads WHERE tenant = ?1 AND id = ?2")?;
    let row: Option<i64> =
        statement.query_row(params![tenant.as_str(), thread.as_str()], |row| row.get(0)).optional()?;
    let Some(row) = row else { return Err(StoreError::NotFound.into()) };
    if thread_state(tx.connection(), row)? != ThreadState::Free {
        return Err(StoreError::Stale.into());
    }
    let contents = contents(tx.connection(), row, thread)?;
    let record = entry.clone().of_deleted_thread(&contents).to_record(tenant.as_str());
    audit::insert(tx, tenant.as_str(), &record)?;
    for sql in include_str!("sql/thread_delete.sql").split_inclusive(";\n") {
        tx.execute(sql, [row])?;
    }
    let mut vacuum = tx.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGE_COUNT})"))?;
    let mut pages = vacuum.query([])?;
    while pages.next()?.is_some() {}
    Ok(())
}

/// What the audit record keeps of a thread. Decodes nothing.
pub(super) fn contents(
    connection: &Connection,
    row: i64,
    thread: &ThreadId,
) -> Result<DeletedThread, SqliteError> {
    let names = |sql: &str| -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare_cached(sql)?;
        statement.query_map([row], |columns| columns.get(0))?.collect()
    };
    Ok(DeletedThread {
        id: thread.clone(),
        runs: names("SELECT id FROM runs WHERE thread = ?1 ORDER BY id")?,
        approvals: names(
            "SELECT s.id FROM runs r JOIN suspensions s ON s.run = r.row WHERE r.thread = ?1 \
             AND s.status <> 'pending' AND s.kind IN ('approval', 'question', 'in_doubt') ORDER BY s.id",
        )?,
    })
}
