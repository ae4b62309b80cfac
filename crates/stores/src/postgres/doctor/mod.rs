//! The doctor's queries to a database, and the checks that only PostgreSQL needs.
//!
//! The doctor uses one connection. Pages, indexes and constraints are left to the database. Leases are not examined
//! either: who holds a run is true only for a moment and follows from no log.

mod owners;
pub(super) mod rows;

use engine::store::StoreError;

pub use crate::doctor::{DoctorProgress, Finding, FindingCode, Findings};

use super::errors::PostgresError;
use super::snapshot::Snapshot;
use super::upkeep::{PostgresSize, Upkeep};
use crate::audit_reader::examine_audit;
use crate::columns::to_u64;
use crate::doctor::{
    AgentRow, DoctorReport, ExamineError, ExaminedStore, examine_all_threads, examine_revisions,
    examine_threads, record, unreadable_or_refused,
};

/// Frozen agents read at once.
const REVISION_COUNT_MAX: i64 = 16;

/// The findings in a database.
pub type PostgresReport = DoctorReport<PostgresSize>;

impl Upkeep {
    /// Examines the whole store and reports to `progress` how far it is.
    pub async fn examine(
        &self,
        mut progress: impl FnMut(DoctorProgress),
    ) -> Result<PostgresReport, StoreError> {
        let mut report = PostgresReport::default();
        progress(DoctorProgress::References);
        for owned in owners::OWNED {
            let examined = owners::references(&self.connections, owned, &mut report.findings).await;
            record(&mut report.findings, &format!("table {}", owned.0), examined)?;
        }
        let examined = examine_revisions(self, &mut report.findings).await;
        record(&mut report.findings, "the frozen agents", examined)?;
        examine_all_threads(self, &mut report, &mut progress).await?;
        let examined = examine_audit(self, &mut report.findings).await.map_err(unreadable_or_refused);
        record(&mut report.findings, "the audit record", examined)?;
        progress(DoctorProgress::Size);
        let size = self.size().await.map_err(|refused| PostgresError(refused).into());
        report.size = record(&mut report.findings, "the size of the tables", size)?;
        Ok(report)
    }
}

impl ExaminedStore for Upkeep {
    async fn thread_count(&self) -> Option<u64> {
        let rows = self.connections.read("SELECT count(*) FROM threads", &[]).await.ok()?;
        rows.first()?.try_get(0).ok().map(to_u64)
    }

    async fn revisions(&self, after: &[u8]) -> Result<Vec<AgentRow>, ExamineError> {
        let sql = "SELECT digest, text FROM revisions WHERE digest > $1 ORDER BY digest LIMIT $2";
        rows::parse(&self.connections.read(sql, &[&after, &REVISION_COUNT_MAX]).await?, rows::agent)
    }

    async fn examine_threads<Size>(
        &self,
        after: i64,
        report: &mut DoctorReport<Size>,
    ) -> Result<Option<i64>, ExamineError> {
        let mut client = self.connections.client().await?;
        let snapshot = Snapshot::begin(&self.connections, &mut client).await?;
        let last = examine_threads(&snapshot, after, report).await?;
        snapshot.end().await?;
        Ok(last)
    }
}
