//! Examines every thread of a store and the frozen agents of its configuration.

use engine::store::StoreError;
use machine::id::Digest;

use super::fault::{ExamineError, Fault};
use super::finding::{FindingCode, Findings};
use super::rows::{AgentRow, SnapshotRows};
use super::{DoctorProgress, DoctorReport, thread};

/// Maximum number of threads read in one snapshot.
const THREAD_COUNT_MAX: u32 = 64;
/// A snapshot reads not many more events than this.
const EVENT_COUNT_MAX: u64 = 10_000;

/// A store, of which each part is examined in a snapshot of its own.
pub(crate) trait ExaminedStore {
    /// `None` if it cannot be read: the number is only for the progress display.
    async fn thread_count(&self) -> Option<u64>;

    /// The next frozen agents of the configuration, by their digests; none after the last.
    async fn revisions(&self, after: &[u8]) -> Result<Vec<AgentRow>, ExamineError>;

    /// Calls [`examine_threads`] with a new snapshot.
    async fn examine_threads<Size>(
        &self,
        after: i64,
        report: &mut DoctorReport<Size>,
    ) -> Result<Option<i64>, ExamineError>;
}

/// An error that prevents further reading is returned; every other one becomes a finding.
pub(crate) fn record<T>(
    findings: &mut Findings,
    place: &str,
    result: Result<T, ExamineError>,
) -> Result<Option<T>, StoreError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) => {
            let Fault { code, what } = error.into_fault()?;
            findings.add(code, place, what);
            Ok(None)
        }
    }
}

pub(crate) async fn examine_all_threads<Size>(
    store: &impl ExaminedStore,
    report: &mut DoctorReport<Size>,
    progress: &mut impl FnMut(DoctorProgress),
) -> Result<(), StoreError> {
    let total = store.thread_count().await.unwrap_or(0);
    let mut after = i64::MIN;
    loop {
        let done = report.threads;
        progress(DoctorProgress::Threads { done, total: total.max(done) });
        let examined = store.examine_threads(after, report).await;
        match record(&mut report.findings, &format!("the threads after row {after}"), examined)?.flatten() {
            Some(last) if last > after => after = last,
            Some(_) | None => return Ok(()),
        }
    }
}

/// Examines the next threads. Returns the last one, or `None` if there are no more.
pub(crate) async fn examine_threads<Size>(
    rows: &impl SnapshotRows,
    after: i64,
    report: &mut DoctorReport<Size>,
) -> Result<Option<i64>, ExamineError> {
    let mut last = None;
    let mut events = 0;
    let last_unchained = rows.last_unchained_run().await?;
    for number in rows.threads(after, THREAD_COUNT_MAX).await? {
        if events > EVENT_COUNT_MAX {
            break;
        }
        last = Some(number);
        report.threads += 1;
        let mut place = format!("the thread in row {number}");
        let examined = thread::examine(rows, number, last_unchained, &mut place, &mut report.findings).await;
        match record(&mut report.findings, &place, examined).map_err(ExamineError::Refused)? {
            Some(seen) => {
                report.runs += seen.runs;
                report.events += seen.events;
                events += seen.events;
                report.chains.add(seen.chains);
            }
            // The error may have ended the snapshot: the next threads are read in another one.
            None => break,
        }
    }
    Ok(last)
}

/// Each frozen agent must be stored under the digest of its text.
pub(crate) async fn examine_revisions(
    store: &impl ExaminedStore,
    findings: &mut Findings,
) -> Result<(), ExamineError> {
    let mut after: Vec<u8> = Vec::new();
    loop {
        let page = store.revisions(&after).await?;
        for agent in &page {
            if let Some(found) = agent.other_digest() {
                let what = format!("its text has the digest {found}");
                findings.add(FindingCode::RevisionDiffers, format!("revision {}", agent.name()), what);
            }
        }
        match page.into_iter().next_back() {
            Some(last) if last.digest > after => after = last.digest,
            // A damaged index could return the same rows again and again.
            Some(_) | None => return Ok(()),
        }
    }
}

impl AgentRow {
    /// The digest of its text, if it is stored under another one.
    pub(crate) fn other_digest(&self) -> Option<Digest> {
        let found = Digest::sha256(&self.text);
        (self.digest != found.0).then_some(found)
    }

    pub(crate) fn name(&self) -> String {
        self.digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
