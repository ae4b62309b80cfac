//! Errors that end the examination of one item, of one snapshot, or of everything.

use engine::store::{StoreError, StoreFailure};

use super::finding::FindingCode;

/// The stored data cannot be read, or is inconsistent.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: FindingCode,
    pub(crate) what: String,
}

pub(crate) fn new_fault(code: FindingCode, what: impl Into<String>) -> Fault {
    Fault { code, what: what.into() }
}

#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "a file always answers"))]
pub(crate) enum ExamineError {
    /// The snapshot is still readable.
    Broken(Fault),
    /// The database cannot read what it wrote, and the snapshot is over.
    Damaged(String),
    /// The database does not answer: nothing is known about the data.
    Refused(StoreError),
}

impl ExamineError {
    /// What to report about the item. An error that prevents further reading is returned.
    pub(crate) fn into_fault(self) -> Result<Fault, StoreError> {
        match self {
            Self::Broken(fault) => Ok(fault),
            Self::Damaged(what) => Ok(new_fault(FindingCode::FileDamaged, what)),
            Self::Refused(refused) => Err(refused),
        }
    }
}

impl From<Fault> for ExamineError {
    fn from(fault: Fault) -> Self {
        Self::Broken(fault)
    }
}

/// A stored value that cannot be decoded is a finding. Any other error of a store prevents further reading.
pub(crate) fn unreadable_or_refused(error: StoreError) -> ExamineError {
    match error {
        StoreError::Failed(StoreFailure::Corrupt(why)) => new_fault(FindingCode::Unreadable, why).into(),
        other @ (StoreError::Failed(StoreFailure::Unavailable(_) | StoreFailure::Full(_))
        | StoreError::Fenced
        | StoreError::Behind
        | StoreError::Stale
        | StoreError::Busy(_)
        | StoreError::Impossible(_)
        | StoreError::NotFound) => ExamineError::Refused(other),
    }
}
