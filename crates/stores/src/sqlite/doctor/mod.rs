//! Checks everything in a file against the logs, and changes nothing.
//!
//! It can run beside a server. Threads are read in short transactions, each with a snapshot of its own; only the pages
//! are checked in one long transaction.

mod fault;
mod inline_agents;
mod keys;
mod log;
mod pages;
mod run;
mod schema;
mod thread;
mod value;

use std::path::Path;

use rusqlite::{Connection, params};

pub use crate::doctor::{DoctorProgress, Finding, FindingCode, Findings};

use super::inspect::{InspectError, inspect};
use super::size::{self, SqliteSize};
use crate::columns::to_u64;
use crate::doctor::Fault;

/// Maximum number of threads read in one short transaction.
const THREAD_COUNT_MAX: u32 = 64;
/// A transaction reads not many more events than this.
const EVENT_COUNT_MAX: u64 = 10_000;

/// The findings for a file.
pub type SqliteReport = crate::doctor::DoctorReport<SqliteSize>;

/// Checks the whole file. `progress` receives how far it is.
pub fn examine(
    path: impl AsRef<Path>,
    mut progress: impl FnMut(DoctorProgress),
) -> Result<SqliteReport, InspectError> {
    inspect(path.as_ref(), |connection| Ok(SqliteExamination::new(connection).perform(&mut progress)))
}

struct SqliteExamination<'c> {
    connection: &'c Connection,
    report: SqliteReport,
}

impl<'c> SqliteExamination<'c> {
    fn new(connection: &'c Connection) -> Self {
        Self { connection, report: SqliteReport::default() }
    }

    fn perform(mut self, progress: &mut dyn FnMut(DoctorProgress)) -> SqliteReport {
        progress(DoctorProgress::Pages);
        self.run_check("the file", pages::integrity);
        progress(DoctorProgress::References);
        self.run_check("the tables", schema::examine);
        self.run_check("the references between rows", pages::references);
        self.run_check("the frozen agents", pages::revisions);
        match pages::openings(self.connection) {
            Ok(_) => self.threads(progress),
            Err(Fault { code, what }) => self.report.findings.add(code, "table openings", what),
        }
        progress(DoctorProgress::Size);
        match size::measure(self.connection) {
            Ok(size) => self.report.size = Some(size),
            Err(error) => {
                let Fault { code, what } = error.into();
                self.report.findings.add(code, "the size of the file", what);
            }
        }
        self.report
    }

    fn run_check(
        &mut self,
        place: &str,
        check: impl FnOnce(&Connection, &mut Findings) -> Result<(), Fault>,
    ) {
        if let Err(Fault { code, what }) = check(self.connection, &mut self.report.findings) {
            self.report.findings.add(code, place, what);
        }
    }

    fn threads(&mut self, progress: &mut dyn FnMut(DoctorProgress)) {
        let count = "SELECT count(*) FROM threads";
        let total = self.connection.query_row(count, [], |row| row.get(0)).map_or(0, to_u64);
        let mut after = i64::MIN;
        loop {
            progress(DoctorProgress::Threads { done: self.report.threads, total });
            match self.examine_threads(after) {
                Ok(Some(last)) if last > after => after = last,
                Ok(_) => return,
                Err(Fault { code, what }) => {
                    let place = format!("the threads behind row {after}");
                    return self.report.findings.add(code, place, what);
                }
            }
        }
    }

    /// Checks the next threads in one snapshot. Returns the last one, or none if there are no more.
    fn examine_threads(&mut self, after: i64) -> Result<Option<i64>, Fault> {
        let snapshot = self.connection.unchecked_transaction()?;
        // Read again each time: a server that restarts meanwhile opens the file once more.
        let openings = pages::openings(self.connection)?;
        let sql = "SELECT row FROM threads WHERE row > ?1 ORDER BY row LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(params![after, THREAD_COUNT_MAX], |row| row.get(0))?;
        let rows = rows.collect::<rusqlite::Result<Vec<i64>>>()?;
        let mut last = None;
        let mut events = 0;
        for row in rows {
            if events > EVENT_COUNT_MAX {
                break;
            }
            last = Some(row);
            self.report.threads += 1;
            match thread::examine(self.connection, openings, row, &mut self.report.findings) {
                Ok(seen) => {
                    self.report.runs += seen.runs;
                    self.report.events += seen.events;
                    events += seen.events;
                }
                Err(Fault { code, what }) => {
                    self.report.findings.add(code, format!("the thread in row {row}"), what);
                }
            }
        }
        drop(snapshot);
        Ok(last)
    }
}
