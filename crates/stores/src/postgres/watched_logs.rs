//! Logs that clients of this node read while other nodes may write to them: runs, and threads as lists of runs. Without
//! polling, a lost notification would make those clients wait forever. Reads reveal these logs: a client that has read
//! to the end waits for more.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::store::{LogEntry, Tenant};
use machine::event::Fact;
use machine::id::{RunId, ThreadId};

use super::PostgresShared;
use super::views::AdmittedRuns;
use crate::columns::to_i64;

/// Beyond this the oldest are forgotten; only their clients are affected by a lost notification.
const COUNT_MAX: usize = 8_192;
/// Logs checked by one poll; the others have their turn with the next ones.
const POLL_COUNT: usize = 256;

/// Watched logs by the number of their row. `Id` is what their readers call them.
pub(super) struct WatchedLogs<Id> {
    positions: Mutex<ReadPositions<Id>>,
}

struct ReadPositions<Id> {
    by_number: BTreeMap<i64, ReadPosition<Id>>,
    by_age: BTreeMap<u64, i64>,
    last_age: u64,
    /// The number at which the next poll begins.
    next: i64,
}

struct ReadPosition<Id> {
    id: Id,
    /// The last entry that was read.
    last: i64,
    age: u64,
}

impl<Id> Default for ReadPositions<Id> {
    fn default() -> Self {
        Self { by_number: BTreeMap::new(), by_age: BTreeMap::new(), last_age: 0, next: 0 }
    }
}

impl<Id> Default for WatchedLogs<Id> {
    fn default() -> Self {
        Self { positions: Mutex::default() }
    }
}

impl<Id> ReadPositions<Id> {
    fn remove(&mut self, number: i64) -> Option<ReadPosition<Id>> {
        let read = self.by_number.remove(&number)?;
        self.by_age.remove(&read.age);
        Some(read)
    }
}

impl<Id: Clone> WatchedLogs<Id> {
    fn lock(&self) -> MutexGuard<'_, ReadPositions<Id>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has read up to the entry `last`, and there was no more.
    pub(super) fn record_read(&self, number: i64, id: &Id, last: i64) {
        let mut positions = self.lock();
        positions.remove(number);
        positions.last_age += 1;
        let age = positions.last_age;
        positions.by_age.insert(age, number);
        positions.by_number.insert(number, ReadPosition { id: id.clone(), last, age });
        if positions.by_number.len() > COUNT_MAX
            && let Some((_, oldest)) = positions.by_age.pop_first()
        {
            positions.by_number.remove(&oldest);
        }
    }

    /// It has ended, or its reader was notified: a reader that wants more reads again.
    pub(super) fn forget(&self, number: i64) -> Option<Id> {
        self.lock().remove(number).map(|read| read.id)
    }

    /// The next ones to poll, with the entry up to which each was read.
    pub(super) fn next_batch(&self) -> (Vec<i64>, Vec<i64>) {
        let mut positions = self.lock();
        let from = positions.next;
        let behind = positions.by_number.range(from..);
        let before = positions.by_number.range((Bound::Unbounded, Bound::Excluded(from)));
        let some: Vec<(i64, i64)> =
            behind.chain(before).take(POLL_COUNT).map(|(number, read)| (*number, read.last)).collect();
        positions.next = some.last().map_or(0, |(number, _)| number.saturating_add(1));
        some.into_iter().unzip()
    }

    /// The ids of all of them.
    pub(super) fn ids(&self) -> Vec<Id> {
        self.lock().by_number.values().map(|read| read.id.clone()).collect()
    }

    /// Removes and returns all of them: it is unknown which notifications were lost meanwhile.
    pub(super) fn take_all(&self) -> Vec<Id> {
        let positions = std::mem::take(&mut *self.lock());
        positions.by_number.into_values().map(|read| read.id).collect()
    }
}

impl PostgresShared {
    /// A client that has read all of a run that another node holds may wait for more.
    pub(super) fn record_run_reader(
        &self,
        number: i64,
        run: &RunId,
        after: u64,
        events: &[LogEntry],
        is_all: bool,
    ) {
        let last = events.last();
        let end = last.and_then(LogEntry::readable);
        let ended = end.is_some_and(|end| matches!(end.event.fact, Fact::RunEnded { .. }));
        if ended {
            self.watched_runs.forget(number);
        } else if is_all && self.leases.for_run(number).is_none() {
            let seq = last.map_or(after, LogEntry::seq);
            self.watched_runs.record_read(number, run, to_i64(seq));
        }
    }

    /// A client that has read all runs of a thread may wait for more.
    pub(super) fn record_thread_reader(
        &self,
        tenant: Tenant,
        thread: ThreadId,
        found: &AdmittedRuns,
        limit: usize,
    ) {
        if found.runs.len() < limit {
            self.watched_threads.record_read(found.thread, &(tenant, thread), found.last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_its_turn_and_the_oldest_are_forgotten() {
        let watched = WatchedLogs::<RunId>::default();
        let count = COUNT_MAX as i64 + 10;
        for run in 0..count {
            watched.record_read(run, &RunId::from(format!("run_{run}")), 5);
        }
        watched.record_read(12, &"run_12".into(), 7);
        let mut seen = BTreeMap::new();
        for _ in 0..COUNT_MAX / POLL_COUNT {
            let (runs, seqs) = watched.next_batch();
            assert_eq!(runs.len(), POLL_COUNT);
            seen.extend(runs.into_iter().zip(seqs));
        }
        assert_eq!(seen.len(), COUNT_MAX, "each once");
        assert_eq!(seen.first_key_value(), Some((&10, &5)), "the ten oldest are gone");
        assert_eq!(seen.get(&12), Some(&7));
        assert_eq!(watched.forget(12), Some("run_12".into()));
        assert_eq!(watched.forget(12), None);
        assert_eq!(watched.take_all().len(), COUNT_MAX - 1);
        assert!(watched.next_batch().0.is_empty());
    }
}
