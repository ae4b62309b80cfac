//! Which worker holds which run. Kept in memory: the lock file proves that no other process uses the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::store::Lease;

pub(super) struct SqliteLeases {
    held: Mutex<SqliteHeldLeases>,
}

/// The leases, while locked.
pub(super) struct SqliteHeldLeases {
    leases: BTreeMap<i64, Lease>,
    /// Epochs of leases that were released before anything was committed under them. The file does not contain
    /// them, and they must not be reused.
    unwritten_epochs: BTreeMap<i64, u64>,
    /// Higher than every epoch that an earlier process used, written or not, and than every epoch dropped from
    /// `unwritten_epochs`.
    first_epoch: u64,
    /// Skipped from now on when looking for runs that are ready.
    skipped: BTreeSet<SkipKey>,
}

/// Something damaged in the file that must not block the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SkipKey {
    /// The run in this row cannot be read.
    Run(i64),
    /// This index has an entry, with this position and row, that contradicts its run.
    Entry(&'static str, i64, i64),
}

/// Maximum number of unwritten epochs kept. A waiting run must not cost memory for as long as it waits.
const UNWRITTEN_EPOCH_MAX: usize = 4_096;

impl SqliteLeases {
    /// `opening` is the number of times the file was opened before.
    pub(super) const fn new(opening: u32) -> Self {
        let first_epoch = ((opening as u64) << 32) + 1;
        Self {
            held: Mutex::new(SqliteHeldLeases {
                leases: BTreeMap::new(),
                unwritten_epochs: BTreeMap::new(),
                first_epoch,
                skipped: BTreeSet::new(),
            }),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SqliteHeldLeases> {
        // A panic in the middle of a change can leave a run without a holder, but never with two.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_current(&self, lease: &Lease) -> bool {
        self.lock().is_current(lease)
    }
}

impl SqliteHeldLeases {
    pub(super) fn is_current(&self, lease: &Lease) -> bool {
        self.leases.get(&lease.row) == Some(lease)
    }

    pub(super) fn is_held(&self, row: i64) -> bool {
        self.leases.contains_key(&row)
    }

    /// The epoch of the run's next lease. `row` is none while the run is being created.
    pub(super) fn next_epoch(&self, row: Option<i64>, stored: u64) -> u64 {
        let unwritten_epoch = row.and_then(|row| self.unwritten_epochs.get(&row)).copied().unwrap_or(0);
        self.first_epoch.max(stored + 1).max(unwritten_epoch + 1)
    }

    pub(super) fn add(&mut self, lease: Lease) {
        self.leases.insert(lease.row, lease);
    }

    /// `stored` is the epoch in the file.
    pub(super) fn release(&mut self, row: i64, stored: u64) {
        if let Some(lease) = self.leases.remove(&row) {
            if lease.epoch > stored {
                self.unwritten_epochs.insert(row, lease.epoch);
                if self.unwritten_epochs.len() > UNWRITTEN_EPOCH_MAX {
                    let highest = self.unwritten_epochs.values().copied().max().unwrap_or(0);
                    self.first_epoch = self.first_epoch.max(highest + 1);
                    self.unwritten_epochs.clear();
                }
            } else {
                self.unwritten_epochs.remove(&row);
            }
        }
    }

    pub(super) fn skip(&mut self, key: SkipKey) {
        self.skipped.insert(key);
    }

    pub(super) fn is_skipped(&self, key: SkipKey) -> bool {
        self.skipped.contains(&key)
    }

    /// For a run that has ended or was never created: it is never claimed again.
    pub(super) fn forget(&mut self, row: i64) {
        self.leases.remove(&row);
        self.unwritten_epochs.remove(&row);
    }
}

#[cfg(test)]
mod tests {
    use engine::store::Tenant;

    use super::*;

    #[test]
    fn released_unwritten_epochs_never_repeat_and_few_are_kept() {
        let leases = SqliteLeases::new(0);
        let mut held = leases.lock();
        let mut release = |row: i64| {
            let epoch = held.next_epoch(Some(row), 0);
            let lease =
                Lease { tenant: Tenant::default(), thread: "thr".into(), run: "run".into(), epoch, row };
            held.add(lease);
            held.release(row, 0);
            assert!(held.unwritten_epochs.len() <= UNWRITTEN_EPOCH_MAX);
            epoch
        };
        let rows = i64::try_from(UNWRITTEN_EPOCH_MAX).map_or(i64::MAX, |max| 2 * max);
        let first: Vec<u64> = (0..rows).map(&mut release).collect();
        for (row, epoch) in (0..rows).zip(first) {
            assert!(release(row) > epoch, "row {row}");
        }
    }
}
