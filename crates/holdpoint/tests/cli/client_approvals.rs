//! `holdpoint approvals` against a real server: approve, reject, answer, and confirmation at a terminal.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::client::{CannedServer, Client, answer, approval, assert_plain, configuration};
use crate::program::{Folder, state_home};
use crate::server::{Server, configured, write};

fn folder() -> Folder {
    let script = json!({"rules": [
        {"when": "write", "replies": [
            {"tool_calls": [{"id": "call_1", "name": "write_file", "arguments": {"path": "a.txt", "text": "41"}}]},
            {"text": "Done."}]},
        {"when": "ask", "replies": [
            {"tool_calls": [{"id": "call_q", "name": "ask_user", "arguments": {"question": "Which\u{1b}[2J colour?"}}]},
            {"text": "So be it."}]},
        {"when": "pay", "replies": [
            {"tool_calls": [{"id": "call_p", "name": "pay", "arguments": {"to": "bob"}}]},
            {"text": "Paid."}]}]});
    let folder = configured(&script);
    write(&folder, "holdpoint.toml", &configuration(""));
    folder
}

fn held(server: &Server, text: &str) -> (String, String) {
    let run = server.begin("clerk", text);
    let id = approval(&server.run_with(&run, "waiting_approval"));
    (run, id)
}

#[test]
fn a_held_call_is_approved_once_with_the_arguments_that_were_meant() {
    let folder = folder();
    let server = Server::start(folder.path(), &["serve"]);
    let client = Client::for_server(&server);
    let (run, id) = held(&server, "write");
    let listed = client.shows(&["approvals", "list"]);
    assert!(listed.starts_with(&format!("{id}  approval  pending  ")), "{listed}");
    assert!(listed.contains("  write_file {\"path\":\"a.txt\",\"text\":\"41\"}\n"), "{listed}");
    assert!(listed.contains(&format!("  holdpoint approvals approve {id}\n")), "{listed}");

    // Without a terminal the command cannot ask for confirmation.
    let other = "0".repeat(64);
    for (given, missing) in [
        (&[][..], "Add --yes and --expect-digest DIGEST."),
        (&["--yes"], "Add --expect-digest DIGEST."),
        (&["--expect-digest", &other], "Add --yes."),
    ] {
        let refused = client.fails(&[&["approvals", "approve", &id], given].concat(), 2);
        assert!(refused.starts_with("WRONG_COMMAND_LINE: ") && refused.contains(missing), "{refused}");
    }
    let refused = client.fails(&["approvals", "approve", &id, "--yes", "--expect-digest", &other], 1);
    assert!(
        refused.starts_with("DIGEST_MISMATCH: ") && refused.contains("docs/errors/DIGEST_MISMATCH.md"),
        "{refused}"
    );
    let digest = client.digest(&id);
    let sure = ["approvals", "approve", &id, "--yes", "--expect-digest", &digest];
    let refused = client.fails(&[&sure[..], &["--arguments", "{\"path\": 1}"]].concat(), 1);
    assert!(refused.starts_with("INVALID_ARGUMENTS: "), "{refused}");
    let refused = client.fails(&[&sure[..], &["--arguments", "{path}"]].concat(), 2);
    assert!(refused.starts_with("BAD_JSON: --arguments"), "{refused}");
    let refused = client.fails(&["approvals", "answer", &id, "--result", "1"], 1);
    assert!(refused.starts_with("WRONG_KIND: "), "{refused}");
    assert_eq!(server.get(&format!("/v1/approvals/{id}")).1["status"], "pending");

    write(&folder, "edited.json", "{\"path\": \"a.txt\", \"text\": \"42\"}\n");
    let file = format!("@{}", folder.path().join("edited.json").display());
    let more = ["--arguments", &file, "--note", "Counted\u{1b}[1A again.", "--apply-to-future"];
    let said = client.shows(&[&sure[..], &more].concat());
    assert_eq!(
        said,
        format!(
            "{id}: approved by anonymous: write_file {{\"path\":\"a.txt\",\"text\":\"42\"}}; Counted\\u001b[1A again.\n"
        )
    );
    server.run_with(&run, "completed");
    assert_eq!(std::fs::read_to_string(folder.path().join("written/a.txt")).expect("it is written"), "42");
    let refused = client.fails(&sure, 1);
    assert!(refused.starts_with("APPROVAL_NOT_PENDING: "), "{refused}");
    let decided = client.shows(&["approvals", "list", "--status", "approved", "--run", &run]);
    assert!(decided.contains("  by anonymous: Counted\\u001b[1A again.\n"), "{decided}");
    // Later calls of this tool by this agent in this thread are not held for the same reason.
    let thread = server.get(&format!("/v1/runs/{run}")).1["thread_id"].as_str().expect("a thread").to_owned();
    let (_, posted) =
        server.post(&format!("/v1/threads/{thread}/messages"), &json!({"agent": "clerk", "text": "write"}));
    server.run_with(posted["run_id"].as_str().expect("an id"), "completed");
}

#[test]
fn a_held_call_is_rejected_with_a_reason_and_the_run_continues_or_ends() {
    let folder = folder();
    let server = Server::start(folder.path(), &["serve"]);
    let client = Client::for_server(&server);
    let (run, id) = held(&server, "write");
    let said =
        client.shows(&["approvals", "reject", &id, "--reason", "Not today.", "--then", "continue", "--json"]);
    let rejected: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&rejected["status"], &rejected["reason"]), (&json!("rejected"), &json!("Not today.")));
    assert_eq!(server.run_with(&run, "completed")["termination"]["reason"], "natural_end");
    let (run, id) = held(&server, "write");
    assert!(
        client.shows(&["approvals", "reject", &id]).starts_with(&format!("{id}: rejected by anonymous: "))
    );
    assert_eq!(server.run_with(&run, "completed")["termination"]["code"], "rejected");
    assert!(!folder.path().join("written/a.txt").exists(), "nothing ran");
}

#[test]
fn a_question_of_a_tool_is_answered() {
    let folder = folder();
    let server = Server::start(folder.path(), &["serve"]);
    let client = Client::for_server(&server);
    let (run, id) = held(&server, "ask");
    let listed = client.shows(&["approvals"]);
    assert!(listed.contains("  asks: Which\\u001b[2J colour?\n"), "{listed}");
    assert!(listed.contains(&format!("  holdpoint approvals answer {id} --result JSON\n")), "{listed}");
    assert_plain(&listed);
    let refused = client.fails(&["approvals", "approve", &id, "--yes", "--expect-digest", "d"], 1);
    assert!(refused.starts_with("WRONG_KIND: "), "{refused}");
    let refused = client.fails(&["approvals", "answer", &id, "--result", "blue"], 2);
    assert!(refused.contains("quotation marks"), "{refused}");
    for wrong in [&["--result", "1", "--choice", "retry"][..], &[]] {
        assert_eq!(client.run(&[&["approvals", "answer", &id], wrong].concat()).code, Some(2), "{wrong:?}");
    }
    let said = client.shows(&["approvals", "answer", &id, "--result", "\"blue\""]);
    assert!(said.starts_with(&format!("{id}: answered by anonymous: ask_user ")), "{said}");
    server.run_with(&run, "completed");
    assert!(client.shows(&["replay", &run]).contains("ask_user (call_q) succeeded: \"blue\""));
}

#[test]
fn a_call_in_doubt_is_given_up_and_its_crash_is_shown() {
    // A tool that accepts the request and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/pay", listener.local_addr().expect("an address"));
    let folder = folder();
    let pay = format!(
        "\n[tools.pay]\nkind = \"http\"\nurl = \"{url}\"\ndescription = \"Pays\"\nparameters = {{ type = \"object\" }}\n\
         effect = \"write\"\napproval = \"never\"\n"
    );
    let text = configuration(&pay).replace("\"ask_user\", ", "\"ask_user\", \"pay\", ");
    write(&folder, "holdpoint.toml", &text);
    let server = Server::start(folder.path(), &["serve"]);
    let run = server.begin("clerk", "pay");
    let taken = listener.accept().expect("the tool is called");
    server.kill();
    drop(taken);
    let server = Server::start(folder.path(), &["serve"]);
    let client = Client::for_server(&server);
    let id = approval(&server.run_with(&run, "waiting_approval"));
    let listed = client.shows(&["approvals"]);
    assert!(
        listed.contains("  why: the worker was lost\n  It may or may not have taken effect.\n"),
        "{listed}"
    );
    assert!(listed.contains(&format!("holdpoint approvals answer {id} --choice give_up\n")), "{listed}");
    client.shows(&["approvals", "answer", &id, "--choice", "give_up"]);
    server.run_with(&run, "completed");
    let story = client.shows(&["replay", &run]);
    for sentence in [
        "The process died with attempt 1 of pay (call_p); another one continues.",
        "pay (call_p) is in doubt (the worker was lost): it may or may not have taken effect.",
        "pay (call_p) is cancelled: given_up; it may have taken effect.",
    ] {
        assert!(story.contains(sentence), "{sentence}\n{story}");
    }
}

/// The program, connected to a terminal.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    screen: ChildStdout,
    shown: String,
}

impl Terminal {
    fn start(address: &str, arguments: &str) -> Self {
        let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_holdpoint"));
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command.env("HOLDPOINT_URL", format!("http://{address}")).env_remove("HOLDPOINT_TOKEN");
        command.env("XDG_STATE_HOME", state_home());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("`script` of util-linux gives a program a terminal");
        let keyboard = child.stdin.take().expect("it has a standard input");
        let screen = child.stdout.take().expect("it has a standard output");
        Self { child, keyboard, screen, shown: String::new() }
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("it is typed");
    }

    /// Reads until the terminal shows `text`. False if it ends before.
    fn reads(&mut self, text: &str) -> bool {
        let mut read = [0; 512];
        while !self.shown.contains(text) {
            let count = self.screen.read(&mut read).expect("it can be read");
            if count == 0 {
                return false;
            }
            self.shown.push_str(&String::from_utf8_lossy(&read[..count]));
        }
        true
    }

    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = Vec::new();
        self.screen.read_to_end(&mut rest).expect("it can be read");
        let code = self.child.wait().expect("it ends").code();
        (code, self.shown + &String::from_utf8_lossy(&rest))
    }
}

/// An operator at a terminal, who types `typed` when the command asks for confirmation.
fn at_a_terminal(address: &str, arguments: &str, typed: &str) -> (Option<i32>, String) {
    let mut terminal = Terminal::start(address, arguments);
    if terminal.reads("[y/N]") {
        terminal.type_in(typed);
    }
    terminal.end()
}

#[test]
fn without_a_visible_and_answerable_question_nothing_is_approved() {
    let folder = folder();
    let server = Server::start(folder.path(), &["serve"]);
    let (run, id) = held(&server, "write");
    for elsewhere in ["2>/dev/null", "</dev/null", "--yes 2>/dev/null", "--yes </dev/null"] {
        let arguments = format!("approvals approve {id} {elsewhere}");
        let (code, said) = at_a_terminal(server.address(), &arguments, "y\n");
        assert_eq!(code, Some(2), "{elsewhere}: {said}");
    }
    server.run_with(&run, "waiting_approval");
}

#[test]
fn at_a_terminal_the_call_is_shown_and_confirmed() {
    let folder = folder();
    let server = Server::start(folder.path(), &["serve"]);
    let (run, id) = held(&server, "write");
    for typed in ["n\n", "\n"] {
        let (code, shown) = at_a_terminal(server.address(), &format!("approvals approve {id}"), typed);
        assert_eq!(code, Some(1), "{shown}");
        assert!(
            shown.contains("clerk wants to call write_file") && shown.contains("\"text\": \"41\""),
            "{shown}"
        );
        assert!(shown.contains("Approve? [y/N]") && shown.contains("Nothing was decided."), "{shown}");
    }
    assert_eq!(server.get(&format!("/v1/approvals/{id}")).1["status"], "pending");
    let (code, shown) = at_a_terminal(server.address(), &format!("approvals approve {id}"), "y\n");
    assert_eq!(code, Some(0), "{shown}");
    server.run_with(&run, "completed");
    // At a terminal `--yes` is enough.
    let (second, other_id) = held(&server, "write");
    let (code, shown) = at_a_terminal(server.address(), &format!("approvals approve {other_id} --yes"), "");
    assert_eq!((code, shown.contains("[y/N]")), (Some(0), false), "{shown}");
    server.run_with(&second, "completed");
    // The command does not ask about a call that is already decided.
    let (code, shown) = at_a_terminal(server.address(), &format!("approvals approve {id}"), "y\n");
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("APPROVAL_NOT_PENDING") && !shown.contains("[y/N]"), "{shown}");
}

#[test]
fn a_yes_at_a_terminal_approves_only_what_was_shown() {
    let held = |status: &str| {
        format!(
            r#"{{"id":"apr_1","kind":"approval","run_id":"r","thread_id":"t","call_id":"c","agent":"clerk","tool":"pay",
            "arguments":{{"to":"bob"}},"arguments_digest":"d1","status":"{status}","created_at":"2026-01-01T00:00:00.000Z"}}"#
        )
    };
    let canned_server = CannedServer::answering(vec![
        answer("200 OK", &held("pending")),
        answer("200 OK", &held("approved")),
    ]);
    let (code, shown) = at_a_terminal(&canned_server.address, "approvals approve apr_1 --note seen", "y\n");
    assert_eq!(code, Some(0), "{shown}");
    assert!(canned_server.next_request().starts_with("GET /v1/approvals/apr_1 HTTP/1.1\r\n"));
    let approve = canned_server.next_request();
    assert!(approve.starts_with("POST /v1/approvals/apr_1/approve HTTP/1.1\r\n"), "{approve}");
    assert!(approve.ends_with("\r\n\r\n{\"expect_digest\":\"d1\",\"note\":\"seen\"}"), "{approve}");
}

/// A `y` that was typed before the question was shown does not count.
#[test]
fn a_yes_that_was_typed_before_the_question_approves_nothing() {
    let held = r#"{"id":"apr_1","kind":"approval","run_id":"r","thread_id":"t","call_id":"c","agent":"clerk","tool":"pay",
        "arguments":{"to":"bob"},"arguments_digest":"d1","status":"pending","created_at":"2026-01-01T00:00:00.000Z"}"#;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let mut terminal = Terminal::start(&address, "approvals approve apr_1");
    let (mut stream, _) = listener.accept().expect("the command connects");
    terminal.type_in("y\n");
    // The terminal echoes the `y`, so it was typed before the server answered.
    assert!(terminal.reads("y"), "{}", terminal.shown);
    let mut head = [0; 4_096];
    assert!(stream.read(&mut head).expect("a request") > 0);
    stream.write_all(answer("200 OK", held).as_bytes()).expect("it is answered");
    drop((stream, listener));
    assert!(terminal.reads("[y/N]"), "{}", terminal.shown);
    terminal.type_in("\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("Nothing was decided."), "{shown}");
}
