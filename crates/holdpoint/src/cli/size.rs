//! `holdpoint size`: what runs and steps cost on the disk.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use stores::sqlite::size::{self, SqliteSize};

use super::output::{bytes, print, print_json};
use super::store::StoreUrl;
use super::{Done, Everywhere, Outcome, database};

/// Show what the store costs: by table, by run and by step
///
/// Changes nothing, and works while a server runs.
#[derive(Debug, Args)]
pub(super) struct ShowSize {}

impl ShowSize {
    pub(super) fn run(&self, everywhere: &Everywhere) -> Outcome {
        if let StoreUrl::Postgres { url } = &everywhere.store {
            return database::show_size(everywhere, url);
        }
        let size = size::size(everywhere.store.file("")?)?;
        if everywhere.json {
            let mut value = as_json(&size);
            value["store"] = json!(everywhere.store.to_string());
            print_json(&value)?;
        } else {
            print(&as_text(&size))?;
        }
        Ok(Done::Well)
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

pub(super) fn in_a_line(size: &SqliteSize) -> String {
    let each = |count: Option<u64>| count.map_or_else(|| "nothing".to_owned(), bytes);
    format!(
        "{} in the file, {} of it free; {} per run, {} per step",
        bytes(size.file_bytes),
        bytes(size.free_bytes),
        each(size.bytes_per_run()),
        each(size.bytes_per_step())
    )
}

fn as_text(size: &SqliteSize) -> String {
    let mut text = format!("{}\n", in_a_line(size));
    let _ = writeln!(
        text,
        "{} runs, {} steps, {} events; events {}, states {}\n",
        size.runs,
        size.steps,
        size.events,
        bytes(size.event_bytes),
        bytes(size.control_bytes)
    );
    let _ = writeln!(text, "{:16} {:>12} {:>12}", "table", "rows", "indexes");
    for table in &size.tables {
        let _ =
            writeln!(text, "{:16} {:>12} {:>12}", table.name, bytes(table.bytes), bytes(table.index_bytes));
    }
    text
}
