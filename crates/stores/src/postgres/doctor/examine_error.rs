//! What ends the reading of one thing, of one moment, or of everything.

use engine::store::{StoreError, StoreFailure};

use crate::doctor::Fault;
use crate::postgres::errors::PostgresError;

pub(super) enum ExamineError {
    /// What is there cannot be. The moment can be read on.
    Broken(Fault),
    /// The database cannot read what it wrote, and the moment is over.
    Damaged(String),
    /// The database does not answer: nobody knows what is there.
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
