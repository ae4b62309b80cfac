//! `holdpoint runs show RUN`: the state of a run, and what to do about it.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::Args;

use crate::cli::client::approvals::{how_to_decide, question_label};
use crate::cli::client::connection::{Connection, percent_encoded};
use crate::cli::client::terminal_text::{compact, escaped, lines, pretty};
use crate::cli::client::times;
use crate::cli::client::wire::{Call, Calls, Pending, Run, read};
use crate::cli::output::{print, print_raw};
use crate::cli::{CommandResult, CommandStatus};

/// Show one run: its status, what it waits for with which arguments, its tokens, and how it ended
#[derive(Debug, Args)]
pub(super) struct ShowRun {
    /// The id of the run
    run: String,
}

impl ShowRun {
    pub(super) async fn run(&self, connection: &Connection, json: bool) -> CommandResult {
        let path = format!("/v1/runs/{}", percent_encoded(&self.run));
        let text = connection.get(&path).await?;
        let run: Run = read(connection, &text)?;
        if json {
            print_raw(&text)?;
            return Ok(CommandStatus::Success);
        }
        let calls = if run.pending.is_empty() {
            Vec::new()
        } else {
            read::<Calls>(connection, &connection.get(&format!("{path}/calls")).await?)?.calls
        };
        print(&as_text(&run, &calls, times::now()))?;
        Ok(CommandStatus::Success)
    }
}

fn as_text(run: &Run, calls: &[Call], now: i64) -> String {
    let mut text = format!("{}: {}\n", escaped(&run.id), escaped(&run.status));
    let mut field = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:8} {value}");
    };
    field("agent", &escaped(&run.agent));
    field("thread", &escaped(&run.thread_id));
    field("step", &run.step.to_string());
    field("tokens", &format!("{} in, {} out", run.usage.input_tokens, run.usage.output_tokens));
    let times = [("created", Some(&run.created_at)), ("started", run.started_at.as_ref())];
    for (name, at) in times.into_iter().chain([("ended", run.ended_at.as_ref())]) {
        if let Some(at) = at {
            field(name, &format!("{}, {} ago", escaped(at), times::age(at, now)));
        }
    }
    if let Some(how) = &run.termination {
        let parts = [Some(&how.reason), how.code.as_ref(), how.detail.as_ref()];
        let parts: Vec<String> = parts.into_iter().flatten().map(|part| escaped(part)).collect();
        field("end", &parts.join(", "));
    }
    if let Some(error) = &run.error {
        field("error", &format!("{}: {}", escaped(&error.code), escaped(&error.message)));
    }
    if let Some(output) = &run.output {
        field("output", &compact(output));
    }
    if !run.pending.is_empty() {
        let calls: BTreeMap<&str, &Call> = calls.iter().map(|call| (call.call_id.as_str(), call)).collect();
        text.push_str("\nIt waits for:\n");
        for held in &run.pending {
            text.push_str(&waiting(held, calls.get(held.call_id.as_str()).copied()));
        }
    }
    text
}

fn waiting(held: &Pending, call: Option<&Call>) -> String {
    let mut text =
        format!("  {} {} ({})\n", escaped(&held.kind), escaped(&held.tool), escaped(&held.call_id));
    if let Some(call) = call {
        let _ = writeln!(text, "    {}", pretty(&call.arguments, "    "));
        let suspension = call.suspension.as_ref();
        if let Some(question) = suspension.and_then(|suspension| suspension.question.as_ref()) {
            let _ = writeln!(text, "    {}: {}", question_label(&held.kind), lines(question, "    | "));
        }
        if let Some(at) = suspension.and_then(|suspension| suspension.expires_at.as_ref()) {
            let _ = writeln!(text, "    expires at {}", escaped(at));
        }
    }
    if let Some(approval) = &held.approval_id {
        text.push_str(&how_to_decide(&held.kind, approval, "    "));
    }
    text
}

#[test]
fn a_waiting_run_shows_its_held_calls_and_how_to_decide() {
    let run = r#"{"id":"run_1","thread_id":"t","agent":"clerk","status":"waiting_approval","step":2,"termination":null,
        "pending":[{"call_id":"c","tool":"pay","kind":"approval","approval_id":"apr_1"}],
        "usage":{"input_tokens":3,"output_tokens":4},"error":null,"created_at":"1970-01-01T00:00:00.000Z",
        "started_at":"1970-01-01T00:00:01.000Z","ended_at":null,"news":"later"}"#;
    let calls = r#"[{"call_id":"c","arguments":{"to":"bob\u001b"},"suspension":{"expires_at":"1970-01-02T00:00:00.000Z"}}]"#;
    let run: Run = serde_json::from_str(run).expect("a run");
    let calls: Vec<Call> = serde_json::from_str(calls).expect("calls");
    assert_eq!(
        as_text(&run, &calls, 61_000),
        "run_1: waiting_approval\n  agent    clerk\n  thread   t\n  step     2\n  tokens   3 in, 4 out\n  \
         created  1970-01-01T00:00:00.000Z, 1m ago\n  started  1970-01-01T00:00:01.000Z, 1m ago\n\n\
         It waits for:\n  approval pay (c)\n    {\n      \"to\": \"bob\\u001b\"\n    }\n    \
         expires at 1970-01-02T00:00:00.000Z\n    holdpoint approvals approve apr_1\n    \
         holdpoint approvals reject apr_1 --reason TEXT\n"
    );
}
