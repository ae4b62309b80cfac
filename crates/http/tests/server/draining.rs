//! A server that drains: it takes nothing new, waits for no body, and answers what it has taken.

use std::time::Duration;

use serde_json::json;

use crate::client::JSON;
use crate::half_sent::HalfSent;
use crate::test_server::{StoreKind, TestPlan};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_opened_while_the_server_drains_is_refused() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let client = &test_server.client;
    let (run, _) = client.begin_held_run("write it").await;
    test_server.server.drain();
    for path in ["/v1/approvals/stream".to_owned(), format!("/v1/runs/{run}/events")] {
        let accept = [("accept", "text/event-stream")];
        let answer = client.send(hyper::Method::GET, &path, &accept, None).await;
        assert_eq!(answer.headers["connection"], "close", "{path}");
        answer.refused(503, "DRAINING");
    }
    client.get(&format!("/v1/runs/{run}")).await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_on_its_way_is_not_waited_for() {
    let mut plan = TestPlan::one_write(StoreKind::Memory);
    plan.limits.body_timeout = Duration::from_secs(600);
    let test_server = plan.build().await;
    let client = &test_server.client;
    let posting = HalfSent::post(client, "/v1/threads", &json!({"id": "t"})).await;
    test_server.server.drain();
    // Nothing was taken, so that nothing is waited for.
    test_server.server.wait_until_answered().await;
    let answer = posting.answer().await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\"DRAINING\""), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    client.get("/v1/threads/t").await.refused(404, "THREAD_NOT_FOUND");
    client
        .send(hyper::Method::POST, "/v1/threads", &[JSON], Some("{}".into()))
        .await
        .refused(503, "DRAINING");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_uploads_too_much_reads_why() {
    let mut plan = TestPlan::one_write(StoreKind::Memory);
    plan.limits.body_bytes_max = 64 * 1024;
    let test_server = plan.build().await;
    for _ in 0..10 {
        let uploads: Vec<_> = (0..20)
            .map(|_| {
                let client = test_server.client.clone();
                tokio::spawn(async move {
                    HalfSent::post(&client, "/v1/threads", &json!({"metadata": {"v": "x".repeat(2_000_000)}}))
                        .await
                        .finish()
                        .await
                })
            })
            .collect();
        for upload in uploads {
            let answer = upload.await.expect("no panic");
            assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\"TOO_LARGE\""), "{answer:?}");
        }
    }
}
