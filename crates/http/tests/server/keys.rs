//! The same request again: the same answer, and nothing done twice.

use engine::store::Tenant;
use holdpoint_http::Role;
use machine::inbox::Verdict;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

use crate::test_server::{StoreKind, TestPlan, on_all_stores};
use models::scripted::Reply;

on_all_stores! {
    d22_a_message_under_a_key_starts_one_run;
    d22_a_refused_message_binds_no_key;
    a_hundred_repeats_at_once_start_one_run;
    an_approval_under_a_key_is_answered_the_same_again;
    an_idempotency_key_counts_only_for_its_sender;
    a_repeat_is_known_although_its_answer_was_never_kept;
    an_interrupt_under_a_key_is_answered_the_same_again;
}

async fn d22_a_message_under_a_key_starts_one_run(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let path = "/v1/threads/t/messages";
    let first =
        client.post_under_key(path, "k", json!({"agent": "assistant", "text": "write it"})).await.ok(202);
    let run = first["run_id"].as_str().unwrap();
    client.run_reaches(run, "waiting_approval").await;
    // Other words for the same JSON.
    let headers = [crate::client::JSON, ("idempotency-key", "k")];
    let body = "{ \"text\":\"write\\u0020it\" , \"agent\":\"assistant\" }".to_owned();
    let again = client.send(hyper::Method::POST, path, &headers, Some(body)).await.ok(202);
    assert_eq!(
        again,
        json!({"run_id": run, "thread_id": "t", "status": "waiting_approval"}),
        "before the busy check"
    );
    let other = client.post_under_key(path, "k", json!({"agent": "assistant", "text": "write that"})).await;
    other.refused(409, "IDEMPOTENCY_CONFLICT");
    assert_eq!(client.get("/v1/runs").await.ok(200)["runs"].as_array().unwrap().len(), 1);
}

async fn d22_a_refused_message_binds_no_key(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let path = "/v1/threads/t/messages";
    let first = client.post(path, json!({"agent": "assistant", "text": "one"})).await.ok(202);
    let run = first["run_id"].as_str().unwrap();
    client.run_reaches(run, "waiting_approval").await;
    let busy = client.post_under_key(path, "k", json!({"agent": "assistant", "text": "two"})).await;
    busy.refused(409, "ACTIVE_RUN_EXISTS");
    client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    client.run_reaches(run, "interrupted").await;
    client.post_under_key(path, "k", json!({"agent": "assistant", "text": "three"})).await.ok(202);
}

async fn a_hundred_repeats_at_once_start_one_run(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    test_server.client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let mut set = JoinSet::new();
    for _ in 0..100 {
        let client = test_server.client.clone();
        let body = json!({"agent": "assistant", "text": "write it"});
        set.spawn(async move { client.post_under_key("/v1/threads/t/messages", "k", body).await });
    }
    let mut runs = std::collections::BTreeSet::new();
    while let Some(answer) = set.join_next().await {
        runs.insert(answer.unwrap().ok(202)["run_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(runs.len(), 1);
}

async fn an_approval_under_a_key_is_answered_the_same_again(store_kind: StoreKind) {
    let replies = [Reply::call("c", "count", json!({})), Reply::text("Done.")];
    let test_server = TestPlan::new(store_kind, replies).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("count").await;
    let path = format!("/v1/approvals/{approval}/approve");
    let wrong = client.post_under_key(&path, "k", json!({"expect_digest": "0".repeat(64)})).await;
    wrong.refused(409, "DIGEST_MISMATCH");
    let first = client.post_under_key(&path, "k", json!({"note": "yes"})).await.ok(200);
    client.run_reaches(&run, "completed").await;
    let again = client.post_under_key(&path, "k", json!({"note": "yes"})).await.ok(200);
    assert_eq!(again, first);
    client.post_under_key(&path, "k", json!({"note": "no"})).await.refused(409, "IDEMPOTENCY_CONFLICT");
    client.post_under_key(&path, "other", json!({"note": "yes"})).await.refused(409, "APPROVAL_NOT_PENDING");
    // The path is part of the scope: the same key on another route is another key.
    let reject = format!("/v1/approvals/{approval}/reject");
    client.post_under_key(&reject, "k", json!({"reason": "x"})).await.refused(409, "APPROVAL_NOT_PENDING");
    assert_eq!(test_server.count(), 1);
}

async fn an_idempotency_key_counts_only_for_its_sender(store_kind: StoreKind) {
    let roles = &[Role::Run, Role::Approve][..];
    let test_server = TestPlan::one_write(store_kind)
        .with_keys(&[("ann", "acme", roles), ("bob", "acme", roles)])
        .build()
        .await;
    let (ann, bob) = (test_server.as_key("ann"), test_server.as_key("bob"));
    let (_, approval) = ann.begin_held_run("write it").await;
    let path = format!("/v1/approvals/{approval}/approve");
    let first = ann.post_under_key(&path, "k", json!({})).await.ok(200);
    assert_eq!(first["decided_by"], "ann");
    bob.post_under_key(&path, "k", json!({})).await.refused(409, "APPROVAL_NOT_PENDING");
}

/// As after a crash between the decision and the keeping of its answer: the run knows the decision, under the id that
/// follows from the key, and no answer is kept.
async fn a_repeat_is_known_although_its_answer_was_never_kept(store_kind: StoreKind) {
    let replies = [Reply::call("c", "count", json!({})), Reply::text("Done.")];
    let test_server = TestPlan::new(store_kind, replies).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("count").await;
    let path = format!("/v1/approvals/{approval}/approve");
    let mut scope = Sha256::new();
    for part in ["anonymous", "POST", &path, "k"] {
        scope.update((part.len() as u64).to_be_bytes());
        scope.update(part);
    }
    let held = test_server
        .engine
        .approval(&Tenant::default(), &approval.as_str().into())
        .await
        .unwrap()
        .expect("held");
    let decide = held.approve("anonymous").with_id(&format!("key_{:x}_0", scope.finalize()));
    assert_eq!(test_server.engine.decide(decide).await, Ok(Verdict::Accepted));
    client.run_reaches(&run, "completed").await;

    client.post_under_key(&path, "k", json!({"note": "x"})).await.refused(409, "IDEMPOTENCY_CONFLICT");
    let answer = client.post_under_key(&path, "k", json!({})).await.ok(200);
    assert_eq!((&answer["status"], &answer["decided_by"]), (&json!("approved"), &json!("anonymous")));
    assert_eq!(test_server.count(), 1);
}

async fn an_interrupt_under_a_key_is_answered_the_same_again(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, _) = client.begin_held_run("write it").await;
    let path = format!("/v1/runs/{run}/interrupt");
    let first = client.post_under_key(&path, "k", json!({})).await.ok(202);
    client.run_reaches(&run, "interrupted").await;
    assert_eq!(client.post_under_key(&path, "k", json!({})).await.ok(202), first);
    client.post_under_key(&path, "other", json!({})).await.ok(200);
}
