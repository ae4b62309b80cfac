//! What a configuration would do to the held runs in a store.

use std::sync::Arc;
use std::time::Duration;

use holdpoint::decision::{SuspensionKind, SuspensionView};
use holdpoint::event::{Fact, FeedItem, Subscription};
use holdpoint::model::Script;
use holdpoint::prelude::*;
use holdpoint::store::postgres::PostgresStore;
use holdpoint::tool::builtin::{Options, builtin};

use crate::postgres_server::Server;
use crate::program::Folder;

/// The agent that the runs were started with. The file keeps, changes, blocks and drops some of its five tools.
fn clerk(model: &str) -> Agent {
    let script = Script::from_json(
        r#"{"rules": [
        {"when": "write", "replies": [{"tool_calls": [
            {"id": "w", "name": "write_file", "arguments": {"path": "a", "text": "b"}}]}, {"text": "Written."}]},
        {"when": "pay", "replies": [{"tool_calls": [
            {"id": "p", "name": "pay", "arguments": {"to": "bob"}},
            {"id": "w", "name": "write_file", "arguments": {"path": "a", "text": "b"}}]}, {"text": "Paid."}]},
        {"when": "shred", "replies": [{"tool_calls": [
            {"id": "w", "name": "write_file", "arguments": {"path": "a", "text": "b"}},
            {"id": "s", "name": "shred", "arguments": {}}]}, {"text": "Shredded."}]},
        {"when": "sell", "replies": [{"tool_calls": [
            {"id": "n", "name": "narrowed", "arguments": {"amount": 5}},
            {"id": "b", "name": "blocked", "arguments": {}},
            {"id": "c", "name": "pick", "arguments": {}}]}, {"text": "Sold."}]}]}"#,
    )
    .expect("the script is good");
    let asked = |name: &str| {
        FunctionTool::new(ToolDefinition::new(name, "As it was"), |_: ToolRequest| async { json!("done") })
    };
    let mut agent = Agent::new("clerk", ScriptedModel::new(script))
        .tool(asked("pay"))
        .tool(asked("shred"))
        .tool(asked("narrowed"))
        .tool(asked("blocked"))
        .tool(DeclaredTool::new(ToolDefinition::new("pick", "Gone").performed_by(Performer::Client)));
    agent.tools.push(write_file());
    model.clone_into(&mut agent.model_name);
    agent
}

fn write_file() -> Arc<dyn Tool> {
    let folder = std::env::temp_dir().join(format!("holdpoint-check-{}", std::process::id()));
    builtin("write_file", &Options { folder: Some(folder) }).expect("there is such a tool")
}

const FILE: &str = r#"
[models.demo]
provider = "scripted"
script = "demo.json"
[tools.write_file]
kind = "builtin"
folder = "out"
[tools.pay]
kind = "external"
approval = "ask"
description = "As it is"
parameters = { type = "object" }
[tools.narrowed]
kind = "external"
approval = "ask"
description = "As it was"
parameters = { type = "object", required = ["to"] }
[tools.blocked]
kind = "external"
approval = "block"
description = "As it was"
parameters = { type = "object" }
[agents.clerk]
model = "demo"
tools = ["write_file", "pay", "narrowed", "blocked"]
"#;

fn write_configuration(folder: &Folder, text: &str) {
    let script = r#"{"rules": [{"when": ".*", "replies": [{"text": "Done."}]}]}"#;
    std::fs::write(folder.path().join("demo.json"), script).expect("the script is written");
    std::fs::write(folder.path().join("holdpoint.toml"), text).expect("the file is written");
}

async fn start(folder: &Folder, agent: Agent) -> Engine {
    let store = SqliteStore::open(folder.store()).expect("the store opens");
    Engine::on(store).agent(agent).start().await.expect("the engine starts")
}

/// Starts a run and returns its id once it is held.
async fn held(engine: &Engine, what: &str) -> String {
    let finished = engine.run(Message::to("clerk", what)).await.expect("the run is held");
    assert!(matches!(finished.outcome, RunOutcome::Suspended(_)), "{finished:?}");
    finished.run.to_string()
}

fn calls(said: &Value, group: &str) -> Vec<(String, String, Option<String>)> {
    let Some(list) = said["held"][group]["calls"].as_array() else { panic!("{said}") };
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    list.iter()
        .map(|call| (text(&call["run_id"]), text(&call["call_id"]), call["why"].as_str().map(str::to_owned)))
        .collect()
}

#[tokio::test]
async fn held_runs_are_sorted_by_the_impact_of_the_file_while_a_server_runs() {
    let folder = Folder::new();
    write_configuration(&folder, FILE);
    let engine = start(&folder, clerk("demo")).await;
    sorts_held_runs(&folder, &engine, "sqlite:holdpoint.db", "sqlite:holdpoint.db").await;
    // Without `--store` the report has no part about a store, although one with the default name exists.
    assert_eq!(folder.run(&["check", "--json"]).json().get("held"), None);
    engine.close(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn held_runs_are_sorted_in_the_same_way_in_a_database() {
    let (server, folder) = (Server::start(), Folder::new());
    write_configuration(&folder, FILE);
    let url = format!("postgres://holdpoint@localhost:{}/postgres", server.port);
    let store = PostgresStore::open(&url).await.expect("the store opens");
    let engine = Engine::on(store).agent(clerk("demo")).start().await.expect("the engine starts");
    let shown = format!("postgres://localhost:{}/postgres", server.port);
    sorts_held_runs(&folder, &engine, &url, &shown).await;
    engine.close(Duration::from_secs(5)).await;
}

/// `store` is the name on the command line, `shown` the name in the output.
async fn sorts_held_runs(folder: &Folder, engine: &Engine, store: &str, shown: &str) {
    let written = held(engine, "write").await;
    let paid = held(engine, "pay").await;
    let shredded = held(engine, "shred").await;
    let sold = held(engine, "sell").await;
    let ended = engine.run(Message::to("clerk", "write")).await.expect("the run is held");
    let interrupted = engine.interrupt(&Tenant::default(), &ended.run, &Principal::from("ann")).await;
    assert_eq!(interrupted, Ok(Verdict::Accepted));
    engine.wait_until_ended(&Tenant::default(), &ended.run).await.expect("the run ends");

    let said = folder.run(&["check", "--store", store, "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let whole = said.json();
    let entry = |run: &str, call: &str, why: Option<&str>| (run.into(), call.into(), why.map(str::to_owned));
    assert_eq!(
        calls(&whole, "fail"),
        [
            entry(&shredded, "s", Some("tool_gone")),
            entry(&sold, "b", Some("blocked")),
            entry(&sold, "n", Some("bad_arguments")),
        ]
    );
    assert_eq!(calls(&whole, "ask_again"), [entry(&paid, "p", None)]);
    assert_eq!(
        calls(&whole, "untouched"),
        [
            entry(&written, "w", None),
            entry(&paid, "w", None),
            entry(&shredded, "w", None),
            entry(&sold, "c", None),
        ]
    );
    let counts = |group: &str| (&whole["held"][group]["run_count"], &whole["held"][group]["call_count"]);
    assert_eq!(counts("fail"), (&json!(2), &json!(3)));
    assert_eq!(counts("ask_again"), (&json!(1), &json!(1)));
    assert_eq!(counts("untouched"), (&json!(1), &json!(4)));
    let first = &whole["held"]["fail"]["calls"][0];
    let mine = json!({
        "tenant": "default", "run_id": shredded, "call_id": "s", "agent": "clerk", "tool": "shred",
        "kind": "approval", "why": "tool_gone",
    });
    assert_eq!((first, &whole["store_checked"]), (&mine, &json!(shown)));

    let text = folder.run(&["check", "--store", store]);
    for line in [
        format!("{shown}:\n"),
        "  3 held calls would fail; runs, counted by their worst call: 2\n".to_owned(),
        format!(
            "    {shredded} s: shred of clerk, approval, tenant default: its agent does not have the tool any more\n"
        ),
        "  1 held call would be asked about again; runs, counted by their worst call: 1\n".to_owned(),
        format!("    {paid} p: pay of clerk, approval, tenant default: the tool changed\n"),
        "  4 held calls would not be touched; runs, counted by their worst call: 1\n".to_owned(),
        format!("    {sold} c: pick of clerk, client_tool, tenant default\n"),
    ] {
        assert!(text.out.contains(&line), "{line} is missing:\n{}", text.out);
    }
}

#[tokio::test]
async fn a_held_run_whose_hook_is_gone_would_fail() {
    let folder = Folder::new();
    write_configuration(&folder, FILE);
    let gate = FunctionPlugin::new("gate", [Phase::BeforeToolExecute], |_: HookContext| async { Ok(vec![]) });
    let engine = start(&folder, clerk("demo").plugin(gate)).await;
    let written = held(&engine, "write").await;
    let checked = || folder.run(&["check", "--store", "sqlite:holdpoint.db", "--json"]).json();
    let call = |why: Option<&str>| (written.clone(), "w".to_owned(), why.map(str::to_owned));
    assert_eq!(calls(&checked(), "fail"), [call(Some("hook_gone"))]);
    let hook =
        "[[agents.clerk.hooks]]\nname = \"gate\"\nurl = \"http://127.0.0.1:9200\"\nphases = [\"run_end\"]\n";
    write_configuration(&folder, &format!("{FILE}{hook}"));
    assert_eq!(calls(&checked(), "untouched"), [call(None)]);
    engine.close(Duration::from_secs(5)).await;
}

/// The same tools as in [`FILE`], for an engine.
fn changed_clerk() -> Agent {
    let external = |name: &str, description: &str, parameters: Value, approval: Approval| {
        let definition = ToolDefinition::new(name, description).parameters(parameters);
        DeclaredTool::new(definition.performed_by(Performer::External).approval(approval))
    };
    let object = json!({"type": "object"});
    let mut agent = clerk("demo");
    agent.tools.clear();
    agent.tools.push(write_file());
    agent
        .tool(external("pay", "As it is", object.clone(), Approval::Ask))
        .tool(external("narrowed", "As it was", json!({"type": "object", "required": ["to"]}), Approval::Ask))
        .tool(external("blocked", "As it was", object, Approval::Block))
}

enum CallOutcome {
    Failed,
    AskedAgain,
    Done,
}

/// The outcome of a call that was held and then approved.
async fn observe_outcome(mut feed: Subscription, call: &CallId) -> CallOutcome {
    let mut asked_count = 0;
    loop {
        let item = feed.next().await.expect("the run continues").expect("the log is read");
        let FeedItem::Event(committed) = item else { continue };
        let fact = &committed.event.fact;
        if matches!(fact, Fact::ExecutionFailed { call_id, .. } if call_id == call) {
            return CallOutcome::Failed;
        }
        if matches!(fact, Fact::ExecutionSucceeded { call_id, .. } if call_id == call) {
            return CallOutcome::Done;
        }
        if matches!(fact, Fact::ApprovalRequested(opened) if opened.call_id == *call) {
            asked_count += 1;
        }
        if asked_count == 2 {
            return CallOutcome::AskedAgain;
        }
    }
}

#[tokio::test]
async fn the_predicted_impact_is_what_the_engine_does() {
    let folder = Folder::new();
    write_configuration(&folder, FILE);
    let engine = start(&folder, clerk("demo")).await;
    for what in ["write", "pay", "shred", "sell"] {
        held(&engine, what).await;
    }
    engine.close(Duration::from_secs(5)).await;
    let predicted = folder.run(&["check", "--store", "sqlite:holdpoint.db", "--json"]).json();

    let engine = start(&folder, changed_clerk()).await;
    let tenant = Tenant::default();
    let (mut failed, mut asked, mut fine) = (Vec::new(), Vec::new(), Vec::new());
    for approval in engine.pending(&tenant).await.expect("the list is read") {
        let key = (approval.run.to_string(), approval.call.to_string());
        let (feed, call) = (engine.subscribe(&tenant, &approval.run, 0), approval.call.clone());
        let verdict = engine.decide(approval.approve("ann")).await.expect("the decision is stored");
        assert!(matches!(verdict, Verdict::Accepted | Verdict::ToolChanged), "{verdict:?}");
        match observe_outcome(feed, &call).await {
            CallOutcome::Failed => failed.push(key),
            CallOutcome::AskedAgain => asked.push(key),
            CallOutcome::Done => fine.push(key),
        }
    }
    engine.close(Duration::from_secs(5)).await;
    let keys = |group: &str, kind: &str| -> Vec<(String, String)> {
        let list = predicted["held"][group]["calls"].as_array().expect("a list");
        let of_kind = list.iter().filter(|call| call["kind"] == kind);
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let mut keys: Vec<_> = of_kind.map(|call| (text(&call["run_id"]), text(&call["call_id"]))).collect();
        keys.sort();
        keys
    };
    for list in [&mut failed, &mut asked, &mut fine] {
        list.sort();
    }
    assert_eq!((failed.len(), asked.len(), fine.len()), (3, 1, 3));
    assert_eq!(failed, keys("fail", "approval"));
    assert_eq!(asked, keys("ask_again", "approval"));
    assert_eq!(fine, keys("untouched", "approval"));
}

/// Calls that end in doubt, with and without an approval, and a question.
fn doubtful_clerk() -> Agent {
    let call = |name: &str| format!(r#"{{"id": "{name}", "name": "{name}", "arguments": {{}}}}"#);
    let names = ["approved", "unasked", "shredded"];
    let calls: Vec<String> = names.into_iter().map(call).collect();
    let question = r#"{"id": "q", "name": "ask_user", "arguments": {"question": "Which?"}}"#;
    let script = format!(
        r#"{{"rules": [{{"when": ".*", "replies": [{{"tool_calls": [{}, {question}]}}, {{"text": "Done."}}]}}]}}"#,
        calls.join(", ")
    );
    let mut agent =
        Agent::new("clerk", ScriptedModel::new(Script::from_json(&script).expect("the script is good")));
    "demo".clone_into(&mut agent.model_name);
    agent.tools.push(builtin("ask_user", &Options::default()).expect("there is such a tool"));
    for name in names {
        let approval = if name == "unasked" { Approval::Never } else { Approval::Ask };
        let definition = ToolDefinition::new(name, "As it was").approval(approval);
        agent = agent.tool(FunctionTool::new(definition, |_: ToolRequest| async {
            Outcome::Unknown { why: "the line went dead".into(), retry_after_ms: None }
        }));
    }
    agent
}

#[tokio::test]
async fn calls_in_doubt_need_their_tool_and_answered_questions_do_not() {
    let folder = Folder::new();
    let external = |name: &str| {
        format!(
            "[tools.{name}]\nkind = \"external\"\napproval = \"ask\"\ndescription = \"As it is\"\n\
             parameters = {{ type = \"object\" }}\n"
        )
    };
    let file = format!(
        "[models.demo]\nprovider = \"scripted\"\nscript = \"demo.json\"\n{}{}[agents.clerk]\nmodel = \"demo\"\n\
         tools = [\"approved\", \"unasked\"]\n",
        external("approved"),
        external("unasked")
    );
    write_configuration(&folder, &file);
    let engine = start(&folder, doubtful_clerk()).await;
    let run = held(&engine, "Hello").await;
    let tenant = Tenant::default();
    for approval in engine.pending(&tenant).await.expect("the list is read") {
        if approval.kind == SuspensionKind::Approval {
            let verdict = engine.decide(approval.approve("ann")).await;
            assert_eq!(verdict, Ok(Verdict::Accepted));
        }
    }
    let mut changes = engine.approvals_changed();
    let doubted = |pending: &[SuspensionView]| {
        pending.iter().filter(|view| view.kind == SuspensionKind::InDoubt).count() == 3
    };
    while !doubted(&engine.pending(&tenant).await.expect("the list is read")) {
        changes.changed().await.expect("the engine is running");
    }
    engine.close(Duration::from_secs(5)).await;
    let whole = folder.run(&["check", "--store", "sqlite:holdpoint.db", "--json"]).json();
    let entry = |call: &str, why: Option<&str>| (run.clone(), call.to_owned(), why.map(str::to_owned));
    assert_eq!(calls(&whole, "fail"), [entry("shredded", Some("tool_gone"))]);
    assert_eq!(calls(&whole, "ask_again"), [entry("approved", None)]);
    assert_eq!(calls(&whole, "untouched"), [entry("q", None), entry("unasked", None)]);
}

#[tokio::test]
async fn a_run_whose_agent_or_model_is_gone_fails() {
    let folder = Folder::new();
    let engine = start(&folder, clerk("main")).await;
    let run = held(&engine, "write").await;
    engine.close(Duration::from_secs(5)).await;
    let why = |configuration: &str| {
        write_configuration(&folder, configuration);
        let said = folder.run(&["check", "--store", "sqlite:holdpoint.db", "--json"]);
        calls(&said.json(), "fail")
    };
    let entry = |why: &str| vec![(run.clone(), "w".to_owned(), Some(why.to_owned()))];
    // The run was started with a model that has another name.
    assert_eq!(why(FILE), entry("model_gone"));
    assert_eq!(
        why(&FILE.replace("clerk", "porter").replace("demo]", "main]").replace("\"demo\"", "\"main\"")),
        entry("agent_gone")
    );
    assert_eq!(why(&FILE.replace("demo]", "main]").replace("\"demo\"", "\"main\"")), []);
    // No agent of the file uses this model, but the run can continue with it.
    let beside = "[models.main]\nprovider = \"scripted\"\nscript = \"demo.json\"\n";
    assert_eq!(why(&format!("{FILE}\n{beside}")), []);
}

#[tokio::test]
async fn a_tool_that_came_with_its_message_needs_no_file() {
    let folder = Folder::new();
    let script = r#"{"rules": [{"when": ".*", "replies": [
        {"tool_calls": [{"id": "p", "name": "pick_file", "arguments": {}}]}, {"text": "Picked."}]}]}"#;
    let mut agent = Agent::new("clerk", ScriptedModel::new(Script::from_json(script).expect("it is good")));
    "demo".clone_into(&mut agent.model_name);
    let engine = start(&folder, agent).await;
    let mut message = Message::to("clerk", "go");
    message.tools = vec![ToolDefinition::new("pick_file", "Picks").performed_by(Performer::Client)];
    message.policy.approval = Some(holdpoint::agent::ApprovalScope::AllTools);
    let finished = engine.run(message).await.expect("the run is held");
    engine.close(Duration::from_secs(5)).await;
    write_configuration(&folder, FILE);
    let said = folder.run(&["check", "--store", "sqlite:holdpoint.db", "--json"]).json();
    let untouched = vec![(finished.run.to_string(), "p".to_owned(), None)];
    assert_eq!((calls(&said, "fail"), calls(&said, "untouched")), (Vec::new(), untouched), "{said}");
}

#[tokio::test]
async fn many_held_calls_are_counted_and_twenty_of_each_shown() {
    let folder = Folder::new();
    write_configuration(&folder, FILE);
    let engine = start(&folder, clerk("demo")).await;
    // Three calls each: together more than `check` reads from the store at once.
    for _ in 0..100 {
        held(&engine, "sell").await;
    }
    engine.close(Duration::from_secs(5)).await;
    let said = folder.run(&["check", "--store", "sqlite:holdpoint.db"]);
    let lines = |text: &str| said.out.lines().filter(|line| line.contains(text)).count();
    assert_eq!(
        lines("  200 held calls would fail; runs, counted by their worst call: 100"),
        1,
        "{}",
        said.out
    );
    assert_eq!(lines("  100 held calls would not be touched; runs, counted by their worst call: 0"), 1);
    assert_eq!((lines(" of clerk, approval, "), lines(" of clerk, client_tool, ")), (20, 20));
    assert_eq!((lines("    and 180 more; --json lists them all"), lines("    and 80 more; ")), (1, 1));
    let whole = folder.run(&["check", "--store", "sqlite:holdpoint.db", "--json"]).json();
    assert_eq!((calls(&whole, "fail").len(), calls(&whole, "untouched").len()), (200, 100));
}

#[test]
fn a_missing_store_is_reported() {
    let folder = Folder::new();
    write_configuration(&folder, FILE);
    let said = folder.run(&["check", "--store", "sqlite:none.db", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("STORE_NOT_FOUND")), "{said:?}");
    // The configuration is checked before the store.
    write_configuration(&folder, "srever = 1\n");
    let said = folder.run(&["check", "--store", "sqlite:none.db", "--json"]);
    assert_eq!(said.error()["code"], "CONFIGURATION");
    assert_eq!(folder.names(), ["demo.json", "holdpoint.toml"]);
}
