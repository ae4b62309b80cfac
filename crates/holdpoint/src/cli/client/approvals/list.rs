//! `holdpoint approvals list`: pending approvals, each with the call that would run.

use std::fmt::Write;

use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::{how_to_decide, question_label};
use crate::cli::client::connection::Connection;
use crate::cli::client::pagination::PagedItems;
use crate::cli::client::terminal_text::{compact, cut, escaped, lines, warning_lines};
use crate::cli::client::times;
use crate::cli::client::wire::{Approval, read};
use crate::cli::output::{print, print_raw, print_stderr};
use crate::cli::{CommandResult, CommandStatus};

const LIMIT: usize = 100;
/// Limit for the arguments in a list. `approvals approve` shows all of them.
const ARGUMENTS_CHARS_MAX: usize = 2_000;

/// List what waits for a person, the oldest first
#[derive(Debug, Args)]
pub(super) struct ListApprovals {
    /// Those with this status
    #[arg(long, value_name = "STATUS", default_value = "pending",
        value_parser = ["pending", "approved", "rejected", "expired", "answered"])]
    status: String,
    /// Only those of this run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only those of this thread
    #[arg(long, value_name = "THREAD")]
    thread: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = LIMIT,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    limit: usize,
}

impl Default for ListApprovals {
    fn default() -> Self {
        Self { status: "pending".to_owned(), run: None, thread: None, limit: LIMIT }
    }
}

impl ListApprovals {
    pub(super) async fn run(&self, connection: &Connection, json: bool) -> CommandResult {
        let filters = [
            ("status", Some(&self.status)),
            ("run_id", self.run.as_ref()),
            ("thread_id", self.thread.as_ref()),
        ];
        let listed = PagedItems::read(connection, "/v1/approvals", &filters, self.limit).await?;
        if json {
            print_raw(&listed.as_json("approvals"))?;
            return Ok(CommandStatus::Success);
        }
        let now = times::now();
        let mut text = String::new();
        for item in &listed.items {
            text.push_str(&as_text(&read(connection, item.get())?, now));
        }
        if text.is_empty() {
            print_stderr(&format!("Nothing is {}.", self.status));
            return Ok(CommandStatus::Success);
        }
        print(&text)?;
        if listed.next_cursor.is_some() {
            print_stderr(&format!("There are more; --limit shows more than {}.", self.limit));
        }
        Ok(CommandStatus::Success)
    }
}

pub(super) fn as_text(approval: &Approval, now: i64) -> String {
    let (id, kind, status) = (escaped(&approval.id), escaped(&approval.kind), escaped(&approval.status));
    // The age of the current status: for a decided approval, the time since the decision.
    let since = approval.decided_at.as_ref().unwrap_or(&approval.created_at);
    let mut text = format!("{id}  {kind}  {status}  {} ago\n", times::age(since, now));
    let arguments = cut(&compact(&approval.arguments), ARGUMENTS_CHARS_MAX);
    let _ = writeln!(text, "  {} {arguments}", escaped(&approval.tool));
    text.push_str(&warning_lines(&approval.shown_texts(), "  "));
    if let Some(question) = &approval.question {
        let _ = writeln!(text, "  {}: {}", question_label(&approval.kind), lines(question, "  | "));
    }
    if let Some(schema) = &approval.schema {
        let _ = writeln!(text, "  the answer has to fit {}", cut(&compact(schema), ARGUMENTS_CHARS_MAX));
    }
    if approval.kind == "in_doubt" {
        text.push_str("  It may or may not have taken effect.\n");
    }
    let agents: Vec<String> = approval.path.iter().map(|step| escaped(&step.agent)).collect();
    let agents = if agents.is_empty() { escaped(&approval.agent) } else { agents.join(" > ") };
    let (run, thread, call) =
        (escaped(&approval.run_id), escaped(&approval.thread_id), escaped(&approval.call_id));
    let _ = writeln!(text, "  agent {agents}, run {run}, thread {thread}, call {call}");
    if approval.status == "pending" {
        if let Some(at) = approval.expires_at.as_deref() {
            let left = times::parse_ms(at)
                .map(|at| times::short_duration(at.saturating_sub(now)))
                .unwrap_or_default();
            let _ = writeln!(text, "  expires in {left}, at {}", escaped(at));
        }
        text.push_str(&how_to_decide(&approval.kind, &approval.id, "  "));
    } else if let Some(by) = approval.decider() {
        let remark = approval.reason.as_ref().or(approval.note.as_ref());
        let remark = remark.map(|text| format!(": {}", escaped(text))).unwrap_or_default();
        let _ = writeln!(text, "  by {by}{remark}");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decided_approval_is_shown_with_the_time_of_its_decision() {
        let approval = r#"{"id":"apr_1","kind":"approval","run_id":"run_1","thread_id":"t","call_id":"c","agent":"clerk",
            "tool":"pay","arguments":{},"status":"approved","path":[],"created_at":"1970-01-01T00:00:00.000Z",
            "decided_at":"1970-01-01T03:00:00.000Z","decided_by":"ann"}"#;
        let text = as_text(&serde_json::from_str(approval).expect("an approval"), 4 * 3_600_000);
        assert!(text.starts_with("apr_1  approval  approved  1h ago\n"), "{text}");
    }

    #[test]
    fn a_question_is_shown_with_how_to_answer_it_and_without_its_escapes() {
        let approval = r#"{"id":"apr_1","kind":"question","run_id":"run_1","thread_id":"t","call_id":"c","agent":"clerk",
            "tool":"ask","arguments":{"q":"\u009b31m"},"question":"Which?\nholdpoint \u001b[2J","schema":{"type":"string"},"status":"pending",
            "path":[{"run_id":"r","agent":"boss","call_id":"x"},{"run_id":"run_1","agent":"clerk","call_id":"c"}],
            "created_at":"1970-01-01T00:00:00.000Z","expires_at":"1970-01-01T02:00:00.000Z"}"#;
        assert_eq!(
            as_text(&serde_json::from_str(approval).expect("an approval"), 3_600_000),
            "apr_1  question  pending  1h ago\n  ask {\"q\":\"\\u009b31m\"}\n  \
             warning: it has characters that cannot be seen; they are shown as \\uXXXX\n  \
             asks: Which?\n  | holdpoint \\u001b[2J\n  the answer has to fit {\"type\":\"string\"}\n  \
             agent boss > clerk, run run_1, thread t, call c\n  \
             expires in 1h, at 1970-01-01T02:00:00.000Z\n  holdpoint approvals answer apr_1 --result JSON\n\n"
        );
    }
}
