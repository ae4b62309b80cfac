//! The doctor's queries to a file, and the checks that only SQLite needs. The pages are checked in one long
//! transaction.

mod pages;
mod rows;
mod schema;

use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use engine::store::{StoreError, StoreFailure, Tenant};
use rusqlite::Connection;

pub use crate::doctor::{DoctorProgress, Finding, FindingCode, Findings};

use super::audit;
use super::errors::SqliteError;
use super::held_calls::failed;
use super::inspect::{InspectError, inspect};
use super::size::{self, SqliteSize};
use crate::audit_reader::{AuditRow, AuditSource, StoredChain, examine_audit};
use crate::columns::to_u64;
use crate::doctor::{
    AgentRow, DoctorReport, ExamineError, ExaminedStore, Fault, examine_all_threads, examine_revisions,
    examine_threads, record, unreadable_or_refused,
};
use rows::SqliteRows;

/// The findings for a file.
pub type SqliteReport = DoctorReport<SqliteSize>;

/// Checks the whole file. `progress` receives how far it is.
pub fn examine(
    path: impl AsRef<Path>,
    mut progress: impl FnMut(DoctorProgress),
) -> Result<SqliteReport, InspectError> {
    inspect(path.as_ref(), |connection| {
        let examined = pin!(examine_file(connection, &mut progress));
        // No query of SQLite waits, so the first poll completes.
        match examined.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(report) => report.map_err(failed),
            Poll::Pending => Err(InspectError::Trouble(StoreFailure::Corrupt("a query waits".into()))),
        }
    })
}

async fn examine_file(
    connection: &Connection,
    progress: &mut impl FnMut(DoctorProgress),
) -> Result<SqliteReport, StoreError> {
    let mut report = SqliteReport::default();
    let findings = &mut report.findings;
    progress(DoctorProgress::Pages);
    let integrity = pages::integrity(connection, findings);
    record(findings, "the file", integrity.map_err(ExamineError::from))?;
    progress(DoctorProgress::References);
    let schema = schema::examine(connection, findings);
    record(findings, "the tables", schema.map_err(ExamineError::from))?;
    let references = pages::references(connection, findings);
    record(findings, "the references between rows", references.map_err(ExamineError::from))?;
    let store = ExaminedFile { connection };
    let revisions = examine_revisions(&store, findings).await;
    record(findings, "the frozen agents", revisions)?;
    let openings = pages::openings(connection);
    if record(findings, "table openings", openings.map_err(ExamineError::from))?.is_some() {
        examine_all_threads(&store, &mut report, progress).await?;
    }
    let audit = examine_audit(&store, &mut report.findings).await;
    record(&mut report.findings, "the audit record", audit.map_err(unreadable_or_refused))?;
    progress(DoctorProgress::Size);
    let size = size::measure(connection).map_err(|error| Fault::from(error).into());
    report.size = record(&mut report.findings, "the size of the file", size)?;
    Ok(report)
}

struct ExaminedFile<'c> {
    connection: &'c Connection,
}

impl AuditSource for ExaminedFile<'_> {
    async fn chains(&self, only: Option<&Tenant>) -> Result<Vec<StoredChain>, StoreError> {
        audit::stored_chains(self.connection, only).map_err(|SqliteError(refused)| refused)
    }

    async fn rows(&self, tenant: &Tenant, after: u64) -> Result<Vec<AuditRow>, StoreError> {
        audit::rows_after(self.connection, tenant, after).map_err(|SqliteError(refused)| refused)
    }
}

impl ExaminedStore for ExaminedFile<'_> {
    async fn thread_count(&self) -> Option<u64> {
        let sql = "SELECT count(*) FROM threads";
        self.connection.query_row(sql, [], |row| row.get(0)).ok().map(to_u64)
    }

    async fn revisions(&self, after: &[u8]) -> Result<Vec<AgentRow>, ExamineError> {
        rows::revisions(self.connection, after)
    }

    async fn examine_threads<Size>(
        &self,
        after: i64,
        report: &mut DoctorReport<Size>,
    ) -> Result<Option<i64>, ExamineError> {
        let _snapshot = self.connection.unchecked_transaction()?;
        // Read again each time: a server that restarts meanwhile opens the file once more.
        let openings = pages::openings(self.connection)?;
        examine_threads(&SqliteRows { connection: self.connection, openings }, after, report).await
    }
}
