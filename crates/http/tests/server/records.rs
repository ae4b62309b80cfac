//! What is recorded of a run, of its calls and of what is held, wherever it is shown.

use std::collections::BTreeSet;

use engine::agent::{Agent, StopCondition};
use engine::plugin::{Action, FunctionPlugin, Phase};
use serde_json::{Value, json};

use crate::client::{Client, kinds};
use crate::test_server::{StoreKind, TestPlan, TestServer, on_all_stores};
use models::scripted::Reply;

on_all_stores! {
    a11_the_record_of_a_run_says_how_it_ended_and_when_it_changed_last;
    a25_the_record_of_a_call_holds_its_arguments_its_opening_and_its_decision;
    b9_each_event_of_a_calls_family_is_streamed_once_with_its_payload;
    b12_b21_a_held_call_stays_listed_until_it_is_decided_whatever_happens_to_the_others;
}

async fn record(client: &Client, run: &str) -> Value {
    client.get(&format!("/v1/runs/{run}/state")).await.ok(200)["__run"].clone()
}

/// The record of a run, with the time of its last event in place of the time that it shows.
async fn is_recorded(client: &Client, run: &str, status: &str, done_reason: Value) {
    let last = client.log(run).await.last().unwrap()["ts"].clone();
    assert!(last.is_string(), "RFC 3339: {last}");
    let expected = json!({"id": run, "status": status, "done_reason": done_reason, "updated_at": last});
    assert_eq!(record(client, run).await, expected);
}

async fn a11_the_record_of_a_run_says_how_it_ended_and_when_it_changed_last(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (natural, approval) = client.begin_held_run("write it").await;
    is_recorded(client, &natural, "waiting", Value::Null).await;
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    client.run_reaches(&natural, "completed").await;
    is_recorded(client, &natural, "done", json!("natural")).await;
    let (rejected, approval) = client.begin_held_run("write it").await;
    client.post_nothing(&format!("/v1/approvals/{approval}/reject")).await.ok(200);
    client.run_reaches(&rejected, "completed").await;
    is_recorded(client, &rejected, "done", json!("stopped:rejected")).await;
    let (cancelled, _) = client.begin_held_run("write it").await;
    client.post_nothing(&format!("/v1/runs/{cancelled}/interrupt")).await.ok(202);
    client.run_reaches(&cancelled, "interrupted").await;
    is_recorded(client, &cancelled, "done", json!("cancelled")).await;

    let one_round = [Reply::call("e", "echo", json!({})), Reply::text("Done.")];
    let mut plan = TestPlan::new(store_kind, one_round.clone());
    plan.change = |agent: Agent| agent.stop_when([StopCondition::MaxRounds { rounds: 1 }]);
    ends_as(plan, "completed", "stopped:max_rounds").await;
    let mut plan = TestPlan::new(store_kind, one_round);
    plan.change = |agent: Agent| {
        agent.plugin(FunctionPlugin::new("budget", [Phase::StepEnd], |_| async { Ok(vec![Action::End]) }))
    };
    ends_as(plan, "completed", "behavior_requested").await;
    ends_as(TestPlan::new(store_kind, [Reply::error(401, "no such key")]), "failed", "error").await;
}

async fn ends_as(plan: TestPlan, status: &str, done_reason: &str) {
    let test_server = plan.build().await;
    let run = test_server.client.begin_run("go").await;
    test_server.client.run_reaches(&run, status).await;
    is_recorded(&test_server.client, &run, "done", json!(done_reason)).await;
}

fn two_writes() -> Reply {
    Reply::call("a", "count", json!({"by": 1})).and_call("b", "count", json!({"by": 2}))
}

async fn calls(client: &Client, run: &str) -> Value {
    client.get(&format!("/v1/runs/{run}/calls")).await.ok(200)["calls"].clone()
}

async fn a25_the_record_of_a_call_holds_its_arguments_its_opening_and_its_decision(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [two_writes(), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("go").await;
    let seen = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 2).await;
    let held = calls(client, &run).await;
    let suspended =
        client.get(&format!("/v1/runs/{run}/state")).await.ok(200)["__suspended_tool_calls"].clone();
    for (place, (id, by)) in [("a", 1), ("b", 2)].into_iter().enumerate() {
        let record = &held[place];
        assert_eq!((&record["call_id"], &record["tool"]), (&json!(id), &json!("count")));
        assert_eq!((&record["arguments"], &record["status"]), (&json!({"by": by}), &json!("suspended")));
        // The name of this very opening, which a decision repeats.
        assert_eq!(record["suspension"]["id"], seen["pending"][place]["approval_id"]);
        assert!(record["suspension"]["created_at"].is_string(), "{record}");
        assert_eq!(suspended[id]["suspension"], record["suspension"]);
    }
    let decisions = json!([
        {"call_id": "a", "action": "resume", "decision_id": "d-1"},
        {"call_id": "b", "action": "cancel", "decision_id": "d-2", "reason": "too much"},
    ]);
    let path = format!("/v1/runs/{run}/decisions");
    client.post(&path, json!({"decisions": decisions})).await.ok(200);
    client.run_reaches(&run, "completed").await;
    let settled = calls(client, &run).await;
    assert_eq!((&settled[0]["status"], &settled[0]["result"]), (&json!("succeeded"), &json!("counted")));
    let refusal = json!({"by": "anonymous", "reason": "too much"});
    assert_eq!((&settled[1]["status"], &settled[1]["denied"]), (&json!("cancelled"), &refusal));
    let log = client.log(&run).await;
    let again = client.post(&path, json!({"decisions": decisions})).await.ok(200);
    for (place, kind) in [(0, "tool.approved"), (1, "tool.denied")] {
        assert_eq!(again["results"][place]["outcome"], "already_applied", "its decision is known by its id");
        assert!(settled[place]["suspension"].is_null(), "nothing holds it any more");
        let decided = log.iter().find(|event| event["type"] == kind).unwrap();
        let approval = held[place]["suspension"]["id"].as_str().unwrap();
        let shown = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
        assert_eq!((&shown["decided_by"], &shown["decided_at"]), (&json!("anonymous"), &decided["ts"]));
    }
}

async fn b9_each_event_of_a_calls_family_is_streamed_once_with_its_payload(store_kind: StoreKind) {
    let calls = two_writes().and_call("c", "nowhere", json!({}));
    let test_server = TestPlan::new(store_kind, [calls, Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("go").await;
    let stream = client.stream(&format!("/v1/runs/{run}/events"), &[]).await;
    let seen = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 2).await;
    let path = |place: usize, verb: &str| {
        format!("/v1/approvals/{}/{verb}", seen["pending"][place]["approval_id"].as_str().unwrap())
    };
    client.post(&path(0, "approve"), json!({"note": "fine"})).await.ok(200);
    client.post(&path(1, "reject"), json!({"reason": "no", "then": "continue"})).await.ok(200);
    let streamed = stream.rest().await;
    let of_call = |events: &[Value], call: &str| -> Vec<Value> {
        events.iter().filter(|event| event["payload"]["call_id"] == call).cloned().collect()
    };
    let frames: Vec<Value> =
        streamed.into_iter().filter(|frame| frame.id.is_some()).map(|frame| frame.data).collect();
    let log = client.log(&run).await;
    for (call, family) in [
        (
            "a",
            &[
                "tool.requested",
                "tool.approval_requested",
                "tool.approved",
                "tool.execution_started",
                "tool.execution_succeeded",
            ][..],
        ),
        ("b", &["tool.requested", "tool.approval_requested", "tool.denied"]),
        ("c", &["tool.requested", "tool.execution_failed"]),
    ] {
        let sent = of_call(&frames, call);
        assert_eq!(sent, of_call(&log, call), "one frame for each event, with its payload");
        let sent: Vec<Value> = sent.into_iter().filter(|event| event["type"] != "message.added").collect();
        assert_eq!(kinds(&sent), family, "{call}");
        for event in &sent {
            let payload = &event["payload"];
            let carried: &[&str] = match event["type"].as_str().unwrap() {
                "tool.requested" => &["tool", "arguments"],
                "tool.approval_requested" => &["tool", "arguments", "approval_id"],
                "tool.approved" | "tool.denied" => &["by"],
                "tool.execution_started" => &["tool", "attempt"],
                "tool.execution_succeeded" => &["result"],
                "tool.execution_failed" => &["error"],
                other => panic!("{other} is not in the family"),
            };
            for field in carried {
                assert!(!payload[field].is_null(), "{field} is missing in {event}");
            }
        }
    }
}

/// The calls that are held, as each list shows them; every list says the same.
async fn held(test_server: &TestServer, run: &str) -> BTreeSet<String> {
    let client = &test_server.client;
    let ids = |list: &Value, field: &str| -> BTreeSet<String> {
        list.as_array().unwrap().iter().map(|entry| entry[field].as_str().unwrap().to_owned()).collect()
    };
    let pending = ids(&client.get(&format!("/v1/runs/{run}")).await.ok(200)["pending"], "call_id");
    let listed = client.get(&format!("/v1/approvals?run_id={run}")).await.ok(200);
    assert_eq!(ids(&listed["approvals"], "call_id"), pending);
    let state = client.get(&format!("/v1/runs/{run}/state")).await.ok(200);
    let suspended = state["__suspended_tool_calls"].as_object().unwrap();
    assert_eq!(suspended.keys().cloned().collect::<BTreeSet<_>>(), pending);
    let calls = calls(client, run).await;
    let calls = calls.as_array().unwrap().iter().filter(|call| call["status"] == "suspended").cloned();
    assert_eq!(ids(&Value::Array(calls.collect()), "call_id"), pending);
    pending
}

async fn b12_b21_a_held_call_stays_listed_until_it_is_decided_whatever_happens_to_the_others(
    store_kind: StoreKind,
) {
    let calls = two_writes().and_call("c", "block", json!({}));
    let test_server = TestPlan::new(store_kind, [calls, Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("go").await;
    test_server.begun.notified().await;
    let seen = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 2).await;
    let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
    let path = |place: usize, verb: &str| {
        format!("/v1/approvals/{}/{verb}", seen["pending"][place]["approval_id"].as_str().unwrap())
    };
    let mut stream = client.stream("/v1/approvals/stream", &[]).await;
    let mut expect_change = async |call: &str, status: &str| {
        let frame = stream.next().await.expect("it stays open").data;
        assert_eq!((&frame["call_id"], &frame["status"]), (&json!(call), &json!(status)));
    };
    expect_change("a", "pending").await;
    expect_change("b", "pending").await;
    assert_eq!(held(&test_server, &run).await, set(&["a", "b"]));
    // Another call ends, and the run changes its status.
    test_server.gate.notify_one();
    client.run_reaches(&run, "waiting_approval").await;
    assert_eq!(held(&test_server, &run).await, set(&["a", "b"]));
    // One of the two is decided and runs to its end.
    client.post_nothing(&path(1, "approve")).await.ok(200);
    expect_change("b", "approved").await;
    client.run_until(&run, |seen| seen["status"] == "waiting_approval").await;
    assert_eq!((held(&test_server, &run).await, test_server.count()), (set(&["a"]), 1));
    client.post(&path(0, "reject"), json!({"then": "continue"})).await.ok(200);
    expect_change("a", "rejected").await;
    client.run_reaches(&run, "completed").await;
    assert_eq!(held(&test_server, &run).await, set(&[]));
}
