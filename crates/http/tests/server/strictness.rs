//! Bodies, queries and headers that are not quite right: nothing happens, and the answer says why.

use hyper::Method;
use serde_json::json;

use crate::client::JSON;
use crate::test_server::{StoreKind, TestPlan};

/// What must not approve anything.
const NOT_A_YES: [(&str, u16, &str); 10] = [
    (r#"{"expect_digset": "00"}"#, 400, "BAD_REQUEST"),
    (r#"{"expect_digest": null}"#, 400, "BAD_REQUEST"),
    (r#"{"expect_digest": 7}"#, 400, "BAD_REQUEST"),
    (r#"{"arguments": null}"#, 400, "BAD_REQUEST"),
    (r#"{"note": null}"#, 400, "BAD_REQUEST"),
    (r#"{"apply_to_future": "yes"}"#, 400, "BAD_REQUEST"),
    (r#"{"note": "a", "note": "b"}"#, 400, "BAD_REQUEST"),
    (r#"{"decided_by": "boss"}"#, 400, "BAD_REQUEST"),
    ("[]", 400, "BAD_REQUEST"),
    ("{", 400, "BAD_REQUEST"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d29_a_body_that_is_not_quite_right_decides_nothing() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let client = &test_server.client;
    let (_, approval) = client.begin_held_run("write it").await;
    let path = format!("/v1/approvals/{approval}/approve");
    for (body, status, code) in NOT_A_YES {
        let answer = client.send(Method::POST, &path, &[JSON], Some(body.to_owned())).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{body}: {}", answer.text);
    }
    let plain = client.send(Method::POST, &path, &[("content-type", "text/plain")], Some("{}".into())).await;
    plain.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    let none = client.send(Method::POST, &path, &[], Some("{}".into())).await;
    none.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    let long = format!("{{\"note\": \"{}\"}}", "x".repeat(3 * 1024 * 1024));
    client.send(Method::POST, &path, &[JSON], Some(long)).await.refused(413, "TOO_LARGE");
    let twice = [JSON, ("idempotency-key", "a"), ("idempotency-key", "b")];
    client.send(Method::POST, &path, &twice, Some("{}".into())).await.refused(400, "BAD_REQUEST");

    let still = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    assert_eq!(still["status"], "pending");
    assert_eq!(test_server.note(), None);
    client.post_nothing(&path).await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_with_a_body_that_is_not_quite_right_reads_nothing() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let (client, path) = (&test_server.client, "/v1/admin/reload");
    let before = client.get("/v1/agents").await.ok(200);
    test_server.next_reload.lock().unwrap().agents = Vec::new();
    let plain = [("content-type", "text/plain")];
    client.send(Method::POST, path, &plain, Some("x".into())).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    client.send(Method::POST, path, &[], Some("{}".into())).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    client.send(Method::POST, path, &[JSON], Some("{".into())).await.refused(400, "BAD_REQUEST");
    let details = client.post(path, json!({"dry_run": true})).await.refused(400, "BAD_REQUEST");
    assert_eq!(details["field"], "dry_run");
    assert_eq!(client.get("/v1/agents").await.ok(200), before, "nothing was read");
    client.post(path, json!({})).await.ok(200);
    assert_ne!(client.get("/v1/agents").await.ok(200), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d20_a_message_that_is_not_quite_right_starts_nothing() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let path = "/v1/threads/t/messages";
    for body in [
        json!({"text": "no agent"}),
        json!({"agent": "assistant"}),
        json!({"agent": "assistant", "text": ""}),
        json!({"agent": "assistant", "text": "a", "content": "b"}),
        json!({"agent": "assistant", "text": null}),
        json!({"agent": "assistant", "text": "a", "after": "nothing"}),
        json!({"agent": "assistant", "text": "a", "message_id": "with space"}),
        json!({"agent": "assistant", "text": "a", "policy": {"aproval": "never"}}),
        json!({"agent": "assistant", "text": "a", "on_busy": "whatever"}),
    ] {
        client.post(path, body.clone()).await.refused(400, "BAD_REQUEST");
    }
    for (media_type, data) in [("image/heic", "aGk="), ("image/png", "aGk"), ("image/png", "a-_=")] {
        let image = json!({"type": "image", "media_type": media_type, "data": data});
        let content = json!([{"type": "text", "text": "look"}, image]);
        let refused = client.post(path, json!({"agent": "assistant", "content": content})).await;
        assert_eq!(refused.refused(400, "BAD_REQUEST")["field"], "content[1]");
    }
    client.post("/v1/threads", json!({"id": "a/b"})).await.refused(400, "BAD_REQUEST");
    assert_eq!(client.get("/v1/runs").await.ok(200)["runs"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_means_nothing_is_refused() {
    let test_server = TestPlan::one_write(StoreKind::Sqlite).build().await;
    for bad in [
        "/v1/runs?state=running",
        "/v1/runs?status=runing",
        "/v1/runs?limit=0",
        "/v1/runs?limit=ten",
        "/v1/runs?cursor=x",
        "/v1/runs?status=queued&status=running",
        "/v1/approvals?status=all",
        "/v1/runs?thread_id=%00",
    ] {
        let answer = test_server.client.get(bad).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "BAD_REQUEST"), "{bad}: {}", answer.text);
    }
    for gone in ["/v1/runs/%00", "/v1/runs/%ff", "/v1/runs/a%0Ab"] {
        test_server.client.get(gone).await.refused(404, "RUN_NOT_FOUND");
    }
    assert_eq!(test_server.client.get("/v1/runs?limit=1000").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d29_no_route_and_no_method_are_refused_in_the_same_shape() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let client = &test_server.client;
    client.get("/").await.refused(404, "NOT_FOUND");
    client.get("/v1/nothing").await.refused(404, "NOT_FOUND");
    client.delete("/v1/runs").await.refused(405, "METHOD_NOT_ALLOWED");
    client.get("/v1/admin/reload").await.refused(405, "METHOD_NOT_ALLOWED");
    client
        .send(Method::PUT, "/v1/threads/t", &[JSON], Some("{}".into()))
        .await
        .refused(405, "METHOD_NOT_ALLOWED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_response_has_a_request_id_and_security_headers() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    for path in ["/healthz", "/v1/runs", "/v1/runs/none", "/nothing"] {
        let answer = test_server.client.get(path).await;
        assert!(answer.headers["x-request-id"].to_str().unwrap().starts_with("req_"), "{path}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{path}");
    }
    let own = test_server.client.send(Method::GET, "/healthz", &[("x-request-id", "mine-1")], None).await;
    assert_eq!(own.headers["x-request-id"], "mine-1");
}
