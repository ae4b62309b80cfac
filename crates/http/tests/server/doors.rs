//! Without keys: only this machine is answered, and no page of another site.

use hyper::Method;
use serde_json::json;

use crate::client::JSON;
use crate::stage::{Kept, Plan};
use holdpoint_http::Role;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_page_cannot_approve() {
    let stage = Plan::one_write(Kept::InMemory).build().await;
    let client = &stage.client;
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
async fn with_keys_the_name_of_the_server_is_its_own_affair() {
    let stage = Plan::one_write(Kept::InMemory).with_keys(&[("k", "acme", &[Role::Run])]).build().await;
    let headers = [("host", "agents.example"), ("origin", "https://app.example")];
    stage.as_key("k").send(Method::GET, "/v1/runs", &headers, None).await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_are_shown_and_read_again() {
    let stage = Plan::one_write(Kept::InMemory).build().await;
    let listed = stage.client.get("/v1/agents").await.ok(200);
    assert_eq!(listed["agents"][0]["name"], "assistant");
    let one = stage.client.get("/v1/agents/assistant").await.ok(200);
    assert_eq!(one["tools"].as_array().unwrap().len(), 6);
    stage.client.get("/v1/agents/nobody").await.refused(404, "AGENT_NOT_FOUND");
    let again = stage.client.post_nothing("/v1/admin/reload").await.ok(200);
    assert_eq!(again, listed);
    stage.next.lock().unwrap().agents = Vec::new();
    assert_eq!(stage.client.post_nothing("/v1/admin/reload").await.ok(200), json!({"agents": []}));
    assert_eq!(stage.client.get("/v1/agents").await.ok(200), json!({"agents": []}));
}
