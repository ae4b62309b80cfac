//! AG-UI and CopilotKit on every store. The real clients of `crates/holdpoint/tests/front_ends` cover the rest.

use std::sync::Arc;

use engine::agent::Agent;
use engine::tool::DeclaredTool;
use models::scripted::{Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::client::Client;
use crate::test_server::{StoreKind, TestPlan, on_all_stores};

on_all_stores! {
    a_held_call_of_a_delegated_run_interrupts_the_stream_and_runs_once_it_is_approved;
    a_stop_that_names_an_earlier_run_leaves_the_later_one_alone;
    a_run_of_the_ai_sdk_continues_over_ag_ui;
    a_run_of_ag_ui_continues_over_the_ai_sdk;
    a_denial_of_one_of_two_calls_ends_the_stream_with_the_other;
}

/// The events of one protocol run.
async fn stream(client: &Client, run_id: &str, message_id: &str, resume: &Value) -> Vec<Value> {
    let message = json!({"id": message_id, "role": "user", "content": "go"});
    stream_with(client, run_id, json!([message]), resume).await
}

/// A client without a message follows the thread.
async fn stream_with(client: &Client, run_id: &str, messages: Value, resume: &Value) -> Vec<Value> {
    let input = json!({"threadId": "t", "runId": run_id, "protocolVersion": "1.0", "messages": messages, "tools": [],
        "context": [], "resume": resume});
    let answer = client.post("/v1/ag-ui/assistant", input).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let frames = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
    frames.map(|data| serde_json::from_str(data).expect("an event")).collect()
}

/// The id of the run that the stream is about.
fn run_of(events: &[Value]) -> &str {
    let named = events.iter().find(|event| event["name"] == "holdpoint.run").expect("the run is named");
    named["value"]["runId"].as_str().expect("an id")
}

fn outcome(events: &[Value]) -> &Value {
    let last = events.last().expect("it ends");
    assert_eq!(last["type"], "RUN_FINISHED", "{last}");
    &last["outcome"]
}

/// The assistant has the clerk do everything.
fn delegating(mut agent: Agent) -> Agent {
    if agent.name.as_str() == "assistant" {
        let ask = Reply::call("ask", "clerk", json!({"message": "write it"}));
        agent.model = Arc::new(ScriptedModel::replying([ask, Reply::text("The clerk did it.")]));
        agent.tools.push(Arc::new(DeclaredTool::agent("clerk", "Writes")));
    }
    agent
}

async fn a_held_call_of_a_delegated_run_interrupts_the_stream_and_runs_once_it_is_approved(
    store_kind: StoreKind,
) {
    let plan = TestPlan { change: delegating, others: &["clerk"], ..TestPlan::one_write(store_kind) }.build();
    let test_server = plan.await;
    let client = &test_server.client;
    let first = stream(client, "r1", "u1", &json!([])).await;
    let interrupts = &outcome(&first)["interrupts"];
    assert_eq!(interrupts.as_array().map(Vec::len), Some(1), "{first:?}");
    assert_eq!(interrupts[0]["metadata"]["tool"], "write_file");
    assert_eq!(interrupts[0].get("toolCallId"), None);
    let begun = first.iter().find(|event| event["type"] == "SUBAGENT_STARTED").expect("it delegates");
    assert_eq!(interrupts[0]["subagentRunId"], begun["subagentRunId"]);
    assert_eq!(test_server.note(), None);
    let approved =
        json!([{"interruptId": interrupts[0]["id"], "status": "resolved", "payload": {"approved": true}}]);
    let rest = stream(client, "r2", "u1", &approved).await;
    assert_eq!(outcome(&rest)["type"], "success", "{rest:?}");
    assert_eq!(run_of(&rest), run_of(&first));
    assert_eq!(test_server.note().as_deref(), Some("written"));
    client.run_reaches(run_of(&first), "completed").await;
}

async fn a_stop_that_names_an_earlier_run_leaves_the_later_one_alone(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let stop = async |run_id: &str| {
        let body = json!({"runId": run_id});
        client.post("/v1/copilotkit/agent/assistant/stop/t", body).await.ok(200)["stopped"] == true
    };
    let first = stream(client, "r1", "u1", &json!([])).await;
    assert!(stop("r1").await);
    client.run_reaches(run_of(&first), "interrupted").await;
    let second = stream(client, "r2", "u2", &json!([])).await;
    assert!(!stop("r1").await);
    client.run_reaches(run_of(&second), "waiting_approval").await;
    // A request that continued a run has an id of its own.
    assert!(stop("r3").await);
    client.run_reaches(run_of(&second), "interrupted").await;
}

/// The chat as a page of the AI SDK loads it: the state of its only call, and its last text.
async fn loaded_chat(client: &Client) -> (Value, Value) {
    let loaded = client.get("/v1/ai-sdk/assistant/t/messages").await.ok(200);
    let parts = loaded["messages"][1]["parts"].as_array().expect("an answer").clone();
    let call = parts.iter().find(|part| part["type"] == "dynamic-tool").expect("a call");
    let text = parts.iter().rfind(|part| part["type"] == "text");
    (call["state"].clone(), text.map(|text| text["text"].clone()).unwrap_or_default())
}

async fn a_run_of_the_ai_sdk_continues_over_ag_ui(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let said = json!({"id": "u1", "role": "user", "parts": [{"type": "text", "text": "go"}]});
    let begun = client.post("/v1/ai-sdk/assistant", json!({"id": "t", "messages": [said]})).await;
    assert!(begun.text.contains("tool-approval-request"), "{}", begun.text);
    let held = stream_with(client, "r1", json!([]), &json!([])).await;
    let id = &outcome(&held)["interrupts"][0]["id"];
    let approved = json!([{"interruptId": id, "status": "resolved", "payload": {"approved": true}}]);
    let rest = stream(client, "r2", "u1", &approved).await;
    assert_eq!((outcome(&rest)["type"].as_str(), run_of(&rest)), (Some("success"), run_of(&held)));
    assert_eq!(test_server.note().as_deref(), Some("written"));
    assert_eq!(loaded_chat(client).await, (json!("output-available"), json!("Done.")));
    assert_eq!(client.get("/v1/runs").await.ok(200)["runs"].as_array().map(Vec::len), Some(1));
}

async fn a_run_of_ag_ui_continues_over_the_ai_sdk(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let held = stream(client, "r1", "u1", &json!([])).await;
    let id = outcome(&held)["interrupts"][0]["id"].as_str().expect("an id");
    assert_eq!(loaded_chat(client).await.0, "approval-requested");
    let [(path, body), _] = Client::front_end_approvals(run_of(&held), "t", id);
    let rest = client.post(path, body).await;
    assert!(rest.text.contains("\"finishReason\":\"stop\""), "{}", rest.text);
    assert_eq!(test_server.note().as_deref(), Some("written"));
    assert_eq!(loaded_chat(client).await, (json!("output-available"), json!("Done.")));
}

async fn a_denial_of_one_of_two_calls_ends_the_stream_with_the_other(store_kind: StoreKind) {
    let file = |name: &str| json!({"path": name, "text": "x"});
    let calls = Reply::call("a", "write_file", file("a")).and_call("b", "write_file", file("b"));
    let test_server = TestPlan::new(store_kind, [calls, Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let held = stream(client, "r1", "u1", &json!([])).await;
    let ids = [0, 1].map(|index| outcome(&held)["interrupts"][index]["id"].clone());
    let denied = json!([{"interruptId": ids[0], "status": "resolved", "payload": {"approved": false}}]);
    let rest = stream(client, "r2", "u1", &denied).await;
    let interrupts = outcome(&rest)["interrupts"].as_array().expect("one is left").clone();
    assert_eq!((interrupts.len(), &interrupts[0]["id"]), (1, &ids[1]));
}
