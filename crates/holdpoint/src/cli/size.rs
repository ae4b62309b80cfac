//! `holdpoint size`: how much disk space runs and steps take.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use stores::sqlite::size::{self, SqliteSize};

use super::output::{human_bytes, print, print_json};
use super::store::StoreUrl;
use super::{CommandResult, CommandStatus, GlobalArgs, database};

/// Show what the store costs: by table, by run and by step
///
/// Changes nothing, and works while a server runs.
#[derive(Debug, Args)]
pub(super) struct ShowSize {}

impl ShowSize {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        if let StoreUrl::Postgres { url } = &global.store {
            return database::show_size(global, url);
        }
        let size = size::size(global.store.require_file("")?)?;
        if global.json {
            let mut value = as_json(&size);
            value["store"] = json!(global.store.to_string());
            print_json(&value)?;
        } else {
            print(&as_text(&size))?;
        }
        Ok(CommandStatus::Success)
    }
}

pub(super) fn as_json(size: &SqliteSize) -> Value {
    let tables: Vec<Value> = size
        .tables
        .iter()
        .map(|table| json!({"name": table.name, "bytes": table.bytes, "index_bytes": table.index_bytes}))
        .collect();
    json!({
        "file_bytes": size.file_bytes,
        "free_bytes": size.free_bytes,
        "runs": size.runs,
        "steps": size.steps,
        "events": size.events,
        "event_bytes": size.event_bytes,
        "control_bytes": size.control_bytes,
        "bytes_per_run": size.bytes_per_run(),
        "bytes_per_step": size.bytes_per_step(),
        "tables": tables,
    })
}

pub(super) fn summary_line(size: &SqliteSize) -> String {
    let each = |count: Option<u64>| count.map_or_else(|| "nothing".to_owned(), human_bytes);
    format!(
        "{} in the file, {} of it free; {} per run, {} per step",
        human_bytes(size.file_bytes),
        human_bytes(size.free_bytes),
        each(size.bytes_per_run()),
        each(size.bytes_per_step())
    )
}

fn as_text(size: &SqliteSize) -> String {
    let mut text = format!("{}\n", summary_line(size));
    let _ = writeln!(
        text,
        "{} runs, {} steps, {} events; events {}, states {}\n",
        size.runs,
        size.steps,
        size.events,
        human_bytes(size.event_bytes),
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
