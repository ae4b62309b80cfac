//! Runs of other nodes that clients of this node read. Without polling, a lost notification would make those clients
//! wait forever. Reads reveal these runs: a client that has read to the end without seeing the run end waits for more.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use machine::id::RunId;

/// Beyond this the oldest are forgotten; only their clients are affected by a lost notification.
const COUNT_MAX: usize = 8_192;
/// Runs checked by one poll; the others have their turn with the next ones.
const POLL_COUNT: usize = 256;

#[derive(Default)]
pub(super) struct WatchedRuns {
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    by_number: BTreeMap<i64, ReadPosition>,
    by_age: BTreeMap<u64, i64>,
    last_age: u64,
    /// The run number at which the next poll begins.
    next: i64,
}

struct ReadPosition {
    id: RunId,
    seq: i64,
    age: u64,
}

impl Runs {
    fn remove(&mut self, run: i64) -> Option<ReadPosition> {
        let read = self.by_number.remove(&run)?;
        self.by_age.remove(&read.age);
        Some(read)
    }
}

impl WatchedRuns {
    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has read up to `seq`, and there was no more.
    pub(super) fn record_read(&self, run: i64, id: &RunId, seq: i64) {
        let mut runs = self.lock();
        runs.remove(run);
        runs.last_age += 1;
        let age = runs.last_age;
        runs.by_age.insert(age, run);
        runs.by_number.insert(run, ReadPosition { id: id.clone(), seq, age });
        if runs.by_number.len() > COUNT_MAX
            && let Some((_, oldest)) = runs.by_age.pop_first()
        {
            runs.by_number.remove(&oldest);
        }
    }

    /// The run has ended, or its reader was notified: a reader that wants more reads again.
    pub(super) fn forget(&self, run: i64) -> Option<RunId> {
        self.lock().remove(run).map(|read| read.id)
    }

    /// The next runs to poll, with the position up to which each was read.
    pub(super) fn next_batch(&self) -> (Vec<i64>, Vec<i64>) {
        let mut runs = self.lock();
        let from = runs.next;
        let behind = runs.by_number.range(from..);
        let before = runs.by_number.range((Bound::Unbounded, Bound::Excluded(from)));
        let some: Vec<(i64, i64)> =
            behind.chain(before).take(POLL_COUNT).map(|(run, read)| (*run, read.seq)).collect();
        runs.next = some.last().map_or(0, |(run, _)| run.saturating_add(1));
        some.into_iter().unzip()
    }

    /// The ids of all watched runs.
    pub(super) fn ids(&self) -> Vec<RunId> {
        self.lock().by_number.values().map(|read| read.id.clone()).collect()
    }

    /// Removes and returns all of them: it is unknown which notifications were lost meanwhile.
    pub(super) fn take_all(&self) -> Vec<RunId> {
        let runs = std::mem::take(&mut *self.lock());
        runs.by_number.into_values().map(|read| read.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_its_turn_and_the_oldest_are_forgotten() {
        let watched = WatchedRuns::default();
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
