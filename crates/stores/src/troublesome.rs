//! Trouble with what is below a store: how often there was some, by kind, and which of it is there to stay.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::store::{Refused, Trouble, Troubles};

/// None where what is stored cannot be decoded. Any other error may pass, and says nothing about what is stored.
pub(crate) fn unless_corrupt<T, E>(read: Result<T, E>) -> Result<Option<T>, E>
where
    E: AsRef<Refused>,
{
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if matches!(error.as_ref(), Refused::Trouble(Trouble::Corrupt(_))) => Ok(None),
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

#[test]
fn only_what_cannot_be_decoded_counts_as_nothing() {
    struct Stop(Refused);
    impl AsRef<Refused> for Stop {
        fn as_ref(&self) -> &Refused {
            &self.0
        }
    }
    let read = |trouble: Trouble| unless_corrupt(Err::<u8, Stop>(Stop(trouble.into())));
    assert!(matches!(read(Trouble::Corrupt("x".into())), Ok(None)));
    assert!(matches!(read(Trouble::Unavailable("x".into())), Err(Stop(Refused::Trouble(_)))));
    assert!(matches!(read(Trouble::Full("x".into())), Err(Stop(Refused::Trouble(_)))));
    assert!(matches!(unless_corrupt(Ok::<u8, Stop>(1)), Ok(Some(1))));
}
