//! Keys that act for others: whose name is recorded where, and who may not.

use holdpoint_http::{Auth, Key, Role};
use hyper::Method;
use models::scripted::Reply;
use serde_json::{Value, json};

use crate::client::{Answer, Client, JSON};
use crate::roles::KEYS;
use crate::test_server::{StoreKind, TestPlan, TestServer, keys_of, on_all_stores, write_call};

on_all_stores! {
    both_names_are_recorded_wherever_a_person_is_shown;
    grants_end_with_the_key_that_acted;
}

/// The keys of the roles, and two services. `portal` is also the name of a person in these tests.
pub(crate) fn keys() -> Vec<Key> {
    let more: [(&str, &str, &[Role]); 2] = [
        ("backend", "acme", &[Role::Run, Role::Approve]),
        ("portal", "acme", &[Role::Run, Role::Approve, Role::Admin]),
    ];
    let Auth::Keys(mut keys) = keys_of(&KEYS.into_iter().chain(more).collect::<Vec<_>>()) else {
        panic!("there are keys")
    };
    let services = keys.iter_mut().filter(|key| ["backend", "portal"].contains(&key.name.as_str()));
    services.for_each(|key| key.acts_for = true);
    keys
}

async fn test_server(store: StoreKind) -> TestServer {
    let plan = TestPlan::new(store, [write_call(), Reply::text("Done.")]);
    TestPlan { auth: Auth::Keys(keys()), ..plan }.build().await
}

async fn post_as(client: &Client, name: &str, path: &str, body: Value) -> Answer {
    let headers = [JSON, ("holdpoint-acting-for", name)];
    client.send(Method::POST, path, &headers, Some(body.to_string())).await
}

/// A run that this person has started in this thread and that waits for approval, and its approval.
async fn held(client: &Client, name: &str, thread: &str) -> (String, String) {
    post_as(client, name, "/v1/threads", json!({"id": thread})).await;
    let message = json!({"agent": "assistant", "text": "write it"});
    let posted = post_as(client, name, &format!("/v1/threads/{thread}/messages"), message).await.ok(202);
    let run = posted["run_id"].as_str().unwrap().to_owned();
    let seen = client.run_reaches(&run, "waiting_approval").await;
    (run, seen["pending"][0]["approval_id"].as_str().unwrap().to_owned())
}

fn of_kind<'e>(events: &'e [Value], kind: &str) -> &'e Value {
    &events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("no {kind}"))["payload"]
}

#[track_caller]
fn names(found: &Value, field: &str, by: &str) {
    assert_eq!((&found[field], &found["via"]), (&json!(by), &json!("backend")), "{found}");
}

async fn both_names_are_recorded_wherever_a_person_is_shown(store: StoreKind) {
    let server = test_server(store).await;
    let (backend, admin) = (server.as_key("backend"), server.as_key("admin"));
    let (run, approval) = held(&backend, "ann", "t").await;
    let approve = format!("/v1/approvals/{approval}/approve");
    let decided = post_as(&backend, "Bo Li", &approve, json!({"apply_to_future": true})).await.ok(200);
    names(&decided, "decided_by", "Bo Li");
    backend.run_reaches(&run, "completed").await;
    names(&admin.get(&format!("/v1/approvals/{approval}")).await.ok(200), "decided_by", "Bo Li");
    let again = post_as(&backend, "cy", &approve, json!({})).await.refused(409, "APPROVAL_NOT_PENDING");
    names(&again, "decided_by", "Bo Li");

    let events = admin.log(&run).await;
    names(of_kind(&events, "tool.approved"), "by", "Bo Li");
    names(&of_kind(&events, "message.added")["message"], "by", "ann");
    let messages = admin.get("/v1/threads/t/messages").await.ok(200);
    names(&messages["messages"][0], "by", "ann");
    let transcript = admin.get(&format!("/v1/runs/{run}/transcript")).await.ok(200);
    names(&transcript["messages"][0], "by", "ann");
    names(&admin.get("/v1/grants").await.ok(200)["grants"][0], "by", "Bo Li");

    let (run, approval) = held(&backend, "ann", "u").await;
    let reject = json!({"reason": "no", "then": "continue"});
    post_as(&backend, "dee", &format!("/v1/approvals/{approval}/reject"), reject).await.ok(200);
    backend.run_reaches(&run, "completed").await;
    let events = admin.log(&run).await;
    names(of_kind(&events, "tool.denied"), "by", "dee");
    let calls = admin.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    names(&calls["calls"][0]["denied"], "by", "dee");
    let transcript = admin.get(&format!("/v1/runs/{run}/transcript")).await.ok(200).to_string();
    assert!(transcript.contains("Denied by dee: no"), "{transcript}");

    let (run, _) = held(&backend, "ann", "v").await;
    post_as(&backend, "eva", &format!("/v1/runs/{run}/interrupt"), json!({})).await.ok(202);
    backend.run_reaches(&run, "interrupted").await;
    let events = admin.log(&run).await;
    names(of_kind(&events, "run.interrupting"), "by", "eva");
    names(of_kind(&events, "run.interrupted"), "by", "eva");

    post_as(&backend, "fay", "/v1/threads/v/auto-approve", json!({"enabled": true})).await.ok(200);
    let audit = admin.get("/v1/audit").await.ok(200);
    assert!(!audit.to_string().contains("\\u001f"), "the stored form is not shown: {audit}");
    for (action, by) in [
        ("approval.approved", "Bo Li"),
        ("grant.given", "Bo Li"),
        ("approval.rejected", "dee"),
        ("run.interrupted", "eva"),
        ("auto_approve.on", "fay"),
    ] {
        let records = audit["records"].as_array().unwrap();
        let record = records.iter().find(|record| record["action"] == action);
        names(record.unwrap_or_else(|| panic!("no {action} in {audit}")), "by", by);
    }
    let found = admin.get("/v1/audit?by=fay").await.ok(200);
    assert_eq!(found["records"][0]["address"], "127.0.0.1");
    assert_eq!(found["records"].as_array().unwrap().len(), 1);
}

/// What is granted for a person is granted by the key, and is revoked under either name.
async fn grants_end_with_the_key_that_acted(store: StoreKind) {
    let server = test_server(store).await;
    let (backend, admin) = (server.as_key("backend"), server.as_key("admin"));
    let grants = async || admin.get("/v1/grants").await.ok(200)["grants"].as_array().unwrap().clone();
    for (name, thread) in [("admin", "a"), ("bo", "b"), ("ackend", "c")] {
        admin.post("/v1/threads", json!({"id": thread})).await;
        let path = format!("/v1/threads/{thread}/auto-approve");
        post_as(&backend, name, &path, json!({"enabled": true})).await.ok(200);
    }
    assert_eq!(grants().await.len(), 3);
    let found = admin.get("/v1/grants?by=ackend").await.ok(200);
    assert_eq!(found["grants"].as_array().unwrap().len(), 1, "a part of the key's name is another name");
    assert_eq!(admin.delete("/v1/grants?by=bo").await.ok(200), json!({"revoked": 1}));
    let revoked = admin.get("/v1/audit?action=grant.revoked").await.ok(200);
    let detail = &revoked["records"][0]["detail"];
    assert_eq!((&detail["given_by"], &detail["given_via"]), (&json!("bo"), &json!("backend")), "{detail}");
    assert_eq!(revoked["records"][0]["by"], "admin");
    assert_eq!(admin.delete("/v1/grants?by=missing").await.ok(200), json!({"revoked": 0}));
    assert_eq!(admin.delete("/v1/grants?by=backend").await.ok(200), json!({"revoked": 2}));
    assert_eq!(grants().await, [] as [Value; 0]);

    // The key `admin` may approve, but the grant in the name of "admin" was given by the key `backend`.
    post_as(&backend, "admin", "/v1/threads/a/auto-approve", json!({"enabled": true})).await.ok(200);
    let change = |change: fn(&mut Key)| {
        let mut keys = keys();
        keys.iter_mut().filter(|key| key.name == "backend").for_each(change);
        server.next_reload.lock().unwrap().auth = Auth::Keys(keys);
    };
    change(|key| key.acts_for = false);
    server.as_key("operator").post_nothing("/v1/admin/reload").await.ok(200);
    assert_eq!(grants().await, [] as [Value; 0], "the key may no longer act for others");
    let message = json!({"agent": "assistant", "text": "write it"});
    let run = backend.post("/v1/threads/a/messages", message).await.ok(202)["run_id"].clone();
    backend.run_reaches(run.as_str().unwrap(), "waiting_approval").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_name_is_in_the_audit_record_of_the_keys_tenant() {
    let server = test_server(StoreKind::Memory).await;
    let named = [("holdpoint-acting-for", "ann")];
    let runner = server.as_key("runner");
    runner.send(Method::GET, "/v1/runs", &named, None).await.refused(403, "FORBIDDEN");
    let token = server.as_key("backend").post("/v1/tokens", json!({"ttl": "1h", "acting_for": "bo"})).await;
    let token = token.ok(201)["token"].as_str().unwrap().to_owned();
    let page = server.client.with_token(&token);
    page.send(Method::GET, "/v1/runs", &named, None).await.refused(403, "FORBIDDEN");
    server.server.record_refusals().await.unwrap();
    let path = "/v1/audit?action=request.refused";
    let found = server.as_key("admin").get(path).await.ok(200)["records"].clone();
    let by: Vec<&Value> = found.as_array().unwrap().iter().map(|record| &record["by"]).collect();
    assert_eq!(by, ["bo", "runner"], "{found}");
    assert_eq!(found[0]["via"], "backend", "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_key_that_acts_for_others_may_name_a_person() {
    let server = test_server(StoreKind::Memory).await;
    let run = |client: Client, name: String| async move {
        client.send(Method::GET, "/v1/runs", &[("holdpoint-acting-for", name.as_str())], None).await
    };
    for key in ["runner", "admin", "stranger-admin"] {
        for name in ["ann", "admin", ""] {
            run(server.as_key(key), name.to_owned()).await.refused(403, "FORBIDDEN");
        }
    }
    let backend = server.as_key("backend");
    for good in ["ann", "Ann Smith", "portal", &"a".repeat(128)] {
        run(backend.clone(), good.to_owned()).await.ok(200);
    }
    for bad in ["", "a\tb", "system", "anonymous", "tool:pay", &"a".repeat(129)] {
        run(backend.clone(), bad.to_owned()).await.refused(400, "BAD_REQUEST");
    }
    let twice = [("holdpoint-acting-for", "ann"), ("holdpoint-acting-for", "bo")];
    backend.send(Method::GET, "/v1/runs", &twice, None).await.refused(400, "BAD_REQUEST");
    backend.get("/v1/runs").await.ok(200);
    let open = TestPlan::one_write(StoreKind::Memory).build().await;
    run(open.client.clone(), "ann".to_owned()).await.refused(403, "FORBIDDEN");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_with_the_name_of_a_key_is_told_apart_by_via() {
    let server = test_server(StoreKind::Memory).await;
    let (backend, admin) = (server.as_key("backend"), server.as_key("admin"));
    let (_, first) = held(&backend, "ann", "t").await;
    let (_, second) = held(&backend, "ann", "u").await;
    let approve = |id: &str| format!("/v1/approvals/{id}/approve");
    let by_person = post_as(&backend, "admin", &approve(&first), json!({})).await.ok(200);
    names(&by_person, "decided_by", "admin");
    let by_key = admin.post(&approve(&second), json!({})).await.ok(200);
    assert_eq!((&by_key["decided_by"], by_key.get("via")), (&json!("admin"), None));
    // An idempotency key belongs to one of the two.
    let headers = [JSON, ("idempotency-key", "k"), ("holdpoint-acting-for", "portal")];
    let (_, third) = held(&backend, "ann", "v").await;
    let acting = backend.send(Method::POST, &approve(&third), &headers, Some("{}".into())).await.ok(200);
    names(&acting, "decided_by", "portal");
    let own = server.as_key("portal").post_under_key(&approve(&third), "k", json!({})).await;
    own.refused(409, "APPROVAL_NOT_PENDING");
}
