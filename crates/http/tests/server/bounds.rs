//! What could grow without end in memory, responses and requests, and where its bound is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Settings;
use holdpoint_http::Role;
use models::scripted::Reply;
use serde_json::{Value, json};

use crate::client::EventStream;
use crate::probe_store::{BlockPoint, StoreProbe};
use crate::test_server::{StoreKind, TestPlan, on_both_stores};

on_both_stores! {
    an_interrupt_of_an_ended_run_is_not_remembered;
    an_interrupt_is_known_although_its_answer_was_never_kept;
    a_stream_of_approvals_reads_only_what_has_changed;
    a_stream_of_approvals_that_is_too_slow_is_over;
    an_approval_that_opens_and_closes_unseen_is_sent_as_two_changes;
    a_repeated_message_shows_that_its_run_is_interrupted;
}

const PATIENCE: Duration = Duration::from_secs(20);

async fn next(stream: &mut EventStream) -> Option<(String, String)> {
    let frame = tokio::time::timeout(PATIENCE, stream.next()).await.expect("something comes in time")?;
    let word = |name: &str| frame.data[name].as_str().expect("a text").to_owned();
    Some((word("id"), word("status")))
}

async fn an_interrupt_of_an_ended_run_is_not_remembered(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("go").await;
    client.run_reaches(&run, "completed").await;
    for number in 0..10 {
        let path = format!("/v1/runs/{run}/interrupt");
        client.post_under_key(&path, &format!("k{number}"), json!({})).await.ok(200);
    }
    assert_eq!(StoreProbe::count(&test_server.probe.answers), 0);
}

async fn an_interrupt_is_known_although_its_answer_was_never_kept(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, _) = client.begin_held_run("write it").await;
    let path = format!("/v1/runs/{run}/interrupt");
    test_server.probe.drops_answers.store(true, Ordering::SeqCst);
    client.post_under_key(&path, "k", json!({})).await.ok(202);
    client.run_reaches(&run, "interrupted").await;
    test_server.probe.drops_answers.store(false, Ordering::SeqCst);
    let again = client.post_under_key(&path, "k", json!({})).await.ok(202);
    assert_eq!(again["status"], "interrupted");
    assert_eq!(client.post_under_key(&path, "k", json!({})).await.ok(202), again);
    client.post_under_key(&path, "other", json!({})).await.ok(200);
    client.post_nothing(&path).await.ok(200);
}

async fn a_stream_of_approvals_reads_only_what_has_changed(store_kind: StoreKind) {
    const COUNT: usize = 20;
    let calls = (0..COUNT).map(|number| Reply::call(&format!("c{number}"), "count", json!({})));
    let test_server = TestPlan::new(store_kind, calls.chain([Reply::text("Done.")])).build().await;
    let client = &test_server.client;
    let mut stream = client.stream("/v1/approvals/stream", &[]).await;
    let run = client.begin_run("count").await;
    let mut sent = Vec::new();
    for _ in 0..COUNT {
        let (opened, status) = next(&mut stream).await.expect("it opens");
        assert_eq!(status, "pending");
        client.post_nothing(&format!("/v1/approvals/{opened}/approve")).await.ok(200);
        assert_eq!(next(&mut stream).await, Some((opened.clone(), "approved".into())));
        sent.push(opened);
    }
    client.run_reaches(&run, "completed").await;
    sent.dedup();
    assert_eq!(sent.len(), COUNT);
    let listed = StoreProbe::count(&test_server.probe.changes_listed);
    assert!(listed <= 4 * COUNT, "{listed} approvals were looked at for {COUNT} that changed twice");
}

async fn a_stream_of_approvals_that_is_too_slow_is_over(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (_, approval) = client.begin_held_run("write it").await;
    let barrier = test_server.probe.block_at(BlockPoint::Approvals);
    let mut stream = client.stream("/v1/approvals/stream", &[]).await;
    barrier.wait_for_arrival().await;
    test_server.probe.unblock();
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    // Meanwhile the reader was so slow that this is not recent any more.
    test_server.probe.ahead_ms.store(11 * 60 * 1_000, Ordering::SeqCst);
    barrier.release_one();
    assert_eq!(next(&mut stream).await, Some((approval.clone(), "pending".into())));
    let rest = tokio::time::timeout(PATIENCE, stream.next()).await.expect("the stream is over in time");
    assert_eq!(rest, None, "a client that reconnects starts over");
}

async fn an_approval_that_opens_and_closes_unseen_is_sent_as_two_changes(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let mut stream = client.stream("/v1/approvals/stream", &[]).await;
    let barrier = test_server.probe.block_at(BlockPoint::Approvals);
    let (_, first) = client.begin_held_run("write it").await;
    barrier.wait_for_arrival().await;
    test_server.probe.unblock();
    let (_, second) = client.begin_held_run("write it").await;
    client.post_nothing(&format!("/v1/approvals/{second}/approve")).await.ok(200);
    barrier.release_one();
    let pending = |id: &str| Some((id.to_owned(), "pending".to_owned()));
    assert_eq!(next(&mut stream).await, pending(&first));
    assert_eq!(next(&mut stream).await, pending(&second));
    assert_eq!(next(&mut stream).await, Some((second, "approved".into())));
}

async fn a_repeated_message_shows_that_its_run_is_interrupted(store_kind: StoreKind) {
    let replies =
        [Reply::call("c", "count", json!({})), Reply::call("b", "block", json!({})), Reply::text("Done.")];
    let mut plan = TestPlan::new(store_kind, replies);
    plan.settings = Settings { running_runs_max: 1, ..Settings::default() };
    let test_server = plan.build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let message = json!({"agent": "assistant", "text": "go"});
    let posted = client.post_under_key("/v1/threads/t/messages", "k", message.clone()).await.ok(202);
    let run = posted["run_id"].as_str().unwrap().to_owned();
    client.run_reaches(&run, "waiting_approval").await;
    // Another run has the only slot, and this run processes the interrupt all the same.
    let (_, other) = client.begin_held_run("go").await;
    client.post_nothing(&format!("/v1/approvals/{other}/approve")).await.ok(200);
    test_server.begun.notified().await;
    let interrupted = client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    assert!(["interrupting", "interrupted"].contains(&interrupted["status"].as_str().unwrap()));
    client.run_reaches(&run, "interrupted").await;
    let again = client.post_under_key("/v1/threads/t/messages", "k", message).await.ok(202);
    assert_eq!((&again["run_id"], &again["status"]), (&json!(run), &json!("interrupted")));
    test_server.gate.notify_one();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_is_cached_between_checks_of_the_store() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let before = StoreProbe::count(&test_server.probe.next_wakes);
    for _ in 0..50 {
        test_server.client.get("/readyz").await.ok(200);
    }
    let asked = StoreProbe::count(&test_server.probe.next_wakes) - before;
    assert!(asked < 20, "the store was asked {asked} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_the_server_derives_cannot_be_taken() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let client = &test_server.client;
    let (run, _) = client.begin_held_run("write it").await;
    let decide =
        |id: &str| json!({"decisions": [{"call_id": "call_0", "action": "resume", "decision_id": id}]});
    let path = format!("/v1/runs/{run}/decisions");
    let refused = client.post(&path, decide("key_0_0")).await.ok(200);
    assert_eq!(refused["results"][0]["outcome"], "invalid", "{refused}");
    assert_eq!(client.get(&format!("/v1/runs/{run}")).await.ok(200)["status"], "waiting_approval");
    assert_eq!(client.post(&path, decide("keys")).await.ok(200)["results"][0]["outcome"], "applied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_may_not_loosen_is_refused_before_any_lookup() {
    let keys: [(&str, &str, &[Role]); 2] =
        [("ann", "acme", &[Role::Run]), ("bea", "acme", &[Role::Run, Role::Approve])];
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&keys).build().await;
    let (ann, bea) = (test_server.as_key("ann"), test_server.as_key("bea"));
    let auto = |agent: &str| json!({"agent": agent, "text": "go", "auto_approve": true});
    let looser = json!({"agent": "assistant", "text": "go", "policy": {"approval": "never"}});
    let path = "/v1/threads/nowhere/messages";
    for body in [auto("assistant"), auto("missing"), looser.clone()] {
        ann.post(path, body).await.refused(403, "FORBIDDEN");
    }
    for body in [auto("assistant"), looser] {
        bea.post(path, body).await.refused(404, "THREAD_NOT_FOUND");
    }
    ann.post(path, json!({"agent": "assistant", "text": "go", "auto_approve": false}))
        .await
        .refused(404, "THREAD_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_may_not_approve_may_not_auto_approve_even_if_nothing_is_held() {
    let mut plan = TestPlan::one_write(StoreKind::Memory).with_keys(&[("ann", "acme", &[Role::Run])]);
    plan.change = |mut agent| {
        agent.policy.approval = machine::policy::ApprovalScope::Never;
        agent
    };
    let test_server = plan.build().await;
    let ann = test_server.as_key("ann");
    ann.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "auto_approve": true});
    ann.post("/v1/threads/t/messages", body).await.refused(403, "FORBIDDEN");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_parts_say_nothing_is_empty() {
    let test_server = TestPlan::new(StoreKind::Memory, [Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let post = |content: Value| {
        let body = json!({"agent": "assistant", "content": content, "on_busy": "enqueue"});
        async move { client.post("/v1/threads/t/messages", body).await }
    };
    let nothing = [
        json!([{}]),
        json!([{"type": "text"}]),
        json!([{"type": "text", "text": " \n"}, {}]),
        json!([{"text": ""}]),
        json!([{"type": "image"}]),
    ];
    for content in nothing {
        assert_eq!(post(content.clone()).await.status, 400, "{content}");
    }
    let something = [
        json!([{"type": "text", "text": ""}, {"type": "text", "text": "hello"}]),
        json!([{"type": "image", "url": "https://pictures.example/1"}]),
    ];
    for content in something {
        post(content).await.ok(202);
    }
}
