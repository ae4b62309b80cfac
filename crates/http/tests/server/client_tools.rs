//! Tools that come with a message: the caller's front end runs them, and answers through `/decisions`.

use engine::agent::Agent;
use machine::policy::ApprovalScope;
use serde_json::json;

use crate::test_server::{StoreKind, TestPlan, on_both_stores};
use models::scripted::Reply;

on_both_stores! {
    a_front_end_runs_the_tool_that_its_message_declares;
    a_client_tool_that_is_held_for_approval_shows_its_description;
    the_caller_whose_grant_lets_a_client_tool_call_through_is_named;
    a_message_with_bad_tools_starts_nothing;
}

fn picking() -> [Reply; 2] {
    [Reply::call("call_0", "pick_file", json!({"kind": "pdf"})), Reply::text("Done.")]
}

fn pick_file() -> serde_json::Value {
    json!({"name": "pick_file", "description": "Lets the user pick a file",
        "parameters": {"type": "object", "properties": {"kind": {"type": "string"}}}})
}

async fn a_front_end_runs_the_tool_that_its_message_declares(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, picking()).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let message = json!({"agent": "assistant", "text": "go", "tools": [pick_file()]});
    let posted = client.post("/v1/threads/t/messages", message).await.ok(202);
    let run = posted["run_id"].as_str().unwrap();
    let waiting = client.run_reaches(run, "waiting_tool").await;
    assert_eq!(
        (&waiting["pending"][0]["kind"], &waiting["pending"][0]["tool"]),
        (&json!("client_tool"), &json!("pick_file"))
    );
    assert_eq!(client.get("/v1/approvals").await.ok(200)["approvals"], json!([]), "no approval is pending");
    let decisions =
        json!({"decisions": [{"call_id": "call_0", "action": "resume", "result": {"file": "a.pdf"}}]});
    let decided = client.post(&format!("/v1/runs/{run}/decisions"), decisions).await.ok(200);
    assert_eq!(decided["results"][0]["outcome"], "applied");
    client.run_reaches(run, "completed").await;
    let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    assert_eq!(calls["calls"][0]["result"], json!({"file": "a.pdf"}));
}

async fn a_client_tool_that_is_held_for_approval_shows_its_description(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, picking()).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let message = json!({"agent": "assistant", "text": "go", "tools": [pick_file()],
        "policy": {"approval": "all_tools"}});
    let posted = client.post("/v1/threads/t/messages", message).await.ok(202);
    let run = posted["run_id"].as_str().unwrap();
    let waiting = client.run_reaches(run, "waiting_approval").await;
    let id = waiting["pending"][0]["approval_id"].as_str().unwrap();
    let approval = client.get(&format!("/v1/approvals/{id}")).await.ok(200);
    assert_eq!(approval["tool_description"], "Lets the user pick a file");
    client.post(&format!("/v1/approvals/{id}/approve"), json!({})).await.ok(200);
    client.run_reaches(run, "waiting_tool").await;
}

async fn the_caller_whose_grant_lets_a_client_tool_call_through_is_named(store_kind: StoreKind) {
    let asks_about_all = |mut agent: Agent| {
        agent.policy.approval = ApprovalScope::AllTools;
        agent
    };
    let unchanged = |agent: Agent| agent;
    let cases = [
        (asks_about_all as fn(Agent) -> Agent, json!({}), "client_tool", json!("anonymous")),
        (unchanged, json!({}), "client_tool", json!(null)),
        // What the sender of a message tightens, no standing grant of the thread lifts.
        (unchanged, json!({"approval": "all_tools"}), "approval", json!(null)),
    ];
    for (change, policy, kind, by) in cases {
        let mut plan = TestPlan::new(store_kind, picking());
        plan.change = change;
        let test_server = plan.build().await;
        let client = &test_server.client;
        client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
        client.post("/v1/threads/t/auto-approve", json!({"enabled": true})).await.ok(200);
        let message = json!({"agent": "assistant", "text": "go", "tools": [pick_file()], "policy": policy});
        let posted = client.post("/v1/threads/t/messages", message).await.ok(202);
        let run = posted["run_id"].as_str().unwrap();
        let held = client.run_until(run, |run| run["pending"][0].is_object()).await;
        assert_eq!(held["pending"][0]["kind"], kind, "{held}");
        let log = client.log(run).await;
        let suspended = log.iter().find(|event| event["type"] == "tool.suspended");
        assert_eq!(suspended.is_some(), kind == "client_tool", "{log:?}");
        let named = suspended.and_then(|event| event["payload"].get("let_through_by").cloned());
        assert_eq!(named.unwrap_or_default(), by, "{log:?}");
    }
}

async fn a_message_with_bad_tools_starts_nothing(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, picking()).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let with = |tools: serde_json::Value| json!({"agent": "assistant", "text": "go", "tools": tools});
    let path = "/v1/threads/t/messages";
    let taken = client.post(path, with(json!([{"name": "echo"}]))).await.refused(400, "TOOL_NAME_TAKEN");
    assert_eq!(taken["tool"], "echo");
    let twice = client.post(path, with(json!([{"name": "t"}, {"name": "t"}]))).await;
    twice.refused(400, "TOOL_NAME_TAKEN");
    let schema = json!([{"name": "t", "parameters": {"type": "no such type"}}]);
    let bad = client.post(path, with(schema)).await.refused(400, "BAD_REQUEST");
    assert_eq!(bad["field"], "tools");
    assert_eq!(client.get("/v1/runs").await.ok(200)["runs"], json!([]));
}
