//! Errors that end the examination of one item, of one snapshot, or of everything.

use engine::store::{StoreError, StoreFailure};

use crate::doctor::Fault;
use crate::postgres::errors::PostgresError;

pub(super) enum ExamineError {
    /// The stored data is inconsistent. The snapshot is still readable.
    Broken(Fault),
    /// The database cannot read what it wrote, and the snapshot is over.
    Damaged(String),
    /// The database does not answer: nothing is known about the data.
    Refused(StoreError),
}

impl From<Fault> for ExamineError {
    fn from(fault: Fault) -> Self {
        Self::Broken(fault)
    }
}

impl From<PostgresError> for ExamineError {
    fn from(PostgresError(refused): PostgresError) -> Self {
        match refused {
            StoreError::Failed(StoreFailure::Corrupt(what)) => Self::Damaged(what),
            other @ (StoreError::Failed(StoreFailure::Unavailable(_) | StoreFailure::Full(_))
            | StoreError::Fenced
            | StoreError::Behind
            | StoreError::Stale
            | StoreError::Busy(_)
            | StoreError::Impossible(_)
            | StoreError::NotFound) => Self::Refused(other),
        }
    }
}

impl From<tokio_postgres::Error> for ExamineError {
    fn from(error: tokio_postgres::Error) -> Self {
        PostgresError::from(error).into()
    }
}
