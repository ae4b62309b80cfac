//! Which worker holds which run. A claim locks the leases first and then reads the file, so that it sees everything
//! committed before it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use engine::store::{Claim, Claimed, Lease, Loaded, SkipTenant, StoreError, StoreFailure, Tenant};
use machine::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::errors::{SqliteError, corrupt};
use super::lease::{SkipKey, SqliteHeldLeases, SqliteLeases};
use super::stored_run::SqliteStoredRun;
use super::write_tx::WriteTx;
use crate::columns::{millis, timestamp};

/// The tenant whose queued run was claimed last; the next tenant is served next.
#[derive(Default)]
pub(super) struct SqliteTenantTurn(Mutex<Option<String>>);

impl SqliteTenantTurn {
    fn last(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn pass(&self, tenant: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tenant.to_owned());
    }
}

pub(super) struct Claims<'c> {
    pub(super) connection: &'c Connection,
    pub(super) leases: &'c SqliteLeases,
    pub(super) turn: &'c SqliteTenantTurn,
    pub(super) now: Timestamp,
}

/// The condition a run must meet to be claimed.
#[derive(Clone, Copy)]
enum ClaimCondition {
    Unended,
    /// Named by an index entry, unless it comes from a tenant's queue.
    Ready(Option<IndexEntry>),
}

/// An index whose order determines which runs are claimed first. It contains every column the scan needs, so a run is
/// not read until it is taken.
#[derive(Clone, Copy)]
enum ClaimIndex {
    Woken,
    Interrupted,
    Due,
}

impl ClaimIndex {
    const fn name(self) -> &'static str {
        match self {
            Self::Woken => "runs_woken",
            Self::Interrupted => "runs_interrupted",
            Self::Due => "runs_by_deadline",
        }
    }

    const fn in_order(self) -> &'static str {
        match self {
            Self::Woken => include_str!("sql/claim_woken.sql"),
            Self::Interrupted => include_str!("sql/claim_interrupted.sql"),
            Self::Due => include_str!("sql/claim_due.sql"),
        }
    }

    /// Whether the index has an entry with this position and row.
    const fn has_entry(self) -> &'static str {
        match self {
            Self::Woken => include_str!("sql/claim_woken_entry.sql"),
            Self::Interrupted => include_str!("sql/claim_interrupted_entry.sql"),
            Self::Due => include_str!("sql/claim_due_entry.sql"),
        }
    }
}

/// One entry of an index.
#[derive(Clone, Copy)]
struct IndexEntry {
    index: ClaimIndex,
    at: i64,
    row: i64,
}

impl IndexEntry {
    /// Sorts by arrival, in microseconds.
    const fn order_key(&self) -> (i64, i64) {
        match self.index {
            ClaimIndex::Woken | ClaimIndex::Interrupted => (self.at, self.row),
            ClaimIndex::Due => (self.at.saturating_mul(1_000), self.row),
        }
    }

    const fn skip_key(&self) -> SkipKey {
        SkipKey::Entry(self.index.name(), self.at, self.row)
    }
}

/// State of a claim so far.
#[derive(Default)]
struct ClaimProgress {
    /// No index entry is tried twice.
    tried: BTreeSet<SkipKey>,
    trouble: Option<SqliteError>,
    /// The tenant whose runs are not claimed.
    pass_over: Option<SkipTenant>,
}

impl ClaimProgress {
    /// The tenant whose woken runs are skipped too.
    fn not_woken(&self) -> Option<&Tenant> {
        self.pass_over.as_ref().filter(|full| full.woken).map(|full| &full.tenant)
    }

    fn not_startable(&self, tenant: &str) -> bool {
        self.pass_over.as_ref().is_some_and(|full| full.tenant.as_str() == tenant)
    }

    /// One unreadable run or index must not keep the others from being claimed.
    fn note(&mut self, error: SqliteError) {
        tracing::error!(refused = %error.0, "some ready runs could not be read");
        self.trouble.get_or_insert(error);
    }
}

impl Claims<'_> {
    pub(super) fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, SqliteError> {
        let (mut claimed, mut progress) = (Vec::new(), ClaimProgress::default());
        match claim {
            Claim::Run { tenant, run } => {
                let mut statement =
                    self.connection.prepare_cached("SELECT row FROM runs WHERE tenant = ?1 AND id = ?2")?;
                let row: Option<i64> = statement
                    .query_row(params![tenant.as_str(), run.as_str()], |row| row.get(0))
                    .optional()?;
                if let Some(row) = row {
                    claimed.extend(self.take(row, ClaimCondition::Unended)?);
                }
            }
            Claim::Next { limit, skip_tenant: pass_over } => {
                progress.pass_over.clone_from(pass_over);
                self.claim_woken(ClaimIndex::Woken, *limit, &mut claimed, &mut progress);
                if let Err(error) = self.claim_startable(*limit, &mut claimed, &mut progress) {
                    progress.note(error);
                }
            }
            Claim::Urgent { limit } => {
                self.claim_woken(ClaimIndex::Interrupted, *limit, &mut claimed, &mut progress);
            }
        }
        // Returning an error would leave the runs claimed so far without a worker.
        match progress.trouble {
            Some(error) if claimed.is_empty() => Err(error),
            Some(_) | None => Ok(claimed),
        }
    }

    /// Claims the run if no worker holds it and it meets the condition.
    fn take(&self, row: i64, condition: ClaimCondition) -> Result<Option<Claimed>, SqliteError> {
        let snapshot = self.connection.unchecked_transaction()?;
        let mut held = self.leases.lock();
        if held.is_held(row) {
            return Ok(None);
        }
        let found = match (SqliteStoredRun::find(self.connection, row), condition) {
            (Err(SqliteError(StoreError::Failed(StoreFailure::Corrupt(why)))), ClaimCondition::Ready(_)) => {
                tracing::error!(row, why, "run is unreadable and has been halted; run `holdpoint doctor`");
                held.skip(SkipKey::Run(row));
                return Ok(None);
            }
            (found, ClaimCondition::Ready(_) | ClaimCondition::Unended) => found?.filter(|run| !run.ended),
        };
        let found = found.filter(|run| match condition {
            ClaimCondition::Unended => true,
            ClaimCondition::Ready(_) => {
                run.ready != 0 || run.wake_at.is_some_and(|at| at <= millis(self.now))
            }
        });
        let run = match (found, condition) {
            (Some(run), ClaimCondition::Unended | ClaimCondition::Ready(_)) => run,
            (None, ClaimCondition::Ready(Some(entry))) => {
                self.skip_if_stale(entry, &mut held)?;
                return Ok(None);
            }
            (None, ClaimCondition::Unended | ClaimCondition::Ready(None)) => return Ok(None),
        };
        let stored_epoch = run.epoch;
        let lease = run.lease(held.next_epoch(Some(row), stored_epoch));
        held.add(lease.clone());
        drop(held);
        let loaded = match run.load(self.connection) {
            Ok(loaded) => Ok(loaded),
            // The run stays held: a run that cannot be decoded must not keep all others from being claimed.
            Err(SqliteError(StoreError::Failed(trouble @ StoreFailure::Corrupt(_)))) => Err(trouble),
            Err(error) => {
                self.leases.lock().release(row, stored_epoch);
                return Err(error);
            }
        };
        drop(snapshot);
        // The lock file proves that the previous holder of the run can no longer write.
        Ok(Some(Claimed { lease, loaded, doubt_at: self.now }))
    }

    /// Skips an entry that contradicts its run in the same snapshot: otherwise it would come first in every claim.
    fn skip_if_stale(&self, entry: IndexEntry, held: &mut SqliteHeldLeases) -> Result<(), SqliteError> {
        let IndexEntry { index, at, row } = entry;
        let mut statement = self.connection.prepare_cached(index.has_entry())?;
        if statement.query_row([at, row], |found| found.get(0))? {
            let index = index.name();
            tracing::error!(row, index, "skipped an entry of a damaged index; run `holdpoint doctor`");
            held.skip(entry.skip_key());
        }
        Ok(())
    }

    /// Claims from this index (runs that were woken, were interrupted or lost their worker) and from the index of
    /// deadlines, in the order in which the runs became ready.
    fn claim_woken(
        &self,
        index: ClaimIndex,
        limit: usize,
        claimed: &mut Vec<Claimed>,
        progress: &mut ClaimProgress,
    ) {
        loop {
            let missing = limit.saturating_sub(claimed.len());
            let mut candidates = Vec::new();
            for index in [index, ClaimIndex::Due] {
                if let Err(error) = self.candidates(index, missing, progress, &mut candidates) {
                    progress.note(error);
                }
            }
            // Other workers may have claimed all of these first; then the loop looks for more.
            if candidates.is_empty() {
                return;
            }
            candidates.sort_unstable_by_key(IndexEntry::order_key);
            for entry in candidates.into_iter().take(missing) {
                progress.tried.insert(entry.skip_key());
                match self.take(entry.row, ClaimCondition::Ready(Some(entry))) {
                    Ok(taken) => claimed.extend(taken),
                    Err(error) => progress.note(error),
                }
            }
        }
    }

    /// Adds the index's first entries whose runs no worker holds, without those already tried. Stops at the first entry
    /// that is not due yet. Entries found before an error are kept.
    fn candidates(
        &self,
        index: ClaimIndex,
        limit: usize,
        progress: &ClaimProgress,
        candidates: &mut Vec<IndexEntry>,
    ) -> Result<(), SqliteError> {
        let mut missing = limit;
        self.walk(index, progress.not_woken(), |entry| {
            if matches!(index, ClaimIndex::Due) && entry.at > millis(self.now) || missing == 0 {
                return ControlFlow::Break(());
            }
            if !progress.tried.contains(&entry.skip_key()) {
                candidates.push(entry);
                missing -= 1;
            }
            ControlFlow::Continue(())
        })
    }

    /// Walks along an index, skipping held runs and damaged entries.
    fn walk(
        &self,
        index: ClaimIndex,
        but: Option<&Tenant>,
        mut each: impl FnMut(IndexEntry) -> ControlFlow<()>,
    ) -> Result<(), SqliteError> {
        let (sql, parameters) = match (index, but) {
            (ClaimIndex::Woken, Some(tenant)) => {
                (include_str!("sql/claim_woken_of_others.sql"), vec![text(tenant)])
            }
            // Without the bound, the scan would walk past all of this tenant's deadlines.
            (ClaimIndex::Due, Some(tenant)) => (
                include_str!("sql/claim_due_of_others.sql"),
                vec![text(tenant), Value::Integer(millis(self.now))],
            ),
            // A claim of interrupted runs skips no tenant.
            (ClaimIndex::Woken | ClaimIndex::Due, None) | (ClaimIndex::Interrupted, _) => {
                (index.in_order(), Vec::new())
            }
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(parameters))?;
        while let Some(columns) = rows.next()? {
            let entry = IndexEntry { index, row: columns.get(0)?, at: columns.get(1)? };
            let held = self.leases.lock();
            let passed = held.is_held(entry.row)
                || held.is_skipped(SkipKey::Run(entry.row))
                || held.is_skipped(entry.skip_key());
            drop(held);
            if !passed && each(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Claims queued runs that hold their thread, one tenant after the other.
    fn claim_startable(
        &self,
        limit: usize,
        claimed: &mut Vec<Claimed>,
        progress: &mut ClaimProgress,
    ) -> Result<(), SqliteError> {
        // How far each tenant's queue has been scanned.
        let mut seen: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        let mut tenant = self.turn.last();
        let mut found_in_round = true;
        while claimed.len() < limit {
            let Some(next) = self.tenant_after(tenant.as_deref())? else {
                if !found_in_round {
                    return Ok(());
                }
                // Starts again with the first tenant, as long as a round finds anything.
                found_in_round = false;
                tenant = None;
                continue;
            };
            if progress.not_startable(&next) {
                tenant = Some(next);
                continue;
            }
            let place = seen.entry(next.clone()).or_insert((i64::MIN, i64::MIN));
            while let Some((row, ready_at)) = self.startable_after(&next, *place)? {
                *place = (ready_at, row);
                found_in_round = true;
                if self.leases.lock().is_skipped(SkipKey::Run(row)) {
                    continue;
                }
                match self.take(row, ClaimCondition::Ready(None)) {
                    Ok(Some(taken)) => {
                        claimed.push(taken);
                        self.turn.pass(&next);
                        break;
                    }
                    Ok(None) => {}
                    Err(error) => progress.note(error),
                }
            }
            tenant = Some(next);
        }
        Ok(())
    }

    /// The next tenant with a queued run; the first one if none is given.
    fn tenant_after(&self, tenant: Option<&str>) -> Result<Option<String>, SqliteError> {
        let Some(tenant) = tenant else {
            let first = "SELECT min(tenant) FROM runs WHERE ready = 2";
            return Ok(self.connection.prepare_cached(first)?.query_row([], |row| row.get(0))?);
        };
        let mut statement = self.connection.prepare_cached(include_str!("sql/claim_tenant.sql"))?;
        Ok(statement.query_row([tenant], |row| row.get(0)).optional()?)
    }

    fn startable_after(
        &self,
        tenant: &str,
        (ready_at, row): (i64, i64),
    ) -> Result<Option<(i64, i64)>, SqliteError> {
        let mut statement = self.connection.prepare_cached(include_str!("sql/claim_startable.sql"))?;
        let found = statement.query_row(params![tenant, ready_at, row], |row| Ok((row.get(0)?, row.get(1)?)));
        Ok(found.optional()?)
    }

    pub(super) fn next_wake(&self) -> Result<Option<Timestamp>, SqliteError> {
        let mut first = None;
        self.walk(ClaimIndex::Due, None, |entry| {
            first = Some(timestamp(entry.at));
            ControlFlow::Break(())
        })?;
        Ok(first)
    }
}

fn text(tenant: &Tenant) -> Value {
    Value::Text(tenant.as_str().to_owned())
}

/// The stored run, for the worker that holds it.
pub(super) fn load(
    connection: &Connection,
    leases: &SqliteLeases,
    lease: &Lease,
) -> Result<Loaded, SqliteError> {
    let snapshot = connection.unchecked_transaction()?;
    if !leases.is_current(lease) {
        return Err(StoreError::Fenced.into());
    }
    let run = SqliteStoredRun::find(connection, lease.row)?;
    let run = run.ok_or_else(|| corrupt(format!("run number {} is gone", lease.row)))?;
    let loaded = run.load(connection)?;
    drop(snapshot);
    Ok(loaded)
}

/// Result of a release that was attempted without a commit.
pub(super) enum Released {
    Yes,
    No,
    /// The file does not record that the run waits for a worker. That must be written first.
    NeedsCommit,
}

pub(super) fn release(
    connection: &Connection,
    leases: &SqliteLeases,
    lease: &Lease,
) -> Result<Released, SqliteError> {
    // Locked until the release is done: if an item is committed meanwhile, the claim that follows it finds the run
    // free.
    let mut held = leases.lock();
    if !held.is_current(lease) {
        return Err(StoreError::Fenced.into());
    }
    let run = SqliteStoredRun::find(connection, lease.row)?;
    let run = run.ok_or_else(|| corrupt(format!("run number {} is gone", lease.row)))?;
    if run.has_items {
        return Ok(Released::No);
    }
    let is_stalled = match run.status.as_str() {
        "running" | "interrupting" => true,
        "queued" => run.holds,
        _ => false,
    };
    if is_stalled && run.ready == 0 {
        return Ok(Released::NeedsCommit);
    }
    held.release(lease.row, run.epoch);
    Ok(Released::Yes)
}

/// Releases a run that is still runnable, and records this in the file, so that the next claim finds it.
pub(super) fn release_unfinished(tx: &WriteTx<'_>, lease: &Lease) -> Result<bool, SqliteError> {
    tx.check_lease(lease)?;
    if SqliteStoredRun::find(tx.connection(), lease.row)?.is_some_and(|run| run.has_items) {
        return Ok(false);
    }
    abandon(tx, lease)?;
    Ok(true)
}

/// Releases the run even if its inbox has items. The next worker processes these first.
pub(super) fn abandon(tx: &WriteTx<'_>, lease: &Lease) -> Result<bool, SqliteError> {
    tx.check_lease(lease)?;
    let run = SqliteStoredRun::find(tx.connection(), lease.row)?;
    let run = run.ok_or_else(|| corrupt(format!("run number {} is gone", lease.row)))?;
    tx.execute(include_str!("sql/run_release.sql"), params![lease.row, tx.next_arrival()])?;
    tx.release_after_commit(lease.row, run.epoch);
    Ok(true)
}
