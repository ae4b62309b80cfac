//! A server with an HTTP tool, and one whose agent delegates to another, each through a crash.

use std::ffi::OsStr;
use std::process::Command;

use serde_json::json;

use crate::fake_tool::CalledTool;
use crate::program::{CommandOutput, Folder};
use crate::server::{Server, write};

pub(crate) const VARIABLE: &str = "HOLDPOINT_TEST_TOOL_TOKEN";
const SIGNING_VARIABLE: &str = "HOLDPOINT_TEST_SIGNING_SECRET";

pub(crate) const SENT: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\
    connection: close\r\n\r\n{\"sent\":5.5}";
const BAD_GATEWAY: &str = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
pub(crate) const LATER: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

pub(crate) fn configured(tool: &CalledTool) -> Folder {
    let folder = Folder::new();
    let script = r#"{"rules": [{"when": ".*", "replies": [
        {"tool_calls": [{"id": "call_0", "name": "transfer", "arguments": {"to": "bob", "amount": 5.5}}]},
        {"text": "Done."}]}]}"#;
    write(&folder, "demo.json", script);
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[models.demo]\nprovider = \"scripted\"\nscript = \"demo.json\"\n\
         [tools.transfer]\nkind = \"http\"\nurl = \"http://{}/transfer\"\ndescription = \"Moves money\"\n\
         parameters = {{ type = \"object\" }}\nbearer_env = \"{VARIABLE}\"\n\
         [agents.clerk]\nmodel = \"demo\"\ntools = [\"transfer\"]\n",
        tool.address
    );
    write(&folder, "holdpoint.toml", &text);
    folder
}

pub(crate) fn started(folder: &Folder) -> Server {
    Server::start_with(folder.path(), &["serve"], &[(VARIABLE, OsStr::new("tool-token"))])
}

/// The id of the approval that the run waits for.
pub(crate) fn held(server: &Server, run: &str) -> String {
    let waiting = server.run_with(run, "waiting_approval");
    waiting["pending"][0]["approval_id"].as_str().expect("an approval").to_owned()
}

#[test]
fn an_approved_call_reaches_its_tool_once_with_its_token_and_its_key() {
    let tool = CalledTool::answering(vec![SENT]);
    let folder = configured(&tool);
    let server = started(&folder);
    let run = server.begin("clerk", "Pay bob");
    let approval = held(&server, &run);
    assert!(tool.rest().is_empty(), "the tool is not called before the approval");

    let (code, _) = server.post_nothing(&format!("/v1/approvals/{approval}/approve"));
    assert_eq!(code, 200);
    server.run_with(&run, "completed");

    let asked = tool.next();
    assert!(asked.head.starts_with("post /transfer http/1.1\r\n"), "{}", asked.head);
    assert_eq!(asked.header("authorization"), "bearer tool-token");
    assert_eq!(asked.header("idempotency-key").len(), 64, "{}", asked.head);
    let body = &asked.body;
    assert_eq!((&body["run_id"], &body["attempt"]), (&json!(run), &json!(1)));
    assert_eq!(body["arguments"], json!({"to": "bob", "amount": 5.5}));
    let (_, approved) = server.get(&format!("/v1/approvals/{approval}"));
    let named = json!({"id": approval, "by": "anonymous", "digest": approved["arguments_digest"]});
    assert_eq!(body["approval"], named, "the tool can look up the approval");
    assert!(tool.rest().is_empty(), "the tool is called once");
    let (_, calls) = server.get(&format!("/v1/runs/{run}/calls"));
    assert_eq!(calls["calls"][0]["result"], json!({"sent": 5.5}));
}

#[test]
fn a_write_that_may_have_happened_is_in_doubt_and_repeated_under_the_same_key_when_a_person_says_so() {
    let tool = CalledTool::answering(vec![BAD_GATEWAY, SENT]);
    let folder = configured(&tool);
    let server = started(&folder);
    let run = server.begin("clerk", "Pay bob");
    let approval = held(&server, &run);
    server.post_nothing(&format!("/v1/approvals/{approval}/approve"));
    let first = tool.next();
    let doubt = held(&server, &run);
    server.kill();

    let server = started(&folder);
    let (_, shown) = server.get(&format!("/v1/approvals/{doubt}"));
    assert_eq!((&shown["kind"], &shown["status"]), (&json!("in_doubt"), &json!("pending")));
    assert_eq!(shown["arguments"], json!({"to": "bob", "amount": 5.5}));
    assert!(tool.rest().is_empty(), "the call is not repeated without a decision, even after a crash");
    let (code, _) = server.post(&format!("/v1/approvals/{doubt}/answer"), &json!({"choice": "retry"}));
    assert_eq!(code, 200);
    server.run_with(&run, "completed");
    let second = tool.next();
    assert_eq!(shown["idempotency_key"], json!(first.header("idempotency-key")), "{shown}");
    assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"));
    assert_eq!(second.body["attempt"], 2);
    assert_eq!(first.body["approval"]["id"], json!(approval));
    assert_eq!(second.body["approval"], first.body["approval"], "the retry carries the same approval");
}

#[test]
fn a_signing_secret_signs_requests_and_a_wrong_one_keeps_a_server_from_starting() {
    let tool = CalledTool::answering(vec![SENT]);
    let folder = configured(&tool);
    let text = std::fs::read_to_string(folder.path().join("holdpoint.toml")).expect("it is there");
    let signed = format!("approval = \"never\"\nsigning_secret_env = \"{SIGNING_VARIABLE}\"\n[agents.clerk]");
    write(&folder, "holdpoint.toml", &text.replace("[agents.clerk]", &signed));
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let variables = [(VARIABLE, OsStr::new("tool-token")), (SIGNING_VARIABLE, OsStr::new(secret))];
    let server = Server::start_with(folder.path(), &["serve"], &variables);
    server.run_with(&server.begin("clerk", "Pay bob"), "completed");
    let asked = tool.next();
    assert!(asked.header("webhook-signature").starts_with("v1,"), "{}", asked.head);
    assert_eq!(asked.header("webhook-id"), format!("{}_1", asked.header("idempotency-key")));
    assert!(asked.body.get("approval").is_none(), "no approver was asked: {}", asked.body);
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    wrong.args(["check"]).current_dir(folder.path()).env(VARIABLE, "t").env(SIGNING_VARIABLE, "not-a-secret");
    let said = CommandOutput::capture(&mut wrong);
    assert!(said.code == Some(2) && said.err.contains("holds no signing secret"), "{said:?}");
    assert!(!said.err.contains("not-a-secret"), "{said:?}");
}

#[test]
fn a_tool_that_answers_later_is_answered_for() {
    let tool = CalledTool::answering(vec![LATER]);
    let folder = configured(&tool);
    let server = started(&folder);
    let run = server.begin("clerk", "Pay bob");
    let approval = held(&server, &run);
    server.post_nothing(&format!("/v1/approvals/{approval}/approve"));
    let waiting = server.run_with(&run, "waiting_tool");
    assert_eq!(waiting["pending"][0]["kind"], "external");
    let decisions = json!({"decisions": [{"call_id": "call_0", "action": "resume", "result": "sent"}]});
    let (_, decided) = server.post(&format!("/v1/runs/{run}/decisions"), &decisions);
    assert_eq!(decided["results"][0]["outcome"], "applied", "{decided}");
    server.run_with(&run, "completed");
}

/// Two levels deep: the call of the innermost agent is held, and approved after a crash.
#[test]
fn a_call_of_a_delegated_agent_is_approved_after_a_crash_and_all_runs_finish() {
    let tool = CalledTool::answering(vec![SENT]);
    let folder = configured(&tool);
    let delegate = |to: &str| {
        format!(
            r#"{{"rules": [{{"when": ".*", "replies": [{{"tool_calls": [
            {{"id": "d", "name": "{to}", "arguments": {{"message": "pay bob"}}}}]}}, {{"text": "Paid."}}]}}]}}"#
        )
    };
    write(&folder, "desk.json", &delegate("ask_office"));
    write(&folder, "office.json", &delegate("ask_clerk"));
    let mut text = std::fs::read_to_string(folder.path().join("holdpoint.toml")).expect("the file is there");
    for (agent, other) in [("desk", "office"), ("office", "clerk")] {
        text.push_str(&format!(
            "[models.{agent}]\nprovider = \"scripted\"\nscript = \"{agent}.json\"\n\
             [tools.ask_{other}]\nkind = \"agent\"\nagent = \"{other}\"\napproval = \"never\"\n\
             [agents.{agent}]\nmodel = \"{agent}\"\ntools = [\"ask_{other}\"]\n"
        ));
    }
    write(&folder, "holdpoint.toml", &text);
    let server = started(&folder);
    let run = server.begin("desk", "Pay bob");
    let listed = server.until("/v1/approvals", |listed| listed["approvals"][0].is_object());
    let approval = listed["approvals"][0]["id"].as_str().expect("an id");
    server.kill();

    let server = started(&folder);
    let (_, shown) = server.get(&format!("/v1/approvals/{approval}"));
    let agents: Vec<&str> =
        shown["path"].as_array().expect("a path").iter().filter_map(|at| at["agent"].as_str()).collect();
    assert_eq!(
        (shown["agent"].as_str(), agents),
        (Some("clerk"), vec!["desk", "office", "clerk"]),
        "{shown}"
    );
    let (code, _) = server.post_nothing(&format!("/v1/approvals/{approval}/approve"));
    assert_eq!(code, 200);
    server.run_with(&run, "completed");
    tool.next();
    assert!(tool.rest().is_empty(), "the tool was called once");
}
