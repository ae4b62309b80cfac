//! Retention: deletes whole threads once all their runs ended long enough ago, a bounded number at a time.
//!
//! A run that delegated has children on threads of their own. Such a family is deleted together: a thread is deleted
//! only when every run of every thread below it also ended long enough ago. The threads below it are deleted with it or
//! after it, never before. If a sweep stops in between, the next one finds the rest of the family. A thread that never
//! had a run has not ended, and stays. A thread whose descendants cannot be read stays too; the sweep counts it and
//! continues.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

use engine::store::{Deleted, Deletion, StoreError, Tenant};
use machine::Timestamp;
use machine::audit::{Actor, AuditAction, AuditEntry};
use machine::event::{Fact, OpenedSuspension};
use machine::id::{RunId, ThreadId};
use machine::suspension::Held;
use rusqlite::{Connection, OptionalExtension, params};

use super::errors::{SqliteError, corrupt};
use super::inspect::{InspectError, inspect};
use super::stored_run::event_at;
use super::thread::{contents, delete_thread};
use super::write_tx::WriteTx;
use super::{SqliteStore, StoreFailure};
use crate::columns::{millis, to_u64};
pub use crate::pruned::Pruned;

/// Maximum number of threads scanned in one short transaction.
const SCAN_COUNT_MAX: i64 = 256;
/// One batch deletes not many more events than this, because other commits wait for it.
const BATCH_EVENT_COUNT_MAX: u64 = 20_000;
/// Number of pages returned to the operating system at once.
const VACUUM_PAGE_COUNT: u32 = 1_024;

/// Threads in row order, and for each whether it is the root of a family and has itself ended in time.
const SCAN: &str = "SELECT t.row, \
        EXISTS (SELECT 1 FROM runs r WHERE r.thread = t.row) \
        AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.thread = t.row AND (r.ended_at IS NULL OR r.ended_at >= ?2)) \
        AND NOT EXISTS (SELECT 1 FROM runs r JOIN runs p ON p.row = r.parent \
                        WHERE r.thread = t.row AND p.thread <> t.row) \
    FROM threads t WHERE t.row > ?1 ORDER BY t.row LIMIT ?3";
const HAS_ENDED: &str = "SELECT EXISTS (SELECT 1 FROM runs WHERE thread = ?1) \
    AND NOT EXISTS (SELECT 1 FROM runs WHERE thread = ?1 AND (ended_at IS NULL OR ended_at >= ?2))";
/// Whether a run of this thread was delegated by a run of another thread that still exists.
const HAS_PARENT: &str = "SELECT EXISTS (SELECT 1 FROM runs r JOIN runs p ON p.row = r.parent \
    WHERE r.thread = ?1 AND p.thread <> ?1)";
const CHILDREN: &str = "SELECT s.run, s.seq FROM runs r JOIN suspensions s ON s.run = r.row \
    WHERE r.thread = ?1 AND s.kind = 'child_run'";

/// A sweep over all threads. It may be dropped at any time.
#[derive(Debug)]
pub struct SqliteSweep<'s> {
    store: &'s SqliteStore,
    ended_before: Timestamp,
    batch_thread_count_max: usize,
    /// The last thread scanned.
    after: i64,
    found: VecDeque<PrunableThread>,
    /// Threads that could not be judged and have not been reported yet.
    unreadable: u64,
    done: bool,
}

/// A thread that may be deleted.
#[derive(Clone, Debug)]
struct PrunableThread {
    row: i64,
    tenant: Tenant,
    id: ThreadId,
    size: Pruned,
}

impl SqliteStore {
    /// Deletes threads whose runs all ended before this time, at most `batch_thread_count_max` in one commit.
    #[must_use]
    pub fn sweep(&self, ended_before: Timestamp, batch_thread_count_max: usize) -> SqliteSweep<'_> {
        SqliteSweep {
            store: self,
            ended_before,
            batch_thread_count_max: batch_thread_count_max.max(1),
            after: i64::MIN,
            found: VecDeque::new(),
            unreadable: 0,
            done: false,
        }
    }

    /// Returns a bounded number of free pages to the operating system. True while more can be returned. A file that was
    /// rebuilt without incremental vacuum keeps its free pages.
    pub async fn release_free_pages(&self) -> Result<bool, StoreError> {
        self.writer_handle
            .send(|tx| {
                let before = free_page_count(tx.connection())?;
                let sql = format!("PRAGMA incremental_vacuum({VACUUM_PAGE_COUNT})");
                let mut vacuum = tx.prepare(&sql)?;
                let mut pages = vacuum.query([])?;
                while pages.next()?.is_some() {}
                let free = free_page_count(tx.connection())?;
                Ok(free > 0 && free < before)
            })
            .await
    }
}

impl SqliteSweep<'_> {
    /// Deletes the next batch in one commit. None when all threads have been scanned and reported.
    pub async fn next(&mut self) -> Result<Option<Pruned>, StoreError> {
        while self.found.is_empty() && !self.done {
            let (after, ended_before) = (self.after, self.ended_before);
            let scanned = self.store.list(move |connection| scan(connection, after, ended_before)).await?;
            self.done = scanned.last.is_none();
            self.after = scanned.last.unwrap_or(self.after);
            self.found.extend(scanned.prunable);
            self.unreadable += scanned.unreadable;
        }
        let unreadable = std::mem::take(&mut self.unreadable);
        let passed_over = Pruned { unreadable, ..Pruned::default() };
        if self.found.is_empty() {
            return Ok((unreadable > 0).then_some(passed_over));
        }
        let mut batch = Vec::new();
        let mut events = 0;
        while batch.len() < self.batch_thread_count_max
            && events < BATCH_EVENT_COUNT_MAX
            && let Some(prunable) = self.found.pop_front()
        {
            events += prunable.size.events;
            batch.push(prunable);
        }
        let ended_before = self.ended_before;
        let pruned = self.store.writer_handle.send(move |tx| delete(tx, &batch, ended_before)).await?;
        Ok(Some(pruned.plus(passed_over)))
    }
}

/// What a sweep would delete, determined without locking or changing the file. `progress` receives the number of
/// threads scanned.
pub fn survey(
    path: impl AsRef<Path>,
    ended_before: Timestamp,
    mut progress: impl FnMut(u64),
) -> Result<Pruned, InspectError> {
    inspect(path.as_ref(), |connection| {
        let mut found = Pruned::default();
        let (mut after, mut seen) = (i64::MIN, 0);
        loop {
            let scanned =
                scan(connection, after, ended_before).map_err(|SqliteError(refused)| match refused {
                    StoreError::Failed(trouble) => InspectError::Trouble(trouble),
                    other @ (StoreError::Fenced
                    | StoreError::Behind
                    | StoreError::Stale
                    | StoreError::Busy(_)
                    | StoreError::Impossible(_)
                    | StoreError::NotFound) => {
                        InspectError::Trouble(StoreFailure::Corrupt(other.to_string()))
                    }
                })?;
            found = scanned.prunable.iter().fold(found, |found, prunable| found.plus(prunable.size));
            found.unreadable += scanned.unreadable;
            let Some(last) = scanned.last else { return Ok(found) };
            after = last;
            seen += scanned.seen;
            progress(seen);
        }
    })
}

struct Scanned {
    /// Families in the order of their root threads, parents before children.
    prunable: Vec<PrunableThread>,
    unreadable: u64,
    /// None when there are no more.
    last: Option<i64>,
    seen: u64,
}

fn scan(connection: &Connection, after: i64, ended_before: Timestamp) -> Result<Scanned, SqliteError> {
    let snapshot = connection.unchecked_transaction()?;
    let mut statement = connection.prepare_cached(SCAN)?;
    let rows = statement.query_map(params![after, millis(ended_before), SCAN_COUNT_MAX], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    let rows: Vec<(i64, bool)> = rows.collect::<rusqlite::Result<_>>()?;
    let mut prunable = Vec::new();
    let mut unreadable = 0;
    for (row, may_go) in &rows {
        if *may_go {
            match judge_family(connection, *row, ended_before)? {
                Pruning::Delete(family) => prunable.extend(family),
                Pruning::Keep => {}
                Pruning::Unreadable => unreadable += 1,
            }
        }
    }
    drop(statement);
    drop(snapshot);
    // In a damaged table the rows may be out of order, and the scan would return the same ones forever.
    let last = rows.last().map(|(row, _)| *row).filter(|last| *last > after);
    Ok(Scanned { prunable, unreadable, last, seen: rows.len() as u64 })
}

/// What a sweep does with a thread and all threads below it.
enum Pruning {
    /// Deletes these, parents first.
    Delete(Vec<PrunableThread>),
    /// One of them has not ended in time.
    Keep,
    /// The threads below it cannot be read.
    Unreadable,
}

fn judge_family(
    connection: &Connection,
    first: i64,
    ended_before: Timestamp,
) -> Result<Pruning, SqliteError> {
    let mut family = Vec::new();
    let mut known = BTreeSet::from([first]);
    let mut ahead = VecDeque::from([first]);
    while let Some(thread) = ahead.pop_front() {
        if !has_ended(connection, thread, ended_before)? {
            return Ok(Pruning::Keep);
        }
        family.push(prunable(connection, thread)?);
        let children = match children(connection, thread) {
            Err(SqliteError(why @ (StoreError::Failed(StoreFailure::Corrupt(_)) | StoreError::NotFound))) => {
                tracing::warn!(thread, %why, "an event that names a child cannot be read; its thread stays");
                return Ok(Pruning::Unreadable);
            }
            children => children?,
        };
        for child in children {
            if known.insert(child) {
                ahead.push_back(child);
            }
        }
    }
    Ok(Pruning::Delete(family))
}

fn has_ended(connection: &Connection, thread: i64, ended_before: Timestamp) -> Result<bool, SqliteError> {
    let mut statement = connection.prepare_cached(HAS_ENDED)?;
    Ok(statement.query_row(params![thread, millis(ended_before)], |row| row.get(0))?)
}

fn prunable(connection: &Connection, row: i64) -> Result<PrunableThread, SqliteError> {
    let sql = "SELECT t.tenant, t.id, count(r.row), coalesce(sum(r.seq), 0) \
               FROM threads t LEFT JOIN runs r ON r.thread = t.row WHERE t.row = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row([row], |columns| {
        let (tenant, id): (String, String) = (columns.get(0)?, columns.get(1)?);
        let (runs, events) = (to_u64(columns.get(2)?), to_u64(columns.get(3)?));
        Ok(PrunableThread {
            row,
            tenant: Tenant::from(tenant.as_str()),
            id: ThreadId::from(id),
            size: Pruned { threads: 1, runs, events, unreadable: 0 },
        })
    })?)
}

/// The threads of the runs that this thread's runs delegated to. The event that opened the suspension names the
/// child.
fn children(connection: &Connection, thread: i64) -> Result<Vec<i64>, SqliteError> {
    let mut statement = connection.prepare_cached(CHILDREN)?;
    let rows = statement.query_map([thread], |row| Ok((row.get(0)?, to_u64(row.get(1)?))))?;
    let rows: Vec<(i64, u64)> = rows.collect::<rusqlite::Result<_>>()?;
    let mut children = Vec::new();
    for (run, seq) in rows {
        let event = event_at(connection, run, seq)?;
        let Fact::ToolSuspended(OpenedSuspension { held: Held::ChildRun { run: child, .. }, .. }) =
            &event.fact
        else {
            return Err(corrupt(format!("event {seq} of run {run} names no child")));
        };
        children.extend(find_thread(connection, run, child)?);
    }
    Ok(children)
}

/// None if the child's thread was already deleted.
fn find_thread(connection: &Connection, parent: i64, child: &RunId) -> Result<Option<i64>, SqliteError> {
    let sql = "SELECT c.thread FROM runs p JOIN runs c ON c.tenant = p.tenant AND c.id = ?2 WHERE p.row = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row(params![parent, child.as_str()], |row| row.get(0)).optional()?)
}

fn has_parent(connection: &Connection, thread: i64) -> Result<bool, SqliteError> {
    Ok(connection.prepare_cached(HAS_PARENT)?.query_row([thread], |row| row.get(0))?)
}

fn free_page_count(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "freelist_count", |row| row.get(0))
}

/// Deletes a thread and the threads of all runs that its runs delegated to, directly or indirectly, once all of their
/// runs have ended. If the threads below it cannot be read, only the thread itself is deleted.
pub(super) fn delete_family(
    tx: &WriteTx<'_>,
    tenant: &Tenant,
    thread: &ThreadId,
    deletion: &Deletion,
) -> Result<Deleted, SqliteError> {
    const EVER: Timestamp = Timestamp(u64::MAX);
    let mut statement = tx.prepare("SELECT row FROM threads WHERE tenant = ?1 AND id = ?2")?;
    let row: Option<i64> =
        statement.query_row(params![tenant.as_str(), thread.as_str()], |row| row.get(0)).optional()?;
    let row = row.ok_or(StoreError::NotFound)?;
    let family = match judge_family(tx.connection(), row, EVER)? {
        Pruning::Delete(family) => family,
        // A run of a thread below it has not ended.
        Pruning::Keep if has_ended(tx.connection(), row, EVER)? => return Err(StoreError::Stale.into()),
        Pruning::Keep | Pruning::Unreadable => vec![prunable(tx.connection(), row)?],
    };
    if !deletion.decided_approvals {
        for one in &family {
            if !contents(tx.connection(), one.row, &one.id)?.approvals.is_empty() {
                return Ok(Deleted::Nothing);
            }
        }
    }
    let entry = AuditEntry::new(tx.now, AuditAction::ThreadDeleted, deletion.actor.clone());
    family.iter().try_for_each(|one| delete_thread(tx, &one.tenant, &one.id, &entry))?;
    Ok(Deleted::Thread)
}

/// Skips a thread that was deleted meanwhile. Also skips one if a message was posted meanwhile to it, to a thread below
/// it, or to its parent: that parent stays, while a parent that is deleted is gone before its children are checked.
fn delete(
    tx: &WriteTx<'_>,
    batch: &[PrunableThread],
    ended_before: Timestamp,
) -> Result<Pruned, SqliteError> {
    let mut pruned = Pruned::default();
    let entry = AuditEntry::new(tx.now, AuditAction::ThreadPruned, Actor::system());
    for thread in batch {
        if has_parent(tx.connection(), thread.row)? {
            continue;
        }
        match judge_family(tx.connection(), thread.row, ended_before)? {
            Pruning::Delete(_) => {}
            Pruning::Keep => continue,
            Pruning::Unreadable => {
                pruned.unreadable += 1;
                continue;
            }
        }
        match delete_thread(tx, &thread.tenant, &thread.id, &entry) {
            Ok(()) => pruned = pruned.plus(thread.size),
            Err(SqliteError(StoreError::Stale | StoreError::NotFound)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(pruned)
}
