//! Maps SQLite's errors to those of the store.

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;

use engine::store::{StoreError, StoreFailure};
use rusqlite::ErrorCode;

/// Aborts a command or a read. SQLite's errors convert into it.
#[derive(Debug)]
pub(super) struct SqliteError(pub(super) StoreError);

impl AsRef<StoreError> for SqliteError {
    fn as_ref(&self) -> &StoreError {
        &self.0
    }
}

impl From<StoreError> for SqliteError {
    fn from(refused: StoreError) -> Self {
        Self(refused)
    }
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // A constraint of the tables was violated: the code that wrote this row has a bug.
            Some(ErrorCode::ConstraintViolation) => Self(StoreError::Impossible(error.to_string())),
            Some(_) | None => Self(StoreError::Failed(to_failure(&error))),
        }
    }
}

pub(super) fn impossible(why: impl Into<String>) -> SqliteError {
    SqliteError(StoreError::Impossible(why.into()))
}

pub(super) fn corrupt(why: impl Into<String>) -> SqliteError {
    SqliteError(StoreError::Failed(StoreFailure::Corrupt(why.into())))
}

pub(super) fn to_failure(error: &rusqlite::Error) -> StoreFailure {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreFailure::Full(text),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreFailure::Corrupt(text),
        Some(_) => StoreFailure::Unavailable(text),
        // Not an error of SQLite, but of reading a row: a column has another type than it was written with.
        None => StoreFailure::Corrupt(text),
    }
}

/// After these errors nothing was stored and the next commit may succeed. After any other failure of a commit or a sync
/// the contents of the file are unknown.
pub(super) fn leaves_file_unchanged(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Why a file could not be opened as a store.
#[derive(Debug)]
pub enum SqliteOpenError {
    /// Another process, or another store in this process, uses the file.
    InUse {
        lock: PathBuf,
    },
    /// The file belongs to another program.
    NotAStore {
        path: PathBuf,
    },
    /// Not a SQLite database, or one whose first page was overwritten.
    NotSqlite {
        path: PathBuf,
    },
    /// The folder in which to create the file does not exist.
    NoFolder {
        folder: PathBuf,
    },
    /// Written by a later version of this software.
    Newer {
        found: u32,
        known: u32,
    },
    /// The file, or the lock file beside it, cannot be created or written to.
    Unwritable {
        path: PathBuf,
        why: std::io::Error,
    },
    /// A sync has failed, so the log must restart, but another process is reading it.
    BeingRead {
        path: PathBuf,
    },
    /// The file system does not support the write-ahead log that durability depends on.
    NoWriteAheadLog {
        mode: String,
    },
    Trouble(StoreFailure),
}

impl fmt::Display for SqliteOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { lock } => write!(
                f,
                "the store is in use: {} is locked by another process or by another store of this one; stop that one first",
                lock.display()
            ),
            Self::NotAStore { path } => write!(
                f,
                "{} is not a store: another program has made it; name a store, or a file that does not exist yet",
                path.display()
            ),
            Self::NotSqlite { path } => write!(
                f,
                "{} is not a SQLite database, or its first page was overwritten; name a store, or a file that does not exist yet",
                path.display()
            ),
            Self::NoFolder { folder } => {
                write!(f, "the folder {} does not exist; make it first", folder.display())
            }
            Self::Newer { found, known } => write!(
                f,
                "the store has version {found} and this software knows versions up to {known}; use a later version of it"
            ),
            Self::NoWriteAheadLog { mode } => write!(
                f,
                "the store needs a write-ahead log and its file system offers only {mode}; put it on a local disk"
            ),
            Self::BeingRead { path } => write!(
                f,
                "a sync of {} has failed, and its log cannot be reset while another process reads the file; let the \
                 backup or the doctor finish, or stop it",
                path.display()
            ),
            Self::Unwritable { path, why } => {
                write!(f, "{} cannot be written to: {why}; {}", path.display(), next_step(why))
            }
            Self::Trouble(trouble) => trouble.fmt(f),
        }
    }
}

fn next_step(why: &std::io::Error) -> &'static str {
    let is = |kinds: &[ErrorKind]| kinds.contains(&why.kind());
    if is(&[ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem]) {
        "the user of this process must be allowed to write to the file and to its folder"
    } else if is(&[ErrorKind::StorageFull, ErrorKind::QuotaExceeded]) {
        "make space first"
    } else {
        "put the store where a file can be made and locked"
    }
}

impl std::error::Error for SqliteOpenError {}

impl From<rusqlite::Error> for SqliteOpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Trouble(to_failure(&error))
    }
}
