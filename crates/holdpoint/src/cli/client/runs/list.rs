//! `holdpoint runs list`: the newest runs, one per line.

use clap::Args;
use clap::builder::RangedU64ValueParser;

use crate::cli::client::connection::Connection;
use crate::cli::client::event_formatter::describe_wait;
use crate::cli::client::pagination::PagedItems;
use crate::cli::client::terminal_text::escaped;
use crate::cli::client::times;
use crate::cli::client::wire::{Run, read};
use crate::cli::output::{print, print_raw, print_stderr};
use crate::cli::{CommandResult, CommandStatus};

const LIMIT: usize = 100;

/// List runs, the newest first
#[derive(Debug, Args)]
pub(super) struct ListRuns {
    /// Only runs with this status
    #[arg(long, value_name = "STATUS", value_parser = [
        "queued", "running", "waiting_approval", "waiting_tool", "interrupting", "completed", "failed", "interrupted",
    ])]
    status: Option<String>,
    /// Only runs of this thread
    #[arg(long, value_name = "THREAD")]
    thread: Option<String>,
    /// Only runs of this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = LIMIT,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    limit: usize,
}

impl Default for ListRuns {
    fn default() -> Self {
        Self { status: None, thread: None, agent: None, limit: LIMIT }
    }
}

impl ListRuns {
    pub(super) async fn run(&self, connection: &Connection, json: bool) -> CommandResult {
        let filters = [
            ("status", self.status.as_ref()),
            ("thread_id", self.thread.as_ref()),
            ("agent", self.agent.as_ref()),
        ];
        let listed = PagedItems::read(connection, "/v1/runs", &filters, self.limit).await?;
        if json {
            print_raw(&listed.as_json("runs"))?;
            return Ok(CommandStatus::Success);
        }
        let runs = listed.items.iter().map(|item| read(connection, item.get()));
        let runs: Vec<Run> = runs.collect::<Result<_, _>>()?;
        if runs.is_empty() {
            print_stderr("There are no such runs.");
            return Ok(CommandStatus::Success);
        }
        print(&table(&runs, times::now()))?;
        if listed.next_cursor.is_some() {
            print_stderr(&format!("There are more; --limit shows more than {}.", self.limit));
        }
        Ok(CommandStatus::Success)
    }
}

fn table(runs: &[Run], now: i64) -> String {
    let head = ["RUN", "STATUS", "AGENT", "THREAD", "STEP", "AGE", "WAITS FOR"].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(runs.iter().map(|run| row(run, now))).collect();
    let widths: Vec<usize> = (0..7)
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(run: &Run, now: i64) -> [String; 7] {
    let waits = match run.pending.as_slice() {
        [] => String::new(),
        [first, others @ ..] => {
            let first =
                describe_wait(escaped(&first.kind), escaped(&first.tool), first.approval_id.as_deref());
            if others.is_empty() { first } else { format!("{first}, and {} more", others.len()) }
        }
    };
    [
        escaped(&run.id),
        escaped(&run.status),
        escaped(&run.agent),
        escaped(&run.thread_id),
        run.step.to_string(),
        times::age(&run.created_at, now),
        waits,
    ]
}

#[test]
fn table_columns_are_as_wide_as_their_widest_cell() {
    let run = |id: &str, pending: &str| -> Run {
        let text = format!(
            r#"{{"id":"{id}","thread_id":"t","agent":"clerk","status":"waiting_approval","step":1,"pending":{pending},
            "usage":{{}},"created_at":"1970-01-01T00:00:00.000Z"}}"#
        );
        serde_json::from_str(&text).expect("a run")
    };
    let held = r#"[{"call_id":"c","tool":"pay\u001b[31m","kind":"approval","approval_id":"apr_1"},
        {"call_id":"d","tool":"pick","kind":"client_tool"}]"#;
    assert_eq!(
        table(&[run("run_1", held), run("run_long", "[]")], 90_000),
        "RUN       STATUS            AGENT  THREAD  STEP  AGE  WAITS FOR\n\
         run_1     waiting_approval  clerk  t       1     1m   the approval of pay\\u001b[31m, apr_1, and 1 more\n\
         run_long  waiting_approval  clerk  t       1     1m\n"
    );
}
