//! Trouble with what is below a store: how often there was some, by kind, and which of it is there to stay.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::store::{FailureCounts, StoreError, StoreFailure};

/// None where what is stored cannot be decoded. Any other error may pass, and says nothing about what is stored.
pub(crate) fn unless_corrupt<T, E>(read: Result<T, E>) -> Result<Option<T>, E>
where
    E: AsRef<StoreError>,
{
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if matches!(error.as_ref(), StoreError::Failed(StoreFailure::Corrupt(_))) => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Debug, Default)]
pub(crate) struct Troublesome {
    unavailable: AtomicU64,
    full: AtomicU64,
    corrupt: AtomicU64,
}

impl Troublesome {
    pub(crate) fn heard<T>(&self, result: &Result<T, StoreError>) {
        if let Err(StoreError::Failed(trouble)) = result {
            self.count(trouble, 1);
        }
    }

    /// So many asked, and met the same trouble.
    pub(crate) fn count(&self, trouble: &StoreFailure, asked: usize) {
        let count = match trouble {
            StoreFailure::Unavailable(_) => &self.unavailable,
            StoreFailure::Full(_) => &self.full,
            StoreFailure::Corrupt(_) => &self.corrupt,
        };
        count.fetch_add(asked as u64, Ordering::Relaxed);
    }

    pub(crate) fn seen(&self) -> FailureCounts {
        FailureCounts {
            unavailable: self.unavailable.load(Ordering::Relaxed),
            full: self.full.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
        }
    }
}

#[test]
fn only_what_cannot_be_decoded_counts_as_nothing() {
    struct Stop(StoreError);
    impl AsRef<StoreError> for Stop {
        fn as_ref(&self) -> &StoreError {
            &self.0
        }
    }
    let read = |trouble: StoreFailure| unless_corrupt(Err::<u8, Stop>(Stop(trouble.into())));
    assert!(matches!(read(StoreFailure::Corrupt("x".into())), Ok(None)));
    assert!(matches!(read(StoreFailure::Unavailable("x".into())), Err(Stop(StoreError::Failed(_)))));
    assert!(matches!(read(StoreFailure::Full("x".into())), Err(Stop(StoreError::Failed(_)))));
    assert!(matches!(unless_corrupt(Ok::<u8, Stop>(1)), Ok(Some(1))));
}
