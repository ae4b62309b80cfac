//! A tool that is another one when its approval is decided: nothing runs, and the new approval is named.

use std::sync::atomic::{AtomicU32, Ordering};

use engine::agent::Agent;
use engine::plugin::{FunctionPlugin, Phase};
use engine::tool::{FunctionTool, ToolDefinition, ToolRequest};
use models::scripted::{Reply, ScriptedModel};
use serde_json::json;
use tokio::sync::Notify;

use crate::test_server::{StoreKind, TestPlan, TestServer, on_all_stores};

on_all_stores! {
    a_changed_tool_voids_its_approval_and_names_the_new_one;
    an_edit_for_the_old_tool_is_refused_because_the_tool_has_changed;
    a_voided_decision_is_not_reported_as_applied_when_it_is_sent_again;
}

fn one_count() -> [Reply; 2] {
    [Reply::call("c", "count", json!({"to": "bob"})), Reply::text("Done.")]
}

async fn a_changed_tool_voids_its_approval_and_names_the_new_one(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_count()).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("count").await;
    test_server.change_tool("count").await;
    let path = format!("/v1/approvals/{approval}/approve");
    let approve = async || client.post_under_key(&path, "k", json!({})).await.refused(409, "TOOL_CHANGED");
    let again = approve().await["approval_id"].as_str().expect("the new one is named").to_owned();
    assert_ne!(again, approval);
    assert_eq!(approve().await["approval_id"], json!(again), "a repeat gets the same response");
    let old = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    assert_eq!((&old["status"], &old["reason"]), (&json!("expired"), &json!("tool_changed")));
    assert_eq!(old["decided_by"], "system", "the server made it void, not a person");
    client.post_nothing(&format!("/v1/approvals/{again}/approve")).await.ok(200);
    client.run_reaches(&run, "completed").await;
    assert_eq!(test_server.count(), 0, "the tool that was shown first never ran");
    assert_eq!(approve().await["approval_id"], json!(again), "also once the new one is decided");
}

/// The tool takes other arguments from here on.
async fn change_parameters(test_server: &TestServer) {
    let parameters = json!({"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}});
    let definition = ToolDefinition::new("count", "Counts for a person").parameters(parameters);
    let tool = FunctionTool::new(definition, |_: ToolRequest| async { json!("otherwise") });
    let agent = Agent::new("assistant", ScriptedModel::replying(one_count())).tool(tool);
    test_server.engine.replace_agents(vec![agent]).await.expect("they are taken");
}

async fn an_edit_for_the_old_tool_is_refused_because_the_tool_has_changed(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_count()).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("count").await;
    change_parameters(&test_server).await;
    let path = format!("/v1/approvals/{approval}/approve");
    let details = client.post(&path, json!({"arguments": {"by": 2}})).await.refused(409, "TOOL_CHANGED");
    assert!(details["approval_id"].is_string(), "{details}");
    let held = client.run_until(&run, |seen| seen["status"] == "waiting_approval").await;
    assert_eq!(held["pending"][0]["approval_id"], details["approval_id"]);
    assert_eq!(test_server.count(), 0);
}

async fn a_voided_decision_is_not_reported_as_applied_when_it_is_sent_again(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_count()).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("count").await;
    test_server.change_tool("count").await;
    let path = format!("/v1/runs/{run}/decisions");
    let yes = json!({"decisions": [{"call_id": "c", "action": "resume", "decision_id": "d"}]});
    let mut results = Vec::new();
    for _ in 0..2 {
        results.push(client.post(&path, yes.clone()).await.ok(200)["results"][0].clone());
    }
    assert_eq!((&results[0]["outcome"], &results[0]), (&json!("conflict"), &results[1]));
    let held = client.run_until(&run, |seen| seen["status"] == "waiting_approval").await;
    assert_ne!(held["pending"][0]["approval_id"], json!(approval));
    let again = json!({"decisions": [{"call_id": "c", "action": "resume", "decision_id": "e"}]});
    assert_eq!(client.post(&path, again).await.ok(200)["results"][0]["outcome"], "applied");
    client.run_reaches(&run, "completed").await;
    assert_eq!(client.post(&path, yes).await.ok(200)["results"][0], results[0], "also after the end");
    assert_eq!(test_server.count(), 0, "the tool that was shown first never ran");
}

static GATES: AtomicU32 = AtomicU32::new(0);
static SECOND_GATE: Notify = Notify::const_new();

/// Takes its time when a call comes to the gate for the second time.
fn with_a_slow_hook(agent: Agent) -> Agent {
    agent.plugin(FunctionPlugin::new("slow", [Phase::BeforeToolExecute], |_| async {
        if GATES.fetch_add(1, Ordering::SeqCst) > 0 {
            SECOND_GATE.notified().await;
        }
        Ok(Vec::new())
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_approval_is_named_even_if_the_hooks_before_it_are_slow() {
    let mut plan = TestPlan::new(StoreKind::Memory, one_count());
    plan.change = with_a_slow_hook;
    let test_server = plan.build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("count").await;
    let definition = ToolDefinition::new("count", "It is another one now");
    let tool = FunctionTool::new(definition, |_: ToolRequest| async { json!("otherwise") });
    let agent = Agent::new("assistant", ScriptedModel::replying(one_count())).tool(tool);
    test_server.engine.replace_agents(vec![with_a_slow_hook(agent)]).await.expect("they are taken");
    let path = format!("/v1/approvals/{approval}");
    let approving = {
        let (client, path) = (client.clone(), format!("{path}/approve"));
        tokio::spawn(async move { client.post_nothing(&path).await })
    };
    // The approval is stored as void, and the call waits at the gate.
    client.run_until(&run, |seen| seen["status"] == "running").await;
    assert_eq!(client.get(&path).await.ok(200)["status"], "expired");
    SECOND_GATE.notify_one();
    let details = approving.await.unwrap().refused(409, "TOOL_CHANGED");
    let held = client.run_until(&run, |seen| seen["status"] == "waiting_approval").await;
    assert_eq!(details["approval_id"], held["pending"][0]["approval_id"]);
    assert_ne!(details["approval_id"], json!(approval));
}
