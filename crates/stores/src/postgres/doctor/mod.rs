//! A doctor: examines everything in a database, compares it with the logs, and changes nothing.
//!
//! It works beside running nodes, over one connection. Threads are read in short transactions, each with its own
//! snapshot, and rows in pages, so that neither the database nor this process has to hold much. Pages, indexes and
//! constraints are left to the database. Leases are not examined either: who holds a run is true only for a moment and
//! follows from no log.

mod examine_error;
mod inline_agents;
mod keys;
pub(super) mod log;
mod owners;
mod run;
mod thread;
mod value;

use engine::store::StoreError;

pub use crate::doctor::{DoctorProgress, Finding, FindingCode, Findings};

use super::errors::PostgresError;
use super::snapshot::Snapshot;
use super::upkeep::{PostgresSize, Upkeep};
use crate::columns::to_u64;
use examine_error::ExamineError;
use thread::PostgresExaminedThread;

/// Threads read in one short transaction, at most.
const THREAD_COUNT_MAX: i64 = 64;
/// Events read in one short transaction, approximately.
const EVENT_COUNT_MAX: u64 = 10_000;
const THREADS: &str = "SELECT thread, tenant, id FROM threads WHERE thread > $1 ORDER BY thread LIMIT $2";

/// The findings in a database.
pub type PostgresReport = crate::doctor::DoctorReport<PostgresSize>;

impl Upkeep {
    /// Examines the whole store and reports to `progress` how far it is.
    pub async fn examine(
        &self,
        mut progress: impl FnMut(DoctorProgress),
    ) -> Result<PostgresReport, StoreError> {
        let mut examination = PostgresExamination { upkeep: self, report: PostgresReport::default() };
        progress(DoctorProgress::References);
        examination.examine_unowned_rows().await?;
        examination.threads(&mut progress).await?;
        progress(DoctorProgress::Size);
        examination.measure().await?;
        Ok(examination.report)
    }
}

struct PostgresExamination<'u> {
    upkeep: &'u Upkeep,
    report: PostgresReport,
}

impl PostgresExamination<'_> {
    /// An error that prevents further reading is returned; every other one becomes a finding.
    fn record(&mut self, place: &str, result: Result<(), ExamineError>) -> Result<(), StoreError> {
        match result {
            Ok(()) => {}
            Err(ExamineError::Broken(fault)) => self.report.findings.add(fault.code, place, fault.what),
            Err(ExamineError::Damaged(what)) => {
                self.report.findings.add(FindingCode::FileDamaged, place, what)
            }
            Err(ExamineError::Refused(refused)) => return Err(refused),
        }
        Ok(())
    }

    async fn examine_unowned_rows(&mut self) -> Result<(), StoreError> {
        let connections = &self.upkeep.connections;
        for owned in owners::OWNED {
            let looked = owners::references(connections, owned, &mut self.report.findings).await;
            self.record(&format!("table {}", owned.0), looked)?;
        }
        let looked = owners::revisions(connections, &mut self.report.findings).await;
        self.record("the frozen agents", looked)
    }

    async fn threads(&mut self, progress: &mut impl FnMut(DoctorProgress)) -> Result<(), StoreError> {
        let counted = self.upkeep.connections.read("SELECT count(*) FROM threads", &[]).await;
        // The total is only for the progress display, so an error does not matter.
        let count = |rows: Vec<tokio_postgres::Row>| rows.first()?.try_get(0).ok().map(to_u64);
        let total = counted.ok().and_then(count).unwrap_or(0);
        let mut after = i64::MIN;
        loop {
            let done = self.report.threads;
            progress(DoctorProgress::Threads { done, total: total.max(done) });
            match self.examine_threads(after).await {
                Ok(Some(last)) if last > after => after = last,
                Ok(_) => return Ok(()),
                Err(error) => return self.record(&format!("the threads behind {after}"), Err(error)),
            }
        }
    }

    /// Examines the next threads in one snapshot. Returns the last one, or `None` if there are no more.
    async fn examine_threads(&mut self, after: i64) -> Result<Option<i64>, ExamineError> {
        let mut client = self.upkeep.connections.client().await?;
        let snapshot = Snapshot::begin(&self.upkeep.connections, &mut client).await?;
        let rows = snapshot.read(THREADS, &[&after, &THREAD_COUNT_MAX]).await?;
        let mut last = None;
        let mut events = 0;
        for row in &rows {
            if events > EVENT_COUNT_MAX {
                break;
            }
            let thread = PostgresExaminedThread::from_row(row)?;
            last = Some(thread.row);
            self.report.threads += 1;
            match thread::examine(&snapshot, &thread, &mut self.report.findings).await {
                Ok(seen) => {
                    self.report.runs += seen.runs;
                    self.report.events += seen.events;
                    events += seen.events;
                }
                Err(ExamineError::Refused(refused)) => return Err(ExamineError::Refused(refused)),
                Err(error @ (ExamineError::Broken(_) | ExamineError::Damaged(_))) => {
                    // The error may have ended the transaction: the next threads are read in another one.
                    drop(snapshot);
                    return match self.record(&thread.to_string(), Err(error)) {
                        Ok(()) => Ok(last),
                        Err(refused) => Err(ExamineError::Refused(refused)),
                    };
                }
            }
        }
        snapshot.end().await?;
        Ok(last)
    }

    async fn measure(&mut self) -> Result<(), StoreError> {
        match self.upkeep.size().await {
            Ok(size) => self.report.size = Some(size),
            Err(refused) => self.record("the size of the tables", Err(PostgresError(refused).into()))?,
        }
        Ok(())
    }
}
