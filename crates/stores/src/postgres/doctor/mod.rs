//! A doctor: looks at everything that a database holds, compares it with what the logs say, and changes nothing.
//!
//! It works beside nodes, over one connection. Threads are read in short transactions, each a moment of its own, and rows
//! in pages, so that neither the database nor this process has much to keep. Pages, indexes and constraints are the
//! database's own, and so are leases: who holds a run is true for a moment and follows from no log.

mod brought;
mod halt;
mod keys;
pub(super) mod log;
mod owners;
mod run;
mod thread;
mod value;

use engine::store::StoreError;

pub use crate::doctor::{Finding, FindingCode, Findings, Progress};

use super::look::Look;
use super::trouble::Stop;
use super::upkeep::{Size, Upkeep};
use crate::words::unsigned;
use halt::Halt;
use thread::ThreadColumns;

/// One short transaction sees at most so many threads.
const THREAD_COUNT_MAX: i64 = 64;
/// And not many more events than this.
const EVENT_COUNT_MAX: u64 = 10_000;
const THREADS: &str = "SELECT thread, tenant, id FROM threads WHERE thread > $1 ORDER BY thread LIMIT $2";

/// What was found in a database.
pub type Report = crate::doctor::Report<Size>;

impl Upkeep {
    /// Looks at the whole store. `progress` hears how far it is.
    pub async fn examine(&self, mut progress: impl FnMut(Progress)) -> Result<Report, StoreError> {
        let mut examination = Examination { upkeep: self, report: Report::default() };
        progress(Progress::References);
        examination.beside_threads().await?;
        examination.threads(&mut progress).await?;
        progress(Progress::Size);
        examination.measure().await?;
        Ok(examination.report)
    }
}

struct Examination<'u> {
    upkeep: &'u Upkeep,
    report: Report,
}

impl Examination<'_> {
    /// What keeps from looking on is no finding; all else is one.
    fn note(&mut self, place: &str, halted: Result<(), Halt>) -> Result<(), StoreError> {
        match halted {
            Ok(()) => {}
            Err(Halt::Broken(fault)) => self.report.findings.add(fault.code, place, fault.what),
            Err(Halt::Damaged(what)) => self.report.findings.add(FindingCode::FileDamaged, place, what),
            Err(Halt::Refused(refused)) => return Err(refused),
        }
        Ok(())
    }

    async fn beside_threads(&mut self) -> Result<(), StoreError> {
        let connections = &self.upkeep.connections;
        for owned in owners::OWNED {
            let looked = owners::references(connections, owned, &mut self.report.findings).await;
            self.note(&format!("table {}", owned.0), looked)?;
        }
        let looked = owners::revisions(connections, &mut self.report.findings).await;
        self.note("the frozen agents", looked)
    }

    async fn threads(&mut self, progress: &mut impl FnMut(Progress)) -> Result<(), StoreError> {
        let counted = self.upkeep.connections.read("SELECT count(*) FROM threads", &[]).await;
        // Only whoever watches wants to know.
        let count = |rows: Vec<tokio_postgres::Row>| rows.first()?.try_get(0).ok().map(unsigned);
        let total = counted.ok().and_then(count).unwrap_or(0);
        let mut behind = i64::MIN;
        loop {
            let done = self.report.threads;
            progress(Progress::Threads { done, total: total.max(done) });
            match self.some_threads(behind).await {
                Ok(Some(last)) if last > behind => behind = last,
                Ok(_) => return Ok(()),
                Err(halt) => return self.note(&format!("the threads behind {behind}"), Err(halt)),
            }
        }
    }

    /// The next threads, as they all are at one moment. Gives the last one, or none if there are no more.
    async fn some_threads(&mut self, behind: i64) -> Result<Option<i64>, Halt> {
        let mut client = self.upkeep.connections.client().await?;
        let look = Look::begin(&self.upkeep.connections, &mut client).await?;
        let rows = look.read(THREADS, &[&behind, &THREAD_COUNT_MAX]).await?;
        let mut last = None;
        let mut events = 0;
        for row in &rows {
            if events > EVENT_COUNT_MAX {
                break;
            }
            let thread = ThreadColumns::of(row)?;
            last = Some(thread.row);
            self.report.threads += 1;
            match thread::examine(&look, &thread, &mut self.report.findings).await {
                Ok(seen) => {
                    self.report.runs += seen.runs;
                    self.report.events += seen.events;
                    events += seen.events;
                }
                Err(Halt::Refused(refused)) => return Err(Halt::Refused(refused)),
                Err(halt @ (Halt::Broken(_) | Halt::Damaged(_))) => {
                    // The moment may be over with it: the next threads are read in another one.
                    drop(look);
                    return match self.note(&thread.to_string(), Err(halt)) {
                        Ok(()) => Ok(last),
                        Err(refused) => Err(Halt::Refused(refused)),
                    };
                }
            }
        }
        look.end().await?;
        Ok(last)
    }

    async fn measure(&mut self) -> Result<(), StoreError> {
        match self.upkeep.size().await {
            Ok(size) => self.report.size = Some(size),
            Err(refused) => self.note("the size of the tables", Err(Stop(refused).into()))?,
        }
        Ok(())
    }
}
