//! Limits: too many, too often, too slow.

use std::time::Duration;

use engine::quota::Quotas;
use engine::store::Tenant;
use holdpoint_http::{Limits, Role};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::test_server::{StoreKind, TestPlan};
use models::scripted::Reply;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_over_its_rate_limit_gets_a_retry_time() {
    let roles = &[Role::Run][..];
    let mut plan =
        TestPlan::one_write(StoreKind::Memory).with_keys(&[("ann", "acme", roles), ("bob", "acme", roles)]);
    plan.limits = Limits { burst_max: 3, requests_per_second_max: 1, ..Limits::default() };
    let test_server = plan.build().await;
    let ann = test_server.as_key("ann");
    for _ in 0..3 {
        ann.get("/v1/runs").await.ok(200);
    }
    // On a slow machine a drop comes back before the last one is taken.
    let mut refused = ann.get("/v1/runs").await;
    while refused.status == 200 {
        refused = ann.get("/v1/runs").await;
    }
    assert_eq!(refused.headers["retry-after"], "1");
    refused.refused(429, "RATE_LIMITED");
    test_server.as_key("bob").get("/v1/runs").await.ok(200);
}

/// A front end's request is answered with a stream, and is refused before it changes anything if there is none left.
#[tokio::test]
async fn a_front_end_that_gets_no_stream_posts_and_decides_nothing() {
    let mut plan = TestPlan::one_write(StoreKind::Memory);
    plan.limits = Limits { streams_per_tenant_max: 0, ..Limits::default() };
    let test_server = plan.build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    let view = client.get(&format!("/v1/runs/{run}")).await.ok(200);
    let approvals = Client::front_end_approvals(&run, view["thread_id"].as_str().unwrap(), &approval);
    let said =
        json!({"id": "m1", "role": "user", "content": "hi", "parts": [{"type": "text", "text": "hi"}]});
    let messages = [
        ("/v1/ai-sdk/assistant", json!({"id": "t2", "messages": [said]})),
        ("/v1/ag-ui/assistant", json!({"threadId": "t3", "runId": "r2", "messages": [said]})),
    ];
    for (path, body) in approvals.into_iter().chain(messages) {
        client.post(path, body).await.refused(429, "RATE_LIMITED");
    }
    assert_eq!(client.get(&format!("/v1/approvals/{approval}")).await.ok(200)["status"], "pending");
    assert_eq!(client.get("/v1/runs").await.ok(200)["runs"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_streams_of_a_tenant_are_limited() {
    let roles = &[Role::Run, Role::Approve][..];
    let mut plan =
        TestPlan::one_write(StoreKind::Memory).with_keys(&[("ann", "acme", roles), ("eve", "other", roles)]);
    plan.limits = Limits { streams_per_tenant_max: 2, ..Limits::default() };
    let test_server = plan.build().await;
    let ann = test_server.as_key("ann");
    let (run, _) = ann.begin_held_run("write it").await;
    let path = format!("/v1/runs/{run}/events");
    let first = ann.stream(&path, &[]).await;
    let _second = ann.stream("/v1/approvals/stream", &[]).await;
    let headers = [("accept", "text/event-stream")];
    ann.send(hyper::Method::GET, &path, &headers, None).await.refused(429, "RATE_LIMITED");
    test_server.as_key("eve").stream("/v1/approvals/stream", &[]).await;
    drop(first);
    // The place is free once the server has noticed that the reader is gone.
    loop {
        let answer = ann.send(hyper::Method::GET, "/v1/approvals/stream", &headers, None);
        match tokio::time::timeout(Duration::from_millis(50), answer).await {
            Ok(refused) => assert_eq!(refused.status, 429),
            Err(_) => break,
        }
    }
}

/// A run whose log has some forty megabytes.
pub(crate) fn a_lot() -> TestPlan {
    let text = "x".repeat(900 * 1024);
    let calls = |step: u32| {
        (0..4).fold(Reply::text(""), |reply, number| {
            reply.and_call(&format!("c{step}{number}"), "echo", json!({"text": text}))
        })
    };
    TestPlan::new(StoreKind::Memory, [calls(1), calls(2), calls(3), Reply::text("Done.")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_events_is_limited_in_bytes() {
    let test_server = a_lot().build().await;
    let run = test_server.client.begin_run("say a lot").await;
    test_server.client.run_reaches(&run, "completed").await;
    let (mut after, mut pages, mut count) = (0, 0, 0);
    loop {
        let answer = test_server.client.get(&format!("/v1/runs/{run}/events?limit=1000&after={after}")).await;
        assert!(answer.text.len() < 9 * 1024 * 1024, "{} bytes", answer.text.len());
        let page = answer.ok(200);
        (pages, count) = (pages + 1, count + page["events"].as_array().unwrap().len());
        match page["next_after"].as_u64() {
            Some(next) => after = next,
            None => {
                assert_eq!(page["last_seq"], json!(count), "no event is left out");
                break;
            }
        }
    }
    assert!(pages > 3, "{pages} pages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_is_cut_off() {
    // More than the buffers between the two can hold.
    let mut plan = a_lot();
    plan.limits = Limits { stall_timeout: Duration::from_millis(200), ..Limits::default() };
    let test_server = plan.build().await;
    let run = test_server.client.begin_run("say a lot").await;
    // Not by a stream: this client is slow enough to be cut off itself.
    test_server.engine.wait_until_ended(&Tenant::default(), &run.as_str().into()).await.expect("it ends");
    let begun = "holdpoint_http_requests_total{method=\"GET\",route=\"/v1/runs/{id}/events\",status=\"200\"}";
    // What was never answered is not shown.
    test_server.client.get(&format!("/v1/runs/{run}/events?limit=1")).await.ok(200);
    let before = test_server.number(begun).await;
    let mut stream = TcpStream::connect(test_server.client.address).await.unwrap();
    let head = format!(
        "GET /v1/runs/{run}/events HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n\r\n",
        test_server.client.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // Nothing is read until the server has given up: its stream is counted no more.
    let given_up = async {
        while test_server.number(begun).await <= before
            || test_server.number("holdpoint_open_streams").await > 0.0
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), given_up).await.expect("the server gives up");
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    assert!(!String::from_utf8_lossy(&received).contains("run.completed"), "it was cut off in the middle");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let mut plan = TestPlan::one_write(StoreKind::Memory);
    plan.limits = Limits {
        body_timeout: Duration::from_millis(100),
        head_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let test_server = plan.build().await;
    let address = test_server.client.address;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/threads HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut received = vec![0; 4096];
    let count = stream.read(&mut received).await.unwrap();
    let text = String::from_utf8_lossy(&received[..count]).into_owned();
    assert!(text.starts_with("HTTP/1.1 400") && text.contains("BAD_REQUEST"), "{text}");

    let mut silent = TcpStream::connect(address).await.unwrap();
    silent.write_all(b"GET /healthz HTT").await.unwrap();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).await.unwrap();
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"), "half a head is no request");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_shown_to_callers_who_may_see_them() {
    let keys: [(&str, &str, &[Role]); 2] =
        [("root", "acme", &[Role::Admin, Role::Operator]), ("ann", "acme", &[Role::Admin])];
    let test_server = TestPlan::one_write(StoreKind::Sqlite).with_keys(&keys).build().await;
    let root = test_server.as_key("root");
    let (_, approval) = root.begin_held_run("write it").await;
    root.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    root.get("/v1/runs/none").await.refused(404, "RUN_NOT_FOUND");
    let _stream = root.stream("/v1/approvals/stream", &[]).await;
    let shown = root.get("/metrics").await;
    assert_eq!(shown.status, 200);
    let number = |line: &str| {
        let found = shown.text.lines().find_map(|shown| shown.strip_prefix(line)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {line} in\n{}", shown.text)).parse::<f64>().expect("a number")
    };
    assert_eq!(number("holdpoint_decisions_total{verdict=\"accepted\"}"), 1.0);
    assert_eq!(number("holdpoint_decision_seconds_count"), 1.0);
    assert_eq!(number("holdpoint_http_refusals_total{code=\"RUN_NOT_FOUND\"}"), 1.0);
    assert_eq!(number("holdpoint_open_streams"), 1.0);
    assert!(number("holdpoint_store_commits_total") >= 3.0);
    assert!(number("holdpoint_store_syncs_total") >= 1.0);
    assert!(!shown.text.contains("token-of"), "no secret");
    test_server.as_key("ann").get("/metrics").await.refused(403, "FORBIDDEN");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_all_its_threads_gets_no_other_and_keeps_those_it_has() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    test_server.engine.set_quotas(Quotas { threads_max: Some(1), ..Quotas::default() });
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "one"})).await.ok(201);
    client.post("/v1/threads", json!({"id": "one"})).await.ok(200);
    let refused = client.post("/v1/threads", json!({"id": "two"})).await;
    let error = refused.json()["error"].clone();
    assert_eq!(error["details"], json!({"quota": "max_threads", "max": 1}));
    refused.refused(409, "QUOTA_REACHED");
    client.post("/v1/threads", json!({})).await.refused(409, "QUOTA_REACHED");
    client.get("/v1/threads/two").await.refused(404, "THREAD_NOT_FOUND");
}
