//! What SQLite's own errors mean to whoever asked the store.

use std::fmt;
use std::path::PathBuf;

use engine::store::{Refused, Trouble};
use rusqlite::ErrorCode;

/// Stops a command or a read. SQLite's errors turn into it by themselves.
#[derive(Debug)]
pub(super) struct Stop(pub(super) Refused);

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self(refused)
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // The tables refuse what cannot be: whoever wrote it made a mistake.
            Some(ErrorCode::ConstraintViolation) => Self(Refused::Impossible(error.to_string())),
            Some(_) | None => Self(Refused::Trouble(trouble(&error))),
        }
    }
}

pub(super) fn impossible(why: impl Into<String>) -> Stop {
    Stop(Refused::Impossible(why.into()))
}

pub(super) fn corrupt(why: impl Into<String>) -> Stop {
    Stop(Refused::Trouble(Trouble::Corrupt(why.into())))
}

pub(super) fn trouble(error: &rusqlite::Error) -> Trouble {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Trouble::Full(text),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Trouble::Corrupt(text),
        Some(_) => Trouble::Unavailable(text),
        // Not SQLite but the reading of a row: a column that has another type than it was written with.
        None => Trouble::Corrupt(text),
    }
}

/// After these nothing was stored and the next commit may work. After any other failure of a commit or a sync
/// nobody knows what the file holds.
pub(super) fn leaves_the_file_as_it_was(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Why a file could not be opened as a store.
#[derive(Debug)]
pub enum OpenFailed {
    /// Another process, or another store in this one, works with the file.
    InUse {
        lock: PathBuf,
    },
    /// Written by a later version of this software.
    Newer {
        found: u32,
        known: u32,
    },
    Lock {
        lock: PathBuf,
        why: std::io::Error,
    },
    /// The file system cannot keep the log that durability rests on.
    NoLog {
        mode: String,
    },
    Trouble(Trouble),
}

impl fmt::Display for OpenFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { lock } => write!(
                f,
                "the store is in use: {} is locked by another process or by another store of this one; stop that one first",
                lock.display()
            ),
            Self::Newer { found, known } => write!(
                f,
                "the store has version {found} and this software knows versions up to {known}; use a later version of it"
            ),
            Self::NoLog { mode } => write!(
                f,
                "the store needs a write-ahead log and its file system offers only {mode}; put it on a local disk"
            ),
            Self::Lock { lock, why } => write!(f, "the lock file {} cannot be used: {why}", lock.display()),
            Self::Trouble(trouble) => trouble.fmt(f),
        }
    }
}

impl std::error::Error for OpenFailed {}

impl From<rusqlite::Error> for OpenFailed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Trouble(trouble(&error))
    }
}
