//! `holdpoint backup FILE`: copies the store as it is at one moment.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use stores::sqlite::backup::{BackupError, backup};

use super::output::{human_bytes, print, print_json};
use super::problem::{Exit, Problem};
use super::progress::{Amount, ProgressLine};
use super::{CommandResult, CommandStatus, GlobalArgs};

const IN_POSTGRES: &str = "Copy a PostgreSQL database with pg_basebackup or pg_dump; see docs/postgresql.md.";

/// Copy the store to FILE
///
/// Works while a server runs: the copy is the store at the moment at which the command began, with everything that was
/// acknowledged before. FILE has its name once all of it is on the disk. Nothing is overwritten.
#[derive(Debug, Args)]
pub(super) struct Backup {
    /// Where the copy goes; it must not exist yet
    file: PathBuf,
}

impl Backup {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        let mut line = ProgressLine::default();
        let made = backup(global.store.require_file(IN_POSTGRES)?, &self.file, |progress| {
            let amount = Amount::Part { done: progress.pages_done, total: progress.pages_total };
            line.update("copying pages", amount);
        })?;
        let file = made.path.display().to_string();
        if global.json {
            let store = global.store.to_string();
            print_json(&json!({"store": store, "file": file, "bytes": made.bytes}))?;
        } else {
            print(&format!("{file}: {}\n", human_bytes(made.bytes)))?;
        }
        Ok(CommandStatus::Success)
    }
}

impl From<BackupError> for Problem {
    fn from(failed: BackupError) -> Self {
        let cause = failed.to_string();
        match failed {
            BackupError::Exists { .. } => {
                Self::new("BACKUP_EXISTS", cause, "Name a file that does not exist yet.", Exit::Configuration)
            }
            BackupError::Inspect(failed) => failed.into(),
            BackupError::Copy { .. } => Self::new(
                "BACKUP_FAILED",
                cause,
                "See to it that the folder exists, that it may be written to and that there is space; then try again.",
                Exit::Other,
            ),
        }
    }
}
