//! Answers that their readers are slow to take: whose room they take, and whose not.

use std::time::Duration;

use holdpoint_http::{Limits, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::limits::a_lot;
use crate::stage::{Stage, token};

const BOTH: &[Role] = &[Role::Run, Role::Approve];
const MIB: usize = 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(20);

async fn two_tenants() -> Stage {
    let mut plan = a_lot().with_keys(&[("ann", "acme", BOTH), ("eve", "other", BOTH)]);
    plan.limits = Limits {
        // Each tenant has room for one such answer.
        whole_run_bytes_max: 64 * MIB,
        answers_bytes_max: 128 * MIB,
        turn_time: Duration::from_millis(300),
        ..Limits::default()
    };
    plan.build().await
}

async fn ended_run(stage: &Stage, name: &str) -> String {
    let run = stage.as_key(name).begin_run("say a lot").await;
    let tenant = if name == "ann" { "acme" } else { "other" };
    stage.engine.wait_until_ended(&tenant.into(), &run.as_str().into()).await.expect("it ends");
    run
}

/// Asks for it, and takes no more of the answer than its first bytes.
async fn slow_reader(stage: &Stage, name: &str, path: &str) -> TcpStream {
    let address = stage.client.address;
    let mut stream = TcpStream::connect(address).await.expect("the server listens");
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\r\n", token(name));
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let mut begun = [0; 15];
    stream.read_exact(&mut begun).await.expect("it answers");
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_counts_until_it_is_taken_and_for_its_own_tenant_alone() {
    let stage = two_tenants().await;
    let (ann, eve) = (stage.as_key("ann"), stage.as_key("eve"));
    let (theirs, hers) = (ended_run(&stage, "ann").await, ended_run(&stage, "eve").await);
    for part in ["transcript", "calls"] {
        let path = format!("/v1/runs/{theirs}/{part}");
        let slow = slow_reader(&stage, "ann", &path).await;
        let refused = ann.get(&path).await;
        assert_eq!(refused.headers["retry-after"], "1");
        refused.refused(429, "RATE_LIMITED");
        ann.get(&format!("/v1/runs/{theirs}")).await.ok(200);
        eve.get(&format!("/v1/runs/{hers}/{part}")).await.ok(200);
        drop(slow);
        // The room is free once the server has noticed that the reader is gone.
        let again = async { while ann.get(&path).await.status != 200 {} };
        tokio::time::timeout(PATIENCE, again).await.expect("the room is given back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_result_is_told_whole_although_no_stream_keeps_it() {
    let stage = two_tenants().await;
    let run = ended_run(&stage, "ann").await;
    let mut stream = stage.as_key("ann").stream(&format!("/v1/runs/{run}/events"), &[]).await;
    let mut results = 0;
    while let Some(frame) = stream.next().await {
        let message = &frame.data["payload"]["message"];
        if frame.event == "message.added" && message["role"] == "tool" {
            assert!(message["content"].as_str().expect("a text").len() >= 900 * 1024);
            results += 1;
        }
    }
    assert_eq!(results, 12);
}
