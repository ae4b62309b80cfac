//! `prune`, `size`, `doctor` and `check` on a PostgreSQL database, beside its nodes.

use std::fmt::Write;

use serde_json::{Value, json};
use stores::doctor::DoctorProgress;
use stores::held_calls::SurveyedCall;
use stores::postgres::doctor::PostgresReport;
use stores::postgres::upkeep::{self, PostgresSize, Stuck, Upkeep};
use tokio::runtime::{Builder, Runtime};

use super::output::{bytes, print, print_json};
use super::problem::{Exit, Problem};
use super::progress::{Amount, ProgressLine};
use super::{Done, Everywhere, Outcome};

/// What is to go.
pub(super) struct Wanted {
    pub(super) older_than_ms: u64,
    pub(super) batch: usize,
    pub(super) dry_run: bool,
}

/// On this thread alone.
pub(super) fn runtime() -> Result<Runtime, Problem> {
    Builder::new_current_thread().enable_all().build().map_err(|why| {
        Problem::new("CANNOT_START", why.to_string(), "Give the process more threads or memory.", Exit::Other)
    })
}

pub(super) fn prune(everywhere: &Everywhere, url: &str, wanted: &Wanted) -> Outcome {
    let (pruned, stuck) = runtime()?.block_on(async {
        let upkeep = Upkeep::open(url, upkeep::settings()).await?;
        let now = upkeep.now().await?;
        let ended_before = machine::Timestamp(now.0.saturating_sub(wanted.older_than_ms));
        let mut sweep = if wanted.dry_run {
            upkeep.survey(ended_before)
        } else {
            upkeep.sweep(ended_before, wanted.batch)
        };
        let (mut pruned, mut line) = (stores::Pruned::default(), ProgressLine::default());
        while let Some(batch) = sweep.next().await? {
            pruned = pruned.plus(batch);
            line.say("looking at threads", Amount::Done(sweep.threads_examined()));
        }
        Ok::<_, Problem>((pruned, sweep.stuck().clone()))
    })?;
    let stores::Pruned { threads, runs, events, unreadable: _ } = pruned;
    if everywhere.json {
        print_json(&json!({
            "store": everywhere.store.to_string(),
            "dry_run": wanted.dry_run,
            "threads": threads,
            "runs": runs,
            "events": events,
            "stuck_threads": stuck.count,
        }))?;
    } else {
        let became = if wanted.dry_run { "would go" } else { "are gone" };
        print(&format!(
            "{threads} threads with {runs} runs and {events} events {became}.\n{}",
            left(&stuck)
        ))?;
    }
    Ok(if stuck.count == 0 { Done::Well } else { Done::Found })
}

/// What could not be deleted.
fn left(stuck: &Stuck) -> String {
    if stuck.count == 0 {
        return String::new();
    }
    let mut text = format!("{} threads could not be deleted, and stay:\n", stuck.count);
    for thread in &stuck.threads {
        let _ = writeln!(text, "  {} of {}: {}", thread.id, thread.tenant, thread.why);
    }
    text
}

pub(super) fn show_size(everywhere: &Everywhere, url: &str) -> Outcome {
    let size = runtime()?.block_on(async {
        let upkeep = Upkeep::open(url, upkeep::settings()).await?;
        Ok::<_, Problem>(upkeep.size().await?)
    })?;
    if everywhere.json {
        let mut value = as_json(&size);
        value["store"] = json!(everywhere.store.to_string());
        print_json(&value)?;
    } else {
        print(&as_text(&size))?;
    }
    Ok(Done::Well)
}

pub(super) fn examine(url: &str, progress: impl FnMut(DoctorProgress)) -> Result<PostgresReport, Problem> {
    runtime()?.block_on(async {
        let upkeep = Upkeep::open(url, upkeep::settings()).await?;
        Ok(upkeep.examine(progress).await?)
    })
}

/// Every held call, judged.
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

pub(super) fn in_a_line(size: &PostgresSize) -> String {
    let each = size.bytes_per_run().map_or_else(|| "nothing".to_owned(), bytes);
    format!("{} in the tables, dead rows included; {each} per run", bytes(size.bytes()))
}

fn as_text(size: &PostgresSize) -> String {
    let mut text = format!("{}\n", in_a_line(size));
    let _ =
        writeln!(text, "{} runs, {} events; states {}\n", size.runs, size.events, bytes(size.control_bytes));
    let _ = writeln!(text, "{:16} {:>12} {:>12}", "table", "rows", "indexes");
    for table in &size.tables {
        let _ =
            writeln!(text, "{:16} {:>12} {:>12}", table.name, bytes(table.bytes), bytes(table.index_bytes));
    }
    text
}
