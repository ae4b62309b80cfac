//! Arbitrary JSON through every way in: it is refused, or read back as it is. Nothing that was stored makes a list, a
//! stream or a run unreadable.

#[path = "../../../machine/tests/fuzz/json_texts.rs"]
mod drawn_texts;

use std::env;

use drawn_texts::json_text;
use engine::agent::Agent;
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelCall, ModelFailure, ModelMessage, ModelRequest};
use engine::posting::MESSAGE_BYTES_MAX;
use engine::store::BoxFuture;
use engine::tool::{FunctionTool, SuspendRequest, ToolAnswer, ToolDefinition, ToolRequest};
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client, JSON};
use crate::fuzz::chance::{self, Chance};
use crate::test_server::{CALLBACKS, StoreKind, TestPlan, TestServer, on_all_stores};

on_all_stores! {
    any_json_is_refused_or_read_back_as_it_is;
    a_value_that_a_tool_built_and_no_store_could_read_back_fails_its_call;
    a_body_with_too_many_values_is_too_large_and_one_with_a_key_twice_is_bad;
}

const TEXT_COUNT: u64 = 40;
/// The reserved key after another one: stored, it was sorted to the front and could not be read back.
const POISON: &str = r#"{"a":1,"$serde_json::private::RawValue":"1"}"#;

/// Calls the tool in the first line of the user's message with the rest of it, and then says something.
struct Dictated;

impl Model for Dictated {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        let said = request.messages.iter().find_map(|message| match message {
            ModelMessage::User { content, .. } => content.as_str().map(str::to_owned),
            ModelMessage::Assistant { .. }
            | ModelMessage::Tool { .. }
            | ModelMessage::Note { .. }
            | ModelMessage::Notice { .. } => None,
        });
        let mut answer = ModelAnswer::text("Done.");
        if request.ordinal == 1
            && let Some((tool, arguments)) = said.as_deref().and_then(|said| said.split_once('\n'))
        {
            let call = ModelCall { id: "call_0".into(), tool: tool.into(), arguments: arguments.into() };
            answer.calls.push(call);
        }
        Box::pin(async move { Ok(answer) })
    }
}

fn dictated(agent: Agent) -> Agent {
    let tools = agent.tools;
    let mut agent = Agent::new("assistant", Dictated);
    agent.tools = tools;
    agent
}

async fn test_server(store_kind: StoreKind) -> TestServer {
    let mut plan = TestPlan::new(store_kind, []);
    plan.change = dictated;
    plan.build().await
}

async fn post(client: &Client, path: &str, body: String) -> Answer {
    client.send(Method::POST, path, &[JSON], Some(body)).await
}

/// None where it was refused, in a way that says what is wrong with it.
fn accepted(answer: Answer, seed: u64) -> Option<Value> {
    if (200..300).contains(&answer.status) {
        return Some(answer.json());
    }
    match (answer.status, answer.code().as_str()) {
        (400, "BAD_REQUEST") | (413, "TOO_LARGE") => None,
        (status, code) => panic!("seed {seed}: {status} {code} {}", answer.text),
    }
}

async fn any_json_is_refused_or_read_back_as_it_is(store_kind: StoreKind) {
    let test_server = test_server(store_kind).await;
    let client = &test_server.client;
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    // `FUZZ_SEED=n` replays one text, `FUZZ_RUNS=n` tries that many.
    let seeds = match number("FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FUZZ_RUNS").unwrap_or(TEXT_COUNT),
    };
    let (mut kept_count, mut ways) = (0, 0);
    for seed in seeds {
        let text = if seed == 0 { POISON.to_owned() } else { json_text(&mut Chance::from_seed(seed)) };
        let kept = [
            as_metadata(client, &text, seed).await,
            as_content(client, &text, seed).await,
            as_answer(client, &text, seed).await,
            as_decision(client, &text, seed).await,
            as_report(&test_server, &text, seed).await,
            as_edited_arguments(client, &text, seed).await,
            as_schema(client, &text, seed).await,
            as_arguments_of_the_model(client, &text, seed).await,
        ];
        kept_count += kept.iter().filter(|kept| **kept).count();
        ways += kept.len();
        everything_is_readable(client).await;
    }
    assert!(kept_count * 5 > ways && kept_count * 5 < ways * 4, "{kept_count} of {ways} were taken");
}

/// Every list can be read, whatever was sent.
async fn everything_is_readable(client: &Client) {
    for path in [
        "/v1/threads?limit=1000",
        "/v1/runs?limit=1000",
        "/v1/approvals?limit=1000",
        "/v1/approvals?status=approved&limit=1000",
        "/v1/approvals?status=answered&limit=1000",
        "/v1/approvals?status=pending&limit=1000",
    ] {
        client.get(path).await.ok(200);
    }
}

/// What was sent, as any reader of JSON understands it.
fn as_sent(text: &str) -> Value {
    serde_json::from_str(text).expect("what was taken is JSON")
}

async fn as_metadata(client: &Client, text: &str, seed: u64) -> bool {
    let body = format!(r#"{{"id":"metadata-{seed}","metadata":{{"v":{text}}}}}"#);
    if accepted(post(client, "/v1/threads", body).await, seed).is_none() {
        client.get(&format!("/v1/threads/metadata-{seed}")).await.refused(404, "THREAD_NOT_FOUND");
        return false;
    }
    let thread = client.get(&format!("/v1/threads/metadata-{seed}")).await.ok(200);
    assert_eq!(thread["metadata"]["v"], as_sent(text), "seed {seed}");
    true
}

async fn as_content(client: &Client, text: &str, seed: u64) -> bool {
    let thread = client.post("/v1/threads", json!({})).await.ok(201)["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/threads/{thread}/messages");
    let body = format!(r#"{{"agent":"assistant","content":[{{"type":"text","text":"hi","v":{text}}}]}}"#);
    let Some(posted) = accepted(post(client, &path, body).await, seed) else { return false };
    client.run_reaches(posted["run_id"].as_str().unwrap(), "completed").await;
    let said = client.get(&path).await.ok(200);
    assert_eq!(said["messages"][0]["content"][0]["v"], as_sent(text), "seed {seed}");
    true
}

/// The result of the only call of a run that continues to its end, and its log.
async fn result_of(client: &Client, run: &str) -> Value {
    client.run_reaches(run, "completed").await;
    let call = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200)["calls"][0].clone();
    let log = client.log(run).await;
    let succeeded = log.iter().find(|event| event["type"] == "tool.execution_succeeded");
    if let Some(event) = succeeded {
        assert_eq!(event["payload"]["result"], call["result"]);
    }
    call
}

async fn as_answer(client: &Client, text: &str, seed: u64) -> bool {
    let (run, approval) = client.begin_held_run("ask_user\n{\"question\":\"?\"}").await;
    let path = format!("/v1/approvals/{approval}/answer");
    let answered = accepted(post(client, &path, format!(r#"{{"result":{text}}}"#)).await, seed).is_some();
    if !answered {
        client.post(&path, json!({"result": "else"})).await.ok(200);
    }
    let result = result_of(client, &run).await["result"].clone();
    assert_eq!(result, if answered { as_sent(text) } else { json!("else") }, "seed {seed}");
    answered
}

async fn as_decision(client: &Client, text: &str, seed: u64) -> bool {
    let (run, _) = client.begin_held_run("ask_user\n{\"question\":\"?\"}").await;
    let path = format!("/v1/runs/{run}/decisions");
    let decision =
        |text: &str| format!(r#"{{"decisions":[{{"call_id":"call_0","action":"resume","result":{text}}}]}}"#);
    let said = accepted(post(client, &path, decision(text)).await, seed);
    let applied = said.is_some_and(|said| said["results"][0]["outcome"] == "applied");
    if !applied {
        post(client, &path, decision("\"else\"")).await.ok(200);
    }
    let result = result_of(client, &run).await["result"].clone();
    assert_eq!(result, if applied { as_sent(text) } else { json!("else") }, "seed {seed}");
    applied
}

async fn as_report(test_server: &TestServer, text: &str, seed: u64) -> bool {
    let run = test_server.client.begin_run("later\n{}").await;
    test_server.client.run_reaches(&run, "waiting_tool").await;
    let callback = test_server
        .callbacks
        .lock()
        .expect("the lock is not poisoned")
        .last()
        .expect("it was called")
        .clone();
    let path = format!("/v1/callbacks{}", callback.url.strip_prefix(CALLBACKS).expect("our address"));
    let tool = test_server.client.with_token(callback.token.as_str());
    let reported = accepted(post(&tool, &path, format!(r#"{{"result":{text}}}"#)).await, seed).is_some();
    if !reported {
        tool.post(&path, json!({"result": "else"})).await.ok(200);
    }
    let result = result_of(&test_server.client, &run).await["result"].clone();
    assert_eq!(result, if reported { as_sent(text) } else { json!("else") }, "seed {seed}");
    reported
}

async fn as_edited_arguments(client: &Client, text: &str, seed: u64) -> bool {
    let (run, approval) = client.begin_held_run("count\n{}").await;
    let path = format!("/v1/approvals/{approval}/approve");
    let answer = post(client, &path, format!(r#"{{"arguments":{{"v":{text}}}}}"#)).await;
    // Numbers that are not exact have no digest, and so no place in arguments.
    let has_no_digest = answer.status == 422 && answer.code() == "INVALID_ARGUMENTS";
    let approved = !has_no_digest && accepted(answer, seed).is_some();
    if !approved {
        client.post(&path, json!({"arguments": {"v": "else"}})).await.ok(200);
    }
    let arguments = result_of(client, &run).await["arguments"]["v"].clone();
    assert_eq!(arguments, if approved { as_sent(text) } else { json!("else") }, "seed {seed}");
    client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    approved
}

async fn as_schema(client: &Client, text: &str, seed: u64) -> bool {
    let thread = client.post("/v1/threads", json!({})).await.ok(201)["id"].as_str().unwrap().to_owned();
    let schema = format!(r#"{{"type":"object","default":{text}}}"#);
    let of = |field: String| format!(r#"{{"agent":"assistant","text":"hi","on_busy":"enqueue",{field}}}"#);
    let path = format!("/v1/threads/{thread}/messages");
    let output = post(client, &path, of(format!(r#""output_schema":{schema}"#))).await;
    let tools = of(format!(r#""tools":[{{"name":"theirs","parameters":{schema}}}]"#));
    let tools = post(client, &path, tools).await;
    let (output, tools) = (accepted(output, seed), accepted(tools, seed));
    assert_eq!(output.is_some(), tools.is_some(), "seed {seed}");
    let was_taken = output.is_some();
    for posted in [output, tools].into_iter().flatten() {
        let run = posted["run_id"].as_str().unwrap();
        client.run_until(run, |run| !run["termination"].is_null()).await;
    }
    client.get(&path).await.ok(200);
    assert_eq!(client.delete(&format!("/v1/threads/{thread}")).await.status, 204, "seed {seed}");
    was_taken
}

async fn as_arguments_of_the_model(client: &Client, text: &str, seed: u64) -> bool {
    let said = format!("echo\n{text}");
    if said.len() > MESSAGE_BYTES_MAX {
        return false;
    }
    let run = client.begin_run(&said).await;
    let call = result_of(client, &run).await;
    if call["status"] == "failed" {
        assert_eq!(call["error"]["code"], "BAD_ARGUMENTS", "seed {seed}: {call}");
        return false;
    }
    assert_eq!(call["arguments"], as_sent(text), "seed {seed}");
    true
}

/// Tools and questions whose values were built in this process.
fn poisonous(agent: Agent) -> Agent {
    let key = "$serde_json::private::RawValue";
    let bad = move || json!({"a": 1, key: "1"});
    let many = || Value::Array(vec![json!({"": 0}); 60_000]);
    let tool = |name: &str, answer: fn(Value, Value) -> ToolAnswer| {
        let definition = ToolDefinition::new(name, "Answers with what no store could read back").read();
        FunctionTool::new(definition, move |_: ToolRequest| {
            let answer = answer(bad(), many());
            async move { answer }
        })
    };
    dictated(agent)
        .tool(tool("magic", |bad, _| ToolAnswer::Success { value: bad.into(), warning: None }))
        .tool(tool("many", |_, many| ToolAnswer::Success { value: many.into(), warning: None }))
        .tool(tool("state", |bad, _| ToolAnswer::Pending(SuspendRequest::external("?").resume_state(bad))))
        .tool(tool("schema", |bad, _| ToolAnswer::Pending(SuspendRequest::question("?").schema(bad))))
}

async fn a_value_that_a_tool_built_and_no_store_could_read_back_fails_its_call(store_kind: StoreKind) {
    let mut plan = TestPlan::new(store_kind, []);
    plan.change = poisonous;
    let test_server = plan.build().await;
    let client = &test_server.client;
    for tool in ["magic", "many", "state"] {
        let run = client.begin_run(&format!("{tool}\n{{}}")).await;
        let call = result_of(client, &run).await;
        assert_eq!(call["status"], "failed", "{tool}: {call}");
        everything_is_readable(client).await;
    }
    // A question whose schema cannot be used is asked without it.
    let (run, approval) = client.begin_held_run("schema\n{}").await;
    everything_is_readable(client).await;
    let asked = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    assert!(asked["schema"].is_null(), "{asked}");
    client.post(&format!("/v1/approvals/{approval}/answer"), json!({"result": 1})).await.ok(200);
    assert_eq!(result_of(client, &run).await["result"], 1);
}

async fn a_body_with_too_many_values_is_too_large_and_one_with_a_key_twice_is_bad(store_kind: StoreKind) {
    let test_server = test_server(store_kind).await;
    let client = &test_server.client;
    let objects = format!(r#"{{"metadata":{{"v":[{}0]}}}}"#, r#"{"":0},"#.repeat(200_000));
    let refused = post(client, "/v1/threads", objects).await.refused(413, "TOO_LARGE");
    assert_eq!(refused["nodes_max"], 50_000);
    let twice = post(client, "/v1/threads", r#"{"metadata":{"x":{"k":1,"k":2}}}"#.into()).await;
    assert_eq!(twice.refused(400, "BAD_REQUEST")["field"], "metadata.x.k");
    let magic = post(client, "/v1/threads", format!(r#"{{"id":"p","metadata":{POISON}}}"#)).await;
    let field = magic.refused(400, "BAD_REQUEST")["field"].clone();
    assert_eq!(field, "metadata.$serde_json::private::RawValue");
    client.get("/v1/threads").await.ok(200);
    let part = r#"{"type":"text","text":"x"}"#;
    let parts = format!(r#"{{"agent":"assistant","content":[{}{part}]}}"#, format!("{part},").repeat(4_000));
    client.post("/v1/threads", json!({"id": "parts"})).await.ok(201);
    let refused = post(client, "/v1/threads/parts/messages", parts).await.refused(413, "TOO_LARGE");
    assert_eq!(refused["nodes_max"], 10_000);
}
