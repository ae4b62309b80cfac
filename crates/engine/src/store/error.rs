//! Errors of a store.

use std::fmt;

use machine::thread::Busy;

/// Why a store refused an operation. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// Another worker holds the run, or the log has advanced.
    Fenced,
    /// An item was accepted that the worker has not seen.
    Behind,
    /// The thread has changed since the caller looked: look again.
    Stale,
    /// Unended runs of the thread prevent it.
    Busy(Busy),
    /// The rows contradict what is stored: a bug in Holdpoint.
    Impossible(String),
    /// There is nothing with this name.
    NotFound,
    Failed(StoreFailure),
}

/// An environment failure: a disk, the network, a file that another process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// A later attempt may succeed.
    Unavailable(String),
    /// No space is left.
    Full(String),
    /// Stored data cannot be read.
    Corrupt(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str("another worker holds the run, or its log has gone on"),
            Self::Behind => f.write_str("something was accepted that the worker has not seen"),
            Self::Stale => f.write_str("the thread has changed meanwhile"),
            Self::Busy(busy) => busy.fmt(f),
            Self::Impossible(why) => write!(f, "the rows contradict what is stored: {why}"),
            Self::NotFound => f.write_str("this tenant has no such run, thread or approval"),
            Self::Failed(trouble) => trouble.fmt(f),
        }
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => write!(f, "the store cannot be reached: {why}"),
            Self::Full(why) => write!(f, "the store is full: {why}"),
            Self::Corrupt(why) => write!(f, "what is stored cannot be read: {why}"),
        }
    }
}

impl std::error::Error for StoreError {}
impl std::error::Error for StoreFailure {}

impl From<StoreFailure> for StoreError {
    fn from(trouble: StoreFailure) -> Self {
        Self::Failed(trouble)
    }
}
