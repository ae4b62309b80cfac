//! Without keys: only this machine is answered, and no page of another site.

use hyper::Method;
use serde_json::json;

use crate::client::JSON;
use crate::test_server::{StoreKind, TestPlan};
use holdpoint_http::Role;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_page_cannot_approve() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let client = &test_server.client;
    let (_, approval) = client.begin_held_run("write it").await;
    let path = format!("/v1/approvals/{approval}/approve");
    for origin in ["https://evil.example", "null", "http://localhost:1", "http://evil.example:8787"] {
        client.send(Method::POST, &path, &[("origin", origin)], None).await.refused(403, "ORIGIN_REFUSED");
        let body = Some("{}".to_owned());
        client
            .send(Method::POST, &path, &[JSON, ("origin", origin)], body)
            .await
            .refused(403, "ORIGIN_REFUSED");
        client
            .send(Method::GET, "/v1/runs", &[("origin", origin)], None)
            .await
            .refused(403, "ORIGIN_REFUSED");
    }
    for host in ["evil.example", "evil.example:8787", "127.0.0.1.evil.example"] {
        client.send(Method::POST, &path, &[("host", host)], None).await.refused(403, "ORIGIN_REFUSED");
        client.send(Method::GET, "/healthz", &[("host", host)], None).await.refused(403, "ORIGIN_REFUSED");
    }
    let still = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    assert_eq!(still["status"], "pending");

    let ours = format!("http://{}", client.address);
    let named = format!("http://localhost:{}", client.address.port());
    for origin in [&ours, &named] {
        client.send(Method::GET, "/v1/runs", &[("origin", origin)], None).await.ok(200);
    }
    client.send(Method::POST, &path, &[("origin", &ours)], None).await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_keys_any_host_and_origin_are_accepted() {
    let test_server =
        TestPlan::one_write(StoreKind::Memory).with_keys(&[("k", "acme", &[Role::Run])]).build().await;
    let headers = [("host", "agents.example"), ("origin", "https://app.example")];
    test_server.as_key("k").send(Method::GET, "/v1/runs", &headers, None).await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_are_listed_and_reloaded() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let listed = test_server.client.get("/v1/agents").await.ok(200);
    assert_eq!(listed["agents"][0]["name"], "assistant");
    let one = test_server.client.get("/v1/agents/assistant").await.ok(200);
    assert_eq!(one["tools"].as_array().unwrap().len(), 6);
    test_server.client.get("/v1/agents/missing").await.refused(404, "AGENT_NOT_FOUND");
    let again = test_server.client.post_nothing("/v1/admin/reload").await.ok(200);
    assert_eq!(again, listed);
    test_server.next_reload.lock().unwrap().agents = Vec::new();
    assert_eq!(test_server.client.post_nothing("/v1/admin/reload").await.ok(200), json!({"agents": []}));
    assert_eq!(test_server.client.get("/v1/agents").await.ok(200), json!({"agents": []}));
}
