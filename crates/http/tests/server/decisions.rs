//! Decisions in a list: each judged alone, in order.

use engine::agent::Agent;
use engine::tool::{
    DeclaredTool, FunctionTool, IntoOutcome, Outcome, Performer, ToolDefinition, ToolRequest,
};
use holdpoint_http::Role;
use serde_json::{Value, json};

use crate::client::Client;
use crate::probe_store::{BlockPoint, StoreProbe};
use crate::test_server::{StoreKind, TestPlan, on_all_stores};
use models::scripted::Reply;

on_all_stores! {
    each_decision_of_a_list_is_judged_separately;
    the_same_id_twice_is_applied_once;
    decisions_are_known_after_the_end;
    a_decision_of_the_wrong_role_changes_nothing;
    a_front_end_posts_its_result;
    a_list_under_a_key_is_answered_the_same_again;
    arguments_are_only_for_an_approval;
    b32_a_repeat_is_known_although_its_call_is_now_held_for_an_approver;
    a_decision_that_names_its_opening_answers_no_later_one;
    a_decision_about_other_arguments_changes_nothing;
    the_same_decision_of_another_key_is_applied_already;
    a_decision_does_not_answer_what_opened_after_its_role_was_checked;
}

/// The approval before the decision, the run, and the approval afterwards.
#[tokio::test]
async fn a_decision_on_an_approval_takes_three_reads_beside_its_commit() {
    for (door, body) in [
        ("approve", json!({})),
        ("approve", json!({"arguments": {"path": "b", "text": "edited"}})),
        ("reject", json!({"then": "continue"})),
        ("reject", json!({})),
    ] {
        let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
        let (run, approval) = test_server.client.begin_held_run("count").await;
        let reads = || StoreProbe::count(&test_server.probe.row_reads);
        let before = reads();
        test_server.client.post(&format!("/v1/approvals/{approval}/{door}"), body).await.ok(200);
        assert_eq!(reads() - before, 3, "{door} of {run}");
    }
}

#[tokio::test]
async fn a_decision_shows_edited_arguments_without_reading_the_log() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let (run, approval) = test_server.client.begin_held_run("edit").await;
    let barrier = test_server.probe.block_at(BlockPoint::Approval);
    let (client, path) = (test_server.client.clone(), format!("/v1/approvals/{approval}/approve"));
    let edited = json!({"path": "b", "text": "edited"});
    let body = json!({"arguments": edited});
    let deciding = tokio::spawn(async move { client.post(&path, body).await.ok(200) });
    barrier.wait_for_arrival().await;
    barrier.release_one();
    // The decision is committed, and its response waits until the run has processed it.
    barrier.wait_for_arrival().await;
    test_server.probe.unblock();
    test_server.client.run_until(&run, |seen| seen["status"] == "completed").await;
    let before = StoreProbe::count(&test_server.probe.events_read);
    barrier.release_one();
    let shown = deciding.await.unwrap();
    assert_eq!((&shown["status"], &shown["arguments"]), (&json!("approved"), &edited));
    assert_eq!(StoreProbe::count(&test_server.probe.events_read), before, "the log was not read");
}

#[tokio::test]
async fn an_entry_of_a_list_of_decisions_takes_two_reads_beside_its_commit_and_the_list_one() {
    let test_server = TestPlan::new(StoreKind::Memory, two_writes()).build().await;
    let (_, path) = held(&test_server.client, 2).await;
    let reads = || StoreProbe::count(&test_server.probe.row_reads);
    let before = reads();
    let list = json!([{"call_id": "a", "action": "resume"}, {"call_id": "b", "action": "cancel"}]);
    let answer = test_server.client.post(&path, json!({"decisions": list})).await.ok(200);
    assert_eq!((outcomes(&answer), reads() - before), (vec!["applied", "applied"], 5));
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

async fn each_decision_of_a_list_is_judged_separately(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, two_writes()).build().await;
    let client = &test_server.client;
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
    let expected = [
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
    assert_eq!(outcomes(&answer), expected, "{answer}");
    assert_eq!(answer["results"][4]["decision_id"], "d-1");
    assert!(answer["results"][1]["message"].as_str().unwrap().contains("expect_digset"));
    client.run_reaches(&run, "completed").await;
    assert_eq!(test_server.count(), 1);

    client.post(&path, json!({"decisions": {}})).await.refused(400, "BAD_REQUEST");
    let many: Vec<Value> = (0..1_001).map(|_| json!({"call_id": "a", "action": "cancel"})).collect();
    client.post(&path, json!({"decisions": many})).await.refused(400, "BAD_REQUEST");
    client.post("/v1/runs/run_none/decisions", json!({"decisions": []})).await.refused(404, "RUN_NOT_FOUND");
}

async fn the_same_id_twice_is_applied_once(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, two_writes()).build().await;
    let (_, path) = held(&test_server.client, 2).await;
    let yes = json!({"call_id": "a", "action": "resume", "decision_id": "d"});
    let list = json!([yes, yes, {"call_id": "a", "action": "cancel", "decision_id": "d"}]);
    let answer = test_server.client.post(&path, json!({"decisions": list})).await.ok(200);
    assert_eq!(outcomes(&answer), ["applied", "already_applied", "conflict"]);
}

async fn decisions_are_known_after_the_end(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, two_writes()).build().await;
    let client = &test_server.client;
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
    assert_eq!(test_server.count(), 2);
}

fn with_front_end(agent: Agent) -> Agent {
    let picked = ToolDefinition::new("pick_file", "Let the user pick a file").performed_by(Performer::Client);
    agent.tool(DeclaredTool::new(picked))
}

async fn a_decision_of_the_wrong_role_changes_nothing(store_kind: StoreKind) {
    let calls = Reply::call("a", "count", json!({})).and_call("p", "pick_file", json!({})).and_call(
        "q",
        "ask_user",
        json!({"question": "Sure?"}),
    );
    let mut plan = TestPlan::new(store_kind, [calls, Reply::text("Done.")])
        .with_keys(&[("runner", "acme", &[Role::Run]), ("approver", "acme", &[Role::Approve])]);
    plan.change = with_front_end;
    let test_server = plan.build().await;
    let (runner, approver) = (test_server.as_key("runner"), test_server.as_key("approver"));
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
    assert_eq!(test_server.count(), 1);
}

async fn a_front_end_posts_its_result(store_kind: StoreKind) {
    let mut plan =
        TestPlan::new(store_kind, [Reply::call("p", "pick_file", json!({})), Reply::text("Done.")]);
    plan.change = with_front_end;
    let test_server = plan.build().await;
    let client = &test_server.client;
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

async fn a_list_under_a_key_is_answered_the_same_again(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, two_writes()).build().await;
    let client = &test_server.client;
    let (run, path) = held(client, 2).await;
    let list =
        json!({"decisions": [{"call_id": "a", "action": "resume"}, {"call_id": "b", "action": "resume"}]});
    let first = client.post_under_key(&path, "k", list.clone()).await.ok(200);
    assert_eq!(outcomes(&first), ["applied", "applied"]);
    client.run_reaches(&run, "completed").await;
    assert_eq!(client.post_under_key(&path, "k", list).await.ok(200), first);
    client.post_under_key(&path, "k", json!({"decisions": []})).await.refused(409, "IDEMPOTENCY_CONFLICT");
    assert_eq!(test_server.count(), 2);
}

async fn arguments_are_only_for_an_approval(store_kind: StoreKind) {
    let mut plan =
        TestPlan::new(store_kind, [Reply::call("p", "pick_file", json!({})), Reply::text("Done.")]);
    plan.change = with_front_end;
    let test_server = plan.build().await;
    let (run, path) = held(&test_server.client, 1).await;
    let with = |mode: &str, result: Value| json!({"call_id": "p", "action": "resume", "mode": mode, "result": result, "arguments": {"y": 2}});
    let list = json!([
        with("pass_decision_to_tool", json!({"x": 1})),
        with("pass_decision_to_tool", json!(true)),
        with("use_decision_as_tool_result", json!("/a")),
        {"call_id": "p", "action": "resume", "error": "no such file", "arguments": {"y": 2}},
    ]);
    let answer = test_server.client.post(&path, json!({"decisions": list})).await.ok(200);
    assert_eq!(outcomes(&answer), ["invalid"; 4], "{answer}");
    let still = test_server.client.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(still["pending"][0]["kind"], "client_tool", "nothing was changed");
}

/// A write that is held, and the outcome of whose first attempt is unknown.
fn with_a_doubtful_write(agent: Agent) -> Agent {
    let definition = ToolDefinition::new("transfer", "Moves money");
    agent.tool(FunctionTool::new(definition, |request: ToolRequest| async move {
        if request.attempt == 1 {
            return Outcome::Unknown { why: "the line went dead".into(), retry_after_ms: None };
        }
        json!("sent again").into_outcome()
    }))
}

async fn a_decision_that_names_its_opening_answers_no_later_one(store_kind: StoreKind) {
    let mut plan =
        TestPlan::new(store_kind, [Reply::call("c", "transfer", json!({"to": "bob"})), Reply::text("Done.")]);
    plan.change = with_a_doubtful_write;
    let test_server = plan.build().await;
    let client = &test_server.client;
    let (run, path) = held(client, 1).await;
    let call = async || client.get(&format!("/v1/runs/{run}/calls")).await.ok(200)["calls"][0].clone();
    let opening = call().await["suspension"]["id"].clone();
    let yes = json!({"decisions": [{"call_id": "c", "action": "resume", "suspension_id": opening}]});
    assert_eq!(outcomes(&client.post(&path, yes.clone()).await.ok(200)), ["applied"]);
    client.run_until(&run, |seen| seen["pending"][0]["kind"] == "in_doubt").await;
    // The answer got lost, and the very same request is sent again.
    assert_eq!(outcomes(&client.post(&path, yes).await.ok(200)), ["conflict"]);
    let no = json!({"decisions": [{"call_id": "c", "action": "cancel", "suspension_id": opening}]});
    assert_eq!(outcomes(&client.post(&path, no).await.ok(200)), ["conflict"]);
    // Nor does one that names nothing: neither as a repeat of the write nor as its result.
    for bare in [
        json!({"call_id": "c", "action": "resume"}),
        json!({"call_id": "c", "action": "resume", "result": true}),
        json!({"call_id": "c", "action": "resume", "decision_id": "other"}),
        json!({"call_id": "c", "action": "cancel"}),
    ] {
        let answer = client.post(&path, json!({"decisions": [bare]})).await.ok(200);
        assert_eq!(outcomes(&answer), ["conflict"], "{answer}");
        let message = answer["results"][0]["message"].as_str().unwrap_or_default();
        assert!(message.contains("`suspension_id`"), "{message}");
    }
    let doubted = call().await;
    assert_eq!((&doubted["status"], &doubted["attempts"]), (&json!("suspended"), &json!(1)));
    let entry = json!({"call_id": "c", "action": "resume", "decision_id": "d", "suspension_id": doubted["suspension"]["id"]});
    let mut other = entry.clone();
    other["suspension_id"] = opening;
    let list = json!({"decisions": [entry, entry, other]});
    let answer = client.post(&path, list).await.ok(200);
    assert_eq!(outcomes(&answer), ["applied", "already_applied", "conflict"], "{answer}");
    client.run_reaches(&run, "completed").await;
    assert_eq!(call().await["attempts"], 2);
}

async fn a_decision_about_other_arguments_changes_nothing(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, two_writes()).build().await;
    let client = &test_server.client;
    let (run, path) = held(client, 2).await;
    let other = "0".repeat(64);
    let list = json!([
        {"call_id": "a", "action": "resume", "expect_digest": other},
        {"call_id": "a", "action": "cancel", "expect_digest": other},
        {"call_id": "a", "action": "resume", "expect_digest": "no digest"},
    ]);
    let answer = client.post(&path, json!({"decisions": list})).await.ok(200);
    assert_eq!(outcomes(&answer), ["conflict", "conflict", "invalid"], "{answer}");
    let seen = client.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(seen["pending"].as_array().unwrap().len(), 2, "nothing was changed");
    let shown = client.get(&format!("/v1/approvals?run_id={run}")).await.ok(200);
    let decided = shown["approvals"].as_array().unwrap().iter().map(|shown| {
        let action = if shown["call_id"] == "a" { "resume" } else { "cancel" };
        json!({"call_id": shown["call_id"], "action": action, "expect_digest": shown["arguments_digest"]})
    });
    let list = json!({"decisions": decided.collect::<Vec<_>>()});
    assert_eq!(outcomes(&client.post(&path, list).await.ok(200)), ["applied", "applied"]);
    client.run_reaches(&run, "completed").await;
    assert_eq!(test_server.count(), 1);
}

async fn the_same_decision_of_another_key_is_applied_already(store_kind: StoreKind) {
    let all: &[Role] = &[Role::Run, Role::Approve];
    let plan =
        TestPlan::new(store_kind, two_writes()).with_keys(&[("ann", "acme", all), ("bob", "acme", all)]);
    let test_server = plan.build().await;
    let (ann, bob) = (test_server.as_key("ann"), test_server.as_key("bob"));
    let (_, path) = held(&ann, 2).await;
    let yes = json!({"decisions": [{"call_id": "a", "action": "resume", "decision_id": "d"}]});
    assert_eq!(outcomes(&ann.post(&path, yes.clone()).await.ok(200)), ["applied"]);
    assert_eq!(outcomes(&bob.post(&path, yes).await.ok(200)), ["already_applied"]);
    let no = json!({"decisions": [{"call_id": "a", "action": "cancel", "decision_id": "d"}]});
    assert_eq!(outcomes(&bob.post(&path, no).await.ok(200)), ["conflict"]);
}

async fn b32_a_repeat_is_known_although_its_call_is_now_held_for_an_approver(store_kind: StoreKind) {
    let mut plan =
        TestPlan::new(store_kind, [Reply::call("p", "pick_file", json!({})), Reply::text("Done.")])
            .with_keys(&[("runner", "acme", &[Role::Run]), ("approver", "acme", &[Role::Approve])]);
    plan.change = with_front_end;
    let test_server = plan.build().await;
    let runner = test_server.as_key("runner");
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

async fn a_decision_does_not_answer_what_opened_after_its_role_was_checked(store_kind: StoreKind) {
    let mut plan =
        TestPlan::new(store_kind, [Reply::call("p", "pick_file", json!({})), Reply::text("Done.")])
            .with_keys(&[("runner", "acme", &[Role::Run]), ("approver", "acme", &[Role::Approve])]);
    plan.change = with_front_end;
    let test_server = plan.build().await;
    let runner = test_server.as_key("runner");
    let (run, path) = held(&runner, 1).await;
    let replay = |id: &str| json!({"decisions": [{"call_id": "p", "action": "resume", "mode": "replay_tool_call", "decision_id": id}]});
    let late =
        [replay("late"), json!({"decisions": [{"call_id": "p", "action": "cancel", "decision_id": "no"}]})];
    // The front end may answer its own call, and this is what these two requests find.
    let barrier = test_server.probe.block_at(BlockPoint::Decision);
    let deciding = late.map(|body| {
        let (runner, path) = (runner.clone(), path.clone());
        tokio::spawn(async move { runner.post(&path, body).await })
    });
    for _ in &deciding {
        barrier.wait_for_arrival().await;
    }
    test_server.probe.unblock();
    // Meanwhile the front end lets the call run again, and a person is asked first.
    assert_eq!(outcomes(&runner.post(&path, replay("first")).await.ok(200)), ["applied"]);
    let asked = runner.run_until(&run, |seen| seen["pending"][0]["kind"] == "approval").await;
    for _ in &deciding {
        barrier.release_one();
    }
    for one in deciding {
        let answer = one.await.unwrap().ok(200);
        assert_eq!(outcomes(&answer), ["conflict"], "{answer}");
    }
    let still = runner.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(still["pending"], asked["pending"], "only an approver answers it");
}
