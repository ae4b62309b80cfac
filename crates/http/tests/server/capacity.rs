//! Places: who keeps whom waiting, and who does not.

use std::time::Duration;

use holdpoint_http::{Limits, Role};
use models::scripted::Reply;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::{Answer, Client};
use crate::probe_store::BlockPoint;
use crate::test_server::{StoreKind, TestPlan, TestServer, token};

const BOTH: &[Role] = &[Role::Run, Role::Approve];
/// Long enough for a request that does get a permit, even on a busy machine.
const TURN: Duration = Duration::from_secs(3);

async fn two_tenants(requests_max: usize) -> TestServer {
    let mut plan =
        TestPlan::one_write(StoreKind::Memory).with_keys(&[("ann", "acme", BOTH), ("eve", "other", BOTH)]);
    plan.limits = Limits { requests_max, permit_timeout: TURN, ..Limits::default() };
    plan.build().await
}

fn asks_for_runs(client: &Client) -> JoinHandle<Answer> {
    let client = client.clone();
    tokio::spawn(async move { client.get("/v1/runs").await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_waits_for_a_permit_until_its_timeout() {
    let test_server = two_tenants(1).await;
    let ann = test_server.as_key("ann");
    let barrier = test_server.probe.block_at(BlockPoint::Runs);
    let slow = asks_for_runs(&ann);
    barrier.wait_for_arrival().await;
    let refused = ann.get("/v1/threads").await;
    assert_eq!(refused.headers["retry-after"], "1");
    refused.refused(429, "RATE_LIMITED");
    assert_eq!(ann.get("/healthz").await.status, 200, "whether it is alive is answered all the same");
    let waiting = tokio::spawn({
        let ann = ann.clone();
        async move { ann.get("/v1/threads").await }
    });
    barrier.release_one();
    slow.await.unwrap().ok(200);
    waiting.await.unwrap().ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_tenant_gets_at_most_half_of_the_permits() {
    let test_server = two_tenants(4).await;
    let (ann, eve) = (test_server.as_key("ann"), test_server.as_key("eve"));
    let barrier = test_server.probe.block_at(BlockPoint::Runs);
    let slow = [asks_for_runs(&ann), asks_for_runs(&ann)];
    barrier.wait_for_arrival().await;
    barrier.wait_for_arrival().await;
    ann.get("/v1/threads").await.refused(429, "RATE_LIMITED");
    eve.get("/v1/threads").await.ok(200);
    barrier.release_one();
    barrier.release_one();
    for answer in slow {
        answer.await.unwrap().ok(200);
    }
    ann.get("/v1/threads").await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_body_holds_no_permit() {
    let test_server = two_tenants(2).await;
    let address = test_server.client.address;
    let head = format!(
        "POST /v1/threads HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 9\r\n\r\n{{",
        token("ann")
    );
    let mut trickles = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(address).await.expect("the server listens");
        stream.write_all(head.as_bytes()).await.expect("it reads");
        trickles.push(stream);
    }
    // Often enough that the server has begun with all of them.
    for _ in 0..20 {
        test_server.as_key("ann").get("/v1/runs").await.ok(200);
        test_server.as_key("eve").get("/v1/runs").await.ok(200);
    }
    drop(trickles);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_for_a_commit_holds_no_permit() {
    let calls = Reply::call("c", "count", json!({})).and_call("b", "block", json!({}));
    let mut plan = TestPlan::new(StoreKind::Memory, [calls, Reply::text("Done.")]);
    plan.limits = Limits {
        requests_max: 1,
        permit_timeout: TURN,
        decision_timeout: Duration::from_secs(60),
        ..Limits::default()
    };
    let test_server = plan.build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "policy": {"decisions": "at_boundary"}});
    let run =
        client.post("/v1/threads/t/messages", body).await.ok(202)["run_id"].as_str().unwrap().to_owned();
    test_server.begun.notified().await;
    let held = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 1).await;
    let path = format!("/v1/approvals/{}/approve", held["pending"][0]["approval_id"].as_str().unwrap());
    // Only the run can name the new approval, and it is busy.
    test_server.change_tool("count").await;
    let deciding = tokio::spawn({
        let (client, path) = (client.clone(), path.clone());
        async move { client.post_nothing(&path).await }
    });
    // An approval of other arguments decides nothing, and its error says whether another approver has decided.
    let other = json!({"expect_digest": "0".repeat(64)});
    loop {
        let answer = client.post(&path, other.clone()).await;
        assert_ne!(answer.status, 429, "{}", answer.text);
        if answer.text.contains("APPROVAL_NOT_PENDING") {
            break;
        }
    }
    for _ in 0..20 {
        client.get("/v1/runs").await.ok(200);
    }
    assert!(!deciding.is_finished(), "it waits all the while");
    test_server.gate.notify_one();
    let details = deciding.await.unwrap().refused(409, "TOOL_CHANGED");
    assert!(details["approval_id"].is_string(), "{details}");
}
