//! Keys rotated by a reload: a removed key is refused, and a key that stays works without interruption.

use std::time::Duration;

use holdpoint_http::{Auth, Limits, Role};
use serde_json::json;

use crate::client::EventStream;
use crate::half_sent::HalfSent;
use crate::test_server::{StoreKind, TestPlan, TestServer, keys_of};

const ALL: &[Role] = &[Role::Run, Role::Approve, Role::Admin];

async fn reload(test_server: &TestServer, auth: Auth) {
    test_server.next_reload.lock().expect("the lock is not poisoned").auth = auth;
    test_server.server.reload(&"tester".into()).await.expect("it is taken");
}

/// A stream that stays open sends keep-alives for ever.
async fn ends(stream: EventStream) {
    tokio::time::timeout(Duration::from_secs(10), stream.rest()).await.expect("the stream ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_key_is_refused_at_once_and_its_streams_end() {
    let keys: [(&str, &str, &[Role]); 2] = [("ann", "acme", ALL), ("bob", "acme", ALL)];
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&keys).build().await;
    let (ann, bob) = (test_server.as_key("ann"), test_server.as_key("bob"));
    let (run, _) = ann.begin_held_run("write it").await;
    let events = format!("/v1/runs/{run}/events");
    let bobs = [bob.stream(&events, &[]).await, bob.stream("/v1/approvals/stream", &[]).await];
    let mut anns = ann.stream("/v1/approvals/stream", &[]).await;
    assert_eq!(anns.next().await.expect("the pending one").data["status"], "pending");

    reload(&test_server, keys_of(&[("ann", "acme", ALL), ("cid", "acme", ALL)])).await;

    bob.get("/v1/runs").await.refused(401, "UNAUTHORIZED");
    for stream in bobs {
        ends(stream).await;
    }
    test_server.as_key("cid").get("/v1/runs").await.ok(200);
    let approval = ann.get("/v1/approvals").await.ok(200)["approvals"][0]["id"].clone();
    let path = format!("/v1/approvals/{}/approve", approval.as_str().expect("an id"));
    assert_eq!(ann.post_nothing(&path).await.ok(200)["decided_by"], "ann");
    assert_eq!(anns.next().await.expect("her stream stays open").data["status"], "approved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_roles_and_another_tenant_count_from_the_next_request_on() {
    let keys: [(&str, &str, &[Role]); 2] = [("ann", "acme", ALL), ("bob", "acme", ALL)];
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&keys).build().await;
    let (ann, bob) = (test_server.as_key("ann"), test_server.as_key("bob"));
    let (run, approval) = ann.begin_held_run("write it").await;
    let stream = bob.stream(&format!("/v1/runs/{run}/events"), &[]).await;

    reload(&test_server, keys_of(&[("ann", "acme", &[Role::Run]), ("bob", "other", ALL)])).await;

    ann.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.refused(403, "FORBIDDEN");
    bob.get(&format!("/v1/runs/{run}")).await.refused(404, "RUN_NOT_FOUND");
    ends(stream).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_gone_when_its_body_arrives_decides_nothing() {
    let keys: [(&str, &str, &[Role]); 3] = [("ann", "acme", ALL), ("bob", "acme", ALL), ("cid", "acme", ALL)];
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&keys).build().await;
    let ann = test_server.as_key("ann");
    let (_, approval) = ann.begin_held_run("write it").await;
    let path = format!("/v1/approvals/{approval}/approve");
    let removed = HalfSent::post(&test_server.as_key("bob"), &path, &json!({})).await;
    let demoted = HalfSent::post(&test_server.as_key("cid"), &path, &json!({})).await;
    let unchanged = HalfSent::post(&ann, &path, &json!({})).await;

    reload(&test_server, keys_of(&[("ann", "acme", ALL), ("cid", "acme", &[Role::Run])])).await;

    let answer = removed.finish().await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("\"UNAUTHORIZED\""), "{answer}");
    let answer = demoted.finish().await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("\"FORBIDDEN\""), "{answer}");
    assert_eq!(ann.get(&format!("/v1/approvals/{approval}")).await.ok(200)["status"], "pending");
    let answer = unchanged.finish().await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"decided_by\":\"ann\""), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_does_not_fill_the_bucket_of_a_key_that_stays() {
    let mut plan = TestPlan::one_write(StoreKind::Memory).with_keys(&[("ann", "acme", ALL)]);
    plan.limits = Limits { burst_max: 100, requests_per_second_max: 1, ..Limits::default() };
    let test_server = plan.build().await;
    let ann = test_server.as_key("ann");
    let until_refused = async || {
        let mut answered = 0;
        while ann.get("/v1/runs").await.status == 200 {
            answered += 1;
        }
        answered
    };
    assert!(until_refused().await >= 100);
    ann.get("/v1/runs").await.refused(429, "RATE_LIMITED");
    reload(&test_server, keys_of(&[("ann", "acme", ALL)])).await;
    // However slow this machine is: a drop comes back each second, and a full bucket has a hundred.
    let answered = until_refused().await;
    assert!(answered < 50, "{answered}");
}

/// What begins with an old key while the keys are replaced is not left over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_keys_are_refused_while_the_keys_keep_changing() {
    let (one, other) = ([("ann", "acme", ALL)], [("bob", "acme", ALL)]);
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&one).build().await;
    let (ann, bob) = (test_server.as_key("ann"), test_server.as_key("bob"));
    ann.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    for _ in 0..20 {
        let opening = ann.send(hyper::Method::GET, "/v1/approvals/stream", &[], None);
        let ((), answer) = tokio::join!(reload(&test_server, keys_of(&other)), opening);
        assert!(answer.status == 200 || answer.status == 401, "{answer:?}");
        ann.get("/v1/threads/t").await.refused(401, "UNAUTHORIZED");
        bob.get("/v1/threads/t").await.ok(200);
        reload(&test_server, keys_of(&one)).await;
    }
}
