//! Places: who keeps whom waiting, and who does not.

use std::time::Duration;

use holdpoint_http::{Limits, Role};
use models::scripted::Reply;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::{Answer, Client};
use crate::stage::{Kept, Plan, Stage, token};
use crate::watched_store::At;

const BOTH: &[Role] = &[Role::Run, Role::Approve];
/// Long enough for whoever does get a turn, also on a machine that does ten other things.
const TURN: Duration = Duration::from_secs(3);

async fn two_tenants(requests_max: usize) -> Stage {
    let mut plan =
        Plan::one_write(Kept::InMemory).with_keys(&[("ann", "acme", BOTH), ("eve", "other", BOTH)]);
    plan.limits = Limits { requests_max, turn_time: TURN, ..Limits::default() };
    plan.build().await
}

fn asks_for_runs(client: &Client) -> JoinHandle<Answer> {
    let client = client.clone();
    tokio::spawn(async move { client.get("/v1/runs").await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_waits_for_its_turn_and_not_for_ever() {
    let stage = two_tenants(1).await;
    let ann = stage.as_key("ann");
    let hold_up = stage.notes.hold_up(At::Runs);
    let slow = asks_for_runs(&ann);
    hold_up.arrives().await;
    let refused = ann.get("/v1/threads").await;
    assert_eq!(refused.headers["retry-after"], "1");
    refused.refused(429, "RATE_LIMITED");
    assert_eq!(ann.get("/healthz").await.status, 200, "whether it is alive is answered all the same");
    let waiting = tokio::spawn({
        let ann = ann.clone();
        async move { ann.get("/v1/threads").await }
    });
    hold_up.let_one_go();
    slow.await.unwrap().ok(200);
    waiting.await.unwrap().ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_tenant_has_half_of_the_places_and_no_more() {
    let stage = two_tenants(4).await;
    let (ann, eve) = (stage.as_key("ann"), stage.as_key("eve"));
    let hold_up = stage.notes.hold_up(At::Runs);
    let slow = [asks_for_runs(&ann), asks_for_runs(&ann)];
    hold_up.arrives().await;
    hold_up.arrives().await;
    ann.get("/v1/threads").await.refused(429, "RATE_LIMITED");
    eve.get("/v1/threads").await.ok(200);
    hold_up.let_one_go();
    hold_up.let_one_go();
    for answer in slow {
        answer.await.unwrap().ok(200);
    }
    ann.get("/v1/threads").await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_trickles_in_keeps_nobody_waiting() {
    let stage = two_tenants(2).await;
    let address = stage.client.address;
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
        stage.as_key("ann").get("/v1/runs").await.ok(200);
        stage.as_key("eve").get("/v1/runs").await.ok(200);
    }
    drop(trickles);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_their_commit_keeps_nobody_waiting() {
    let calls = Reply::call("c", "count", json!({})).and_call("b", "block", json!({}));
    let mut plan = Plan::new(Kept::InMemory, [calls, Reply::text("Done.")]);
    plan.limits = Limits {
        requests_max: 1,
        turn_time: TURN,
        decided_time: Duration::from_secs(60),
        ..Limits::default()
    };
    let stage = plan.build().await;
    let client = &stage.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "policy": {"decisions": "at_boundary"}});
    let run =
        client.post("/v1/threads/t/messages", body).await.ok(202)["run_id"].as_str().unwrap().to_owned();
    stage.begun.notified().await;
    let held = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 1).await;
    let path = format!("/v1/approvals/{}/approve", held["pending"][0]["approval_id"].as_str().unwrap());
    // Only the run can name the new approval, and it is busy.
    stage.change_tool("count").await;
    let deciding = tokio::spawn({
        let (client, path) = (client.clone(), path.clone());
        async move { client.post_nothing(&path).await }
    });
    // Whoever approves other arguments decides nothing, and hears whether somebody else has.
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
    stage.gate.notify_one();
    let details = deciding.await.unwrap().refused(409, "TOOL_CHANGED");
    assert!(details["approval_id"].is_string(), "{details}");
}
