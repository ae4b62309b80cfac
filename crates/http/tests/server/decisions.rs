//! Decisions in a list: each judged alone, in order.

use engine::agent::Agent;
use engine::tool::{DeclaredTool, Performer, ToolDefinition};
use holdpoint_http::Role;
use serde_json::{Value, json};

use crate::client::Client;
use crate::stage::{Kept, Plan, on_both_stores};
use models::scripted::Reply;

on_both_stores! {
    each_decision_of_a_list_is_judged_alone;
    the_same_id_twice_is_applied_once;
    decisions_are_known_after_the_end;
    a_decision_of_the_wrong_role_changes_nothing;
    a_front_end_posts_its_result;
    a_list_under_a_key_is_answered_the_same_again;
    arguments_are_for_an_approval_alone;
    b32_a_repeat_is_known_although_its_call_is_held_for_somebody_else_by_now;
}

fn outcomes(answer: &Value) -> Vec<&str> {
    answer["results"].as_array().unwrap().iter().map(|result| result["outcome"].as_str().unwrap()).collect()
}

async fn held(client: &Client, count: usize) -> (String, String) {
    let run = client.begin_run("go").await;
    client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == count).await;
    let path = format!("/v1/runs/{run}/decisions");
    (run, path)
}

fn two_writes() -> [Reply; 2] {
    let calls = Reply::call("a", "count", json!({"by": 1})).and_call("b", "count", json!({"by": 2}));
    [calls, Reply::text("Done.")]
}

async fn each_decision_of_a_list_is_judged_alone(kept: Kept) {
    let stage = Plan::new(kept, two_writes()).build().await;
    let client = &stage.client;
    let (run, path) = held(client, 2).await;
    let list = json!([
        {"call_id": "zzz", "action": "resume"},
        {"call_id": "a", "action": "resume", "expect_digset": "x"},
        {"call_id": "a", "action": "resume", "result": "yes"},
        {"call_id": "a", "action": "resume", "result": null},
        {"call_id": "a", "action": "resume", "decision_id": "d-1"},
        {"call_id": "a", "action": "cancel"},
        {"call_id": "b"},
        7,
        {"call_id": "b", "action": "cancel", "reason": "no"},
    ]);
    let answer = client.post(&path, json!({"decisions": list})).await.ok(200);
    let told = [
        "not_found",
        "invalid",
        "invalid",
        "invalid",
        "applied",
        "conflict",
        "invalid",
        "invalid",
        "applied",
    ];
    assert_eq!(outcomes(&answer), told, "{answer}");
    assert_eq!(answer["results"][4]["decision_id"], "d-1");
    assert!(answer["results"][1]["message"].as_str().unwrap().contains("expect_digset"));
    client.run_reaches(&run, "completed").await;
    assert_eq!(stage.count(), 1);

    client.post(&path, json!({"decisions": {}})).await.refused(400, "BAD_REQUEST");
    let many: Vec<Value> = (0..1_001).map(|_| json!({"call_id": "a", "action": "cancel"})).collect();
    client.post(&path, json!({"decisions": many})).await.refused(400, "BAD_REQUEST");
    client.post("/v1/runs/run_none/decisions", json!({"decisions": []})).await.refused(404, "RUN_NOT_FOUND");
}

async fn the_same_id_twice_is_applied_once(kept: Kept) {
    let stage = Plan::new(kept, two_writes()).build().await;
    let (_, path) = held(&stage.client, 2).await;
    let yes = json!({"call_id": "a", "action": "resume", "decision_id": "d"});
    let list = json!([yes, yes, {"call_id": "a", "action": "cancel", "decision_id": "d"}]);
    let answer = stage.client.post(&path, json!({"decisions": list})).await.ok(200);
    assert_eq!(outcomes(&answer), ["applied", "already_applied", "conflict"]);
}

async fn decisions_are_known_after_the_end(kept: Kept) {
    let stage = Plan::new(kept, two_writes()).build().await;
    let client = &stage.client;
    let (run, path) = held(client, 2).await;
    let list = json!([
        {"call_id": "a", "action": "resume", "decision_id": "d-a"},
        {"call_id": "b", "action": "resume", "decision_id": "d-b"},
    ]);
    let first = client.post(&path, json!({"decisions": list})).await.ok(200);
    assert_eq!(outcomes(&first), ["applied", "applied"]);
    client.run_reaches(&run, "completed").await;
    let again = client.post(&path, json!({"decisions": list})).await.ok(200);
    assert_eq!(outcomes(&again), ["already_applied", "already_applied"]);
    let other = json!([{"call_id": "a", "action": "resume", "decision_id": "d-c"}, {"call_id": "q", "action": "cancel"}]);
    let late = client.post(&path, json!({"decisions": other})).await.ok(200);
    assert_eq!(outcomes(&late), ["conflict", "not_found"]);
    assert_eq!(stage.count(), 2);
}

fn with_front_end(agent: Agent) -> Agent {
    let picked = ToolDefinition::new("pick_file", "Let the user pick a file").performed_by(Performer::Client);
    agent.tool(DeclaredTool::new(picked))
}

async fn a_decision_of_the_wrong_role_changes_nothing(kept: Kept) {
    let calls = Reply::call("a", "count", json!({})).and_call("p", "pick_file", json!({})).and_call(
        "q",
        "ask_user",
        json!({"question": "Sure?"}),
    );
    let mut plan = Plan::new(kept, [calls, Reply::text("Done.")])
        .with_keys(&[("runner", "acme", &[Role::Run]), ("approver", "acme", &[Role::Approve])]);
    plan.change = with_front_end;
    let stage = plan.build().await;
    let (runner, approver) = (stage.as_key("runner"), stage.as_key("approver"));
    let (run, path) = held(&runner, 3).await;
    let yes = json!([
        {"call_id": "a", "action": "resume"},
        {"call_id": "p", "action": "resume", "result": "a.txt"},
        {"call_id": "q", "action": "resume", "result": "yes"},
    ]);
    let (no_a, no_p) = (json!([yes[0]]), json!([yes[1]]));
    let refused = runner.post(&path, json!({"decisions": no_a})).await.ok(200);
    assert_eq!(outcomes(&refused), ["forbidden"]);
    let refused = approver.post(&path, json!({"decisions": no_p})).await.ok(200);
    assert_eq!(outcomes(&refused), ["forbidden"]);
    let still = runner.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(still["pending"].as_array().unwrap().len(), 3, "nothing was changed");
    let mine = runner.post(&path, json!({"decisions": yes})).await.ok(200);
    assert_eq!(outcomes(&mine), ["forbidden", "applied", "applied"]);
    let theirs = approver.post(&path, json!({"decisions": [yes[0]]})).await.ok(200);
    assert_eq!(outcomes(&theirs), ["applied"]);
    runner.run_reaches(&run, "completed").await;
    assert_eq!(stage.count(), 1);
}

async fn a_front_end_posts_its_result(kept: Kept) {
    let mut plan = Plan::new(kept, [Reply::call("p", "pick_file", json!({})), Reply::text("Done.")]);
    plan.change = with_front_end;
    let stage = plan.build().await;
    let client = &stage.client;
    let (run, path) = held(client, 1).await;
    assert_eq!(client.run_reaches(&run, "waiting_tool").await["pending"][0]["kind"], "client_tool");
    assert_eq!(client.get("/v1/approvals").await.ok(200)["approvals"], json!([]), "no person is asked");
    let bare = client.post(&path, json!({"decisions": [{"call_id": "p", "action": "resume"}]})).await.ok(200);
    assert_eq!(outcomes(&bare), ["invalid"], "a result is needed");
    let list = json!([{"call_id": "p", "action": "resume", "result": {"name": "a.txt"}}]);
    let answer = client.post(&path, json!({"decisions": list})).await.ok(200);
    assert_eq!(outcomes(&answer), ["applied"]);
    client.run_reaches(&run, "completed").await;
    let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    assert_eq!(calls["calls"][0]["result"], json!({"name": "a.txt"}));
}

async fn a_list_under_a_key_is_answered_the_same_again(kept: Kept) {
    let stage = Plan::new(kept, two_writes()).build().await;
    let client = &stage.client;
    let (run, path) = held(client, 2).await;
    let list =
        json!({"decisions": [{"call_id": "a", "action": "resume"}, {"call_id": "b", "action": "resume"}]});
    let first = client.post_under_key(&path, "k", list.clone()).await.ok(200);
    assert_eq!(outcomes(&first), ["applied", "applied"]);
    client.run_reaches(&run, "completed").await;
    assert_eq!(client.post_under_key(&path, "k", list).await.ok(200), first);
    client.post_under_key(&path, "k", json!({"decisions": []})).await.refused(409, "IDEMPOTENCY_CONFLICT");
    assert_eq!(stage.count(), 2);
}

async fn arguments_are_for_an_approval_alone(kept: Kept) {
    let mut plan = Plan::new(kept, [Reply::call("p", "pick_file", json!({})), Reply::text("Done.")]);
    plan.change = with_front_end;
    let stage = plan.build().await;
    let (run, path) = held(&stage.client, 1).await;
    let with = |mode: &str, result: Value| json!({"call_id": "p", "action": "resume", "mode": mode, "result": result, "arguments": {"y": 2}});
    let list = json!([
        with("pass_decision_to_tool", json!({"x": 1})),
        with("pass_decision_to_tool", json!(true)),
        with("use_decision_as_tool_result", json!("/a")),
        {"call_id": "p", "action": "resume", "error": "no such file", "arguments": {"y": 2}},
    ]);
    let answer = stage.client.post(&path, json!({"decisions": list})).await.ok(200);
    assert_eq!(outcomes(&answer), ["invalid"; 4], "{answer}");
    let still = stage.client.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(still["pending"][0]["kind"], "client_tool", "nothing was changed");
}

async fn b32_a_repeat_is_known_although_its_call_is_held_for_somebody_else_by_now(kept: Kept) {
    let mut plan = Plan::new(kept, [Reply::call("p", "pick_file", json!({})), Reply::text("Done.")])
        .with_keys(&[("runner", "acme", &[Role::Run]), ("approver", "acme", &[Role::Approve])]);
    plan.change = with_front_end;
    let stage = plan.build().await;
    let runner = stage.as_key("runner");
    let (run, path) = held(&runner, 1).await;
    let entry = json!({"call_id": "p", "action": "resume", "mode": "replay_tool_call", "decision_id": "d1"});
    let list = json!({"decisions": [entry]});
    assert_eq!(outcomes(&runner.post(&path, list.clone()).await.ok(200)), ["applied"]);
    let now = runner.run_until(&run, |seen| seen["pending"][0]["kind"] == "approval").await;
    assert_eq!(outcomes(&runner.post(&path, list).await.ok(200)), ["already_applied"]);
    // The same id for something else, and something else without the right.
    let other = json!({"call_id": "p", "action": "cancel", "decision_id": "d1"});
    let fresh = json!({"call_id": "p", "action": "resume", "decision_id": "d2"});
    let answer = runner.post(&path, json!({"decisions": [other, fresh]})).await.ok(200);
    assert_eq!(outcomes(&answer), ["conflict", "forbidden"]);
    let still = runner.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(still["pending"], now["pending"], "nothing came of any of them");
}
