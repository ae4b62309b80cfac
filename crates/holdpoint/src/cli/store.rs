//! Parses the address of a store, and explains why a store cannot be used.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use engine::StartError;
use engine::store::StoreFailure;
use stores::postgres;
use stores::sqlite::{InspectError, SqliteOpenError};

use super::problem::{Exit, Problem};

/// A store as named on the command line or in the file.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum StoreUrl {
    Sqlite {
        path: PathBuf,
    },
    /// The URL may contain a secret, so it is never shown in full.
    Postgres {
        url: String,
    },
    Memory,
}

impl StoreUrl {
    pub(super) const FORMS: &str = "sqlite:PATH, postgres://… or memory:";

    /// None if the text does not name a store. `resolve_path` resolves a relative path.
    pub(super) fn parse(text: &str, resolve_path: impl FnOnce(&str) -> PathBuf) -> Option<Self> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Some(Self::Sqlite { path: resolve_path(path) }),
            Some(("postgres" | "postgresql", rest)) if rest.len() > 2 && rest.starts_with("//") => {
                Some(Self::Postgres { url: text.to_owned() })
            }
            Some(("memory", "")) => Some(Self::Memory),
            Some(_) | None => None,
        }
    }

    /// The path of a store that is a file.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Sqlite { path } => Some(path),
            Self::Postgres { .. } | Self::Memory => None,
        }
    }

    /// For commands that work only on a file. `in_postgres` names the equivalent for a database.
    pub(super) fn require_file(&self, in_postgres: &str) -> Result<&Path, Problem> {
        let next = match self {
            Self::Sqlite { path } => return Ok(path),
            Self::Postgres { .. } => in_postgres,
            Self::Memory => NAME_SQLITE,
        };
        let cause = format!("{self} is no file, and this command looks after files");
        Err(Problem::new("NOT_A_FILE", cause, next, Exit::Configuration))
    }
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, |path| path.into()).ok_or_else(|| format!("a store is named as {}", Self::FORMS))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { path } => write!(f, "sqlite:{}", path.display()),
            Self::Postgres { url } => {
                // Omit the user and the password, and also the options, which can contain a password.
                let rest = url.split_once("//").map_or("", |(_, rest)| rest);
                let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
                let rest = rest.split('?').next().unwrap_or_default();
                write!(f, "postgres://{}", if is_host_and_database(rest) { rest } else { "…" })
            }
            Self::Memory => f.write_str("memory:"),
        }
    }
}

/// Accepts only `HOST:PORT/DATABASE`: in a malformed address any part can be a password.
fn is_host_and_database(text: &str) -> bool {
    let plain =
        |text: &str, signs: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || signs.contains(c));
    let (server, database) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        Some(_) | None => (server, ""),
    };
    plain(host, ".-_[]:") && port.chars().all(|c| c.is_ascii_digit()) && plain(database, "_-")
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const NAME_SQLITE: &str = "Name the store with --store sqlite:PATH.";
const NOT_SQLITE: &str =
    "Name the store with --store sqlite:PATH. If this file was a store, restore the last good backup.";

impl From<InspectError> for Problem {
    fn from(failed: InspectError) -> Self {
        let cause = failed.to_string();
        let (code, next, exit) = match failed {
            InspectError::NotFound { .. } => ("STORE_NOT_FOUND", NAME_SQLITE, Exit::Configuration),
            InspectError::NotAStore { .. } => ("NOT_A_STORE", NAME_SQLITE, Exit::Configuration),
            InspectError::NotSqlite { .. } => ("NOT_A_STORE", NOT_SQLITE, Exit::Configuration),
            InspectError::Older { .. } => (
                "STORE_TOO_OLD",
                "Start a server of this version once: it upgrades the store. Make a backup with the old version first.",
                Exit::Other,
            ),
            InspectError::Newer { .. } => {
                ("STORE_TOO_NEW", "Use the version of Holdpoint that wrote it, or a later one.", Exit::Other)
            }
            InspectError::UnreadableLog { .. } => (
                "STORE_SEALED",
                "Copy the file and the one with the ending -wal to a folder that can be written to, and look there.",
                Exit::Other,
            ),
            InspectError::Trouble(trouble) => return trouble.into(),
        };
        Self::new(code, cause, next, exit)
    }
}

impl From<SqliteOpenError> for Problem {
    fn from(failed: SqliteOpenError) -> Self {
        let cause = failed.to_string();
        let (code, next, exit) = match failed {
            SqliteOpenError::InUse { .. } => (
                "STORE_IN_USE",
                "Stop the process that has the store open, then try again. check, doctor, backup, size and prune \
                 --dry-run work beside it.",
                Exit::Other,
            ),
            SqliteOpenError::NotAStore { .. } => ("NOT_A_STORE", NAME_SQLITE, Exit::Configuration),
            SqliteOpenError::NotSqlite { .. } => ("NOT_A_STORE", NOT_SQLITE, Exit::Configuration),
            SqliteOpenError::NoFolder { .. } => (
                "STORE_FOLDER_MISSING",
                "Make the folder, or name another store in the configuration or with --store sqlite:PATH.",
                Exit::Configuration,
            ),
            SqliteOpenError::Newer { .. } => {
                ("STORE_TOO_NEW", "Use the version of Holdpoint that wrote it, or a later one.", Exit::Other)
            }
            SqliteOpenError::Unwritable { .. } => (
                "STORE_READ_ONLY",
                "Run as a user who may write to the file and to its folder. doctor, backup, size and prune --dry-run \
                 need not write.",
                Exit::Other,
            ),
            SqliteOpenError::BeingRead { .. } => (
                "STORE_BEING_READ",
                "Wait for the backup, the doctor or any other reader of the store, then try again.",
                Exit::Other,
            ),
            SqliteOpenError::NoWriteAheadLog { .. } => {
                ("NO_LOG", "Move the store to a local disk.", Exit::Other)
            }
            SqliteOpenError::Trouble(trouble) => return trouble.into(),
        };
        Self::new(code, cause, next, exit)
    }
}

impl From<StoreFailure> for Problem {
    fn from(trouble: StoreFailure) -> Self {
        let cause = trouble.to_string();
        let (code, next, exit) = match trouble {
            StoreFailure::Unavailable(_) => (
                "STORE_UNAVAILABLE",
                "See to it that the file with its folder and disk, or the database, can be used; then try again.",
                Exit::Other,
            ),
            StoreFailure::Full(_) => ("DISK_FULL", "Make space, then try again.", Exit::Other),
            StoreFailure::Corrupt(_) => (
                "STORE_DAMAGED",
                "Keep a copy of the store, run holdpoint doctor and, for PostgreSQL, pg_amcheck, and go on with the last \
                 good backup.",
                Exit::Other,
            ),
        };
        Self::new(code, cause, next, exit)
    }
}

impl From<postgres::PostgresOpenError> for Problem {
    fn from(failed: postgres::PostgresOpenError) -> Self {
        use postgres::PostgresOpenError as Failed;

        let cause = failed.to_string();
        let (code, next, exit) = match failed {
            Failed::Address(_) | Failed::Schema(_) => {
                ("STORE_ADDRESS", "Write the address as postgres://USER@HOST/DATABASE.", Exit::Configuration)
            }
            Failed::Certificates(_) => (
                "STORE_CERTIFICATES",
                "Name a file with the authority's certificate as sslrootcert=FILE in the address.",
                Exit::Configuration,
            ),
            Failed::SessionOptionsIgnored | Failed::NotificationsLost => {
                ("STORE_BEHIND_A_PROXY", "Name the address of the database itself.", Exit::Configuration)
            }
            Failed::Encoding(_) => (
                "STORE_ENCODING",
                "Create a database with ENCODING 'UTF8' TEMPLATE template0.",
                Exit::Configuration,
            ),
            Failed::NoStore { .. } => {
                ("STORE_NOT_FOUND", "Name the database of a server that has run before.", Exit::Configuration)
            }
            Failed::Older { .. } => (
                "STORE_TOO_OLD",
                "Start a server of this version once; it brings the tables up.",
                Exit::Other,
            ),
            Failed::Newer { .. } => {
                ("STORE_TOO_NEW", "Use the version of Holdpoint that wrote it, or a later one.", Exit::Other)
            }
            Failed::Trouble(_) => (
                "STORE_UNAVAILABLE",
                "See to it that the database runs, can be reached and lets this user in; then try again.",
                Exit::Other,
            ),
        };
        Self::new(code, cause, next, exit)
    }
}

impl From<StartError> for Problem {
    fn from(failed: StartError) -> Self {
        match failed {
            StartError::Agent(fault) => Self::new(
                "AGENT_FAULT",
                fault.to_string(),
                "Correct the configuration, and run holdpoint check.",
                Exit::Configuration,
            ),
            StartError::Store(refused) => refused.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_shown_without_what_may_be_a_secret() {
        let shown = |url: &str| StoreUrl::from_str(url).map(|url| url.to_string()).unwrap_or_default();
        for (url, place) in [
            ("postgres://ann:sesame@db.example:5432/runs?sslmode=disable", "postgres://db.example:5432/runs"),
            ("postgres://ann:se@same@[::1]/runs", "postgres://[::1]/runs"),
            ("postgres://localhost", "postgres://localhost"),
            // The host is missing, or the address was cut off.
            ("postgres://ann:sesame/runs", "postgres://…"),
            ("postgres://ann:sesame", "postgres://…"),
            ("postgres://host:1/%se/same", "postgres://…"),
        ] {
            assert_eq!(shown(url), place, "{url}");
        }
    }
}
