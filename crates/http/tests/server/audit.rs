//! The audit record over HTTP: who may read it, what it shows, and what a deleted thread leaves.

use machine::audit::{AuditChain, ChainCheck, SealedRecord};
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
