//! Browser tokens: what they reach, how long they are valid, and that a changed one is refused.

use std::time::Duration;

use holdpoint_http::{AgentScope, Auth, Key, Role, Roles};
use hyper::Method;
use models::scripted::Reply;
use serde_json::{Value, json};

use crate::acting_for::keys;
use crate::client::{Answer, Client, JSON};
use crate::roles::{Things, ask, operations, things};
use crate::test_server::{OPEN_TOKEN, StoreKind, TestPlan, TestServer, on_all_stores, write_call};

on_all_stores! {
    a_token_for_a_thread_reaches_this_thread_and_nothing_else;
    a_token_for_a_run_reaches_this_run_and_nothing_else;
    a_token_ends_with_its_key_and_shrinks_with_it;
    an_expired_token_is_refused_and_its_streams_end;
}

const PATIENCE: Duration = Duration::from_secs(20);
/// Routes that concern the whole tenant.
const TENANT_WIDE: [&str; 8] = [
    "/metrics",
    "/v1/admin/reload",
    "/v1/agents",
    "/v1/agents/{name}",
    "/v1/audit",
    "/v1/grants",
    "/v1/grants/{id}",
    "/v1/tokens",
];
const ALL_ROLES: [&str; 3] = ["run", "approve", "admin"];

async fn test_server(store: StoreKind) -> TestServer {
    let plan = TestPlan::new(store, [write_call(), Reply::text("Done.")]);
    TestPlan { auth: Auth::Keys(keys()), ..plan }.build().await
}

/// A token that this client makes.
async fn token(client: &Client, request: Value) -> Client {
    let made = client.post("/v1/tokens", request).await.ok(201);
    client.with_token(made["token"].as_str().expect("a token"))
}

async fn reload(server: &TestServer, change: impl FnOnce(&mut Vec<Key>)) {
    let mut keys = keys();
    change(&mut keys);
    server.next_reload.lock().unwrap().auth = Auth::Keys(keys);
    server.as_key("operator").post_nothing("/v1/admin/reload").await.ok(200);
}

/// Asks for everything: first for what the token does not reach, then for what it does.
async fn judge_table(scoped: &Client, own: &Things, other: &Things, reaches_thread: bool) {
    let (mut hidden, mut answered, mut refused) = (0, 0, 0);
    for operation in operations() {
        let line = format!("{} {}", operation.method, operation.path);
        if operation.path.starts_with("/v1/") || operation.path == "/metrics" {
            if TENANT_WIDE.contains(&operation.path.as_str()) {
                ask(scoped, &operation, other).await.refused(403, "FORBIDDEN");
                refused += 1;
                continue;
            }
        } else {
            continue;
        }
        if operation.path.contains("{id}") {
            let answer = ask(scoped, &operation, other).await;
            assert_eq!(answer.status, 404, "{line}: {}", answer.text);
            assert!(answer.code().ends_with("_NOT_FOUND"), "{line}");
            hidden += 1;
            // A stream of its own does not end, and what is deleted is gone.
            let is_own = reaches_thread || !operation.path.starts_with("/v1/threads");
            if operation.path == "/v1/threads/{id}/events" && reaches_thread
                || operation.method == Method::DELETE
            {
                continue;
            }
            let answer = ask(scoped, &operation, own).await;
            if is_own {
                assert!(![401, 403, 404, 500].contains(&answer.status), "{line}: {}", answer.text);
                answered += 1;
            } else {
                answer.refused(404, "THREAD_NOT_FOUND");
            }
        } else if operation.path != "/v1/approvals/stream" {
            let answer = ask(scoped, &operation, own).await;
            for id in [&other.thread, &other.run, &other.approval] {
                assert!(!answer.text.contains(id.as_str()), "{line} shows {id}");
            }
            assert!(!answer.text.contains("next_cursor\":\""), "{line} has a cursor: {}", answer.text);
        }
    }
    assert!(hidden >= 15 && answered >= 9 && refused >= 8, "{hidden} {answered} {refused}");
}

/// The table approves and interrupts: either may come first.
async fn ended(client: &Client, run: &str) {
    client.run_until(run, |seen| ["completed", "interrupted"].iter().any(|end| seen["status"] == *end)).await;
}

fn ids(list: &Value, name: &str) -> Vec<String> {
    let items = list[name].as_array().expect("a list").iter();
    items.map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
}

async fn a_token_for_a_thread_reaches_this_thread_and_nothing_else(store: StoreKind) {
    let server = test_server(store).await;
    let admin = server.as_key("admin");
    let (other, own) = (things(&server).await, things(&server).await);
    let request = json!({"ttl": "1h", "roles": ALL_ROLES, "thread_id": own.thread});
    let scoped = token(&admin, request).await;
    let mut stream = scoped.stream("/v1/approvals/stream", &[]).await;
    let first = stream.next().await.expect("it stays open");
    assert_eq!(first.data["id"], json!(own.approval));
    assert_eq!(ids(&scoped.get("/v1/threads").await.ok(200), "threads"), [own.thread.as_str()]);
    for query in ["", "?limit=1", "?status=waiting_approval", &format!("?thread_id={}", own.thread)] {
        let runs = scoped.get(&format!("/v1/runs{query}")).await.ok(200);
        assert_eq!(ids(&runs, "runs"), [own.run.as_str()], "{query}");
        assert_eq!(runs["next_cursor"], Value::Null);
    }
    for query in ["", "?limit=1", &format!("?run_id={}", own.run), &format!("?thread_id={}", own.thread)] {
        let approvals = scoped.get(&format!("/v1/approvals{query}")).await.ok(200);
        assert_eq!(ids(&approvals, "approvals"), [own.approval.as_str()], "{query}");
    }
    for (path, list) in [
        (format!("/v1/runs?thread_id={}", other.thread), "runs"),
        (format!("/v1/approvals?thread_id={}", other.thread), "approvals"),
        (format!("/v1/approvals?run_id={}", other.run), "approvals"),
    ] {
        assert_eq!(scoped.get(&path).await.ok(200)[list], json!([]), "{path}");
    }
    for id in [json!({}), json!({"id": "another"}), json!({"id": other.thread})] {
        scoped.post("/v1/threads", id).await.refused(404, "THREAD_NOT_FOUND");
    }
    assert_eq!(admin.get("/v1/threads").await.ok(200)["threads"].as_array().unwrap().len(), 2);
    scoped.post("/v1/threads", json!({"id": own.thread})).await.ok(200);
    judge_table(&scoped, &own, &other, true).await;
    let still = admin.get(&format!("/v1/approvals/{}", other.approval)).await.ok(200);
    assert_eq!(still["status"], "pending");
    // Later approvals of other threads do not reach the stream.
    let later = things(&server).await;
    admin.post_nothing(&format!("/v1/approvals/{}/approve", later.approval)).await.ok(200);
    ended(&admin, &own.run).await;
    let closed = stream.next().await.expect("it stays open");
    assert_eq!(closed.data["id"], json!(own.approval), "not {} nor {}", other.approval, later.approval);
}

async fn a_token_for_a_run_reaches_this_run_and_nothing_else(store: StoreKind) {
    let server = test_server(store).await;
    let admin = server.as_key("admin");
    let (other, own) = (things(&server).await, things(&server).await);
    let request = json!({"ttl": "1h", "roles": ALL_ROLES, "run_id": own.run});
    let scoped = token(&admin, request).await;
    let mut stream = scoped.stream("/v1/approvals/stream", &[]).await;
    let first = stream.next().await.expect("it stays open");
    assert_eq!(first.data["id"], json!(own.approval));
    assert_eq!(scoped.get("/v1/threads").await.ok(200)["threads"], json!([]));
    for query in ["", "?status=waiting_approval", &format!("?thread_id={}", own.thread)] {
        let runs = scoped.get(&format!("/v1/runs{query}")).await.ok(200);
        assert_eq!(ids(&runs, "runs"), [own.run.as_str()], "{query}");
    }
    assert_eq!(scoped.get("/v1/runs?status=completed").await.ok(200)["runs"], json!([]));
    let approvals = scoped.get("/v1/approvals").await.ok(200);
    assert_eq!(ids(&approvals, "approvals"), [own.approval.as_str()]);
    let named = scoped.get(&format!("/v1/approvals?run_id={}", other.run)).await.ok(200);
    assert_eq!(named["approvals"], json!([]));
    judge_table(&scoped, &own, &other, false).await;
    // A second run of the thread: what was said before is not the second run's.
    ended(&admin, &own.run).await;
    let message = json!({"agent": "assistant", "text": "again"});
    let path = format!("/v1/threads/{}/messages", own.thread);
    let second = admin.post(&path, message).await.ok(202)["run_id"].as_str().unwrap().to_owned();
    let later = token(&admin, json!({"ttl": "1h", "run_id": second})).await;
    later.get(&format!("/v1/runs/{second}")).await.ok(200);
    later.get(&format!("/v1/runs/{second}/transcript")).await.refused(404, "THREAD_NOT_FOUND");
    later.get(&format!("/v1/runs/{}", own.run)).await.refused(404, "RUN_NOT_FOUND");
    scoped.get(&format!("/v1/runs/{second}")).await.refused(404, "RUN_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_has_no_more_than_its_key_and_makes_no_other() {
    let server = test_server(StoreKind::Memory).await;
    let (runner, admin) = (server.as_key("runner"), server.as_key("admin"));
    let own = things(&server).await;
    for role in ["approve", "admin", "operator"] {
        let refused = runner.post("/v1/tokens", json!({"ttl": "1m", "roles": ["run", role]})).await;
        assert_eq!(refused.refused(403, "FORBIDDEN")["roles"], json!([role]));
    }
    server.as_key("approver").post("/v1/tokens", json!({"ttl": "1m"})).await.refused(403, "FORBIDDEN");
    let plain = token(&admin, json!({"ttl": "1m"})).await;
    assert_eq!(plain.get("/v1/me").await.ok(200)["roles"], json!(["run"]));
    plain.get("/v1/approvals").await.refused(403, "FORBIDDEN");
    plain.get("/v1/audit").await.refused(403, "FORBIDDEN");
    assert_eq!(plain.get("/v1/agents").await.ok(200)["agents"].as_array().unwrap().len(), 1);
    let approve = format!("/v1/approvals/{}/approve", own.approval);
    plain.post_nothing(&approve).await.refused(403, "FORBIDDEN");
    let whole = token(&admin, json!({"ttl": "1m", "roles": ["admin"]})).await;
    whole.get("/v1/audit").await.ok(200);
    for other in [&plain, &whole] {
        for body in [json!({"ttl": "1m"}), json!({"ttl": "24h", "roles": ["run"]})] {
            other.post("/v1/tokens", body).await.refused(403, "FORBIDDEN");
        }
        let acting = [("holdpoint-acting-for", "ann")];
        other.send(Method::GET, "/v1/runs", &acting, None).await.refused(403, "FORBIDDEN");
    }
    // A token of another tenant, and of a key for other agents.
    let stranger = server.as_key("stranger");
    let request = json!({"ttl": "1m", "run_id": own.run});
    stranger.post("/v1/tokens", request).await.refused(404, "RUN_NOT_FOUND");
    let scoped = token(&stranger, json!({"ttl": "1m", "thread_id": own.thread})).await;
    scoped.get(&format!("/v1/threads/{}", own.thread)).await.refused(404, "THREAD_NOT_FOUND");
    // A thread need not exist yet.
    let early = token(&runner, json!({"ttl": "1m", "thread_id": "later"})).await;
    early.get("/v1/threads/later").await.refused(404, "THREAD_NOT_FOUND");
    early.post("/v1/threads", json!({"id": "later"})).await.ok(201);
    let message = json!({"agent": "assistant", "text": "write it"});
    early.post("/v1/threads/later/messages", message).await.ok(202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_request_for_a_token_names_the_field() {
    let server = test_server(StoreKind::Memory).await;
    let backend = server.as_key("backend");
    let now = json!({"ttl": "24h"});
    backend.post("/v1/tokens", now).await.ok(201);
    let long = "a".repeat(129);
    for (body, field) in [
        (json!({}), "ttl"),
        (json!({"ttl": 60}), "ttl"),
        (json!({"ttl": "0s"}), "ttl"),
        (json!({"ttl": "-1s"}), "ttl"),
        (json!({"ttl": "forever"}), "ttl"),
        (json!({"ttl": "86401s"}), "ttl"),
        (json!({"ttl": "2d"}), "ttl"),
        (json!({"ttl": "99999999999999999h"}), "ttl"),
        (json!({"ttl": "1m", "roles": []}), "roles"),
        (json!({"ttl": "1m", "roles": "run"}), "roles"),
        (json!({"ttl": "1m", "roles": null}), "roles"),
        (json!({"ttl": "1m", "thread_id": null}), "thread_id"),
        (json!({"ttl": "1m", "thread_id": "a b"}), "thread_id"),
        (json!({"ttl": "1m", "thread_id": "t", "run_id": "r"}), "run_id"),
        (json!({"ttl": "1m", "acting_for": ""}), "acting_for"),
        (json!({"ttl": "1m", "acting_for": "a\u{1f}b"}), "acting_for"),
        (json!({"ttl": "1m", "acting_for": "a\u{202e}b"}), "acting_for"),
        (json!({"ttl": "1m", "acting_for": long}), "acting_for"),
        (json!({"ttl": "1m", "scope": "t"}), "scope"),
    ] {
        let text = body.to_string();
        let refused = backend.post("/v1/tokens", body).await.refused(400, "BAD_REQUEST");
        assert_eq!(refused["field"], field, "{text}");
    }
    backend.post("/v1/tokens", json!({"ttl": "1m", "roles": ["owner"]})).await.refused(400, "BAD_REQUEST");
    backend.post("/v1/tokens", json!({"ttl": "1m", "run_id": "none"})).await.refused(404, "RUN_NOT_FOUND");
    let refused = server.as_key("admin").post("/v1/tokens", json!({"ttl": "1m", "acting_for": "ann"})).await;
    refused.refused(403, "FORBIDDEN");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_names_the_person_who_decides() {
    let server = test_server(StoreKind::Memory).await;
    let (backend, admin) = (server.as_key("backend"), server.as_key("admin"));
    let own = things(&server).await;
    let roles = json!(["run", "approve"]);
    let request = json!({"ttl": "1m", "roles": roles, "thread_id": own.thread, "acting_for": "ann"});
    let page = token(&backend, request.clone()).await;
    let me = page.get("/v1/me").await.ok(200);
    let expected = json!({
        "principal": "ann", "via": "backend", "auth": "token", "tenant": "acme", "roles": roles,
        "expires_at": me["expires_at"],
    });
    assert_eq!(me, expected);
    let decided = page.post_nothing(&format!("/v1/approvals/{}/approve", own.approval)).await.ok(200);
    assert_eq!((&decided["decided_by"], &decided["via"]), (&json!("ann"), &json!("backend")));
    let audit = admin.get("/v1/audit?action=approval.approved").await.ok(200);
    let record = &audit["records"][0];
    assert_eq!((&record["by"], &record["via"]), (&json!("ann"), &json!("backend")));

    // The person in the header is the default, and no other may be named.
    let send = async |body: Value| -> Answer {
        let headers = [JSON, ("holdpoint-acting-for", "bo")];
        backend.send(Method::POST, "/v1/tokens", &headers, Some(body.to_string())).await
    };
    let made = send(json!({"ttl": "1m"})).await.ok(201);
    let me = backend.with_token(made["token"].as_str().unwrap()).get("/v1/me").await.ok(200);
    assert_eq!((&me["principal"], &me["via"]), (&json!("bo"), &json!("backend")));
    send(json!({"ttl": "1m", "acting_for": "ann"})).await.refused(400, "BAD_REQUEST");

    let find = |keys: &mut Vec<Key>| keys.iter().position(|key| key.name == "backend").expect("a key");
    reload(&server, |keys| {
        let at = find(keys);
        keys[at].acts_for = false;
    })
    .await;
    page.get("/v1/me").await.refused(401, "UNAUTHORIZED");
}

async fn a_token_ends_with_its_key_and_shrinks_with_it(store: StoreKind) {
    let server = test_server(store).await;
    let own = things(&server).await;
    let backend = server.as_key("backend");
    let page = token(&backend, json!({"ttl": "1h", "roles": ["run", "approve"]})).await;
    let approval = format!("/v1/approvals/{}", own.approval);
    let find = |keys: &mut Vec<Key>| keys.iter().position(|key| key.name == "backend").expect("a key");
    let mut stream = page.stream(&format!("/v1/threads/{}/events", own.thread), &[]).await;
    reload(&server, |keys| {
        let at = find(keys);
        keys[at].roles = Roles::from_list(&[Role::Run]);
    })
    .await;
    let ended = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the stream ends with the key as it was");
    page.get(&approval).await.refused(403, "FORBIDDEN");
    page.get(&format!("/v1/runs/{}", own.run)).await.ok(200);
    reload(&server, |keys| {
        let at = find(keys);
        keys[at].agents = AgentScope::Only(["porter".into()].into());
    })
    .await;
    page.get(&approval).await.refused(404, "APPROVAL_NOT_FOUND");
    reload(&server, |_| {}).await;
    page.get(&approval).await.ok(200);
    for change in [
        (|keys, at| drop(keys.remove(at))) as fn(&mut Vec<Key>, usize),
        |keys, at| keys[at].sha256 = [7; 32],
        |keys, at| keys[at].name = "renamed".into(),
        |keys, at| keys[at].tenant = "other".into(),
    ] {
        reload(&server, |_| {}).await;
        page.get("/v1/me").await.ok(200);
        let mut stream = page.stream("/v1/approvals/stream", &[]).await;
        stream.next().await.expect("a pending approval");
        reload(&server, |keys| {
            let at = find(keys);
            change(keys, at);
        })
        .await;
        page.get("/v1/me").await.refused(401, "UNAUTHORIZED");
        let ended = async { while stream.next().await.is_some() {} };
        tokio::time::timeout(PATIENCE, ended).await.expect("the stream ends with the key");
    }
}

async fn an_expired_token_is_refused_and_its_streams_end(store: StoreKind) {
    let server = test_server(store).await;
    let own = things(&server).await;
    let request = json!({"ttl": "1500ms", "roles": ["run", "approve"], "thread_id": own.thread});
    let page = token(&server.as_key("backend"), request).await;
    let me = page.get("/v1/me").await.ok(200);
    assert_eq!(me["auth"], "token");
    let streams = [
        format!("/v1/runs/{}/events", own.run),
        format!("/v1/threads/{}/events", own.thread),
        "/v1/approvals/stream".to_owned(),
    ];
    let mut open = Vec::new();
    for path in &streams {
        open.push(page.stream(path, &[]).await);
    }
    for (path, stream) in streams.iter().zip(&mut open) {
        let ended = async { while stream.next().await.is_some() {} };
        tokio::time::timeout(PATIENCE, ended).await.unwrap_or_else(|_| panic!("{path} does not end"));
    }
    for path in ["/v1/me", "/v1/runs", &streams[0]] {
        page.get(path).await.refused(401, "UNAUTHORIZED");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_token_is_refused_wherever_it_was_changed() {
    let server = test_server(StoreKind::Memory).await;
    let own = things(&server).await;
    let page = token(&server.as_key("runner"), json!({"ttl": "1h", "thread_id": own.thread})).await;
    page.get("/v1/me").await.ok(200);
    let good = page.token.clone().expect("a token");
    let try_token = async |text: &str| {
        page.with_token(text).get("/v1/me").await.refused(401, "UNAUTHORIZED");
    };
    for at in (0..good.len()).step_by(3) {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        try_token(&String::from_utf8(bytes).expect("a text")).await;
    }
    let (body, signature) = good.strip_prefix("hpt_").and_then(|rest| rest.split_once('.')).expect("parts");
    let decoded: Vec<u8> = (0..body.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&body[at..at + 2], 16).expect("a digit"))
        .collect();
    let claims: Value = serde_json::from_slice(&decoded).expect("JSON");
    let encode =
        |claims: &Value| -> String { claims.to_string().bytes().map(|byte| format!("{byte:02x}")).collect() };
    for (field, value) in [
        ("expires_at_ms", json!(u64::MAX)),
        ("key", json!("admin")),
        ("key", Value::Null),
        ("tenant", json!("other")),
        ("roles", json!({"run": true, "approve": true, "admin": true, "operator": true})),
        ("reach", json!("tenant")),
        ("acting_for", json!("admin")),
    ] {
        let mut forged = claims.clone();
        assert_ne!(forged[field], value);
        forged[field] = value;
        try_token(&format!("hpt_{}.{signature}", encode(&forged))).await;
    }
    for bad in [
        "hpt_".to_owned(),
        format!("hpt_{body}"),
        format!("hpt_{body}."),
        format!("hpt_.{signature}"),
        format!("hpt_{}.{signature}", body.to_uppercase()),
        format!("hpt_{body}.{}", signature.to_uppercase()),
        format!("hpt_{body}.{signature}.{signature}"),
        format!("{good}0"),
        good.replacen("hpt_", "", 1),
        format!("hpt_{}.{signature}", "7b".repeat(3_000)),
    ] {
        try_token(&bad).await;
    }
    // A token of one store is nothing to another one, although the keys are the same.
    let elsewhere = test_server(StoreKind::Memory).await;
    elsewhere.client.with_token(&good).get("/v1/me").await.refused(401, "UNAUTHORIZED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_a_token_with_a_role_needs_the_token_of_the_server() {
    let server = TestPlan::one_write(StoreKind::Memory).build().await;
    let (owner, anyone) = (server.client.clone(), server.client.without_token());
    let own = {
        let (run, approval) = owner.begin_held_run("write it").await;
        let thread = owner.get(&format!("/v1/runs/{run}")).await.ok(200)["thread_id"].clone();
        Things { thread: thread.as_str().unwrap().to_owned(), run, approval }
    };
    for role in ["approve", "admin", "operator"] {
        let request = json!({"ttl": "1h", "roles": [role]});
        anyone.post("/v1/tokens", request.clone()).await.refused(401, "UNAUTHORIZED");
        token(&owner, request).await;
    }
    let approve = format!("/v1/approvals/{}/approve", own.approval);
    let weak = token(&anyone, json!({"ttl": "1h", "thread_id": own.thread})).await;
    weak.get(&format!("/v1/runs/{}", own.run)).await.ok(200);
    weak.post_nothing(&approve).await.refused(403, "FORBIDDEN");
    weak.delete(&format!("/v1/threads/{}", own.thread)).await.refused(409, "ACTIVE_RUN_EXISTS");
    let strong = token(&owner, json!({"ttl": "1h", "roles": ["approve"], "run_id": own.run})).await;
    let me = strong.get("/v1/me").await.ok(200);
    assert_eq!((&me["principal"], &me["auth"]), (&json!("anonymous"), &json!("token")));
    assert_eq!(strong.post_nothing(&approve).await.ok(200)["decided_by"], "anonymous");
    // What is no token any more does not fall back to what everyone may do.
    let short = token(&anyone, json!({"ttl": "1ms", "thread_id": own.thread})).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    short.get("/v1/runs").await.refused(401, "UNAUTHORIZED");
    server.client.with_token("hpt_guess").get("/v1/runs").await.refused(401, "UNAUTHORIZED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn me_says_who_the_caller_is_in_every_mode() {
    let server = test_server(StoreKind::Memory).await;
    let me = server.as_key("roleless").get("/v1/me").await.ok(200);
    let expected = json!({"principal": "roleless", "auth": "key", "tenant": "acme", "roles": []});
    assert_eq!(me, expected);
    let acting = [("holdpoint-acting-for", "ann")];
    let me = server.as_key("backend").send(Method::GET, "/v1/me", &acting, None).await.ok(200);
    let expected = json!({
        "principal": "ann", "via": "backend", "auth": "key", "tenant": "acme", "roles": ["run", "approve"],
    });
    assert_eq!(me, expected);
    let page = token(&server.as_key("admin"), json!({"ttl": "1h", "roles": ["admin"]})).await;
    let me = page.get("/v1/me").await.ok(200);
    assert_eq!((&me["auth"], &me["principal"]), (&json!("token"), &json!("admin")));
    assert!(me["expires_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{me}");
    server.client.get("/v1/me").await.refused(401, "UNAUTHORIZED");
    server.client.with_token("guess").get("/v1/me").await.refused(401, "UNAUTHORIZED");

    let open = TestPlan::one_write(StoreKind::Memory).build().await;
    let me =
        |roles: Value| json!({"principal": "anonymous", "auth": "open", "tenant": "default", "roles": roles});
    let anyone = open.client.without_token();
    assert_eq!(anyone.get("/v1/me").await.ok(200), me(json!(["run"])));
    let all = me(json!(["run", "approve", "admin", "operator"]));
    assert_eq!(anyone.with_token(OPEN_TOKEN).get("/v1/me").await.ok(200), all);
    assert_eq!(anyone.with_token("guess").get("/v1/me").await.ok(200), me(json!(["run"])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_streams_take_a_token_in_their_address() {
    let server = test_server(StoreKind::Memory).await;
    let (admin, anyone) = (server.as_key("admin"), server.client.clone());
    let own = things(&server).await;
    let request = json!({"ttl": "1h", "roles": ALL_ROLES, "thread_id": own.thread});
    let page = token(&admin, request).await;
    let text = page.token.clone().expect("a token");
    let sse = ("accept", "text/event-stream");
    for path in [
        format!("/v1/runs/{}/events?access_token={text}", own.run),
        format!("/v1/runs/{}/events?after=1&access_token={text}&limit=5", own.run),
        format!("/v1/threads/{}/events?access_token={text}&from=now", own.thread),
        format!("/v1/approvals/stream?access_token={text}"),
    ] {
        let mut stream = anyone.stream(&path, &[]).await;
        if !path.contains("from=now") {
            stream.next().await.expect("an event");
        }
        let both = admin.send(Method::GET, &path, &[sse], None).await;
        assert_eq!(both.refused(400, "BAD_REQUEST")["field"], "access_token");
        let twice = format!("{path}&access_token={text}");
        anyone.send(Method::GET, &twice, &[sse], None).await.refused(400, "BAD_REQUEST");
        // Neither a key nor a guess.
        for other in [crate::test_server::token("admin"), format!("{text}0"), String::new()] {
            let path = path.replace(&text, &other);
            anyone.send(Method::GET, &path, &[sse], None).await.refused(401, "UNAUTHORIZED");
        }
        let misspelt = path.replace("access_token", "acces_token");
        page.send(Method::GET, &misspelt, &[sse], None).await.refused(400, "BAD_REQUEST");
    }
    let other = things(&server).await;
    for path in [format!("/v1/runs/{}/events", other.run), format!("/v1/threads/{}/events", other.thread)] {
        let path = format!("{path}?access_token={text}");
        assert_eq!(anyone.send(Method::GET, &path, &[sse], None).await.status, 404, "{path}");
    }
    // A page of events is no stream, and neither is anything else.
    let page_of_events = format!("/v1/runs/{}/events?access_token={text}", own.run);
    anyone.get(&page_of_events).await.refused(400, "BAD_REQUEST");
    for operation in operations() {
        let is_stream = operation.path.ends_with("/events") || operation.path.ends_with("/stream");
        let needs_key = operation.path.starts_with("/v1/") || operation.path == "/metrics";
        if is_stream || !needs_key {
            continue;
        }
        let path = operation.path.replace("{id}", "some").replace("{name}", "some");
        let path = format!("{path}?access_token={text}");
        for client in [&anyone, &page, &admin] {
            let answer = client.send(operation.method.clone(), &path, &[sse], None).await;
            let details = answer.refused(400, "BAD_REQUEST");
            assert_eq!(details["field"], "access_token", "{} {}", operation.method, operation.path);
        }
    }
}
