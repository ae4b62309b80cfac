//! The audit record over HTTP: who may read it, what it shows, and what a deleted thread leaves.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use engine::store::{AuditFilter, GrantFilter, Page, Tenant};
use holdpoint_http::{AgentScope, Auth, Key};
use machine::Timestamp;
use machine::audit::{AuditChain, ChainCheck, SealedRecord};
use machine::id::ThreadId;
use models::scripted::Reply;
use serde_json::{Value, json};

use crate::client::Client;
use crate::roles::KEYS;
use crate::test_server::{StoreKind, TestPlan, TestServer, keys_of, write_call};

async fn test_server(store: StoreKind) -> TestServer {
    let plan = TestPlan::new(store, [write_call(), Reply::text("Done.")]);
    TestPlan { auth: keys_of(&KEYS), ..plan }.build().await
}

/// A thread with a run that ended after its call was approved by the key `approve`.
async fn approved(server: &TestServer, thread: &str) -> Value {
    let admin = server.as_key("admin");
    admin.post("/v1/threads", json!({"id": thread})).await;
    let message = json!({"agent": "assistant", "text": "write it"});
    let posted = admin.post(&format!("/v1/threads/{thread}/messages"), message).await.ok(202);
    let run = posted["run_id"].as_str().unwrap();
    let held = admin.run_reaches(run, "waiting_approval").await;
    let approval = held["pending"][0]["approval_id"].as_str().unwrap();
    let shown = admin.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    server.as_key("approver").post(&format!("/v1/approvals/{approval}/approve"), json!({})).await.ok(200);
    admin.run_reaches(run, "completed").await;
    shown
}

async fn records(client: &Client, query: &str) -> Vec<Value> {
    let page = client.get(&format!("/v1/audit{query}")).await.ok(200);
    page["records"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_is_in_the_record_with_its_principal_and_digest() {
    let server = test_server(StoreKind::Memory).await;
    let approval = approved(&server, "t").await;
    let admin = server.as_key("admin");
    let found = records(&admin, "?action=approval.approved").await;
    let [record] = &found[..] else { panic!("{found:?}") };
    assert_eq!(record["by"], "approver");
    assert_eq!((&record["tenant"], &record["thread_id"]), (&json!("acme"), &json!("t")));
    assert_eq!(record["run_id"], approval["run_id"]);
    assert_eq!(record["call_id"], approval["call_id"]);
    assert_eq!(record["suspension_id"], approval["id"]);
    assert_eq!(record["arguments_digest"], approval["arguments_digest"]);
    assert_eq!(records(&admin, "?by=approver").await, found);
    assert_eq!(records(&admin, "?by=admin&action=approval.approved").await, [] as [Value; 0]);
    assert_eq!(records(&server.as_key("stranger-admin"), "").await, [] as [Value; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_the_record_form_the_chain() {
    let server = test_server(StoreKind::Memory).await;
    for thread in ["a", "b", "c"] {
        approved(&server, thread).await;
    }
    let admin = server.as_key("admin");
    let mut check = ChainCheck::new("acme", AuditChain::START, &[]);
    let (mut cursor, mut pages) = (String::new(), 0);
    loop {
        let page = admin.get(&format!("/v1/audit?limit=2{cursor}")).await.ok(200);
        for record in page["records"].as_array().unwrap() {
            check.record(&SealedRecord::from_line(&record.to_string()).unwrap()).unwrap();
        }
        pages += 1;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!((check.record_count(), pages), (3, 2));
    for (query, field) in [
        ("since=yesterday", "since"),
        ("until=1", "until"),
        ("action=approved", "action"),
        ("cursor=1.x", "cursor"),
        ("limit=0", "limit"),
    ] {
        let refused = admin.get(&format!("/v1/audit?{query}")).await.refused(400, "BAD_REQUEST");
        assert_eq!(refused["field"], field, "{query}");
    }
    let far = "since=2000-01-01T00:00:00Z&until=2100-01-01T00:00:00Z";
    assert_eq!(records(&admin, &format!("?{far}")).await.len(), 3);
    assert_eq!(records(&admin, "?until=2000-01-01T00:00:00Z").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_with_decided_approvals_is_deleted_by_an_admin_and_leaves_a_record() {
    let server = test_server(StoreKind::Sqlite).await;
    let approval = approved(&server, "t").await;
    let (run, admin) = (server.as_key("runner"), server.as_key("admin"));
    run.post("/v1/threads", json!({"id": "empty"})).await;
    assert_eq!(run.delete("/v1/threads/empty").await.status, 204);
    run.delete("/v1/threads/t").await.refused(403, "FORBIDDEN");
    admin.get("/v1/threads/t").await.ok(200);
    assert_eq!(admin.delete("/v1/threads/t").await.status, 204);
    let found = records(&admin, "?action=thread.deleted").await;
    let names: Vec<&Value> = found.iter().map(|record| &record["thread_id"]).collect();
    assert_eq!(names, [&json!("empty"), &json!("t")]);
    assert_eq!((&found[0]["by"], &found[1]["by"]), (&json!("runner"), &json!("admin")));
    let detail = json!({
        "approval_count": 1, "approvals": [approval["id"]], "run_count": 1, "runs": [approval["run_id"]],
    });
    assert_eq!(found[1]["detail"], detail);
    assert_eq!(
        records(&admin, "?action=approval.approved").await.len(),
        1,
        "the decision stays in the record"
    );
}

fn keys() -> Vec<Key> {
    let Auth::Keys(keys) = keys_of(&KEYS) else { panic!("there are keys") };
    keys
}

async fn reload_with(server: &TestServer, keys: Vec<Key>) -> Result<(), String> {
    server.next_reload.lock().unwrap().auth = Auth::Keys(keys);
    server.server.reload(&"tester".into()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_limited_to_agents_may_not_read_the_record() {
    let agents = AgentScope::Only(["assistant".into()].into());
    let limited = keys().into_iter().map(|key| Key { agents: agents.clone(), ..key }).collect();
    let plan = TestPlan::new(StoreKind::Memory, []);
    let server = TestPlan { auth: Auth::Keys(limited), ..plan }.build().await;
    let refused = server.as_key("admin").get("/v1/audit").await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "FORBIDDEN"));
    assert!(refused.text.contains("limited to some agents"), "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_cannot_be_recorded_changes_nothing() {
    let server = test_server(StoreKind::Memory).await;
    let stays = |key: &Key| key.name != "runner";
    let fewer: Vec<Key> = keys().into_iter().filter(stays).collect();
    server.probe.refuses_configurations.store(true, Ordering::SeqCst);
    let refused = reload_with(&server, fewer.clone()).await.unwrap_err();
    assert!(refused.contains("the audit record of this reload cannot be written"), "{refused}");
    server.as_key("runner").get("/v1/threads").await.ok(200);
    let refused = server.server.record_started(None).await;
    assert!(refused.is_err(), "a server whose start cannot be recorded does not serve");
    server.probe.refuses_configurations.store(false, Ordering::SeqCst);
    assert_eq!(records(&server.as_key("admin"), "").await, [] as [Value; 0]);
    reload_with(&server, fewer).await.unwrap();
    server.as_key("runner").get("/v1/threads").await.refused(401, "UNAUTHORIZED");
    let found = records(&server.as_key("admin"), "?action=configuration.reloaded").await;
    assert_eq!(found.len(), 1, "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_record_each_key_once() {
    let server = test_server(StoreKind::Sqlite).await;
    let starts = (0..5).map(|_| {
        let server = server.server.clone();
        tokio::spawn(async move { server.record_started(None).await })
    });
    for start in starts.collect::<Vec<_>>() {
        start.await.unwrap().unwrap();
    }
    let admin = server.as_key("admin");
    let added = records(&admin, "?action=key.added").await;
    let names: BTreeSet<&str> =
        added.iter().map(|record| record["detail"]["key"].as_str().unwrap()).collect();
    assert_eq!((added.len(), names.len()), (5, 5), "{added:?}");
    assert_eq!(records(&admin, "?action=configuration.loaded").await.len(), 5);
    let fewer = keys().into_iter().filter(|key| key.name != "runner").collect();
    reload_with(&server, fewer).await.unwrap();
    let removed = records(&admin, "?action=key.removed").await;
    assert_eq!(removed.iter().map(|record| &record["detail"]["key"]).collect::<Vec<_>>(), ["runner"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_remembered_when_their_records_are_pruned() {
    let server = test_server(StoreKind::Sqlite).await;
    server.server.record_started(None).await.unwrap();
    server.probe.ahead_ms.store(1_000, Ordering::SeqCst);
    server.server.record_started(None).await.unwrap();
    let admin = server.as_key("admin");
    records(&admin, "").await;
    let far = Timestamp(u64::MAX / 2);
    assert_ne!(server.engine.store().prune_audit(far).await.unwrap(), 0);
    assert_eq!(records(&admin, "?action=key.added").await.len(), 0, "their records are gone");
    server.server.record_started(None).await.unwrap();
    assert_eq!(records(&admin, "?action=key.added").await.len(), 0, "and they are not new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_of_a_tenant_without_keys_are_revoked() {
    let server = test_server(StoreKind::Memory).await;
    server.server.record_started(None).await.unwrap();
    let (tenant, thread) = (Tenant::from("other"), ThreadId::from("t"));
    server.as_key("stranger-admin").post("/v1/threads", json!({"id": "t"})).await;
    server.engine.auto_approve(&tenant, &thread, true, &"stranger".into()).await.unwrap();
    let grants = async || {
        let (all, page) = (GrantFilter { by: None }, Page { cursor: None, limit: 10 });
        server.engine.store().grants(&tenant, &all, &page).await.unwrap().items.len()
    };
    assert_eq!(grants().await, 1);
    reload_with(&server, keys().into_iter().filter(|key| key.tenant != tenant).collect()).await.unwrap();
    assert_eq!(grants().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_decided_while_the_required_sink_is_down() {
    let server = TestPlan::one_write(StoreKind::Memory).build().await;
    let client = &server.client;
    let (run, approval) = client.begin_held_run("write").await;
    *server.sink_fault.lock().unwrap() = Some("it is full".to_owned());
    let refused = client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "AUDIT_SINK_DOWN"));
    client.post_nothing(&format!("/v1/approvals/{approval}/reject")).await.refused(503, "AUDIT_SINK_DOWN");
    let held = client.run_reaches(&run, "waiting_approval").await;
    let call = held["pending"][0]["call_id"].as_str().unwrap();
    let decision = json!({"decisions": [{"call_id": call, "action": "resume"}]});
    client.post(&format!("/v1/runs/{run}/decisions"), decision).await.refused(503, "AUDIT_SINK_DOWN");
    let thread = held["thread_id"].as_str().unwrap();
    let path = format!("/v1/threads/{thread}/auto-approve");
    client.post(&path, json!({"enabled": true})).await.refused(503, "AUDIT_SINK_DOWN");
    client.post(&path, json!({"enabled": false})).await.ok(200);
    for (path, body) in Client::front_end_approvals(&run, thread, &approval) {
        client.post(path, body).await.refused(503, "AUDIT_SINK_DOWN");
    }
    assert_eq!(client.get(&format!("/v1/approvals/{approval}")).await.ok(200)["status"], "pending");
    client.post("/v1/threads", json!({"id": "other"})).await.ok(201);
    let say = async |field: &str, value: Value| {
        let mut body = json!({"agent": "assistant", "text": "write"});
        body[field] = value;
        client.post("/v1/threads/other/messages", body).await
    };
    say("auto_approve", json!(true)).await.refused(503, "AUDIT_SINK_DOWN");
    say("policy", json!({"approval": "never"})).await.refused(503, "AUDIT_SINK_DOWN");
    // Any other message is judged as before.
    let more = json!({"agent": "assistant", "text": "more", "policy": {"approval": "all_tools"}});
    client.post(&format!("/v1/threads/{thread}/messages"), more).await.refused(409, "ACTIVE_RUN_EXISTS");
    *server.sink_fault.lock().unwrap() = None;
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    client.run_reaches(&run, "completed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_requests_are_recorded_as_a_bounded_sample() {
    let server = test_server(StoreKind::Memory).await;
    let (runner, stranger) = (server.as_key("runner"), server.client.with_token("guessed"));
    for _ in 0..3 {
        runner.get("/v1/audit").await.refused(403, "FORBIDDEN");
    }
    for number in 0..50 {
        stranger.get(&format!("/v1/threads/thr_{number}")).await.refused(401, "UNAUTHORIZED");
    }
    runner.get("/v1/threads").await.ok(200);
    server.server.record_refusals().await.unwrap();
    server.server.record_refusals().await.unwrap();
    let found = records(&server.as_key("admin"), "?action=request.refused").await;
    let [record] = &found[..] else { panic!("{found:?}") };
    assert_eq!(record["by"], "runner");
    assert_eq!(record["detail"], json!({"code": "FORBIDDEN", "count": 3, "route": "GET /v1/audit"}));
    let store = server.engine.store();
    let all = store.audit(&Tenant::default(), &AuditFilter::default(), 0, 100).await.unwrap();
    let [unknown] = &all[..] else { panic!("{all:?}") };
    assert!(unknown.body.contains(r#""count":50,"route":"GET /v1/threads/{id}""#), "{}", unknown.body);
}
