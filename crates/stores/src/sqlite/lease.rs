//! Who holds which run. In memory: the lock file proves that no other process has a say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::store::Lease;

pub(super) struct Leases {
    held: Mutex<Held>,
}

/// The leases while nobody else can change them.
pub(super) struct Held {
    leases: BTreeMap<i64, Lease>,
    /// Epochs of leases that were let go before anything was committed under them. The file does not know these,
    /// and they must not come again.
    unwritten: BTreeMap<i64, u64>,
    /// Higher than every epoch that an earlier process gave out, written or not, and than those of this one that are
    /// forgotten.
    first: u64,
    /// What is passed over from now on by whoever looks for runs that are ready.
    aside: BTreeSet<Aside>,
}

/// Something in the file that is damaged, and must not be in the way of the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Aside {
    /// The run in this row cannot be read.
    Run(i64),
    /// This index has an entry, for this place and row, that is not true of its run.
    Entry(&'static str, i64, i64),
}

/// Epochs that are kept apart. A run that waits must not cost memory for as long as it does.
const UNWRITTEN_MAX: usize = 4_096;

impl Leases {
    /// `opening` counts how often the file was opened before.
    pub(super) const fn new(opening: u32) -> Self {
        let first = ((opening as u64) << 32) + 1;
        Self {
            held: Mutex::new(Held {
                leases: BTreeMap::new(),
                unwritten: BTreeMap::new(),
                first,
                aside: BTreeSet::new(),
            }),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Held> {
        // A change that a panic cut short gave a run to nobody; it did not give it to two.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_current(&self, lease: &Lease) -> bool {
        self.lock().is_current(lease)
    }
}

impl Held {
    pub(super) fn is_current(&self, lease: &Lease) -> bool {
        self.leases.get(&lease.row) == Some(lease)
    }

    pub(super) fn is_held(&self, row: i64) -> bool {
        self.leases.contains_key(&row)
    }

    /// The epoch that the next lease of a run has. `row` is none while the run is created.
    pub(super) fn next_epoch(&self, row: Option<i64>, stored: u64) -> u64 {
        let unwritten = row.and_then(|row| self.unwritten.get(&row)).copied().unwrap_or(0);
        self.first.max(stored + 1).max(unwritten + 1)
    }

    pub(super) fn give(&mut self, lease: Lease) {
        self.leases.insert(lease.row, lease);
    }

    /// `stored` is the epoch in the file.
    pub(super) fn let_go(&mut self, row: i64, stored: u64) {
        if let Some(lease) = self.leases.remove(&row) {
            if lease.epoch > stored {
                self.unwritten.insert(row, lease.epoch);
                if self.unwritten.len() > UNWRITTEN_MAX {
                    let highest = self.unwritten.values().copied().max().unwrap_or(0);
                    self.first = self.first.max(highest + 1);
                    self.unwritten.clear();
                }
            } else {
                self.unwritten.remove(&row);
            }
        }
    }

    pub(super) fn set_aside(&mut self, damaged: Aside) {
        self.aside.insert(damaged);
    }

    pub(super) fn is_aside(&self, damaged: Aside) -> bool {
        self.aside.contains(&damaged)
    }

    /// Of a run that has ended, or never came to be: nobody claims it any more.
    pub(super) fn forget(&mut self, row: i64) {
        self.leases.remove(&row);
        self.unwritten.remove(&row);
    }
}

#[cfg(test)]
mod tests {
    use engine::store::Tenant;

    use super::*;

    #[test]
    fn however_many_runs_are_let_go_unwritten_their_epochs_never_come_again_and_few_are_kept() {
        let leases = Leases::new(0);
        let mut held = leases.lock();
        let mut let_go = |row: i64| {
            let epoch = held.next_epoch(Some(row), 0);
            let lease =
                Lease { tenant: Tenant::default(), thread: "thr".into(), run: "run".into(), epoch, row };
            held.give(lease);
            held.let_go(row, 0);
            assert!(held.unwritten.len() <= UNWRITTEN_MAX);
            epoch
        };
        let rows = i64::try_from(UNWRITTEN_MAX).map_or(i64::MAX, |max| 2 * max);
        let first: Vec<u64> = (0..rows).map(&mut let_go).collect();
        for (row, epoch) in (0..rows).zip(first) {
            assert!(let_go(row) > epoch, "row {row}");
        }
    }
}
