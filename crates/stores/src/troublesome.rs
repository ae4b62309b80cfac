//! How often the world was in the way of a store, by kind.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::store::{Refused, Trouble, Troubles};

#[derive(Debug, Default)]
pub(crate) struct Troublesome {
    unavailable: AtomicU64,
    full: AtomicU64,
    corrupt: AtomicU64,
}

impl Troublesome {
    pub(crate) fn heard<T>(&self, result: &Result<T, Refused>) {
        if let Err(Refused::Trouble(trouble)) = result {
            self.count(trouble, 1);
        }
    }

    /// So many asked, and met the same trouble.
    pub(crate) fn count(&self, trouble: &Trouble, asked: usize) {
        let count = match trouble {
            Trouble::Unavailable(_) => &self.unavailable,
            Trouble::Full(_) => &self.full,
            Trouble::Corrupt(_) => &self.corrupt,
        };
        count.fetch_add(asked as u64, Ordering::Relaxed);
    }

    pub(crate) fn seen(&self) -> Troubles {
        Troubles {
            unavailable: self.unavailable.load(Ordering::Relaxed),
            full: self.full.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
        }
    }
}
