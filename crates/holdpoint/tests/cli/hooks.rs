//! A server is killed while a hook is asked, once for each question of a run. After the restart the hook is asked that
//! question again, and none that it had answered.

use serde_json::{Value, json};

use crate::fake_tool::{CalledTool, ReceivedRequest};
use crate::postgres_server;
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
    respond(&json!({"actions": [set]}))
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

/// The answer of a hook to the first question of one phase; the action takes the place of a state that is stored.
#[derive(Clone)]
struct Judgement {
    phase: &'static str,
    action: Value,
}

impl Judgement {
    /// Every answer also stores its question, so that each of them is recorded.
    fn answer(&self, question: &ReceivedRequest) -> &'static str {
        let (phase, revisit) = (&question.body["phase"], &question.body["revisit"]);
        let value = json!([question.body["step"], revisit]);
        let mut actions = vec![json!({"type": "set_state", "key": phase, "value": value})];
        if *phase == self.phase && revisit.is_null() {
            actions.push(self.action.clone());
        }
        respond(&json!({ "actions": actions }))
    }

    /// The question with this index gets no answer the first time.
    fn hook(&self, silent: Option<usize>) -> CalledTool {
        let (mut count, judgement) = (0, self.clone());
        CalledTool::answering_by(move |question| {
            count += 1;
            (Some(count - 1) != silent).then(|| judgement.answer(question))
        })
    }
}

fn respond(body: &Value) -> &'static str {
    let body = body.to_string();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").leak()
}

/// Approves what the run waits for, if it waits. Returns whether it did.
fn approve(server: &Server, run: &str) -> bool {
    let (code, page) = server.get(&format!("/v1/approvals?run_id={run}"));
    assert_eq!(code, 200, "{page}");
    let Some(approval) = page["approvals"][0]["id"].as_str() else { return false };
    let (code, approved) = server.post(&format!("/v1/approvals/{approval}/approve"), &json!({}));
    assert_eq!(code, 200, "{approved}");
    true
}

/// Waits for the end of the run, and approves what it waits for. Returns what became of its call.
fn finished(server: &Server, run: &str) -> Value {
    let path = format!("/v1/runs/{run}");
    let rests =
        |run: &Value| ["completed", "waiting_approval"].contains(&run["status"].as_str().unwrap_or(""));
    while server.until(&path, rests)["status"] != "completed" {
        approve(server, run);
    }
    let (code, found) = server.get(&format!("{path}/calls"));
    assert_eq!(code, 200, "{found}");
    let call = &found["calls"][0];
    json!([call["status"], call["result"], call["error"]["code"], server.get(&path).1["termination"]])
}

/// Plays a run whose server is killed during this question. Returns the questions and what became of the call.
fn played(judgement: &Judgement, silent: Option<usize>) -> (Vec<(String, u64)>, Value) {
    let hook = judgement.hook(silent);
    let folder = folder(&hook.address);
    let mut server = Server::start(folder.path(), &["serve"]);
    let run = server.begin("clerk", "Go.");
    let mut questions = Vec::new();
    if let Some(silent) = silent {
        while questions.len() <= silent {
            questions.push(asked(&hook.next()));
            let is_held = judgement.action["type"] == "suspend" && questions.len() <= silent;
            if is_held && questions.last().is_some_and(|(phase, _)| phase == judgement.phase) {
                server.run_with(&run, "waiting_approval");
                approve(&server, &run);
            }
        }
        server.kill();
        server = Server::start(folder.path(), &["serve"]);
        // It is asked again after the restart.
        questions.pop();
    }
    let end = finished(&server, &run);
    questions.extend(hook.rest().iter().map(asked));
    assert_eq!(recorded(&server, &run).len(), questions.len(), "each answer is recorded once");
    (questions, end)
}

#[test]
fn an_answer_of_any_kind_takes_effect_once_whenever_the_server_is_killed() {
    for (phase, action, status) in [
        ("before_tool_execute", json!({"type": "block", "reason": "no"}), "failed"),
        ("before_tool_execute", json!({"type": "suspend", "question": "Sure?"}), "succeeded"),
        ("before_tool_execute", json!({"type": "set_result", "result": "supplied"}), "succeeded"),
        ("before_inference", json!({"type": "hide_tool", "tool": "echo"}), "failed"),
        ("step_end", json!({"type": "end"}), "succeeded"),
    ] {
        let judgement = Judgement { phase, action };
        let undisturbed = played(&judgement, None);
        assert_eq!(undisturbed.1[0], status, "{undisturbed:?}");
        let at = undisturbed.0.iter().position(|(asked, _)| asked == phase).expect("it is asked");
        // In the middle of the question, and in the middle of the next one.
        for silent in [at, at + 1] {
            assert_eq!(played(&judgement, Some(silent)), undisturbed, "killed at {silent}");
        }
    }
}

#[test]
fn a_node_that_takes_a_run_over_asks_only_the_question_that_has_no_answer() {
    let all: Vec<(String, u64)> = QUESTIONS.map(|(phase, step)| (phase.to_owned(), step)).to_vec();
    let (database, silent) = (postgres_server::Server::start(), 4);
    let url = format!("postgres://holdpoint@localhost:{}/postgres", database.port);
    let hook = hook_silent_at(silent);
    let folder = folder(&hook.address);
    let [first, second] = [0, 1].map(|_| Server::start(folder.path(), &["serve", "--store", &url]));
    let run = first.begin("clerk", "Go.");
    let before: Vec<_> = (0..=silent).map(|_| asked(&hook.next())).collect();
    assert_eq!(before, all[..=silent]);
    first.kill();
    second.run_with(&run, "completed");
    let after: Vec<_> = hook.rest().iter().map(asked).collect();
    assert_eq!(after, all[silent..]);
    let phases: Vec<String> = all.into_iter().map(|(phase, _)| phase).collect();
    assert_eq!(recorded(&second, &run), phases, "each answer is recorded once");
}
