//! Reads the file from outside: without its lock and without writing, even while a server uses it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use engine::store::StoreFailure;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::errors::to_failure;
use super::file::{APPLICATION_ID, MIGRATIONS};

/// A reader waits only while another connection recovers the log.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// More than any inspection uses.
const STATEMENT_COUNT_MAX: usize = 32;

/// Why a file could not be inspected.
#[derive(Debug)]
pub enum InspectError {
    NotFound {
        path: PathBuf,
    },
    /// The file exists but is not a store.
    NotAStore {
        path: PathBuf,
    },
    /// Not a SQLite database, or one whose first page was overwritten.
    NotSqlite {
        path: PathBuf,
    },
    /// Written by an earlier version of this software. A server of this version upgrades it when it opens it.
    Older {
        found: u32,
        known: u32,
    },
    /// Written by a later version of this software.
    Newer {
        found: u32,
        known: u32,
    },
    /// A process left its log behind, and reading the log would require writing beside the file.
    UnreadableLog {
        path: PathBuf,
    },
    Trouble(StoreFailure),
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { path } => write!(f, "there is no file {}", path.display()),
            Self::NotAStore { path } => write!(f, "{} is not a store", path.display()),
            Self::NotSqlite { path } => {
                write!(f, "{} is not a SQLite database, or its first page was overwritten", path.display())
            }
            Self::Older { found, known } => {
                write!(f, "the store has version {found} and this software reads version {known}")
            }
            Self::Newer { found, known } => {
                write!(f, "the store has version {found} and this software knows versions up to {known}")
            }
            Self::UnreadableLog { path } => write!(
                f,
                "{} has a log that was not copied into it, and its folder cannot be written to",
                path.display()
            ),
            Self::Trouble(trouble) => trouble.fmt(f),
        }
    }
}

impl std::error::Error for InspectError {}

impl From<rusqlite::Error> for InspectError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Trouble(to_failure(&error))
    }
}

/// Opens the file for `work`. A file that no process uses is read as it is, which leaves no trace and works on
/// read-only media. If a process opened it meanwhile, `work` may have seen two different states, so it runs once more.
pub(super) fn inspect<T, E: From<InspectError>>(
    path: &Path,
    mut work: impl FnMut(&Connection) -> Result<T, E>,
) -> Result<T, E> {
    let found = FileState::read(path)?;
    if found.log_bytes == 0 {
        let seen = work(&open_immutable(path)?);
        if FileState::read(path)? == found {
            return seen;
        }
    }
    work(&open_shared(path)?)
}

/// Changes when a process writes to the file. Determined without opening it: closing a file releases all locks that
/// this process has on it.
#[derive(PartialEq, Eq)]
struct FileState {
    bytes: u64,
    changed_at: Option<SystemTime>,
    log_bytes: u64,
}

impl FileState {
    fn read(path: &Path) -> Result<Self, InspectError> {
        let found = match path.metadata() {
            Ok(found) if found.is_file() => found,
            Ok(_) => return Err(InspectError::NotAStore { path: path.into() }),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
                return Err(InspectError::NotFound { path: path.into() });
            }
            Err(why) => return Err(InspectError::Trouble(StoreFailure::Unavailable(why.to_string()))),
        };
        let log_bytes = log_path(path).metadata().map_or(0, |log| log.len());
        Ok(Self { bytes: found.len(), changed_at: found.modified().ok(), log_bytes })
    }
}

fn log_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

fn open_immutable(path: &Path) -> Result<Connection, InspectError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(address(path, "immutable=1"), flags)?;
    check_version(path, connection)
}

fn open_shared(path: &Path) -> Result<Connection, InspectError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    check_version(path, connection)
}

fn check_version(path: &Path, connection: Connection) -> Result<Connection, InspectError> {
    connection.set_prepared_statement_cache_capacity(STATEMENT_COUNT_MAX);
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    let found = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    let found: u32 = found.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => {
            InspectError::UnreadableLog { path: path.into() }
        }
        Some(ErrorCode::NotADatabase) => InspectError::NotSqlite { path: path.into() },
        Some(_) | None => error.into(),
    })?;
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION_ID {
        return Err(InspectError::NotAStore { path: path.into() });
    }
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    match found {
        0 => Err(InspectError::NotAStore { path: path.into() }),
        older if older < known => Err(InspectError::Older { found, known }),
        newer if newer > known => Err(InspectError::Newer { found, known }),
        _ => Ok(connection),
    }
}

/// The path as a URI. Characters with a special meaning in a URI are percent-encoded.
fn address(path: &Path, query: &str) -> String {
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                address.push(char::from(*byte));
            }
            _ => address.push_str(&format!("%{byte:02x}")),
        }
    }
    format!("{address}?{query}")
}
