//! `holdpoint prune`: deletes threads whose runs ended long ago.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use engine::store::StoreError;
use machine::Timestamp;
use serde_json::json;
use stores::sqlite::retention::{Pruned, survey};
use stores::sqlite::{InspectError, SqliteStore};

use super::database::{self, PruneOptions};
use super::output::{human_bytes, print, print_json};
use super::problem::{Exit, Problem};
use super::progress::{Amount, ProgressLine};
use super::store::StoreUrl;
use super::{CommandResult, CommandStatus, GlobalArgs};

/// Delete threads whose runs have all ended
///
/// A thread is deleted as a whole, with all data of its runs, and only if the runs that it delegated to, and those they
/// delegated to, have ended as long ago. Nothing that is pending is deleted. The command may be stopped at any time.
/// Exits with 1 if a thread was not deleted because it cannot be read.
/// A file must not be open elsewhere, except with --dry-run; a PostgreSQL database may.
#[derive(Debug, Args)]
pub(super) struct Prune {
    /// How long ago the last run of a thread must have ended: a number and s, m, h, d or w, such as 30d
    #[arg(long, value_name = "AGE", value_parser = age_ms)]
    older_than: u64,
    /// At most this many threads in one commit
    #[arg(long, value_name = "N", default_value = "100")]
    batch: NonZeroUsize,
    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

impl Prune {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        if let StoreUrl::Postgres { url } = &global.store {
            let options = PruneOptions {
                older_than_ms: self.older_than,
                batch: self.batch.get(),
                dry_run: self.dry_run,
            };
            return database::prune(global, url, &options);
        }
        let path = global.store.require_file("")?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        let ended_before = Timestamp(now.saturating_sub(self.older_than));
        let before = file_bytes(path)?;
        let pruned = if self.dry_run {
            let mut line = ProgressLine::default();
            survey(path, ended_before, |seen| line.update("looking at threads", Amount::Done(seen)))?
        } else {
            self.delete(path, ended_before)?
        };
        let after = file_bytes(path)?;
        let Pruned { threads, runs, events, unreadable } = pruned;
        let done = if unreadable == 0 { CommandStatus::Success } else { CommandStatus::Failure };
        if global.json {
            return print_json(&json!({
                "store": global.store.to_string(),
                "dry_run": self.dry_run,
                "threads": threads,
                "runs": runs,
                "events": events,
                "unreadable_threads": unreadable,
                "file_bytes_before": before,
                "file_bytes_after": after,
            }))
            .map(|()| done);
        }
        let what = format!("{threads} threads with {runs} runs and {events} events");
        if self.dry_run {
            print(&format!("{what} would be deleted.\n"))?;
        } else {
            print(&format!(
                "{what} were deleted. The file had {} and has {}.\n",
                human_bytes(before),
                human_bytes(after)
            ))?;
        }
        if unreadable > 0 {
            print(&format!(
                "{unreadable} threads cannot be read and were not deleted. Run holdpoint doctor.\n"
            ))?;
        }
        Ok(done)
    }

    fn delete(&self, path: &Path, ended_before: Timestamp) -> Result<Pruned, Problem> {
        let runtime = database::runtime()?;
        let store = SqliteStore::open(path)?;
        let mut line = ProgressLine::default();
        runtime.block_on(async {
            let mut sweep = store.sweep(ended_before, self.batch.get());
            let mut pruned = Pruned::default();
            while let Some(batch) = sweep.next().await? {
                pruned = pruned.plus(batch);
                line.update("deleting threads", Amount::Done(pruned.threads));
            }
            while store.release_free_pages().await? {
                line.update("giving space back", Amount::Unknown);
            }
            Ok(pruned)
        })
    }
}

/// Fails if the file does not exist or is empty, so that no store is created by accident.
pub(super) fn file_bytes(path: &Path) -> Result<u64, Problem> {
    match path.metadata() {
        Ok(found) if found.len() == 0 => Err(InspectError::NotAStore { path: path.into() }.into()),
        Ok(found) => Ok(found.len()),
        Err(_) => Err(InspectError::NotFound { path: path.into() }.into()),
    }
}

impl From<StoreError> for Problem {
    fn from(refused: StoreError) -> Self {
        match refused {
            StoreError::Failed(trouble) => trouble.into(),
            other @ (StoreError::Fenced
            | StoreError::Behind
            | StoreError::Stale
            | StoreError::Busy(_)
            | StoreError::Impossible(_)
            | StoreError::NotFound) => {
                Self::new("REFUSED", other.to_string(), "Run holdpoint doctor.", Exit::Other)
            }
        }
    }
}

/// The age in milliseconds.
fn age_ms(text: &str) -> Result<u64, String> {
    let unit_at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(unit_at);
    let unit_ms: u64 = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        _ => return Err("an age is a number and s, m, h, d or w, such as 30d".into()),
    };
    let count: u64 = count.parse().map_err(|_| "an age begins with a number, such as 30d")?;
    count.checked_mul(unit_ms).ok_or_else(|| "this is longer than time".into())
}
