//! Who works on which run. The leases are locked first and the file is read afterwards, so that a claim sees
//! everything that was committed before it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use engine::store::{Claim, Claimed, Lease, Loaded, Refused, Trouble};
use machine::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::desk::Desk;
use super::lease::Leases;
use super::stored_run::StoredRun;
use super::trouble::{Stop, corrupt};
use crate::words::{millis, timestamp};

/// The tenant whose queued run was given out last; the next tenant's turn is next.
#[derive(Default)]
pub(super) struct Turn(Mutex<Option<String>>);

impl Turn {
    fn last(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn pass(&self, tenant: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tenant.to_owned());
    }
}

pub(super) struct Claims<'c> {
    pub(super) connection: &'c Connection,
    pub(super) leases: &'c Leases,
    pub(super) turn: &'c Turn,
    pub(super) now: Timestamp,
}

/// What a run must be to be given out.
#[derive(Clone, Copy)]
enum Wanted {
    Unended,
    Ready,
}

impl Claims<'_> {
    pub(super) fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, Stop> {
        match claim {
            Claim::Run { tenant, run } => {
                let mut statement =
                    self.connection.prepare_cached("SELECT row FROM runs WHERE tenant = ?1 AND id = ?2")?;
                let row: Option<i64> = statement
                    .query_row(params![tenant.as_str(), run.as_str()], |row| row.get(0))
                    .optional()?;
                match row {
                    Some(row) => Ok(self.take(row, Wanted::Unended)?.into_iter().collect()),
                    None => Ok(Vec::new()),
                }
            }
            Claim::Next { limit } => {
                let mut claimed = Vec::new();
                let looked = self
                    .claim_woken(include_str!("sql/claim_woken.sql"), *limit, &mut claimed)
                    .and_then(|()| self.claim_startable(*limit, &mut claimed));
                at_least_some(claimed, looked)
            }
            Claim::Pressing { limit } => {
                let mut claimed = Vec::new();
                let interrupted = include_str!("sql/claim_interrupted.sql");
                let looked = self.claim_woken(interrupted, *limit, &mut claimed);
                at_least_some(claimed, looked)
            }
        }
    }

    /// Gives the run out, if nobody holds it and it is what is wanted.
    fn take(&self, row: i64, wanted: Wanted) -> Result<Option<Claimed>, Stop> {
        let snapshot = self.connection.unchecked_transaction()?;
        let mut held = self.leases.lock();
        if held.is_held(row) {
            return Ok(None);
        }
        let found = StoredRun::find(self.connection, row)?.filter(|run| !run.ended);
        let Some(run) = found.filter(|run| match wanted {
            Wanted::Unended => true,
            Wanted::Ready => run.ready != 0 || run.wake_at.is_some_and(|at| at <= millis(self.now)),
        }) else {
            return Ok(None);
        };
        let stored_epoch = run.epoch;
        let lease = run.lease(held.next_epoch(Some(row), stored_epoch));
        held.give(lease.clone());
        drop(held);
        match (run.load(self.connection), wanted) {
            (Ok(loaded), _) => {
                drop(snapshot);
                // The lock file proves that whoever held the run before cannot send any more.
                Ok(Some(Claimed { lease, loaded, doubt_at: self.now }))
            }
            (Err(Stop(Refused::Trouble(Trouble::Corrupt(why)))), Wanted::Ready) => {
                // It stays held: a run that cannot be read must not keep all others from being given out.
                tracing::error!(run = %lease.run, why, "a run cannot be read and stands still");
                Ok(None)
            }
            (Err(stop), Wanted::Ready | Wanted::Unended) => {
                self.leases.lock().let_go(row, stored_epoch);
                Err(stop)
            }
        }
    }

    /// The line of those that were woken, interrupted or lost their worker, or a part of it, and what is due: in the
    /// order in which they became so.
    fn claim_woken(&self, line: &str, limit: usize, claimed: &mut Vec<Claimed>) -> Result<(), Stop> {
        let now = millis(self.now);
        loop {
            let missing = limit.saturating_sub(claimed.len());
            let mut candidates = self.candidates(line, missing, |at| (at, true))?;
            candidates.extend(self.candidates(include_str!("sql/claim_due.sql"), missing, |at| {
                (at.saturating_mul(1_000), at <= now)
            })?);
            // Another worker may have been faster with all of them; then there are others.
            if candidates.is_empty() {
                return Ok(());
            }
            candidates.sort_unstable();
            for (_, row) in candidates.into_iter().take(missing) {
                claimed.extend(self.take(row, Wanted::Ready)?);
            }
        }
    }

    /// The first runs of a line that nobody holds. `place` gives the order, and whether the line goes on.
    fn candidates(
        &self,
        sql: &str,
        limit: usize,
        place: impl Fn(i64) -> (i64, bool),
    ) -> Result<Vec<(i64, i64)>, Stop> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        let mut candidates = Vec::new();
        while candidates.len() < limit
            && let Some(columns) = rows.next()?
        {
            let (row, at): (i64, i64) = (columns.get(0)?, columns.get(1)?);
            let (place, goes_on) = place(at);
            if !goes_on {
                break;
            }
            if !self.leases.lock().is_held(row) {
                candidates.push((place, row));
            }
        }
        Ok(candidates)
    }

    /// Queued runs that hold their thread, one tenant after the other.
    fn claim_startable(&self, limit: usize, claimed: &mut Vec<Claimed>) -> Result<(), Stop> {
        // How far each tenant's line has been looked through.
        let mut seen: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        let mut tenant = self.turn.last();
        let mut found_in_round = true;
        while claimed.len() < limit {
            let Some(next) = self.tenant_after(tenant.as_deref())? else {
                if !found_in_round {
                    return Ok(());
                }
                // From the front again, as long as a round finds anything.
                found_in_round = false;
                tenant = None;
                continue;
            };
            let place = seen.entry(next.clone()).or_insert((i64::MIN, i64::MIN));
            while let Some((row, ready_at)) = self.startable_after(&next, *place)? {
                *place = (ready_at, row);
                found_in_round = true;
                if let Some(taken) = self.take(row, Wanted::Ready)? {
                    claimed.push(taken);
                    self.turn.pass(&next);
                    break;
                }
            }
            tenant = Some(next);
        }
        Ok(())
    }

    /// The next tenant with a queued run; the first one, if none is given.
    fn tenant_after(&self, tenant: Option<&str>) -> Result<Option<String>, Stop> {
        let Some(tenant) = tenant else {
            let first = "SELECT min(tenant) FROM runs WHERE ready = 2";
            return Ok(self.connection.prepare_cached(first)?.query_row([], |row| row.get(0))?);
        };
        let mut statement = self.connection.prepare_cached(include_str!("sql/claim_tenant.sql"))?;
        Ok(statement.query_row([tenant], |row| row.get(0)).optional()?)
    }

    fn startable_after(&self, tenant: &str, (ready_at, row): (i64, i64)) -> Result<Option<(i64, i64)>, Stop> {
        let mut statement = self.connection.prepare_cached(include_str!("sql/claim_startable.sql"))?;
        let found = statement.query_row(params![tenant, ready_at, row], |row| Ok((row.get(0)?, row.get(1)?)));
        Ok(found.optional()?)
    }

    pub(super) fn next_wake(&self) -> Result<Option<Timestamp>, Stop> {
        let first = self.candidates(include_str!("sql/claim_due.sql"), 1, |at| (at, true))?;
        Ok(first.first().map(|(at, _)| timestamp(*at)))
    }
}

/// What is given out by now would be held by nobody, whatever trouble came after it.
fn at_least_some(claimed: Vec<Claimed>, looked: Result<(), Stop>) -> Result<Vec<Claimed>, Stop> {
    match looked {
        Err(Stop(refused)) if !claimed.is_empty() => {
            tracing::error!(%refused, "not all that is ready could be claimed");
            Ok(claimed)
        }
        Err(stop) => Err(stop),
        Ok(()) => Ok(claimed),
    }
}

/// The run as it is stored, for whoever holds it.
pub(super) fn load(connection: &Connection, leases: &Leases, lease: &Lease) -> Result<Loaded, Stop> {
    let snapshot = connection.unchecked_transaction()?;
    if !leases.is_current(lease) {
        return Err(Refused::Fenced.into());
    }
    let run = StoredRun::find(connection, lease.row)?;
    let run = run.ok_or_else(|| corrupt(format!("run number {} is gone", lease.row)))?;
    let loaded = run.load(connection)?;
    drop(snapshot);
    Ok(loaded)
}

/// What a release came to without a commit.
pub(super) enum Released {
    Yes,
    No,
    /// Nothing in the file says that the run waits for a worker. That must be written first.
    NeedsCommit,
}

pub(super) fn release(connection: &Connection, leases: &Leases, lease: &Lease) -> Result<Released, Stop> {
    // Locked until it is done: an item that is committed meanwhile is followed by a claim, and that one finds the
    // run free.
    let mut held = leases.lock();
    if !held.is_current(lease) {
        return Err(Refused::Fenced.into());
    }
    let run = StoredRun::find(connection, lease.row)?;
    let run = run.ok_or_else(|| corrupt(format!("run number {} is gone", lease.row)))?;
    if run.has_items {
        return Ok(Released::No);
    }
    let stands_still = match run.status.as_str() {
        "running" | "interrupting" => true,
        "queued" => run.holds,
        _ => false,
    };
    if stands_still && run.ready == 0 {
        return Ok(Released::NeedsCommit);
    }
    held.let_go(lease.row, run.epoch);
    Ok(Released::Yes)
}

/// The release of a run that is not at rest: whoever claims next must find it.
pub(super) fn release_unfinished(desk: &Desk<'_>, lease: &Lease) -> Result<bool, Stop> {
    desk.check_lease(lease)?;
    if StoredRun::find(desk.connection(), lease.row)?.is_some_and(|run| run.has_items) {
        return Ok(false);
    }
    let_go(desk, lease)?;
    Ok(true)
}

/// Nobody works on it, whatever waits for it: whoever claims next hears that first.
pub(super) fn let_go(desk: &Desk<'_>, lease: &Lease) -> Result<bool, Stop> {
    desk.check_lease(lease)?;
    let run = StoredRun::find(desk.connection(), lease.row)?;
    let run = run.ok_or_else(|| corrupt(format!("run number {} is gone", lease.row)))?;
    desk.execute(include_str!("sql/run_let_go.sql"), params![lease.row, desk.arrival()])?;
    desk.let_go_after_commit(lease.row, run.epoch);
    Ok(true)
}
