//! `?wait=`: responses that are held back until the run ends or waits.

use std::time::Duration;

use holdpoint_http::{Limits, Role};
use models::scripted::Reply;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::client::{Answer, Client, JSON};
use crate::test_server::{StoreKind, TestPlan, TestServer, keys_of, on_all_stores, write_call};

const ALL: &[Role] = &[Role::Run, Role::Approve, Role::Admin, Role::Operator];
/// Long enough for a request that does get a permit, even on a busy machine.
const TURN: Duration = Duration::from_secs(3);

on_all_stores! {
    a_message_that_waits_is_answered_when_its_run_waits_or_has_ended;
    a_run_is_shown_when_it_waits_or_has_ended;
}

/// A run that executes until the gate opens, then waits for an approval, then ends.
fn blocked_and_held(store_kind: StoreKind) -> TestPlan {
    let replies = [Reply::call("gate", "block", json!({})), write_call(), Reply::text("Done.")];
    TestPlan::new(store_kind, replies)
}

fn message() -> Value {
    json!({"agent": "assistant", "text": "go"})
}

fn get_waiting(client: &Client, run: &str) -> JoinHandle<Answer> {
    let (client, path) = (client.clone(), format!("/v1/runs/{run}?wait=60s"));
    tokio::spawn(async move { client.get(&path).await })
}

fn post_waiting(client: &Client, thread: &str) -> JoinHandle<Answer> {
    let (client, path) = (client.clone(), format!("/v1/threads/{thread}/messages?wait=60s"));
    tokio::spawn(async move { client.post(&path, message()).await })
}

/// Looks again until this many requests wait.
async fn waiting_requests(test_server: &TestServer, count: f64) {
    let reached = async { while test_server.number("holdpoint_waiting_requests").await != count {} };
    tokio::time::timeout(Duration::from_secs(20), reached).await.expect("the number is reached");
}

async fn a_message_that_waits_is_answered_when_its_run_waits_or_has_ended(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [write_call(), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let path = "/v1/threads/t/messages?wait=25s";
    let headers = [JSON, ("idempotency-key", "once")];
    let send = || client.send(hyper::Method::POST, path, &headers, Some(message().to_string()));
    let held = send().await.ok(202);
    assert_eq!(held["status"], "waiting_approval", "{held}");
    assert_eq!(held.as_object().unwrap().len(), 3, "the same fields as without `wait`: {held}");
    assert_eq!(send().await.ok(202), held, "a repeat");
    let run = held["run_id"].as_str().unwrap();
    let approval = client.get(&format!("/v1/runs/{run}")).await.ok(200)["pending"][0]["approval_id"].clone();
    client.post_nothing(&format!("/v1/approvals/{}/approve", approval.as_str().unwrap())).await.ok(200);
    client.get(&format!("/v1/runs/{run}?wait=25s")).await.ok(200);
    let ended = send().await.ok(202);
    assert_eq!((&ended["run_id"], &ended["status"]), (&held["run_id"], &json!("completed")));
    let without = client.post_under_key("/v1/threads/t/messages", "once", message()).await.ok(202);
    assert_eq!(without, ended, "`wait` is no part of what the key is for");
}

async fn a_run_is_shown_when_it_waits_or_has_ended(store_kind: StoreKind) {
    let test_server = blocked_and_held(store_kind).build().await;
    let client = &test_server.client;
    let run = client.begin_run("go").await;
    test_server.begun.notified().await;
    let path = format!("/v1/runs/{run}");
    let now = client.get(&format!("{path}?wait=20ms")).await.ok(200);
    assert_eq!(now["status"], "running", "the time is up");
    let waiting = get_waiting(client, &run);
    waiting_requests(&test_server, 1.0).await;
    assert!(!waiting.is_finished());
    test_server.gate.notify_one();
    let held = waiting.await.unwrap().ok(200);
    assert_eq!(held["status"], "waiting_approval");
    assert_eq!(client.get(&path).await.ok(200), held, "the same answer as without `wait`");
    assert_eq!(client.get(&format!("{path}?wait=60s")).await.ok(200), held, "it waits already");
    let approval = held["pending"][0]["approval_id"].as_str().unwrap();
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    let ended = client.get(&format!("{path}?wait=60s")).await.ok(200);
    assert_eq!(ended["status"], "completed");
    waiting_requests(&test_server, 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_wait_is_refused_and_changes_nothing() {
    let test_server = blocked_and_held(StoreKind::Memory).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    for bad in ["61s", "2m", "1h", "1d", "60001ms", "25", "s", "-1s", "1.5s", "soon", "", "1s&wait=1s"] {
        let path = format!("/v1/threads/t/messages?wait={bad}");
        let details = client.post(&path, message()).await.refused(400, "BAD_REQUEST");
        assert_eq!(details["field"], "wait", "{bad}");
        let details = client.get(&format!("/v1/runs/run_1?wait={bad}")).await.refused(400, "BAD_REQUEST");
        assert_eq!(details["field"], "wait", "{bad}");
    }
    let details = client.post("/v1/threads/t/messages?wiat=1s", message()).await.refused(400, "BAD_REQUEST");
    assert_eq!(details["field"], "wiat");
    client.get("/v1/runs/run_1?wait=60s").await.refused(404, "RUN_NOT_FOUND");
    client.post("/v1/threads/nowhere/messages?wait=60s", message()).await.refused(404, "THREAD_NOT_FOUND");
    assert_eq!(client.get("/v1/runs").await.ok(200)["runs"], json!([]), "nothing was posted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_hold_no_permit_and_no_memory_of_their_body() {
    let mut plan = blocked_and_held(StoreKind::Memory).with_keys(&[("ann", "acme", ALL)]);
    plan.limits = Limits {
        requests_max: 2,
        body_bytes_max: 1024,
        bodies_bytes_max: 2 * 1024,
        permit_timeout: TURN,
        ..Limits::default()
    };
    let mut test_server = plan.build().await;
    test_server.client = test_server.as_key("ann");
    let ann = &test_server.client;
    let mut waiting = Vec::new();
    for thread in ["a", "b", "c"] {
        ann.post("/v1/threads", json!({"id": thread})).await.ok(201);
        waiting.push(post_waiting(ann, thread));
        test_server.begun.notified().await;
    }
    waiting_requests(&test_server, 3.0).await;
    for _ in 0..20 {
        ann.post("/v1/threads", json!({"id": "a"})).await.ok(200);
    }
    assert!(waiting.iter().all(|one| !one.is_finished()));
    for _ in 0..3 {
        test_server.gate.notify_one();
        // One permit of the gate is not kept for two calls: a run that was let go shows it.
        let finished = async {
            while waiting.iter().all(|one| !one.is_finished()) {
                tokio::task::yield_now().await
            }
        };
        tokio::time::timeout(Duration::from_secs(20), finished).await.expect("one is answered");
        let place = waiting.iter().position(JoinHandle::is_finished).unwrap();
        assert_eq!(waiting.remove(place).await.unwrap().ok(202)["status"], "waiting_approval");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_has_only_so_many_requests_that_wait() {
    let keys: &[(&str, &str, &[Role])] = &[("ann", "acme", ALL), ("eve", "other", ALL)];
    let mut plan = blocked_and_held(StoreKind::Memory).with_keys(keys);
    plan.limits = Limits { waits_per_tenant_max: 1, ..Limits::default() };
    let mut test_server = plan.build().await;
    test_server.client = test_server.as_key("ann");
    let (ann, eve) = (&test_server.client, test_server.as_key("eve"));
    for thread in ["a", "b"] {
        ann.post("/v1/threads", json!({"id": thread})).await.ok(201);
    }
    let waiting = post_waiting(ann, "a");
    test_server.begun.notified().await;
    waiting_requests(&test_server, 1.0).await;
    let refused = ann.post("/v1/threads/b/messages?wait=1s", message()).await;
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(refused.text.contains("use a stream"), "{}", refused.text);
    refused.refused(429, "RATE_LIMITED");
    let runs = ann.get("/v1/runs").await.ok(200)["runs"].clone();
    assert_eq!(runs.as_array().unwrap().len(), 1, "nothing was posted: {runs}");
    let run = runs[0]["id"].as_str().unwrap();
    ann.get(&format!("/v1/runs/{run}?wait=1s")).await.refused(429, "RATE_LIMITED");
    ann.get(&format!("/v1/runs/{run}")).await.ok(200);
    eve.post("/v1/threads", json!({"id": "e"})).await.ok(201);
    let theirs = post_waiting(&eve, "e");
    test_server.begun.notified().await;
    waiting_requests(&test_server, 2.0).await;
    // A client that disconnects waits no longer.
    waiting.abort();
    theirs.abort();
    waiting_requests(&test_server, 0.0).await;
    ann.get(&format!("/v1/runs/{run}?wait=1ms")).await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_server_answers_at_once() {
    let test_server = blocked_and_held(StoreKind::Memory).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let posting = post_waiting(client, "t");
    test_server.begun.notified().await;
    let run = client.get("/v1/runs").await.ok(200)["runs"][0]["id"].as_str().unwrap().to_owned();
    let getting = get_waiting(client, &run);
    waiting_requests(&test_server, 2.0).await;
    test_server.draining.cancel();
    assert_eq!(posting.await.unwrap().ok(202)["status"], "running");
    assert_eq!(getting.await.unwrap().ok(200)["status"], "running");
    assert_eq!(client.get(&format!("/v1/runs/{run}?wait=60s")).await.ok(200)["status"], "running");
    test_server.server.wait_until_answered().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_key_gets_no_answer_that_it_waited_for() {
    let keys: &[(&str, &str, &[Role])] = &[("ann", "acme", ALL), ("bob", "acme", ALL)];
    let mut test_server = blocked_and_held(StoreKind::Memory).with_keys(keys).build().await;
    test_server.client = test_server.as_key("ann");
    let bob = test_server.as_key("bob");
    bob.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let waiting = post_waiting(&bob, "t");
    test_server.begun.notified().await;
    waiting_requests(&test_server, 1.0).await;
    test_server.next_reload.lock().expect("the lock is not poisoned").auth = keys_of(&keys[..1]);
    test_server.server.reload(&"tester".into()).await.expect("it is taken");
    waiting.await.unwrap().refused(401, "UNAUTHORIZED");
}
