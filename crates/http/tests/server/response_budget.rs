//! Answers that their readers are slow to take: whose room they take, and whose not.

use std::time::Duration;

use holdpoint_http::{Limits, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::limits::a_lot;
use crate::test_server::{TestServer, token};

const BOTH: &[Role] = &[Role::Run, Role::Approve];
const MIB: usize = 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(20);

async fn two_tenants() -> TestServer {
    let mut plan = a_lot().with_keys(&[("ann", "acme", BOTH), ("eve", "other", BOTH)]);
    plan.limits = Limits {
        // Each tenant has room for one such answer.
        whole_run_bytes_max: 64 * MIB,
        responses_bytes_max: 128 * MIB,
        permit_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    plan.build().await
}

async fn ended_run(test_server: &TestServer, name: &str) -> String {
    let run = test_server.as_key(name).begin_run("say a lot").await;
    let tenant = if name == "ann" { "acme" } else { "other" };
    test_server.engine.wait_until_ended(&tenant.into(), &run.as_str().into()).await.expect("it ends");
    run
}

/// Asks for it, and takes no more of the answer than its first bytes.
async fn slow_reader(test_server: &TestServer, name: &str, path: &str) -> TcpStream {
    let address = test_server.client.address;
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
async fn a_response_counts_until_it_is_read_and_only_for_its_tenant() {
    let test_server = two_tenants().await;
    let (ann, eve) = (test_server.as_key("ann"), test_server.as_key("eve"));
    let (theirs, hers) = (ended_run(&test_server, "ann").await, ended_run(&test_server, "eve").await);
    for part in ["transcript", "calls"] {
        let path = format!("/v1/runs/{theirs}/{part}");
        let slow = slow_reader(&test_server, "ann", &path).await;
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
async fn a_large_result_is_sent_whole_although_no_stream_keeps_it() {
    let test_server = two_tenants().await;
    let run = ended_run(&test_server, "ann").await;
    let mut stream = test_server.as_key("ann").stream(&format!("/v1/runs/{run}/events"), &[]).await;
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
