//! Maps PostgreSQL's errors to the store's errors, and decides which of them are retried.

use std::error::Error as _;
use std::fmt;

use engine::store::{StoreError, StoreFailure};
use tokio_postgres::Error;

/// Stops a commit or a read. Database errors convert into it with `?`.
#[derive(Debug)]
pub(super) struct PostgresError(pub(super) StoreError);

impl AsRef<StoreError> for PostgresError {
    fn as_ref(&self) -> &StoreError {
        &self.0
    }
}

impl From<StoreError> for PostgresError {
    fn from(refused: StoreError) -> Self {
        Self(refused)
    }
}

impl From<Error> for PostgresError {
    fn from(error: Error) -> Self {
        Self(to_refused(&error))
    }
}

pub(super) fn impossible(why: impl Into<String>) -> PostgresError {
    PostgresError(StoreError::Impossible(why.into()))
}

pub(super) fn corrupt(why: impl Into<String>) -> PostgresError {
    PostgresError(StoreError::Failed(StoreFailure::Corrupt(why.into())))
}

pub(super) fn unavailable(why: impl Into<String>) -> PostgresError {
    PostgresError(StoreError::Failed(StoreFailure::Unavailable(why.into())))
}

/// Nothing was stored, and a retry may succeed at once: two transactions conflicted.
pub(super) fn is_retryable(error: &Error) -> bool {
    matches!(code(error), "40001" | "40P01")
}

/// The connection is unusable: it is closed, or it leads to a server that does not accept writes.
pub(super) fn is_connection_lost(error: &Error) -> bool {
    error.is_closed()
        || error.as_db_error().is_none()
        || matches!(code(error), "25006" | "57P01" | "57P02" | "57P03")
}

/// The prepared statement is gone or outdated: nothing was done, and another connection prepares it again.
pub(super) fn is_unprepared(error: &Error) -> bool {
    matches!(code(error), "26000" | "0A000")
}

fn code(error: &Error) -> &str {
    error.code().map_or("", tokio_postgres::error::SqlState::code)
}

fn to_refused(error: &Error) -> StoreError {
    let text = error_chain(error);
    match code(error) {
        // Raised by our own functions: the request contradicts what is stored.
        "HPI00" => {
            StoreError::Impossible(error.as_db_error().map_or(text, |error| error.message().to_owned()))
        }
        // Also raised by our functions: a decision reached a worker under an id that was used before.
        "HPB00" => StoreError::Behind,
        "53100" => StoreFailure::Full(text).into(),
        code if code.starts_with("XX") => StoreFailure::Corrupt(text).into(),
        // Constraint violations, and names too long for an index: the caller made a mistake.
        code if code.starts_with("23") || code.starts_with("22") || code.starts_with("54") => {
            StoreError::Impossible(text)
        }
        // Not a database error: a column does not have the type that it was written with.
        "" if is_row_error(error) => StoreFailure::Corrupt(text).into(),
        _ => StoreFailure::Unavailable(text).into(),
    }
}

fn is_row_error(error: &Error) -> bool {
    !error.is_closed() && error.source().is_some_and(|cause| !cause.is::<std::io::Error>()) && {
        let text = error.to_string();
        text.contains("column") || text.contains("deserializing")
    }
}

/// The error with all its causes: the database's own message comes last.
fn error_chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(why) = cause {
        text.push_str(": ");
        text.push_str(&why.to_string());
        cause = why.source();
    }
    text
}

/// Why a database could not be opened as a store.
#[derive(Debug)]
pub enum PostgresOpenError {
    /// The address cannot be parsed.
    Address(String),
    /// The name of a schema must be plain, so that it needs no quoting anywhere.
    Schema(String),
    /// The trusted CA certificates cannot be determined.
    Certificates(String),
    /// The session does not have the requested options.
    SessionOptionsIgnored,
    /// LISTEN receives nothing.
    NotificationsLost,
    /// The database's encoding cannot store every text.
    Encoding(String),
    /// The schema has no tables of ours.
    NoStore {
        schema: String,
    },
    /// Written by an earlier version of this software, and not migrated yet.
    Older {
        found: i32,
        known: i32,
    },
    /// Written by a later version of this software.
    Newer {
        found: i32,
        known: i32,
    },
    Trouble(StoreFailure),
}

impl fmt::Display for PostgresOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(why) => write!(f, "the address of the database cannot be read: {why}"),
            Self::Schema(name) => {
                write!(f, "`{name}` is no name for a schema: use small letters, digits and `_`, at most 40")
            }
            Self::Certificates(why) => write!(f, "the connection cannot be encrypted: {why}"),
            Self::SessionOptionsIgnored => f.write_str(
                "the database, or a proxy before it, ignores the options of a connection (search_path, statement_timeout, default_transaction_isolation); connect to the database itself",
            ),
            Self::NotificationsLost => f.write_str(
                "a notification did not arrive on the connection that listened for it: a proxy before the database gives statements of one connection to several; connect to the database itself",
            ),
            Self::Encoding(found) => {
                write!(f, "the database keeps its texts as {found}; only UTF8 keeps all of them")
            }
            Self::NoStore { schema } => write!(f, "the database has no store in its schema {schema}"),
            Self::Older { found, known } => {
                write!(f, "the store has version {found} and this software wants version {known}")
            }
            Self::Newer { found, known } => write!(
                f,
                "the store has version {found} and this software knows versions up to {known}; use a later version of it"
            ),
            Self::Trouble(trouble) => trouble.fmt(f),
        }
    }
}

impl std::error::Error for PostgresOpenError {}

impl From<PostgresError> for PostgresOpenError {
    fn from(PostgresError(refused): PostgresError) -> Self {
        match refused {
            StoreError::Failed(trouble) => Self::Trouble(trouble),
            StoreError::Fenced
            | StoreError::Behind
            | StoreError::Stale
            | StoreError::Busy(_)
            | StoreError::Impossible(_)
            | StoreError::NotFound => Self::Trouble(StoreFailure::Unavailable(refused.to_string())),
        }
    }
}

impl From<Error> for PostgresOpenError {
    fn from(error: Error) -> Self {
        PostgresError::from(error).into()
    }
}
