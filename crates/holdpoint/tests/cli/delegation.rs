//! Agents that delegate to agents, set up by a configuration: after the loss of a node, across two nodes, and within
//! their limits.

use std::ffi::OsStr;

use serde_json::{Value, json};

use crate::fake_tool::{CalledTool, ReceivedRequest};
use crate::postgres_server::Server as Postgres;
use crate::program::Folder;
use crate::server::{Server, write};

/// Each node sends its own token, so that the ledger knows which node called.
const VARIABLE: &str = "HOLDPOINT_TEST_NODE";

/// One call that arrived: the node that made it, and the tool.
type Effect = (String, String);

/// The tools that the nodes call, and a record of the calls that they received.
struct Ledger(CalledTool);

impl Ledger {
    /// Calls of this tool are recorded and never answered.
    fn without_an_answer_for(silent: &'static str) -> Self {
        let done = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ndone";
        Self(CalledTool::answering_by(move |asked| (asked.body["tool"] != silent).then_some(done)))
    }

    fn next(&self) -> Effect {
        effect(&self.0.next())
    }

    /// All recorded calls that the test has not read yet.
    fn rest(&self) -> Vec<Effect> {
        let mut effects: Vec<Effect> = self.0.rest().iter().map(effect).collect();
        effects.sort();
        effects
    }
}

fn effect(asked: &ReceivedRequest) -> Effect {
    let node = asked.header("authorization").strip_prefix("bearer ").expect("a token");
    (node.to_owned(), asked.body["tool"].as_str().expect("a tool").to_owned())
}

/// A desk delegates to an office. The office wants to sign, and delegates to a clerk. The clerk calls `note`, which
/// needs no approval, and wants to transfer money.
fn configured(ledger: &Ledger) -> Folder {
    let folder = Folder::new();
    let usage = json!({"input_tokens": 10, "output_tokens": 5});
    let call = |tool: &str, arguments: Value| json!({"id": format!("{tool}_1"), "name": tool, "arguments": arguments});
    let script = |name: &str, calls: Value, end: &str| {
        let replies = json!([{"tool_calls": calls, "usage": usage}, {"text": end, "usage": usage}]);
        write(&folder, name, &json!({"rules": [{"when": ".*", "replies": replies}]}).to_string());
    };
    let asks = |who: &str| call(&format!("ask_{who}"), json!({"message": "Pay bob."}));
    script("desk.json", json!([asks("office")]), "The desk is done.");
    script("office.json", json!([asks("clerk"), call("sign", json!({}))]), "The office is done.");
    script("clerk.json", json!([call("note", json!({})), call("transfer", json!({}))]), "The clerk is done.");
    let mut text = "[server]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    for (tool, more) in [("note", "approval = \"never\"\n"), ("sign", ""), ("transfer", "")] {
        text.push_str(&format!(
            "[tools.{tool}]\nkind = \"http\"\nurl = \"http://{}/{tool}\"\nparameters = {{ type = \"object\" }}\n\
             bearer_env = \"{VARIABLE}\"\n{more}",
            ledger.0.address
        ));
    }
    for agent in ["office", "clerk"] {
        text.push_str(&delegates_to(agent));
    }
    for (agent, tools) in [
        ("desk", "\"ask_office\""),
        ("office", "\"ask_clerk\", \"sign\""),
        ("clerk", "\"note\", \"transfer\""),
    ] {
        text.push_str(&agent_with(agent, tools, ""));
    }
    write(&folder, "holdpoint.toml", &text);
    folder
}

fn delegates_to(agent: &str) -> String {
    format!("[tools.ask_{agent}]\nkind = \"agent\"\nagent = \"{agent}\"\napproval = \"never\"\n")
}

fn agent_with(agent: &str, tools: &str, more: &str) -> String {
    format!(
        "[models.{agent}]\nprovider = \"scripted\"\nscript = \"{agent}.json\"\n\
         [agents.{agent}]\nmodel = \"{agent}\"\ntools = [{tools}]\n{more}"
    )
}

fn node(folder: &Folder, postgres: &Postgres, name: &str) -> Server {
    let store = format!("postgres://holdpoint@localhost:{}/postgres", postgres.port);
    Server::start_with(folder.path(), &["serve", "--store", &store], &[(VARIABLE, OsStr::new(name))])
}

/// The two held calls, as a node lists them: the office's `sign` and the clerk's `transfer`.
struct Held {
    sign: Value,
    transfer: Value,
}

impl Held {
    fn at(node: &Server) -> Self {
        let listed = node.until("/v1/approvals", |listed| listed["approvals"][1].is_object());
        let mut held = listed["approvals"].as_array().expect("a list").clone();
        held.sort_by_key(|approval| approval["tool"].to_string());
        let [sign, transfer] = <[Value; 2]>::try_from(held).expect("two calls are held");
        Self { sign, transfer }
    }

    /// The ids of the runs, from the desk to the clerk.
    fn runs(&self) -> Vec<String> {
        let path = self.transfer["path"].as_array().expect("a path");
        path.iter().map(|at| at["run_id"].as_str().expect("a run").to_owned()).collect()
    }
}

fn delegation_path(approval: &Value) -> Vec<(&str, &str)> {
    let path = approval["path"].as_array().expect("a path");
    path.iter().filter_map(|at| Some((at["agent"].as_str()?, at["call_id"].as_str()?))).collect()
}

#[track_caller]
fn approve(node: &Server, approval: &Value) {
    let id = approval["id"].as_str().expect("an id");
    let (code, said) = node.post_nothing(&format!("/v1/approvals/{id}/approve"));
    assert_eq!(code, 200, "{said}");
}

/// Waits until the result is stored: a node that takes over the run then has it.
fn until_succeeded(node: &Server, run: &str, call: &str) {
    let is_it = |known: &&Value| known["call_id"] == call && known["status"] == "succeeded";
    node.until(&format!("/v1/runs/{run}/calls"), |calls| {
        calls["calls"].as_array().is_some_and(|calls| calls.iter().find(is_it).is_some())
    });
}

/// All runs have completed, and each parent's usage includes the usage of its children.
fn all_finished(node: &Server, runs: &[String]) {
    for (run, tokens) in runs.iter().zip([(60, 30), (40, 20), (20, 10)]) {
        let ended = node.run_with(run, "completed");
        let usage = json!({"input_tokens": tokens.0, "output_tokens": tokens.1});
        assert_eq!((&ended["termination"]["reason"], &ended["usage"]), (&json!("natural_end"), &usage));
    }
    let (_, read) = node.get(&format!("/v1/runs/{}/transcript", runs[0]));
    let read: Vec<&str> = read["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter_map(|said| said["content"].as_str())
        .collect();
    assert_eq!(read, ["Please pay bob.", "", "The office is done.", "The desk is done."]);
}

#[test]
fn a_tree_of_held_runs_is_decided_at_another_node_after_a_kill_and_nothing_happens_twice() {
    let (postgres, ledger) = (Postgres::start(), Ledger::without_an_answer_for("nothing"));
    let folder = configured(&ledger);
    let first = node(&folder, &postgres, "first");
    let run = first.begin("desk", "Please pay bob.");
    let held = Held::at(&first);
    let runs = held.runs();
    assert_eq!(runs[0], run);
    until_succeeded(&first, &runs[2], "note_1");
    assert_eq!(ledger.next(), ("first".into(), "note".into()));
    let second = node(&folder, &postgres, "second");
    first.kill();

    let held = Held::at(&second);
    assert_eq!(delegation_path(&held.sign), [("desk", "ask_office_1"), ("office", "sign_1")]);
    assert_eq!(
        delegation_path(&held.transfer),
        [("desk", "ask_office_1"), ("office", "ask_clerk_1"), ("clerk", "transfer_1")]
    );
    for (run, count) in runs.iter().zip([2, 2, 1]) {
        let (_, shown) = second.get(&format!("/v1/runs/{run}"));
        let thread = shown["thread_id"].as_str().expect("a thread");
        for filter in [format!("run_id={run}"), format!("thread_id={thread}")] {
            let (_, listed) = second.get(&format!("/v1/approvals?{filter}"));
            assert_eq!(listed["approvals"].as_array().map(Vec::len), Some(count), "{filter}: {listed}");
        }
    }
    let (_, desk) = second.get(&format!("/v1/runs/{}", runs[0]));
    let pending = &desk["pending"][0];
    assert_eq!((&pending["kind"], &pending["run_id"]), (&json!("child_run"), &json!(runs[1])), "{desk}");
    let (_, clerk) = second.get(&format!("/v1/runs/{}", runs[2]));
    assert_eq!(clerk["pending"][0]["run_id"], Value::Null, "{clerk}");
    assert_eq!(ledger.rest(), [], "no tool is called before the approval");
    approve(&second, &held.transfer);
    approve(&second, &held.sign);
    all_finished(&second, &runs);
    let by_second = |tool: &str| ("second".to_owned(), tool.to_owned());
    assert_eq!(ledger.rest(), [by_second("sign"), by_second("transfer")]);
}

/// Starts two nodes. One of them has called `transfer`: the ledger has recorded the call and never answers it. Returns
/// this node first.
fn while_a_transfer_is_on_its_way(
    folder: &Folder,
    postgres: &Postgres,
    ledger: &Ledger,
    sign_it: bool,
) -> (Server, Server, Vec<String>) {
    let (first, second) = (node(folder, postgres, "first"), node(folder, postgres, "second"));
    first.begin("desk", "Please pay bob.");
    let held = Held::at(&second);
    let runs = held.runs();
    until_succeeded(&second, &runs[2], "note_1");
    if sign_it {
        approve(&first, &held.sign);
        until_succeeded(&first, &runs[1], "sign_1");
    }
    let before: Vec<String> = ledger.rest().into_iter().map(|(_, tool)| tool).collect();
    assert_eq!(before.len(), 1 + usize::from(sign_it), "{before:?}");
    approve(&second, &held.transfer);
    let (by, tool) = ledger.next();
    assert_eq!(tool, "transfer");
    if by == "first" { (first, second, runs) } else { (second, first, runs) }
}

/// The code with which a message to the thread of the run is refused.
fn refusal(node: &Server, run: &str, message: &Value) -> Value {
    let (_, shown) = node.get(&format!("/v1/runs/{run}"));
    let thread = shown["thread_id"].as_str().expect("a thread");
    let (code, said) = node.post(&format!("/v1/threads/{thread}/messages"), message);
    assert_eq!(code, 409, "{said}");
    said["error"]["code"].clone()
}

#[test]
fn a_tree_whose_innermost_call_was_lost_with_its_node_continues_on_another_node_after_a_decision() {
    let (postgres, ledger) = (Postgres::start(), Ledger::without_an_answer_for("transfer"));
    let folder = configured(&ledger);
    let (busy, other, runs) = while_a_transfer_is_on_its_way(&folder, &postgres, &ledger, true);
    // The desk and the office wait, and the clerk executes, so `on_busy` decides.
    let policy = json!({"while_waiting": "supersede", "on_busy": "reject"});
    let message = json!({"agent": "desk", "text": "Stop.", "policy": policy});
    assert_eq!(refusal(&other, &runs[0], &message), "ACTIVE_RUN_EXISTS");
    busy.kill();

    let listed = other.until("/v1/approvals", |listed| listed["approvals"][0].is_object());
    let doubt = &listed["approvals"][0];
    let message = json!({"agent": "desk", "text": "Stop.", "on_busy": "interrupt"});
    assert_eq!(refusal(&other, &runs[0], &message), "IN_DOUBT");
    assert_eq!((&doubt["kind"], delegation_path(doubt).len()), (&json!("in_doubt"), 3), "{doubt}");
    let id = doubt["id"].as_str().expect("an id");
    let (code, said) = other.post(&format!("/v1/approvals/{id}/answer"), &json!({"result": "sent"}));
    assert_eq!(code, 200, "{said}");
    all_finished(&other, &runs);
    assert_eq!(ledger.rest(), [], "no node repeats the call");
}

#[test]
fn a_tree_is_interrupted_as_one_even_if_its_innermost_run_is_on_another_node() {
    let (postgres, ledger) = (Postgres::start(), Ledger::without_an_answer_for("transfer"));
    let folder = configured(&ledger);
    let (busy, other, runs) = while_a_transfer_is_on_its_way(&folder, &postgres, &ledger, false);
    let (code, said) = other.post_nothing(&format!("/v1/runs/{}/interrupt", runs[0]));
    assert_eq!(code, 202, "{said}");
    for (run, node) in runs.iter().zip([&other, &other, &busy]) {
        let ended = node.run_with(run, "interrupted");
        assert_eq!(ended["pending"], json!([]));
    }
    let (_, calls) = busy.get(&format!("/v1/runs/{}/calls", runs[2]));
    let transfer = &calls["calls"][1];
    assert_eq!(
        (&transfer["status"], &transfer["outcome_unknown"]),
        (&json!("cancelled"), &json!(true)),
        "the tool was called: {transfer}"
    );
    let (_, listed) = other.get("/v1/approvals");
    assert_eq!(listed["approvals"], json!([]), "the held call of the office is closed too");
    assert_eq!(ledger.rest(), []);
}

/// The child run that this run delegated to.
fn child_of(node: &Server, run: &str) -> Option<String> {
    let (_, listed) = node.get(&format!("/v1/runs/{run}/events"));
    let events = listed["events"].as_array().expect("a list");
    let started = events.iter().find(|event| event["type"] == "child.started")?;
    Some(started["payload"]["run_id"].as_str().expect("a run").to_owned())
}

#[test]
fn agents_that_delegate_to_each_other_end_at_the_fourth_level_and_the_model_gets_the_reason() {
    let folder = Folder::new();
    let mut text = "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"memory:\"\n".to_owned();
    for (agent, other) in [("ann", "bob"), ("bob", "ann")] {
        let asks =
            json!({"tool_calls": [{"name": format!("ask_{other}"), "arguments": {"message": "You do it."}}]});
        let replies = json!([asks, {"text": "Enough."}]);
        let script = json!({"rules": [{"when": ".*", "replies": replies}]});
        write(&folder, &format!("{agent}.json"), &script.to_string());
        text.push_str(&delegates_to(agent));
        text.push_str(&agent_with(agent, &format!("\"ask_{other}\""), ""));
    }
    write(&folder, "holdpoint.toml", &text);
    let server = Server::start(folder.path(), &["serve"]);
    let run = server.begin("ann", "Who does it?");
    server.run_with(&run, "completed");
    let mut runs = vec![run];
    while let Some(child) = child_of(&server, &runs[runs.len() - 1]) {
        runs.push(child);
    }
    let agent = |run: &String| server.get(&format!("/v1/runs/{run}")).1["agent"].clone();
    let agents: Vec<Value> = runs.iter().map(agent).collect();
    assert_eq!(agents, ["ann", "bob", "ann", "bob", "ann"]);
    let last = &runs[4];
    let (_, calls) = server.get(&format!("/v1/runs/{last}/calls"));
    assert_eq!(calls["calls"][0]["error"]["code"], "TOO_DEEP", "{calls}");
    let (_, read) = server.get(&format!("/v1/runs/{last}/transcript"));
    assert_eq!(
        read["messages"][2]["content"], "Error: agents may delegate 4 levels deep, and this is the last one",
        "{read}"
    );
}

#[test]
fn a_token_budget_bounds_the_run_and_all_of_its_children() {
    let folder = Folder::new();
    let usage = json!({"input_tokens": 10, "output_tokens": 5});
    let asks =
        json!({"usage": usage, "tool_calls": [{"name": "ask_clerk", "arguments": {"message": "Count."}}]});
    let replies = json!([asks, {"text": "Never said.", "usage": usage}]);
    write(&folder, "desk.json", &json!({"rules": [{"when": ".*", "replies": replies}]}).to_string());
    // Without a limit it would never end.
    let counts = json!({"usage": usage, "tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]});
    write(&folder, "clerk.json", &json!({"rules": [{"when": ".*", "replies": [counts]}]}).to_string());
    let text = [
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"memory:\"\n[tools.add]\nkind = \"builtin\"\n",
        &delegates_to("clerk"),
        &agent_with("desk", "\"ask_clerk\"", "stop = [{ type = \"token_budget\", max_total = 100 }]\n"),
        &agent_with("clerk", "\"add\"", "stop = []\n"),
    ];
    write(&folder, "holdpoint.toml", &text.concat());
    let server = Server::start(folder.path(), &["serve"]);
    let run = server.begin("desk", "Have it counted.");
    let ended = server.run_with(&run, "completed");
    let stopped = |detail: &str| json!({"reason": "stopped", "code": "token_budget", "detail": detail});
    // The desk used 15 tokens, so the clerk may use 85. Its sixth answer exceeds them. Its tokens count for the desk.
    assert_eq!(ended["termination"], stopped("105 of 100 tokens"));
    assert_eq!(ended["usage"], json!({"input_tokens": 70, "output_tokens": 35}));
    let clerk = child_of(&server, &run).expect("the clerk has a run");
    let (_, clerk) = server.get(&format!("/v1/runs/{clerk}"));
    assert_eq!(clerk["termination"], stopped("90 of the 85 tokens granted by the parent"), "{clerk}");
}
