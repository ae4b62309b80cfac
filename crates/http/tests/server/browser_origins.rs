//! Pages of other origins: which ones may call, what their browsers receive, and what a development proxy sends.

use std::collections::BTreeSet;

use holdpoint_http::{Role, WebOrigin};
use hyper::Method;
use serde_json::json;

use crate::client::{Answer, Client, JSON};
use crate::roles::{KEYS, operations};
use crate::test_server::{StoreKind, TestPlan, TestServer};

const PAGE: &str = "https://app.example.com";
const DEVELOPMENT: &str = "http://localhost:5173";
/// None of them is allowed, however much it looks like one that is.
const OTHERS: [&str; 9] = [
    "null",
    "*",
    "https://evil.example",
    "http://app.example.com",
    "https://app.example.com:8443",
    "https://app.example.com.evil.example",
    "https://x.app.example.com",
    "https://app.example.com/",
    "https://ann@app.example.com",
];

fn origins(list: &[&str]) -> Vec<WebOrigin> {
    list.iter().map(|origin| origin.parse().expect("an origin")).collect()
}

fn plan() -> TestPlan {
    TestPlan { allow_origins: origins(&[PAGE, DEVELOPMENT]), ..TestPlan::one_write(StoreKind::Memory) }
}

async fn with_keys() -> TestServer {
    plan().with_keys(&KEYS).build().await
}

async fn preflight(client: &Client, path: &str, origin: &str, method: &str) -> Answer {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", method),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    client.without_token().send(Method::OPTIONS, path, &headers, None).await
}

fn list(answer: &Answer, name: &str) -> BTreeSet<String> {
    let text = answer.headers[name].to_str().expect("a text");
    text.split(", ").map(str::to_owned).collect()
}

#[track_caller]
fn has_no_cors(answer: &Answer) {
    let found: Vec<&str> = answer.headers.keys().map(|name| name.as_str()).collect();
    assert!(!found.iter().any(|name| name.starts_with("access-control-")), "{found:?}");
    assert_eq!(answer.headers["cross-origin-resource-policy"], "same-origin");
}

#[track_caller]
fn lets_page_read(answer: &Answer, origin: &str) {
    assert_eq!(answer.headers["access-control-allow-origin"], origin, "{}", answer.text);
    assert_eq!(answer.headers["cross-origin-resource-policy"], "cross-origin");
    assert!(!answer.headers.contains_key("access-control-allow-credentials"));
    let exposed = list(answer, "access-control-expose-headers");
    for name in ["x-request-id", "retry-after", "location", "x-vercel-ai-ui-message-stream"] {
        assert!(exposed.contains(name), "{exposed:?}");
    }
    assert!(list(answer, "vary").contains("Origin"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preflight_is_answered_on_every_route_with_what_the_route_takes() {
    for test_server in [with_keys().await, plan().build().await] {
        let mut count = 0;
        for operation in operations() {
            let path = operation.path.replace("{id}", "some").replace("{name}", "some");
            let method = operation.method.as_str();
            for origin in [PAGE, DEVELOPMENT] {
                let answer = preflight(&test_server.client, &path, origin, method).await;
                assert_eq!((answer.status, answer.text.as_str()), (204, ""), "{method} {path}");
                lets_page_read(&answer, origin);
                assert!(list(&answer, "access-control-allow-methods").contains(method), "{method} {path}");
                let headers = list(&answer, "access-control-allow-headers");
                assert!(headers.contains("authorization") && headers.contains("content-type"), "{path}");
                assert_eq!(answer.headers["access-control-max-age"], "600");
                count += 1;
            }
        }
        assert!(count >= 60, "{count}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preflight_names_the_methods_and_headers_of_the_route_and_no_others() {
    let test_server = with_keys().await;
    let common = ["authorization", "content-type", "holdpoint-acting-for", "x-request-id"];
    for (path, methods, more) in [
        ("/v1/threads", &["GET", "POST"][..], &[][..]),
        ("/v1/threads/t", &["DELETE", "GET"], &[]),
        ("/v1/threads/t/messages", &["GET", "POST"], &["idempotency-key"]),
        ("/v1/threads/t/events", &["GET"], &["last-event-id"]),
        ("/v1/runs/r/events", &["GET"], &["last-event-id"]),
        ("/v1/approvals/a/approve", &["POST"], &["idempotency-key"]),
        ("/v1/approvals/stream", &["GET"], &[]),
        ("/v1/tokens", &["POST"], &[]),
        ("/v1/me", &["GET"], &[]),
    ] {
        let answer = preflight(&test_server.client, path, PAGE, "POST").await;
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(list(&answer, "access-control-allow-methods"), named(methods), "{path}");
        let headers: Vec<&str> = common.iter().chain(more).copied().collect();
        assert_eq!(list(&answer, "access-control-allow-headers"), named(&headers), "{path}");
    }
    let openapi = preflight(&test_server.client, "/openapi.json", PAGE, "GET").await;
    assert_eq!(openapi.status, 204);
    let missing = preflight(&test_server.client, "/v1/nonsense", PAGE, "GET").await;
    lets_page_read(&missing, PAGE);
    missing.refused(404, "NOT_FOUND");
    // Without `Access-Control-Request-Method` it is an ordinary request.
    let headers = [("origin", PAGE)];
    let plain = test_server.client.send(Method::OPTIONS, "/v1/threads", &headers, None).await;
    plain.refused(405, "METHOD_NOT_ALLOWED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_origins_get_no_cors_header_on_any_route() {
    let (keys, open) = (with_keys().await, plan().build().await);
    for operation in operations() {
        let path = operation.path.replace("{id}", "some").replace("{name}", "some");
        for origin in OTHERS {
            let method = operation.method.as_str();
            let answer = preflight(&keys.client, &path, origin, method).await;
            assert_eq!(answer.status, 405, "{method} {path} {origin}");
            has_no_cors(&answer);
            let answer = preflight(&open.client, &path, origin, method).await;
            has_no_cors(&answer);
            answer.refused(403, "ORIGIN_REFUSED");
        }
    }
    let runner = keys.as_key("runner");
    for origin in OTHERS {
        let answer = runner.send(Method::GET, "/v1/runs", &[("origin", origin)], None).await;
        assert_eq!(answer.status, 200, "with keys, the origin does not matter");
        has_no_cors(&answer);
        assert_eq!(answer.headers["vary"], "Origin", "a cache keeps the responses apart");
    }
    let several = [("origin", PAGE), ("origin", DEVELOPMENT)];
    has_no_cors(&runner.send(Method::GET, "/v1/runs", &several, None).await);
    has_no_cors(&runner.get("/v1/runs").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_allow_origins_nothing_about_cors_is_sent() {
    let plan = TestPlan::one_write(StoreKind::Memory).with_keys(&KEYS);
    let test_server = plan.build().await;
    for origin in [PAGE, DEVELOPMENT] {
        let answer = preflight(&test_server.client, "/v1/runs", origin, "GET").await;
        assert_eq!(answer.status, 405);
        has_no_cors(&answer);
        let answer =
            test_server.as_key("runner").send(Method::GET, "/v1/runs", &[("origin", origin)], None).await;
        has_no_cors(&answer);
        assert!(!answer.headers.contains_key("vary"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_may_read_responses_refusals_and_streams() {
    let test_server = with_keys().await;
    let (admin, from_page) = (test_server.as_key("admin"), [("origin", PAGE)]);
    let answer = admin.send(Method::GET, "/v1/runs", &from_page, None).await;
    assert_eq!(answer.status, 200);
    lets_page_read(&answer, PAGE);
    for (client, path, status) in [
        (test_server.client.clone(), "/v1/runs", 401),
        (test_server.as_key("operator"), "/v1/runs", 403),
        (admin.clone(), "/v1/runs/none", 404),
        (admin.clone(), "/v1/runs?nonsense=1", 400),
        (admin.clone(), "/v1/nonsense", 404),
    ] {
        let answer = client.send(Method::GET, path, &from_page, None).await;
        assert_eq!(answer.status, status, "{path}");
        lets_page_read(&answer, PAGE);
    }
    let bad = admin.send(Method::POST, "/v1/threads", &[JSON, ("origin", PAGE)], Some("{".into())).await;
    assert_eq!(bad.status, 400);
    lets_page_read(&bad, PAGE);
    let (run, _) = admin.begin_held_run("write it").await;
    for path in [format!("/v1/runs/{run}/events"), "/v1/approvals/stream".to_owned()] {
        let stream = admin.stream(&path, &from_page).await;
        assert_eq!(stream.headers["access-control-allow-origin"], PAGE, "{path}");
        assert_eq!(stream.headers["cross-origin-resource-policy"], "cross-origin");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_an_allowed_origin_may_call_and_the_host_still_has_to_be_this_machine() {
    let test_server = plan().build().await;
    let client = &test_server.client;
    for origin in [PAGE, DEVELOPMENT] {
        let answer =
            client.send(Method::POST, "/v1/threads", &[JSON, ("origin", origin)], Some("{}".into())).await;
        lets_page_read(&answer, origin);
        answer.ok(201);
        let headers = [JSON, ("origin", origin), ("host", "app.example.com")];
        for method in [Method::POST, Method::GET, Method::OPTIONS] {
            let answer = client.send(method, "/v1/threads", &headers, None).await;
            answer.refused(403, "ORIGIN_REFUSED");
        }
        let headers =
            [("origin", origin), ("host", "evil.example"), ("access-control-request-method", "GET")];
        client.send(Method::OPTIONS, "/v1/runs", &headers, None).await.refused(403, "ORIGIN_REFUSED");
    }
    // Approving still needs the token of the server.
    let (_, approval) = client.begin_held_run("write it").await;
    let approve = format!("/v1/approvals/{approval}/approve");
    let page = client.without_token();
    page.send(Method::POST, &approve, &[("origin", PAGE)], None).await.refused(401, "UNAUTHORIZED");
    for origin in OTHERS {
        let answer = client.send(Method::POST, &approve, &[("origin", origin)], None).await;
        let details = answer.json();
        assert!(details["error"]["message"].as_str().unwrap().contains("server.allow_origins"), "{details}");
        answer.refused(403, "ORIGIN_REFUSED");
    }
    client.send(Method::POST, &approve, &[("origin", PAGE)], None).await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_development_proxy_works_with_and_without_change_origin() {
    let test_server = plan().build().await;
    let own = test_server.client.address.to_string();
    // `changeOrigin` sends the server's own host, otherwise the proxy sends the page's.
    for host in ["localhost:5173", own.as_str()] {
        let client = &test_server.client;
        // A browser sends no origin with a GET of the same origin, and one with every POST.
        client.send(Method::GET, "/v1/runs", &[("host", host)], None).await.ok(200);
        let headers = [JSON, ("host", host), ("origin", DEVELOPMENT)];
        client.send(Method::POST, "/v1/threads", &headers, Some("{}".into())).await.ok(201);
        let headers = [JSON, ("host", host), ("origin", "http://localhost:3000")];
        client
            .send(Method::POST, "/v1/threads", &headers, Some("{}".into()))
            .await
            .refused(403, "ORIGIN_REFUSED");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_replaces_the_allowed_origins() {
    let test_server = with_keys().await;
    let operator = test_server.as_key("operator");
    lets_page_read(&preflight(&test_server.client, "/v1/runs", PAGE, "GET").await, PAGE);
    test_server.next_reload.lock().unwrap().allow_origins = origins(&["https://new.example.com"]);
    operator.post_nothing("/v1/admin/reload").await.ok(200);
    has_no_cors(&preflight(&test_server.client, "/v1/runs", PAGE, "GET").await);
    let new = "https://new.example.com";
    lets_page_read(&preflight(&test_server.client, "/v1/runs", new, "GET").await, new);
    let bearer = operator.send(Method::POST, "/v1/admin/reload", &[JSON, ("origin", PAGE)], None).await;
    assert_eq!(bearer.ok(200), json!({"agents": []}), "a key does not depend on the origin");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_is_needed_from_an_allowed_origin_as_well() {
    let keys: [(&str, &str, &[Role]); 1] = [("k", "acme", &[Role::Run])];
    let test_server = plan().with_keys(&keys).build().await;
    let answer = test_server.as_key("k").send(Method::GET, "/v1/approvals", &[("origin", PAGE)], None).await;
    answer.refused(403, "FORBIDDEN");
}
