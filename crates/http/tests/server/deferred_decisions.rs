//! Decisions that are accepted while their run is busy, and processed when it comes to a boundary.

use std::time::Duration;

use engine::Settings;
use engine::agent::Agent;
use engine::arguments;
use engine::deciding::{Answer, Cancellation, Decide, OnReject};
use engine::plugin::{FunctionPlugin, HookContext, Phase, Subject};
use machine::inbox::Verdict;
use models::scripted::Reply;
use serde_json::json;
use tokio::sync::Notify;

use crate::probe_store::BlockPoint;
use crate::test_server::{StoreKind, TestPlan, TestServer, on_all_stores};

on_all_stores! {
    a_decision_that_is_processed_later_is_answered_now;
    a_decision_is_answered_at_once_although_every_slot_is_taken;
    a_decision_on_a_tool_that_has_changed_is_refused_before_it_is_processed;
    d38_nothing_is_accepted_after_a_rejection_that_ends_the_run;
    d8_d9_d27_a_decision_not_yet_processed_is_shown_as_decided_everywhere;
    edited_arguments_are_shown_before_the_run_has_processed_them;
    the_stream_sends_a_decision_before_the_run_has_processed_it;
}

/// A run whose calls `c` and `e` are held while `b` executes. It processes decisions when `b` has come back.
async fn busy(store_kind: StoreKind, decision_timeout: Duration) -> (TestServer, String, Vec<String>) {
    let calls = Reply::call("c", "count", json!({})).and_call("e", "count", json!({})).and_call(
        "b",
        "block",
        json!({}),
    );
    let mut plan = TestPlan::new(store_kind, [calls, Reply::text("Done.")]);
    plan.limits.decision_timeout = decision_timeout;
    let test_server = plan.build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "policy": {"decisions": "at_boundary"}});
    let run =
        client.post("/v1/threads/t/messages", body).await.ok(202)["run_id"].as_str().unwrap().to_owned();
    test_server.begun.notified().await;
    let held = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 2).await;
    assert_eq!(held["status"], "running", "the third call executes");
    let approvals = held["pending"].as_array().unwrap().iter();
    let approvals = approvals.map(|held| held["approval_id"].as_str().unwrap().to_owned()).collect();
    (test_server, run, approvals)
}

async fn a_decision_that_is_processed_later_is_answered_now(store_kind: StoreKind) {
    let (test_server, run, approvals) = busy(store_kind, Duration::from_millis(50)).await;
    let client = &test_server.client;
    for approval in &approvals {
        let path = format!("/v1/approvals/{approval}/approve");
        let decided = client.post_nothing(&path).await.ok(200);
        assert_eq!((&decided["status"], &decided["decided_by"]), (&json!("approved"), &json!("anonymous")));
        client.post_nothing(&path).await.refused(409, "APPROVAL_NOT_PENDING");
    }
    test_server.gate.notify_one();
    client.run_reaches(&run, "completed").await;
    assert_eq!(test_server.count(), 2);
}

async fn a_decision_is_answered_at_once_although_every_slot_is_taken(store_kind: StoreKind) {
    let held = Reply::call("c", "count", json!({}));
    let mut plan =
        TestPlan::new(store_kind, [held, Reply::call("b", "block", json!({})), Reply::text("Done.")]);
    plan.settings = Settings { running_runs_max: 1, ..Settings::default() };
    // Longer than the client waits.
    plan.limits.decision_timeout = Duration::from_secs(600);
    let test_server = plan.build().await;
    let client = &test_server.client;
    let (first, one) = client.begin_held_run("go").await;
    let (second, other) = client.begin_held_run("go too").await;
    client.post_nothing(&format!("/v1/approvals/{one}/approve")).await.ok(200);
    test_server.begun.notified().await;
    // The first run has the only place, and keeps it until `block` has come back.
    let path = format!("/v1/approvals/{other}");
    let answered = client.post_nothing(&format!("{path}/approve")).await.ok(200);
    assert_eq!((&answered["status"], &answered["decided_by"]), (&json!("approved"), &json!("anonymous")));
    assert_eq!(client.get(&path).await.ok(200), answered);
    client.post_nothing(&format!("{path}/reject")).await.refused(409, "APPROVAL_NOT_PENDING");
    test_server.gate.notify_one();
    client.run_reaches(&first, "completed").await;
    test_server.begun.notified().await;
    test_server.gate.notify_one();
    client.run_reaches(&second, "completed").await;
    assert_eq!(test_server.count(), 2);
}

async fn a_decision_on_a_tool_that_has_changed_is_refused_before_it_is_processed(store_kind: StoreKind) {
    let (test_server, run, approvals) = busy(store_kind, Duration::from_millis(50)).await;
    let client = &test_server.client;
    test_server.change_tool("count").await;
    let path = format!("/v1/approvals/{}/approve", approvals[0]);
    client.post_nothing(&path).await.refused(409, "TOOL_CHANGED");
    test_server.gate.notify_one();
    let held = client.run_until(&run, |seen| seen["status"] == "waiting_approval").await;
    assert_eq!(held["pending"].as_array().unwrap().len(), 2, "{held}");
    assert_ne!(held["pending"][0]["approval_id"], json!(approvals[0]), "it is held again");
    assert_eq!(test_server.count(), 0);
}

async fn d38_nothing_is_accepted_after_a_rejection_that_ends_the_run(store_kind: StoreKind) {
    let (test_server, run, approvals) = busy(store_kind, Duration::from_millis(50)).await;
    let client = &test_server.client;
    let path = |place: usize, verb: &str| format!("/v1/approvals/{}/{verb}", approvals[place]);
    let rejected = client.post_nothing(&path(0, "reject")).await.ok(200);
    assert_eq!(rejected["status"], "rejected");
    client.post_nothing(&path(1, "approve")).await.refused(409, "APPROVAL_NOT_PENDING");
    client.post_nothing(&path(1, "reject")).await.refused(409, "APPROVAL_NOT_PENDING");
    let entry = json!({"call_id": "e", "action": "resume"});
    let decided =
        client.post(&format!("/v1/runs/{run}/decisions"), json!({"decisions": [entry]})).await.ok(200);
    assert_eq!(decided["results"][0]["outcome"], "conflict", "{decided}");
    test_server.gate.notify_one();
    let ended = client.run_reaches(&run, "completed").await;
    assert_eq!(ended["termination"]["code"], "rejected");
    assert_eq!(test_server.count(), 0);
    let other = client.get(&format!("/v1/approvals/{}", approvals[1])).await.ok(200);
    assert_eq!((&other["status"], &other["decided_by"]), (&json!("rejected"), &json!("system")));
}

async fn d8_d9_d27_a_decision_not_yet_processed_is_shown_as_decided_everywhere(store_kind: StoreKind) {
    let (test_server, run, approvals) = busy(store_kind, Duration::from_millis(50)).await;
    let client = &test_server.client;
    let path = |place: usize, verb: &str| format!("/v1/approvals/{}{verb}", approvals[place]);
    let decisions = [
        ("approved", client.post(&path(0, "/approve"), json!({"note": "fine"})).await.ok(200)),
        (
            "rejected",
            client.post(&path(1, "/reject"), json!({"reason": "no", "then": "continue"})).await.ok(200),
        ),
    ];
    for (place, (status, answered)) in decisions.iter().enumerate() {
        assert_eq!(answered["status"], *status);
        let shown = client.get(&path(place, "")).await.ok(200);
        assert_eq!(&shown, answered, "what is shown is what was answered");
        assert_eq!(shown["decided_by"], "anonymous");
        assert!(shown["decided_at"].is_string(), "{shown}");
        let details =
            client.post_nothing(&path(place, "/approve")).await.refused(409, "APPROVAL_NOT_PENDING");
        assert_eq!((&details["status"], &details["decided_by"]), (&json!(status), &json!("anonymous")));
    }
    assert_eq!((&decisions[0].1["note"], &decisions[1].1["reason"]), (&json!("fine"), &json!("no")));
    for list in [
        "/v1/approvals".to_owned(),
        format!("/v1/approvals?run_id={run}"),
        "/v1/approvals?thread_id=t".into(),
    ] {
        let listed = client.get(&list).await.ok(200);
        assert_eq!(listed["approvals"], json!([]), "{list}: an inbox does not show what is decided");
        for (status, answered) in &decisions {
            let sign = if list.contains('?') { '&' } else { '?' };
            let listed = client.get(&format!("{list}{sign}status={status}")).await.ok(200);
            assert_eq!(listed["approvals"], json!([answered]), "{list}: it is listed as it is shown");
        }
    }
    // The run itself has not processed it, and says so.
    let seen = client.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(seen["pending"].as_array().unwrap().len(), 2);
    test_server.gate.notify_one();
    client.run_reaches(&run, "completed").await;
    assert_eq!(test_server.count(), 1);
    for (place, (status, answered)) in decisions.iter().enumerate() {
        let shown = client.get(&path(place, "")).await.ok(200);
        for field in ["status", "decided_by", "reason", "note", "arguments"] {
            assert_eq!(shown[field], answered[field], "{field} of {status}");
        }
    }
}

async fn edited_arguments_are_shown_before_the_run_has_processed_them(store_kind: StoreKind) {
    let (test_server, run, approvals) = busy(store_kind, Duration::from_millis(50)).await;
    let client = &test_server.client;
    let path = format!("/v1/approvals/{}", approvals[0]);
    let before = client.get(&path).await.ok(200);
    let edit = json!({"arguments": {"by": 7}});
    let answered = client.post_under_key(&format!("{path}/approve"), "k", edit.clone()).await.ok(200);
    assert_eq!(answered["arguments"], json!({"by": 7}), "what will run");
    assert_eq!(answered["original_arguments"], before["arguments"]);
    assert_ne!(answered["arguments_digest"], before["arguments_digest"]);
    assert_eq!(client.get(&path).await.ok(200), answered);
    client.post_nothing(&format!("/v1/approvals/{}/approve", approvals[1])).await.ok(200);
    test_server.gate.notify_one();
    client.run_reaches(&run, "completed").await;
    let processed = client.get(&path).await.ok(200);
    for field in ["arguments", "original_arguments", "arguments_digest", "status"] {
        assert_eq!(processed[field], answered[field], "{field}");
    }
    assert_eq!(client.post_under_key(&format!("{path}/approve"), "k", edit).await.ok(200), answered);
}

async fn the_stream_sends_a_decision_before_the_run_has_processed_it(store_kind: StoreKind) {
    let (test_server, _, approvals) = busy(store_kind, Duration::from_millis(50)).await;
    let mut stream = test_server.client.stream("/v1/approvals/stream", &[]).await;
    for _ in &approvals {
        assert_eq!(stream.next().await.expect("it stays open").data["status"], "pending");
    }
    let path = format!("/v1/approvals/{}/approve", approvals[1]);
    let answered = test_server.client.post_nothing(&path).await.ok(200);
    let sent = stream.next().await.expect("it stays open").data;
    assert_eq!((&sent["id"], &sent["status"]), (&json!(approvals[1]), &json!("approved")));
    assert_eq!(sent, answered);
}

/// Where the hook of one call waits until it is let through.
struct HookGate {
    call: &'static str,
    reached: Notify,
    opened: Notify,
}

impl HookGate {
    const fn new(call: &'static str) -> Self {
        Self { call, reached: Notify::const_new(), opened: Notify::const_new() }
    }
}

static GATE_OF_X: HookGate = HookGate::new("x");
static GATE_OF_Y: HookGate = HookGate::new("y");
static GATE_OF_Z: HookGate = HookGate::new("z");

/// Keeps the calls `x`, `y` and `z` at the gate until they are let through.
fn with_a_gated_hook(agent: Agent) -> Agent {
    agent.plugin(FunctionPlugin::new(
        "gated",
        [Phase::BeforeToolExecute],
        |context: HookContext| async move {
            if let Subject::BeforeToolExecute { call, .. } = context.subject
                && let Some(gate) =
                    [&GATE_OF_X, &GATE_OF_Y, &GATE_OF_Z].into_iter().find(|gate| gate.call == call.as_str())
            {
                gate.reached.notify_one();
                gate.opened.notified().await;
            }
            Ok(Vec::new())
        },
    ))
}

/// A run whose call `c` is held, while the call of the door is at the gate and already denied: that denial will end the run.
/// Only an embedder of the engine can decide before a call is held. Returns the path of the approval of `c`.
async fn denied_early(store_kind: StoreKind, gate: &HookGate) -> (TestServer, String, String) {
    let calls = Reply::call("c", "count", json!({})).and_call(gate.call, "count", json!({"by": 2}));
    let mut plan = TestPlan::new(store_kind, [calls, Reply::text("Done.")]);
    plan.change = with_a_gated_hook;
    let test_server = plan.build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "policy": {"decisions": "at_boundary"}});
    let posted = client.post("/v1/threads/t/messages", body).await.ok(202);
    let run = posted["run_id"].as_str().unwrap().to_owned();
    gate.reached.notified().await;
    let held = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 1).await;
    let path = format!("/v1/approvals/{}", held["pending"][0]["approval_id"].as_str().unwrap());
    let denial = Decide {
        answer: Answer::Cancel(Cancellation { then: Some(OnReject::EndRun), ..Cancellation::default() }),
        ..Decide::approve(&run.as_str().into(), &gate.call.into(), "ann")
    };
    let digest = arguments::digest(&json!({"by": 2})).unwrap();
    assert_eq!(test_server.engine.decide_early(denial, digest).await, Ok(Verdict::Accepted));
    (test_server, run, path)
}

/// An early denial may end the run before the run processes an approval that was accepted over HTTP: the response shows what
/// was recorded, and the approval shows in the end what happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_that_was_recorded_shows_in_the_end_what_happened() {
    let (test_server, run, path) = denied_early(StoreKind::Memory, &GATE_OF_X).await;
    let client = &test_server.client;
    assert_eq!(client.post_nothing(&format!("{path}/approve")).await.ok(200)["status"], "approved");
    GATE_OF_X.opened.notify_one();
    client.run_reaches(&run, "completed").await;
    let shown = client.get(&path).await.ok(200);
    assert_eq!((&shown["status"], &shown["decided_by"]), (&json!("rejected"), &json!("system")));
    assert_eq!(test_server.count(), 0);
}

/// The same where the run ends before the answer is written: the approval is rejected, but not by this caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejection_that_lost_to_the_end_of_the_run_is_not_answered_as_if_it_had_won() {
    let (test_server, run, path) = denied_early(StoreKind::Memory, &GATE_OF_Y).await;
    let client = &test_server.client;
    let looks = test_server.probe.block_at(BlockPoint::Approval);
    let (rejecting, body) = (client.clone(), json!({"reason": "no", "then": "continue"}));
    let verb = format!("{path}/reject");
    let answer = tokio::spawn(async move { rejecting.post(&verb, body).await });
    looks.wait_for_arrival().await;
    looks.release_one();
    // The second look is after the decision was accepted.
    looks.wait_for_arrival().await;
    GATE_OF_Y.opened.notify_one();
    client.run_reaches(&run, "completed").await;
    test_server.probe.unblock();
    looks.release_one();
    let details = answer.await.unwrap().refused(409, "APPROVAL_NOT_PENDING");
    assert_eq!((&details["status"], &details["decided_by"]), (&json!("rejected"), &json!("system")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listed_decision_that_lost_to_the_end_of_the_run_is_a_conflict() {
    let (test_server, run, _) = denied_early(StoreKind::Memory, &GATE_OF_Z).await;
    let client = &test_server.client;
    let looks = test_server.probe.block_at(BlockPoint::Approval);
    let (deciding, path) = (client.clone(), format!("/v1/runs/{run}/decisions"));
    let body = json!({"decisions": [{"call_id": "c", "action": "resume"}]});
    let answer = tokio::spawn(async move { deciding.post(&path, body).await });
    // The decision is accepted before the approval is read.
    looks.wait_for_arrival().await;
    GATE_OF_Z.opened.notify_one();
    client.run_reaches(&run, "completed").await;
    test_server.probe.unblock();
    looks.release_one();
    assert_eq!(answer.await.unwrap().ok(200)["results"][0]["outcome"], "conflict");
    assert_eq!(test_server.count(), 0);
}
