//! `holdpoint approvals show ID`: everything about one approval, with what a script needs to decide it.

use std::fmt::Write;

use clap::Args;

use super::list::as_text;
use crate::cli::client::connection::{Connection, percent_encoded};
use crate::cli::client::terminal_text::{escaped, lines, pretty};
use crate::cli::client::times;
use crate::cli::client::wire::{Approval, read};
use crate::cli::output::{print, print_raw};
use crate::cli::{CommandResult, CommandStatus};

/// Show one approval with all of its arguments and their digest
#[derive(Debug, Args)]
pub(super) struct ShowApproval {
    /// The id of the approval
    id: String,
}

impl ShowApproval {
    pub(super) async fn run(&self, connection: &Connection, json: bool) -> CommandResult {
        let text = connection.get(&format!("/v1/approvals/{}", percent_encoded(&self.id))).await?;
        let approval: Approval = read(connection, &text)?;
        if json {
            print_raw(&text)?;
        } else {
            print(&full_text(&approval, times::now()))?;
        }
        Ok(CommandStatus::Success)
    }
}

/// The text of the list, plus what the list omits.
fn full_text(approval: &Approval, now: i64) -> String {
    let mut text = as_text(approval, now);
    if !approval.tool_description.is_empty() {
        let _ = writeln!(text, "description: {}", lines(&approval.tool_description, "  | "));
    }
    let _ = writeln!(text, "arguments: {}", pretty(&approval.arguments, "  "));
    for (name, value) in
        [("digest", &approval.arguments_digest), ("idempotency key", &approval.idempotency_key)]
    {
        if let Some(value) = value {
            let _ = writeln!(text, "{name}: {}", escaped(value));
        }
    }
    let _ = writeln!(text, "created: {}", escaped(&approval.created_at));
    if let Some(at) = &approval.decided_at {
        let _ = writeln!(text, "decided: {}", escaped(at));
    }
    text
}

#[test]
fn a_call_in_doubt_is_shown_with_its_idempotency_key() {
    let approval = r#"{"id":"apr_1","kind":"in_doubt","run_id":"run_1","thread_id":"t","call_id":"c","agent":"clerk",
        "tool":"pay","tool_description":"Pays.","arguments":{"to":"b\u3164ob"},"arguments_digest":"d1","status":"answered",
        "created_at":"1970-01-01T00:00:00.000Z","decided_at":"1970-01-01T01:59:00.000Z","decided_by":"ann",
        "idempotency_key":"k1\u001b"}"#;
    assert_eq!(
        full_text(&serde_json::from_str(approval).expect("an approval"), 7_200_000),
        "apr_1  in_doubt  answered  1m ago\n  pay {\"to\":\"b\\u3164ob\"}\n  \
         warning: it has characters that cannot be seen; they are shown as \\uXXXX\n  \
         It may or may not have taken effect.\n  agent clerk, run run_1, thread t, call c\n  by ann\n\n\
         description: Pays.\narguments: {\n    \"to\": \"b\\u3164ob\"\n  }\ndigest: d1\nidempotency key: k1\\u001b\n\
         created: 1970-01-01T00:00:00.000Z\ndecided: 1970-01-01T01:59:00.000Z\n"
    );
}
