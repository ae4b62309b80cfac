//! Which store is meant, and why it cannot be used.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use engine::store::Trouble;
use stores::sqlite::{LookFailed, OpenFailed};

use super::problem::{Exit, Problem};

/// `sqlite:PATH`.
#[derive(Clone, Debug)]
pub(super) struct StoreAddress {
    pub(super) path: PathBuf,
}

impl FromStr for StoreAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self { path: path.into() }),
            Some(_) | None => Err("a store is named as sqlite:PATH".into()),
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite:{}", self.path.display())
    }
}

impl From<LookFailed> for Problem {
    fn from(failed: LookFailed) -> Self {
        let cause = failed.to_string();
        match failed {
            LookFailed::NotFound { .. } => Self::new(
                "STORE_NOT_FOUND",
                cause,
                "Name the store with --store sqlite:PATH.",
                Exit::Configuration,
            ),
            LookFailed::NotAStore { .. } => Self::new(
                "NOT_A_STORE",
                cause,
                "Name the store with --store sqlite:PATH.",
                Exit::Configuration,
            ),
            LookFailed::Newer { .. } => Self::new(
                "STORE_TOO_NEW",
                cause,
                "Use the version of Holdpoint that wrote it, or a later one.",
                Exit::Other,
            ),
            LookFailed::Sealed { .. } => Self::new(
                "STORE_SEALED",
                cause,
                "Copy the file and the one with the ending -wal to a folder that can be written to, and look there.",
                Exit::Other,
            ),
            LookFailed::Trouble(trouble) => trouble.into(),
        }
    }
}

impl From<OpenFailed> for Problem {
    fn from(failed: OpenFailed) -> Self {
        let cause = failed.to_string();
        match failed {
            OpenFailed::InUse { .. } => Self::new(
                "STORE_IN_USE",
                cause,
                "Stop the process that has the store open, then try again. doctor, backup, size and prune --dry-run \
                 work beside it.",
                Exit::Other,
            ),
            OpenFailed::Newer { .. } => Self::new(
                "STORE_TOO_NEW",
                cause,
                "Use the version of Holdpoint that wrote it, or a later one.",
                Exit::Other,
            ),
            OpenFailed::Unwritable { .. } => Self::new(
                "STORE_READ_ONLY",
                cause,
                "Run as somebody who may write to the file and to its folder. doctor, backup, size and prune --dry-run \
                 need not write.",
                Exit::Other,
            ),
            OpenFailed::BeingRead { .. } => Self::new(
                "STORE_BEING_READ",
                cause,
                "Wait for the backup, the doctor or whoever else reads the store, then try again.",
                Exit::Other,
            ),
            OpenFailed::NoLog { .. } => {
                Self::new("NO_LOG", cause, "Move the store to a local disk.", Exit::Other)
            }
            OpenFailed::Trouble(trouble) => trouble.into(),
        }
    }
}

impl From<Trouble> for Problem {
    fn from(trouble: Trouble) -> Self {
        let cause = trouble.to_string();
        match trouble {
            Trouble::Unavailable(_) => Self::new(
                "STORE_UNAVAILABLE",
                cause,
                "See to it that the file, its folder and its disk can be used, then try again.",
                Exit::Other,
            ),
            Trouble::Full(_) => Self::new("DISK_FULL", cause, "Make space, then try again.", Exit::Other),
            Trouble::Corrupt(_) => Self::new(
                "STORE_DAMAGED",
                cause,
                "Keep a copy of the file, run holdpoint doctor, and go on with the last good backup.",
                Exit::Other,
            ),
        }
    }
}
