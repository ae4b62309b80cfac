//! Which run a worker gets next: urgent runs, then queued ones, one tenant after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use engine::store::{Claimed, Lease, SkipTenant, StoreError, Tenant};
use machine::Timestamp;

use super::state::{MemoryRun, MemoryState, RunRowId, missing_run};

#[derive(Debug, Default)]
pub(super) struct ReadyQueues {
    /// Runs that were woken, were interrupted or lost their worker, in the order in which that happened.
    urgent: BTreeSet<(Timestamp, u64, RunRowId)>,
    /// Queued runs that are first on their thread.
    queued: BTreeMap<Tenant, BTreeSet<(u64, RunRowId)>>,
    /// Deadlines of all runs that no worker holds.
    wakes: BTreeSet<(Timestamp, RunRowId)>,
    /// The tenant whose queued run was claimed last.
    served: Option<Tenant>,
    last_arrival: u64,
}

/// The queue that a run should be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    NotQueued,
    Urgent,
    Queued,
}

/// A run's position in the queues, so that it is found without a search.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueuePosition {
    entry: QueueEntry,
    wake_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default)]
enum QueueEntry {
    #[default]
    NotQueued,
    Urgent(Timestamp, u64),
    Queued(u64),
}

impl QueueEntry {
    const fn kind(self) -> QueueKind {
        match self {
            Self::NotQueued => QueueKind::NotQueued,
            Self::Urgent(..) => QueueKind::Urgent,
            Self::Queued(_) => QueueKind::Queued,
        }
    }
}

impl ReadyQueues {
    /// A run that stays in the same queue keeps its position.
    pub(super) fn put(
        &mut self,
        row: RunRowId,
        run: &mut MemoryRun,
        kind: QueueKind,
        wake_at: Option<Timestamp>,
        now: Timestamp,
    ) {
        if run.position.wake_at != wake_at {
            if let Some(at) = run.position.wake_at {
                self.wakes.remove(&(at, row));
            }
            if let Some(at) = wake_at {
                self.wakes.insert((at, row));
            }
            run.position.wake_at = wake_at;
        }
        if run.position.entry.kind() == kind {
            return;
        }
        match run.position.entry {
            QueueEntry::NotQueued => {}
            QueueEntry::Urgent(at, arrival) => {
                self.urgent.remove(&(at, arrival, row));
            }
            QueueEntry::Queued(arrival) => self.leave_queue(&run.tenant, (arrival, row)),
        }
        self.last_arrival += 1;
        let arrival = self.last_arrival;
        run.position.entry = match kind {
            QueueKind::NotQueued => QueueEntry::NotQueued,
            QueueKind::Urgent => {
                self.urgent.insert((now, arrival, row));
                QueueEntry::Urgent(now, arrival)
            }
            QueueKind::Queued => {
                self.queued.entry(run.tenant.clone()).or_default().insert((arrival, row));
                QueueEntry::Queued(arrival)
            }
        };
    }

    fn leave_queue(&mut self, tenant: &Tenant, entry: (u64, RunRowId)) {
        if let Some(queue) = self.queued.get_mut(tenant) {
            queue.remove(&entry);
            if queue.is_empty() {
                self.queued.remove(tenant);
            }
        }
    }

    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// The first due run that may be claimed, or the first eligible urgent run, whichever became ready
    /// first.
    fn next_urgent(
        &self,
        now: Timestamp,
        is_eligible: impl Fn(RunRowId) -> bool,
        may_be_due: impl Fn(RunRowId) -> bool,
    ) -> Option<RunRowId> {
        let mut due = self.wakes.iter().take_while(|(at, _)| *at <= now);
        let due = due.find(|(_, row)| may_be_due(*row));
        match (self.urgent.iter().find(|(_, _, row)| is_eligible(*row)), due) {
            (Some((since, _, _)), Some((at, row))) if at < since => Some(*row),
            (Some((_, _, row)), _) | (None, Some((_, row))) => Some(*row),
            (None, None) => None,
        }
    }

    fn next_queued(&mut self, pass_over: Option<&Tenant>) -> Option<RunRowId> {
        let after = self.served.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let in_turn = self.queued.range((after, Bound::Unbounded)).chain(&self.queued);
        let (tenant, queue) = in_turn.into_iter().find(|(tenant, _)| Some(*tenant) != pass_over)?;
        let row = queue.first().map(|(_, row)| *row);
        self.served = Some(tenant.clone());
        row
    }
}

impl MemoryState {
    pub(super) fn claim_next(
        &mut self,
        limit: usize,
        pass_over: Option<&SkipTenant>,
        now: Timestamp,
    ) -> Result<Vec<Claimed>, StoreError> {
        let not_woken = pass_over.filter(|full| full.woken).map(|full| &full.tenant);
        let not_queued = pass_over.map(|full| &full.tenant);
        let mut claimed = Vec::new();
        while claimed.len() < limit {
            let is_eligible =
                |row: RunRowId| self.runs.get(&row).is_none_or(|run| Some(&run.tenant) != not_woken);
            let urgent = self.ready.next_urgent(now, is_eligible, is_eligible);
            let Some(row) = urgent.or_else(|| self.ready.next_queued(not_queued)) else { break };
            claimed.push(self.lease_run(row, now)?);
        }
        Ok(claimed)
    }

    pub(super) fn claim_urgent(&mut self, limit: usize, now: Timestamp) -> Result<Vec<Claimed>, StoreError> {
        let mut claimed = Vec::new();
        while claimed.len() < limit {
            let is_interrupted = |row| self.runs.get(&row).is_some_and(|run| run.interrupt_accepted);
            let Some(row) = self.ready.next_urgent(now, is_interrupted, |_| true) else { break };
            claimed.push(self.lease_run(row, now)?);
        }
        Ok(claimed)
    }

    /// Leases the run to one worker. The new epoch fences off the previous holder.
    pub(super) fn lease_run(&mut self, row: RunRowId, now: Timestamp) -> Result<Claimed, StoreError> {
        let loaded = self.load(row)?;
        let run = self.runs.get_mut(&row).ok_or_else(|| missing_run(row))?;
        run.epoch += 1;
        run.held = true;
        let lease = Lease {
            tenant: run.tenant.clone(),
            thread: run.thread.clone(),
            run: run.id.clone(),
            epoch: run.epoch,
            row,
        };
        self.update_queues(row, now);
        // A lease ends with the process that holds it, so the previous worker can no longer send anything.
        Ok(Claimed { lease, loaded: Ok(loaded), doubt_at: now })
    }
}
