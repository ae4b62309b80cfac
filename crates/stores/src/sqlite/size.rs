//! How many bytes a file uses: by table, by run, and by step.

use std::path::Path;

use machine::Control;
use rusqlite::Connection;

use super::inspect::{InspectError, inspect};
use crate::columns::to_u64;

/// Maximum number of rows counted in one short transaction.
const ROW_COUNT_MAX: i64 = 4_096;
const TABLES: &str = "SELECT s.tbl_name, \
        sum(CASE s.type WHEN 'table' THEN d.pgsize ELSE 0 END), \
        sum(CASE s.type WHEN 'table' THEN 0 ELSE d.pgsize END) \
    FROM dbstat d JOIN sqlite_schema s ON s.name = d.name \
    WHERE d.aggregate = TRUE GROUP BY s.tbl_name ORDER BY sum(d.pgsize) DESC, s.tbl_name";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqliteSize {
    /// Without the part of the log that is not yet copied into the file.
    pub file_bytes: u64,
    /// Bytes of empty pages, which will be reused.
    pub free_bytes: u64,
    /// Largest first.
    pub tables: Vec<SqliteTableSize>,
    pub runs: u64,
    pub steps: u64,
    pub events: u64,
    /// Bytes of all events as they are stored.
    pub event_bytes: u64,
    /// Bytes of all control states.
    pub control_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteTableSize {
    pub name: String,
    /// In whole pages.
    pub bytes: u64,
    pub index_bytes: u64,
}

impl SqliteSize {
    /// Bytes in use divided by the number of runs; none without runs.
    #[must_use]
    pub const fn bytes_per_run(&self) -> Option<u64> {
        self.file_bytes.saturating_sub(self.free_bytes).checked_div(self.runs)
    }

    /// Bytes in use divided by the number of steps; none without steps.
    #[must_use]
    pub const fn bytes_per_step(&self) -> Option<u64> {
        self.file_bytes.saturating_sub(self.free_bytes).checked_div(self.steps)
    }
}

/// Reads every page of the file once.
pub fn size(path: impl AsRef<Path>) -> Result<SqliteSize, InspectError> {
    inspect(path.as_ref(), |connection| Ok(measure(connection)?))
}

pub(super) fn measure(connection: &Connection) -> rusqlite::Result<SqliteSize> {
    let pragma = |name| -> rusqlite::Result<u64> {
        Ok(to_u64(connection.pragma_query_value(None, name, |row| row.get(0))?))
    };
    let page_bytes = pragma("page_size")?;
    let mut size = SqliteSize {
        file_bytes: pragma("page_count")?.saturating_mul(page_bytes),
        free_bytes: pragma("freelist_count")?.saturating_mul(page_bytes),
        ..SqliteSize::default()
    };
    let mut tables = connection.prepare(TABLES)?;
    let rows = tables.query_map([], |row| {
        Ok(SqliteTableSize {
            name: row.get(0)?,
            bytes: to_u64(row.get(1)?),
            index_bytes: to_u64(row.get(2)?),
        })
    })?;
    size.tables = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    count_runs(connection, &mut size)?;
    count_commits(connection, &mut size)?;
    Ok(size)
}

fn count_runs(connection: &Connection, size: &mut SqliteSize) -> rusqlite::Result<()> {
    let sql = "SELECT row, seq, control FROM runs WHERE row > ?1 ORDER BY row LIMIT ?2";
    let mut statement = connection.prepare(sql)?;
    let mut after = 0;
    loop {
        let before = size.runs;
        let mut rows = statement.query([after, ROW_COUNT_MAX])?;
        while let Some(row) = rows.next()? {
            let number = row.get(0)?;
            // In a damaged table the rows may be out of order, and the scan would return the same ones forever.
            if number <= after {
                return Ok(());
            }
            after = number;
            let control = row.get_ref(2)?.as_blob()?;
            size.runs += 1;
            size.events = size.events.saturating_add(to_u64(row.get(1)?));
            size.control_bytes += control.len() as u64;
            // A control of an unknown version is not counted, because that would require reading its log.
            size.steps += Control::decode_read_only(control).map_or(0, |control| u64::from(control.step));
        }
        if size.runs == before {
            return Ok(());
        }
    }
}

fn count_commits(connection: &Connection, size: &mut SqliteSize) -> rusqlite::Result<()> {
    let sql = "SELECT max(row), sum(octet_length(body)) FROM \
               (SELECT row, body FROM commits WHERE row > ?1 ORDER BY row LIMIT ?2)";
    let mut statement = connection.prepare(sql)?;
    let mut after = 0;
    loop {
        let counted: (Option<i64>, Option<i64>) =
            statement.query_row([after, ROW_COUNT_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (Some(last), Some(bytes)) = counted else { return Ok(()) };
        if last <= after {
            return Ok(());
        }
        size.event_bytes = size.event_bytes.saturating_add(to_u64(bytes));
        after = last;
    }
}
