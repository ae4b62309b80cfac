//! A server is killed while a hook is asked, once for each question of a run. After the restart the hook is asked that
//! question again, and none that it had answered.

use serde_json::{Value, json};

use crate::fake_tool::{CalledTool, ReceivedRequest};
use crate::program::Folder;
use crate::server::{Server, configured, write};

const PHASES: [&str; 8] = [
    "run_start",
    "step_start",
    "before_inference",
    "after_inference",
    "before_tool_execute",
    "after_tool_execute",
    "step_end",
    "run_end",
];

/// Phase and step of every question of a run with one call.
const QUESTIONS: [(&str, u64); 12] = [
    ("run_start", 0),
    ("step_start", 1),
    ("before_inference", 1),
    ("after_inference", 1),
    ("before_tool_execute", 1),
    ("after_tool_execute", 1),
    ("step_end", 1),
    ("step_start", 2),
    ("before_inference", 2),
    ("after_inference", 2),
    ("step_end", 2),
    ("run_end", 2),
];

/// Stores the step, so that every answer is recorded.
fn answer(question: &ReceivedRequest) -> &'static str {
    let set = json!({"type": "set_state", "key": question.body["phase"], "value": question.body["step"]});
    let body = json!({"actions": [set]}).to_string();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").leak()
}

/// The question with this index gets no answer the first time.
fn hook_silent_at(silent: usize) -> CalledTool {
    let mut count = 0;
    CalledTool::answering_by(move |question| {
        count += 1;
        (count != silent + 1).then(|| answer(question))
    })
}

fn folder(hook: &str) -> Folder {
    let call = json!({"tool_calls": [{"id": "a", "name": "echo", "arguments": {"text": "x"}}]});
    let folder = configured(&json!({"rules": [{"when": ".*", "replies": [call, {"text": "Done."}]}]}));
    let configuration = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[models.demo]\nprovider = \"scripted\"\nscript = \"script.json\"\n\
         [tools.echo]\nkind = \"builtin\"\n[agents.clerk]\nmodel = \"demo\"\ntools = [\"echo\"]\n\
         [[agents.clerk.hooks]]\nurl = \"http://{hook}/hook\"\nphases = {PHASES:?}\ntimeout = \"30s\"\n"
    );
    write(&folder, "holdpoint.toml", &configuration);
    folder
}

fn asked(question: &ReceivedRequest) -> (String, u64) {
    let phase = question.body["phase"].as_str().expect("a phase");
    (phase.to_owned(), question.body["step"].as_u64().expect("a step"))
}

/// The phase of every recorded answer.
fn recorded(server: &Server, run: &str) -> Vec<String> {
    let (code, page) = server.get(&format!("/v1/runs/{run}/events?limit=200"));
    assert_eq!((code, &page["next_after"]), (200, &Value::Null), "{page}");
    let events = page["events"].as_array().expect("a list");
    let answered = events.iter().filter(|event| event["type"] == "phase.answered");
    answered
        .map(|event| {
            assert_eq!(event["payload"]["plugin"], "hook_0@clerk", "{event}");
            event["payload"]["phase"].as_str().expect("a phase").to_owned()
        })
        .collect()
}

#[test]
fn a_server_that_is_killed_while_a_hook_is_asked_asks_only_that_question_again() {
    let all: Vec<(String, u64)> = QUESTIONS.map(|(phase, step)| (phase.to_owned(), step)).to_vec();
    for silent in 0..QUESTIONS.len() {
        let hook = hook_silent_at(silent);
        let folder = folder(&hook.address);
        let server = Server::start(folder.path(), &["serve"]);
        let run = server.begin("clerk", "Go.");
        let before: Vec<_> = (0..=silent).map(|_| asked(&hook.next())).collect();
        assert_eq!(before, all[..=silent]);
        server.kill();
        let server = Server::start(folder.path(), &["serve"]);
        server.run_with(&run, "completed");
        let after: Vec<_> = hook.rest().iter().map(asked).collect();
        assert_eq!(after, all[silent..], "killed at {:?}", all[silent]);
        let phases: Vec<String> = all.iter().map(|(phase, _)| phase.clone()).collect();
        assert_eq!(recorded(&server, &run), phases, "each answer is recorded once");
    }
}
