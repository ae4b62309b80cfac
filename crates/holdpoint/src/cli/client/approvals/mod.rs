//! `holdpoint approvals`: lists what waits for a person, and sends the person's decisions.

mod answer;
mod approve;
mod list;
mod reject;
mod show;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::address::{ENVIRONMENT, Purpose, ServerAddress};
use super::connection::{Connection, percent_encoded};
use super::terminal_text::{compact, escaped};
use super::wire::{Approval, read};
use crate::cli::database::runtime;
use crate::cli::output::{print, print_raw};
use crate::cli::problem::{Exit, Problem};
use crate::cli::{CommandResult, CommandStatus, GlobalArgs};

/// See what waits for a person, approve it, reject it, answer it
///
/// Without a subcommand: list.
#[derive(Debug, Args)]
#[command(after_help = ENVIRONMENT)]
pub(in crate::cli) struct Approvals {
    #[command(flatten)]
    server: ServerAddress,
    #[command(subcommand)]
    command: Option<ApprovalsCommand>,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    List(list::ListApprovals),
    Show(show::ShowApproval),
    Approve(approve::Approve),
    Reject(reject::Reject),
    Answer(answer::Answer),
}

impl Approvals {
    const fn purpose(&self) -> Purpose {
        match self.command {
            Some(ApprovalsCommand::List(_) | ApprovalsCommand::Show(_)) | None => Purpose::General,
            Some(
                ApprovalsCommand::Approve(_) | ApprovalsCommand::Reject(_) | ApprovalsCommand::Answer(_),
            ) => Purpose::Decide,
        }
    }

    pub(in crate::cli) fn run(&self, global: &GlobalArgs) -> CommandResult {
        // Check the flags before contacting the server.
        if let Some(ApprovalsCommand::Approve(approve)) = &self.command {
            approve.require_flags_without_terminal()?;
        }
        let connection = self.server.connect(global, self.purpose())?;
        let json = global.json;
        runtime()?.block_on(async {
            match &self.command {
                Some(ApprovalsCommand::List(list)) => list.run(&connection, json).await,
                Some(ApprovalsCommand::Show(show)) => show.run(&connection, json).await,
                Some(ApprovalsCommand::Approve(approve)) => approve.run(&connection, json).await,
                Some(ApprovalsCommand::Reject(reject)) => reject.run(&connection, json).await,
                Some(ApprovalsCommand::Answer(answer)) => answer.run(&connection, json).await,
                None => list::ListApprovals::default().run(&connection, json).await,
            }
        })
    }
}

/// The commands that settle a held call, one per line.
pub(super) fn how_to_decide(kind: &str, id: &str, margin: &str) -> String {
    let id = escaped(id);
    let commands: &[&str] = match kind {
        "approval" => &["approve ID", "reject ID --reason TEXT"],
        "question" => &["answer ID --result JSON"],
        "in_doubt" => &["answer ID --choice retry", "answer ID --choice give_up", "answer ID --result JSON"],
        _ => &[],
    };
    let line = |command: &&str| format!("{margin}holdpoint approvals {}\n", command.replace("ID", &id));
    commands.iter().map(line).collect()
}

/// The label of the question. For a call in doubt it explains the reason instead of asking.
pub(super) fn question_label(kind: &str) -> &'static str {
    if kind == "in_doubt" { "why" } else { "asks" }
}

/// Sends the decision and prints the result.
async fn decide(connection: &Connection, id: &str, verb: &str, body: &Value, json: bool) -> CommandResult {
    let path = format!("/v1/approvals/{}/{verb}", percent_encoded(id));
    let text = connection.post_decision(&path, body).await?;
    let approval: Approval = read(connection, &text)?;
    if json {
        print_raw(&text)?;
    } else {
        print(&format!("{}\n", decision_line(&approval)))?;
    }
    Ok(CommandStatus::Success)
}

fn decision_line(approval: &Approval) -> String {
    let by = approval.decider().unwrap_or_default();
    let (id, status, tool) = (escaped(&approval.id), escaped(&approval.status), escaped(&approval.tool));
    let arguments = compact(&approval.arguments);
    let mut text = format!("{id}: {status} by {by}: {tool} {arguments}");
    for remark in [&approval.reason, &approval.note].into_iter().flatten() {
        text.push_str(&format!("; {}", escaped(remark)));
    }
    text
}

/// JSON from the command line, or from a file with `@FILE`.
fn parse_json_option(option: &str, text: &str) -> Result<Value, Problem> {
    let wrong = |cause: String, next: &str| Problem::new("BAD_JSON", cause, next, Exit::Configuration);
    let text = match text.strip_prefix('@') {
        None => text.to_owned(),
        Some(file) => std::fs::read_to_string(file)
            .map_err(|why| wrong(format!("{option}: {file}: {why}"), "Name a file that can be read."))?,
    };
    serde_json::from_str(&text).map_err(|why| {
        let next = "Write JSON, a text in quotation marks: '\"blue\"'; or @FILE for a file that has it.";
        wrong(format!("{option} is no JSON: {why}"), next)
    })
}

#[test]
fn json_is_typed_or_read_from_a_file() {
    assert_eq!(parse_json_option("--result", " {\"a\": [1]} ").expect("JSON"), serde_json::json!({"a": [1]}));
    for bad in ["blue", "", "{\"a\":1} x", "@no/such/file"] {
        let problem = parse_json_option("--result", bad).expect_err(bad).to_string();
        assert!(problem.starts_with("BAD_JSON: --result"), "{problem}");
    }
}
