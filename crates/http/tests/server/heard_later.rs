//! Decisions that are accepted while their run is busy, and heard when it comes to a boundary.

use std::time::Duration;

use engine::Settings;
use engine::agent::Agent;
use engine::arguments;
use engine::deciding::{Answer, Decide, OnReject};
use engine::plugin::{FunctionPlugin, HookContext, Phase, Subject};
use machine::inbox::Verdict;
use models::scripted::Reply;
use serde_json::json;
use tokio::sync::Notify;

use crate::stage::{Kept, Plan, Stage, on_all_stores};
use crate::watched_store::At;

on_all_stores! {
    a_decision_that_is_heard_later_is_answered_now;
    a_decision_is_answered_at_once_although_every_place_is_taken;
    a_decision_on_a_tool_that_has_changed_is_refused_before_it_is_heard;
    d38_nothing_is_accepted_behind_a_rejection_which_ends_the_run;
    d8_d9_d27_what_is_decided_and_not_heard_is_shown_as_decided_everywhere;
    what_an_approver_edits_is_shown_before_the_run_has_heard_it;
    the_stream_tells_a_decision_before_the_run_has_heard_it;
}

/// A run whose calls `c` and `e` are held while `b` executes. It hears decisions when `b` has come back.
async fn busy(kept: Kept, decided_time: Duration) -> (Stage, String, Vec<String>) {
    let calls = Reply::call("c", "count", json!({})).and_call("e", "count", json!({})).and_call(
        "b",
        "block",
        json!({}),
    );
    let mut plan = Plan::new(kept, [calls, Reply::text("Done.")]);
    plan.limits.decided_time = decided_time;
    let stage = plan.build().await;
    let client = &stage.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "policy": {"decisions": "at_boundary"}});
    let run =
        client.post("/v1/threads/t/messages", body).await.ok(202)["run_id"].as_str().unwrap().to_owned();
    stage.begun.notified().await;
    let held = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 2).await;
    assert_eq!(held["status"], "running", "the third call executes");
    let approvals = held["pending"].as_array().unwrap().iter();
    let approvals = approvals.map(|held| held["approval_id"].as_str().unwrap().to_owned()).collect();
    (stage, run, approvals)
}

async fn a_decision_that_is_heard_later_is_answered_now(kept: Kept) {
    let (stage, run, approvals) = busy(kept, Duration::from_millis(50)).await;
    let client = &stage.client;
    for approval in &approvals {
        let path = format!("/v1/approvals/{approval}/approve");
        let decided = client.post_nothing(&path).await.ok(200);
        assert_eq!((&decided["status"], &decided["decided_by"]), (&json!("approved"), &json!("anonymous")));
        client.post_nothing(&path).await.refused(409, "APPROVAL_NOT_PENDING");
    }
    stage.gate.notify_one();
    client.run_reaches(&run, "completed").await;
    assert_eq!(stage.count(), 2);
}

async fn a_decision_is_answered_at_once_although_every_place_is_taken(kept: Kept) {
    let held = Reply::call("c", "count", json!({}));
    let mut plan = Plan::new(kept, [held, Reply::call("b", "block", json!({})), Reply::text("Done.")]);
    plan.settings = Settings { running_runs_max: 1, ..Settings::default() };
    // Longer than the client waits.
    plan.limits.decided_time = Duration::from_secs(600);
    let stage = plan.build().await;
    let client = &stage.client;
    let (first, one) = client.begin_held_run("go").await;
    let (second, other) = client.begin_held_run("go too").await;
    client.post_nothing(&format!("/v1/approvals/{one}/approve")).await.ok(200);
    stage.begun.notified().await;
    // The first run has the only place, and keeps it until `block` has come back.
    let path = format!("/v1/approvals/{other}");
    let answered = client.post_nothing(&format!("{path}/approve")).await.ok(200);
    assert_eq!((&answered["status"], &answered["decided_by"]), (&json!("approved"), &json!("anonymous")));
    assert_eq!(client.get(&path).await.ok(200), answered);
    client.post_nothing(&format!("{path}/reject")).await.refused(409, "APPROVAL_NOT_PENDING");
    stage.gate.notify_one();
    client.run_reaches(&first, "completed").await;
    stage.begun.notified().await;
    stage.gate.notify_one();
    client.run_reaches(&second, "completed").await;
    assert_eq!(stage.count(), 2);
}

async fn a_decision_on_a_tool_that_has_changed_is_refused_before_it_is_heard(kept: Kept) {
    let (stage, run, approvals) = busy(kept, Duration::from_millis(50)).await;
    let client = &stage.client;
    stage.change_tool("count").await;
    let path = format!("/v1/approvals/{}/approve", approvals[0]);
    client.post_nothing(&path).await.refused(409, "TOOL_CHANGED");
    stage.gate.notify_one();
    let held = client.run_until(&run, |seen| seen["status"] == "waiting_approval").await;
    assert_eq!(held["pending"].as_array().unwrap().len(), 2, "{held}");
    assert_ne!(held["pending"][0]["approval_id"], json!(approvals[0]), "it is held again");
    assert_eq!(stage.count(), 0);
}

async fn d38_nothing_is_accepted_behind_a_rejection_which_ends_the_run(kept: Kept) {
    let (stage, run, approvals) = busy(kept, Duration::from_millis(50)).await;
    let client = &stage.client;
    let path = |place: usize, verb: &str| format!("/v1/approvals/{}/{verb}", approvals[place]);
    let rejected = client.post_nothing(&path(0, "reject")).await.ok(200);
    assert_eq!(rejected["status"], "rejected");
    client.post_nothing(&path(1, "approve")).await.refused(409, "APPROVAL_NOT_PENDING");
    client.post_nothing(&path(1, "reject")).await.refused(409, "APPROVAL_NOT_PENDING");
    let entry = json!({"call_id": "e", "action": "resume"});
    let decided =
        client.post(&format!("/v1/runs/{run}/decisions"), json!({"decisions": [entry]})).await.ok(200);
    assert_eq!(decided["results"][0]["outcome"], "conflict", "{decided}");
    stage.gate.notify_one();
    let ended = client.run_reaches(&run, "completed").await;
    assert_eq!(ended["termination"]["code"], "rejected");
    assert_eq!(stage.count(), 0);
    let other = client.get(&format!("/v1/approvals/{}", approvals[1])).await.ok(200);
    assert_eq!((&other["status"], &other["decided_by"]), (&json!("rejected"), &json!("system")));
}

async fn d8_d9_d27_what_is_decided_and_not_heard_is_shown_as_decided_everywhere(kept: Kept) {
    let (stage, run, approvals) = busy(kept, Duration::from_millis(50)).await;
    let client = &stage.client;
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
    // The run itself has not heard it, and says so.
    let seen = client.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(seen["pending"].as_array().unwrap().len(), 2);
    stage.gate.notify_one();
    client.run_reaches(&run, "completed").await;
    assert_eq!(stage.count(), 1);
    for (place, (status, answered)) in decisions.iter().enumerate() {
        let shown = client.get(&path(place, "")).await.ok(200);
        for field in ["status", "decided_by", "reason", "note", "arguments"] {
            assert_eq!(shown[field], answered[field], "{field} of {status}");
        }
    }
}

async fn what_an_approver_edits_is_shown_before_the_run_has_heard_it(kept: Kept) {
    let (stage, run, approvals) = busy(kept, Duration::from_millis(50)).await;
    let client = &stage.client;
    let path = format!("/v1/approvals/{}", approvals[0]);
    let before = client.get(&path).await.ok(200);
    let edit = json!({"arguments": {"by": 7}});
    let answered = client.post_under_key(&format!("{path}/approve"), "k", edit.clone()).await.ok(200);
    assert_eq!(answered["arguments"], json!({"by": 7}), "what will run");
    assert_eq!(answered["original_arguments"], before["arguments"]);
    assert_ne!(answered["arguments_digest"], before["arguments_digest"]);
    assert_eq!(client.get(&path).await.ok(200), answered);
    client.post_nothing(&format!("/v1/approvals/{}/approve", approvals[1])).await.ok(200);
    stage.gate.notify_one();
    client.run_reaches(&run, "completed").await;
    let heard = client.get(&path).await.ok(200);
    for field in ["arguments", "original_arguments", "arguments_digest", "status"] {
        assert_eq!(heard[field], answered[field], "{field}");
    }
    assert_eq!(client.post_under_key(&format!("{path}/approve"), "k", edit).await.ok(200), answered);
}

async fn the_stream_tells_a_decision_before_the_run_has_heard_it(kept: Kept) {
    let (stage, _, approvals) = busy(kept, Duration::from_millis(50)).await;
    let mut stream = stage.client.stream("/v1/approvals/stream", &[]).await;
    for _ in &approvals {
        assert_eq!(stream.next().await.expect("it stays open").data["status"], "pending");
    }
    let path = format!("/v1/approvals/{}/approve", approvals[1]);
    let answered = stage.client.post_nothing(&path).await.ok(200);
    let told = stream.next().await.expect("it stays open").data;
    assert_eq!((&told["id"], &told["status"]), (&json!(approvals[1]), &json!("approved")));
    assert_eq!(told, answered);
}

/// Where the hook of one call waits until it is let through.
struct Door {
    call: &'static str,
    reached: Notify,
    opened: Notify,
}

impl Door {
    const fn of(call: &'static str) -> Self {
        Self { call, reached: Notify::const_new(), opened: Notify::const_new() }
    }
}

static DOOR_OF_X: Door = Door::of("x");
static DOOR_OF_Y: Door = Door::of("y");

/// Keeps the calls `x` and `y` at the gate until they are let through.
fn with_a_doorkeeper(agent: Agent) -> Agent {
    agent.plugin(FunctionPlugin::new(
        "doorkeeper",
        [Phase::BeforeToolExecute],
        |context: HookContext| async move {
            if let Subject::BeforeToolExecute { call, .. } = context.subject
                && let Some(door) =
                    [&DOOR_OF_X, &DOOR_OF_Y].into_iter().find(|door| door.call == call.as_str())
            {
                door.reached.notify_one();
                door.opened.notified().await;
            }
            Ok(Vec::new())
        },
    ))
}

/// A run whose call `c` is held, while the call of the door is at the gate and already denied: that denial will end the run.
/// Only an embedder of the engine can decide before a call is held. Returns the path of the approval of `c`.
async fn denied_early(kept: Kept, door: &Door) -> (Stage, String, String) {
    let calls = Reply::call("c", "count", json!({})).and_call(door.call, "count", json!({"by": 2}));
    let mut plan = Plan::new(kept, [calls, Reply::text("Done.")]);
    plan.change = with_a_doorkeeper;
    let stage = plan.build().await;
    let client = &stage.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "policy": {"decisions": "at_boundary"}});
    let posted = client.post("/v1/threads/t/messages", body).await.ok(202);
    let run = posted["run_id"].as_str().unwrap().to_owned();
    door.reached.notified().await;
    let held = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 1).await;
    let path = format!("/v1/approvals/{}", held["pending"][0]["approval_id"].as_str().unwrap());
    let denial = Decide {
        answer: Answer::Cancel { reason: None, then: Some(OnReject::EndRun) },
        ..Decide::approve(&run.as_str().into(), &door.call.into(), "ann")
    };
    let digest = arguments::digest(&json!({"by": 2})).unwrap();
    assert_eq!(stage.engine.decide_early(denial, digest).await, Ok(Verdict::Accepted));
    (stage, run, path)
}

/// An early denial may end the run before the run processes an approval that was accepted over HTTP: the response shows what
/// was recorded, and the approval shows in the end what happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_that_was_recorded_shows_in_the_end_what_happened() {
    let (stage, run, path) = denied_early(Kept::InMemory, &DOOR_OF_X).await;
    let client = &stage.client;
    assert_eq!(client.post_nothing(&format!("{path}/approve")).await.ok(200)["status"], "approved");
    DOOR_OF_X.opened.notify_one();
    client.run_reaches(&run, "completed").await;
    let shown = client.get(&path).await.ok(200);
    assert_eq!((&shown["status"], &shown["decided_by"]), (&json!("rejected"), &json!("system")));
    assert_eq!(stage.count(), 0);
}

/// The same where the run ends before the answer is written: the approval is rejected, but not by this caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejection_that_lost_to_the_end_of_the_run_is_not_answered_as_if_it_had_won() {
    let (stage, run, path) = denied_early(Kept::InMemory, &DOOR_OF_Y).await;
    let client = &stage.client;
    let looks = stage.notes.hold_up(At::Approval);
    let (rejecting, body) = (client.clone(), json!({"reason": "no", "then": "continue"}));
    let verb = format!("{path}/reject");
    let answer = tokio::spawn(async move { rejecting.post(&verb, body).await });
    looks.arrives().await;
    looks.let_one_go();
    // The second look is after the decision was accepted.
    looks.arrives().await;
    DOOR_OF_Y.opened.notify_one();
    client.run_reaches(&run, "completed").await;
    stage.notes.end_hold_up();
    looks.let_one_go();
    let details = answer.await.unwrap().refused(409, "APPROVAL_NOT_PENDING");
    assert_eq!((&details["status"], &details["decided_by"]), (&json!("rejected"), &json!("system")));
}
