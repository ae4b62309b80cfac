//! Reads the log of one run without a server.

use std::path::Path;

use engine::store::LogEntry;
use machine::id::{RunId, ThreadId};
use rusqlite::{Connection, OptionalExtension};

use super::errors::SqliteError;
use super::held_calls::failed;
use super::inspect::{InspectError, inspect};
use super::stored_run::events_after;

/// Run ids are unique across tenants.
const FIND: &str = "SELECT runs.row, threads.id FROM runs JOIN threads ON threads.row = runs.thread \
    WHERE runs.id = ?1 ORDER BY runs.row LIMIT 1";

/// The thread of a run and its events so far, in one snapshot. Does not lock or change the file. None if the file has
/// no such run.
pub fn read_log(
    path: impl AsRef<Path>,
    run: &RunId,
) -> Result<Option<(ThreadId, Vec<LogEntry>)>, InspectError> {
    inspect(path.as_ref(), |connection| {
        read_run_log(connection, run).map_err(|SqliteError(refused)| failed(refused))
    })
}

fn read_run_log(
    connection: &Connection,
    run: &RunId,
) -> Result<Option<(ThreadId, Vec<LogEntry>)>, SqliteError> {
    let snapshot = connection.unchecked_transaction()?;
    let mut statement = connection.prepare_cached(FIND)?;
    let found: Option<(i64, String)> =
        statement.query_row([run.as_str()], |columns| Ok((columns.get(0)?, columns.get(1)?))).optional()?;
    let Some((row, thread)) = found else { return Ok(None) };
    let mut events: Vec<LogEntry> = Vec::new();
    loop {
        let after = events.last().map_or(0, LogEntry::seq);
        let page = events_after(connection, row, after, usize::MAX)?;
        if page.is_empty() {
            break;
        }
        events.extend(page);
    }
    drop(statement);
    drop(snapshot);
    Ok(Some((ThreadId::from(thread.as_str()), events)))
}
