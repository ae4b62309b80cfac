//! `prune`, `size`, `doctor` and `check` on a PostgreSQL database, while its nodes are running.

use std::fmt::Write;

use serde_json::{Value, json};
use stores::doctor::DoctorProgress;
use stores::held_calls::SurveyedCall;
use stores::postgres::doctor::PostgresReport;
use stores::postgres::upkeep::{self, PostgresSize, Stuck, Upkeep};
use tokio::runtime::{Builder, Runtime};

use super::output::{human_bytes, print, print_json};
use super::problem::{Exit, Problem};
use super::progress::{Amount, ProgressLine};
use super::{CommandResult, CommandStatus, GlobalArgs};

/// What to delete.
pub(super) struct PruneOptions {
    pub(super) older_than_ms: u64,
    pub(super) batch: usize,
    pub(super) dry_run: bool,
}

/// A runtime on the current thread only.
pub(super) fn runtime() -> Result<Runtime, Problem> {
    Builder::new_current_thread().enable_all().build().map_err(|why| {
        Problem::new("CANNOT_START", why.to_string(), "Give the process more threads or memory.", Exit::Other)
    })
}

pub(super) fn prune(global: &GlobalArgs, url: &str, options: &PruneOptions) -> CommandResult {
    let (pruned, stuck) = runtime()?.block_on(async {
        let upkeep = Upkeep::open(url, upkeep::settings()).await?;
        let now = upkeep.now().await?;
        let ended_before = machine::Timestamp(now.0.saturating_sub(options.older_than_ms));
        let mut sweep = if options.dry_run {
            upkeep.survey(ended_before)
        } else {
            upkeep.sweep(ended_before, options.batch)
        };
        let (mut pruned, mut line) = (stores::Pruned::default(), ProgressLine::default());
        while let Some(batch) = sweep.next().await? {
            pruned = pruned.plus(batch);
            line.update("looking at threads", Amount::Done(sweep.threads_examined()));
        }
        Ok::<_, Problem>((pruned, sweep.stuck().clone()))
    })?;
    let stores::Pruned { threads, runs, events, unreadable: _ } = pruned;
    if global.json {
        print_json(&json!({
            "store": global.store.to_string(),
            "dry_run": options.dry_run,
            "threads": threads,
            "runs": runs,
            "events": events,
            "stuck_threads": stuck.count,
        }))?;
    } else {
        let became = if options.dry_run { "would be deleted" } else { "were deleted" };
        print(&format!(
            "{threads} threads with {runs} runs and {events} events {became}.\n{}",
            stuck_text(&stuck)
        ))?;
    }
    Ok(if stuck.count == 0 { CommandStatus::Success } else { CommandStatus::Failure })
}

/// Describes the threads that could not be deleted.
fn stuck_text(stuck: &Stuck) -> String {
    if stuck.count == 0 {
        return String::new();
    }
    let mut text = format!("{} threads could not be deleted, and stay:\n", stuck.count);
    for thread in &stuck.threads {
        let _ = writeln!(text, "  {} of {}: {}", thread.id, thread.tenant, thread.why);
    }
    text
}

pub(super) fn show_size(global: &GlobalArgs, url: &str) -> CommandResult {
    let size = runtime()?.block_on(async {
        let upkeep = Upkeep::open(url, upkeep::settings()).await?;
        Ok::<_, Problem>(upkeep.size().await?)
    })?;
    if global.json {
        let mut value = as_json(&size);
        value["store"] = json!(global.store.to_string());
        print_json(&value)?;
    } else {
        print(&as_text(&size))?;
    }
    Ok(CommandStatus::Success)
}

pub(super) fn examine(url: &str, progress: impl FnMut(DoctorProgress)) -> Result<PostgresReport, Problem> {
    runtime()?.block_on(async {
        let upkeep = Upkeep::open(url, upkeep::settings()).await?;
        Ok(upkeep.examine(progress).await?)
    })
}

/// Applies a function to every held call.
pub(super) fn held_calls<T>(
    url: &str,
    judge: impl FnMut(&SurveyedCall) -> T,
    progress: impl FnMut(u64),
) -> Result<Vec<T>, Problem> {
    runtime()?.block_on(async {
        let upkeep = Upkeep::open(url, upkeep::settings()).await?;
        Ok(upkeep.held_calls(judge, progress).await?)
    })
}

pub(super) fn as_json(size: &PostgresSize) -> Value {
    let tables: Vec<Value> = size
        .tables
        .iter()
        .map(|table| json!({"name": table.name, "bytes": table.bytes, "index_bytes": table.index_bytes}))
        .collect();
    json!({
        "bytes": size.bytes(),
        "runs": size.runs,
        "events": size.events,
        "control_bytes": size.control_bytes,
        "bytes_per_run": size.bytes_per_run(),
        "tables": tables,
    })
}

pub(super) fn summary_line(size: &PostgresSize) -> String {
    let each = size.bytes_per_run().map_or_else(|| "nothing".to_owned(), human_bytes);
    format!("{} in the tables, dead rows included; {each} per run", human_bytes(size.bytes()))
}

fn as_text(size: &PostgresSize) -> String {
    let mut text = format!("{}\n", summary_line(size));
    let _ = writeln!(
        text,
        "{} runs, {} events; states {}\n",
        size.runs,
        size.events,
        human_bytes(size.control_bytes)
    );
    let _ = writeln!(text, "{:16} {:>12} {:>12}", "table", "rows", "indexes");
    for table in &size.tables {
        let _ = writeln!(
            text,
            "{:16} {:>12} {:>12}",
            table.name,
            human_bytes(table.bytes),
            human_bytes(table.index_bytes)
        );
    }
    text
}
