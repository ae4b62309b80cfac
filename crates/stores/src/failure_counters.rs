//! Failures of the database or disk below a store: counts them by kind, and separates permanent from temporary ones.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::store::{FailureCounts, StoreError, StoreFailure};

/// `None` if the stored data cannot be decoded. Any other error may be temporary, and does not mean damaged data.
pub(crate) fn none_if_corrupt<T, E>(read: Result<T, E>) -> Result<Option<T>, E>
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
pub(crate) struct FailureCounters {
    unavailable: AtomicU64,
    full: AtomicU64,
    corrupt: AtomicU64,
}

impl FailureCounters {
    pub(crate) fn count_result<T>(&self, result: &Result<T, StoreError>) {
        if let Err(StoreError::Failed(trouble)) = result {
            self.count(trouble, 1);
        }
    }

    /// Counts a failure that affected `asked` callers.
    pub(crate) fn count(&self, trouble: &StoreFailure, asked: usize) {
        let count = match trouble {
            StoreFailure::Unavailable(_) => &self.unavailable,
            StoreFailure::Full(_) => &self.full,
            StoreFailure::Corrupt(_) => &self.corrupt,
        };
        count.fetch_add(asked as u64, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> FailureCounts {
        FailureCounts {
            unavailable: self.unavailable.load(Ordering::Relaxed),
            full: self.full.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
        }
    }
}

#[test]
fn only_corrupt_reads_become_none() {
    struct TestError(StoreError);
    impl AsRef<StoreError> for TestError {
        fn as_ref(&self) -> &StoreError {
            &self.0
        }
    }
    let read = |trouble: StoreFailure| none_if_corrupt(Err::<u8, TestError>(TestError(trouble.into())));
    assert!(matches!(read(StoreFailure::Corrupt("x".into())), Ok(None)));
    assert!(matches!(read(StoreFailure::Unavailable("x".into())), Err(TestError(StoreError::Failed(_)))));
    assert!(matches!(read(StoreFailure::Full("x".into())), Err(TestError(StoreError::Failed(_)))));
    assert!(matches!(none_if_corrupt(Ok::<u8, TestError>(1)), Ok(Some(1))));
}
