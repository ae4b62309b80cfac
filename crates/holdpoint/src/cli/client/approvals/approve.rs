//! `holdpoint approvals approve ID`: approves exactly what was shown.

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal};

use clap::Args;
use serde_json::{Map, Value};

use super::{decide, parse_json_option};
use crate::cli::client::api_error::ApiError;
use crate::cli::client::connection::{Connection, percent_encoded};
use crate::cli::client::terminal_text::{escaped, lines, pretty, warning_lines};
use crate::cli::client::wire::{Approval, read};
use crate::cli::output::print_stderr;
use crate::cli::problem::{Exit, Problem};
use crate::cli::{CommandResult, CommandStatus};

/// Approve a held call: it runs, once
///
/// On a terminal, shows the tool and the arguments and asks; only what was shown is approved. --yes approves without a
/// question. Without a terminal both --yes and --expect-digest are needed: a script approves only the arguments that it
/// names.
#[derive(Debug, Args)]
pub(super) struct Approve {
    /// The id of the approval
    id: String,
    /// Run the call with these arguments instead
    #[arg(long, value_name = "JSON|@FILE")]
    arguments: Option<String>,
    /// Approve only these arguments: the SHA-256 from arguments_digest
    #[arg(long, value_name = "DIGEST")]
    expect_digest: Option<String>,
    /// Kept with the approval
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Later calls of this tool by this agent in this thread are not held for the same reason
    #[arg(long)]
    apply_to_future: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Approve {
    /// Without a terminal the command cannot ask for confirmation, so the flags have to say what is approved.
    pub(super) fn require_flags_without_terminal(&self) -> Result<(), Problem> {
        let is_interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
        let missing = self.missing_flags(is_interactive);
        if missing.is_empty() {
            return Ok(());
        }
        Err(Problem::new(
            "WRONG_COMMAND_LINE",
            "standard input and standard error are not both a terminal, so the question cannot be shown and answered",
            format!(
                "Add {}. `holdpoint approvals show ID` prints the digest of the arguments that are held.",
                missing.join(" and ")
            ),
            Exit::Configuration,
        ))
    }

    fn missing_flags(&self, is_interactive: bool) -> Vec<&'static str> {
        let needed = [("--yes", self.yes), ("--expect-digest DIGEST", self.expect_digest.is_some())];
        let missing = needed.into_iter().filter(|(_, is_given)| !is_interactive && !is_given);
        missing.map(|(flag, _)| flag).collect()
    }

    pub(super) async fn run(&self, connection: &Connection, json: bool) -> CommandResult {
        let edited =
            self.arguments.as_deref().map(|text| parse_json_option("--arguments", text)).transpose()?;
        let mut digest = self.expect_digest.clone();
        if !self.yes {
            let path = format!("/v1/approvals/{}", percent_encoded(&self.id));
            let held: Approval = read(connection, &connection.get(&path).await?)?;
            can_be_approved(&held)?;
            let question = question(&held, edited.as_ref(), self.apply_to_future);
            if !confirm(&question, discard_typed_input, &mut io::stdin().lock(), &mut io::stderr().lock()) {
                print_stderr("Nothing was decided.");
                return Ok(CommandStatus::Failure);
            }
            // Bind the approval to the arguments that were shown, in case they are edited meanwhile.
            digest = digest.or(held.arguments_digest);
        }
        decide(connection, &self.id, "approve", &self.body(edited, digest), json).await
    }

    fn body(&self, edited: Option<Value>, digest: Option<String>) -> Value {
        let mut body = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        };
        set("arguments", edited);
        set("expect_digest", digest.map(Value::from));
        set("note", self.note.clone().map(Value::from));
        set("apply_to_future", self.apply_to_future.then_some(Value::Bool(true)));
        Value::Object(body)
    }
}

/// Refuses before asking if the approval would have no effect.
fn can_be_approved(held: &Approval) -> Result<(), Problem> {
    let id = escaped(&held.id);
    if held.kind != "approval" {
        let message =
            format!("{id} is of the kind {}: answer it with holdpoint approvals answer", escaped(&held.kind));
        return Err(Problem::Api(ApiError::predicted("WRONG_KIND", message)));
    }
    if held.status != "pending" {
        let by = held.decider().unwrap_or_default();
        let message = format!("{id} is {} by {by} already; nothing was changed", escaped(&held.status));
        return Err(Problem::Api(ApiError::predicted("APPROVAL_NOT_PENDING", message)));
    }
    Ok(())
}

/// Shows everything that would run, whatever its length.
fn question(held: &Approval, edited: Option<&Value>, future: bool) -> String {
    let mut text = format!("{} wants to call {}\n", escaped(&held.agent), escaped(&held.tool));
    if !held.tool_description.is_empty() {
        let _ = writeln!(text, "  {}", lines(&held.tool_description, "  | "));
    }
    let _ = writeln!(text, "  run {}, thread {}", escaped(&held.run_id), escaped(&held.thread_id));
    let _ = writeln!(text, "  {}", pretty(&held.arguments, "  "));
    text.push_str(&warning_lines(&held.shown_texts(), "  "));
    if let Some(edited) = edited {
        let _ = writeln!(text, "It would run with these instead:\n  {}", pretty(edited, "  "));
        text.push_str(&warning_lines(std::slice::from_ref(edited), "  "));
    }
    if future {
        text.push_str(
            "Later calls of this tool by this agent in this thread would not be held for the same reason.\n",
        );
    }
    text
}

const PROMPT: &str = "Approve? [y/N] ";

/// Only an explicit yes counts. An empty line and the end of the input do not.
fn confirm(
    question: &str,
    discard_typed_input: impl FnOnce() -> io::Result<()>,
    input: &mut impl BufRead,
    output: &mut impl io::Write,
) -> bool {
    let mut show = |text: &str| output.write_all(text.as_bytes()).and_then(|()| output.flush());
    // Never accept a yes if the question could not be shown, nor a yes that was typed before it was shown.
    if show(question).and_then(|()| discard_typed_input()).and_then(|()| show(PROMPT)).is_err() {
        return false;
    }
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(_) => matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"),
        Err(_) => false,
    }
}

/// A yes that was typed earlier was meant for something else.
#[cfg(unix)]
fn discard_typed_input() -> io::Result<()> {
    use rustix::termios::{QueueSelector, tcflush};
    Ok(tcflush(io::stdin(), QueueSelector::IFlush)?)
}

#[cfg(not(unix))]
fn discard_typed_input() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn held(kind: &str, status: &str) -> Approval {
        serde_json::from_value(json!({"id": "apr_1", "kind": kind, "run_id": "run_1", "thread_id": "t",
            "call_id": "c", "agent": "clerk", "tool": "pay\u{1b}[2K", "tool_description": "Pays.\n\u{9b}A",
            "arguments": {"to": "bob\u{202e}", "text": "x".repeat(5_000)}, "arguments_digest": "d",
            "status": status, "decided_by": "ann", "created_at": "1970-01-01T00:00:00.000Z"}))
        .expect("an approval")
    }

    #[test]
    fn without_a_terminal_a_yes_has_to_name_the_arguments() {
        let approve = |yes, digest: Option<&str>| Approve {
            id: "apr_1".into(),
            arguments: None,
            expect_digest: digest.map(str::to_owned),
            note: None,
            apply_to_future: false,
            yes,
        };
        for (yes, digest, missing) in [
            (false, None, &["--yes", "--expect-digest DIGEST"][..]),
            (true, None, &["--expect-digest DIGEST"]),
            (false, Some("d"), &["--yes"]),
            (true, Some("d"), &[]),
        ] {
            assert_eq!(approve(yes, digest).missing_flags(false), missing);
            assert!(approve(yes, digest).missing_flags(true).is_empty());
        }
    }

    #[test]
    fn only_a_plain_yes_is_a_yes() {
        for (typed, expected) in [
            ("y\n", true),
            ("Yes\r\n", true),
            (" YES ", true),
            ("", false),
            ("\n", false),
            ("n\n", false),
            ("yess\n", false),
            ("ja\n", false),
            ("\ny\n", false),
        ] {
            let mut shown = Vec::new();
            assert_eq!(
                confirm("It pays.\n", || Ok(()), &mut typed.as_bytes(), &mut shown),
                expected,
                "{typed:?}"
            );
            assert_eq!(shown, b"It pays.\nApprove? [y/N] ");
        }
    }

    #[test]
    fn a_question_that_cannot_be_shown_is_not_approved() {
        let mut nowhere: &mut [u8] = &mut [];
        assert!(!confirm("It pays.\n", || Ok(()), &mut "y\n".as_bytes(), &mut nowhere));
    }

    #[test]
    fn nothing_is_approved_if_typed_input_cannot_be_discarded() {
        let mut shown = Vec::new();
        let cannot = || Err(io::Error::other("no terminal"));
        assert!(!confirm("It pays.\n", cannot, &mut "y\n".as_bytes(), &mut shown));
        assert_eq!(shown, b"It pays.\n");
    }

    #[test]
    fn the_question_shows_all_of_what_would_run_and_no_escape() {
        let text = question(&held("approval", "pending"), Some(&json!({"to": "eve"})), true);
        assert!(text.starts_with("clerk wants to call pay\\u001b[2K\n  Pays.\n  | \\u009bA\n"), "{text}");
        assert!(text.contains("\"to\": \"bob\\u202e\"") && text.contains(&"x".repeat(5_000)));
        assert!(text.contains("  warning: it has characters that cannot be seen"), "{text}");
        assert!(text.contains("instead:\n  {\n    \"to\": \"eve\"\n  }\n"), "{text}");
        let future =
            "Later calls of this tool by this agent in this thread would not be held for the same reason.\n";
        assert!(text.ends_with(future), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }

    #[test]
    fn what_cannot_be_approved_is_not_asked_about() {
        assert!(can_be_approved(&held("approval", "pending")).is_ok());
        for (kind, status, code) in
            [("question", "pending", "WRONG_KIND"), ("approval", "rejected", "APPROVAL_NOT_PENDING")]
        {
            let problem = can_be_approved(&held(kind, status)).expect_err("it cannot").to_string();
            assert!(problem.starts_with(code), "{problem}");
        }
    }
}
