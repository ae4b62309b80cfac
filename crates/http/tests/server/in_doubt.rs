//! A call in doubt shows the idempotency key that its attempt sent: with it the tool's service can be asked what happened.

use engine::agent::Agent;
use engine::tool::{FunctionTool, IntoOutcome, Outcome, ToolDefinition, ToolRequest};
use models::scripted::Reply;
use serde_json::json;

use crate::test_server::{StoreKind, TestPlan, on_all_stores};

on_all_stores! {
    a_call_in_doubt_shows_the_key_that_its_tool_got;
}

/// Its first attempt is lost, and its question is the key that it got; the second one answers with its key.
fn with_a_tool_that_returns_its_key(agent: Agent) -> Agent {
    let definition = ToolDefinition::new("pay", "Pays");
    agent.tool(FunctionTool::new(definition, |request: ToolRequest| async move {
        let key = request.idempotency_key;
        if request.attempt == 1 {
            return Outcome::Unknown { why: key, retry_after_ms: None };
        }
        json!(key).into_outcome()
    }))
}

async fn a_call_in_doubt_shows_the_key_that_its_tool_got(store_kind: StoreKind) {
    let mut plan =
        TestPlan::new(store_kind, [Reply::call("p", "pay", json!({"amount": 1})), Reply::text("Done.")]);
    plan.change = with_a_tool_that_returns_its_key;
    let test_server = plan.build().await;
    let client = &test_server.client;
    let (run, asked) = client.begin_held_run("pay").await;
    let before = client.get(&format!("/v1/approvals/{asked}")).await.ok(200);
    assert_eq!(before.get("idempotency_key"), None, "nothing was sent yet: {before}");
    let edited = json!({"arguments": {"amount": 2}});
    client.post(&format!("/v1/approvals/{asked}/approve"), edited).await.ok(200);
    let held = client.run_until(&run, |seen| seen["pending"][0]["kind"] == "in_doubt").await;
    let id = held["pending"][0]["approval_id"].as_str().unwrap();

    let shown = client.get(&format!("/v1/approvals/{id}")).await.ok(200);
    let key = &shown["idempotency_key"];
    assert!(key.as_str().is_some_and(|key| key.len() == 64), "{shown}");
    assert_eq!(key, &shown["question"], "what the tool got");
    assert_eq!(shown["arguments"], json!({"amount": 2}));
    let listed = client.get("/v1/approvals").await.ok(200);
    assert_eq!(&listed["approvals"][0]["idempotency_key"], key);
    let mut stream = client.stream("/v1/approvals/stream", &[]).await;
    assert_eq!(&stream.next().await.expect("it stays open").data["idempotency_key"], key);
    let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    assert_eq!(&calls["calls"][0]["suspension"]["idempotency_key"], key, "{calls}");

    client.post(&format!("/v1/approvals/{id}/answer"), json!({"choice": "retry"})).await.ok(200);
    client.run_reaches(&run, "completed").await;
    let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    assert_eq!(&calls["calls"][0]["result"], key, "a retry sends the same one");
    let answered = client.get(&format!("/v1/approvals/{id}")).await.ok(200);
    assert_eq!((&answered["status"], &answered["idempotency_key"]), (&json!("answered"), key));
    let approved = client.get(&format!("/v1/approvals/{asked}")).await.ok(200);
    assert_eq!(approved.get("idempotency_key"), None, "no other kind has one: {approved}");
}
