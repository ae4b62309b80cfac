//! What the page of each code shows is what a server says: each is provoked, and compared with its page.

#[path = "../../../holdpoint/tests/pages/expected.rs"]
mod expected;

use std::collections::BTreeMap;

use engine::posting::PostError;
use engine::quota::QuotaReached;
use engine::store::Countable;
use engine::store::{StoreError, StoreFailure};
use holdpoint_http::error::{ApiError, Code};
use holdpoint_http::{Limits, Role};
use hyper::Method;
use machine::thread::{Busy, QUEUE_MAX};
use models::scripted::Reply;
use serde_json::{Value, json};

use crate::client::{Client, JSON};
use crate::test_server::{CALLBACKS, StoreKind, TestPlan};

/// What was said, by its code.
#[derive(Default)]
struct Refusals(BTreeMap<String, Value>);

impl Refusals {
    fn note(&mut self, body: Value) {
        let code = body["error"]["code"].as_str().unwrap_or_else(|| panic!("no refusal: {body}")).to_owned();
        let before = self.0.insert(code, body.clone());
        assert_eq!(before, None, "twice: {body}");
    }

    fn note_error(&mut self, error: impl Into<ApiError>) {
        self.note(serde_json::to_value(error.into().body()).expect("a body"));
    }

    fn check(&self) {
        assert_eq!(self.0.len(), Code::ALL.len(), "each code is provoked once: {:?}", self.0.keys());
        let mut other = Vec::new();
        for (name, said) in &self.0 {
            let page = format!("{}/../../docs/errors/{name}.md", env!("CARGO_MANIFEST_DIR"));
            let page = std::fs::read_to_string(page).expect("every code has a page");
            let (_, after) = page.split_once("```json\n").expect("a page shows a body");
            let (shown, _) = after.split_once("```").expect("the body has an end");
            if !expected::json_fits(shown, &said.to_string()) {
                other.push(said.to_string());
            }
        }
        assert!(other.is_empty(), "the pages show something else than is said:\n{}", other.join("\n"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_page_shows_the_actual_response() {
    let mut refusals = Refusals::default();
    provoke_access_errors(&mut refusals).await;
    provoke_request_errors(&mut refusals).await;
    provoke_approval_errors(&mut refusals).await;
    provoke_other_suspension_errors(&mut refusals).await;
    // What takes a broken store, a stopping server or a hundred runs is said by these.
    refusals.note_error(PostError::Draining);
    refusals.note_error(PostError::Busy(Busy::QueueFull { max: QUEUE_MAX }));
    refusals.note_error(PostError::Quota(QuotaReached { what: Countable::Threads, max: 1000 }));
    refusals.note_error(PostError::Busy(Busy::InDoubt("run_0198f2c4".into())));
    refusals.note_error(PostError::TooLarge { bytes: 2 * 1_048_576 });
    refusals.note_error(StoreError::Failed(StoreFailure::Unavailable("no route to it".into())));
    refusals.note_error(StoreError::Impossible("two heads".into()));
    refusals.note_error(StoreError::Failed(StoreFailure::Corrupt("a page is damaged".into())));
    refusals.check();
}

async fn provoke_access_errors(refusals: &mut Refusals) {
    let plan = TestPlan::one_write(StoreKind::Memory).with_keys(&[("front-end", "acme", &[Role::Run])]);
    let test_server = plan.build().await;
    refusals.note(test_server.client.get("/v1/runs").await.json());
    refusals.note(test_server.as_key("front-end").post_nothing("/v1/approvals/apr_1/approve").await.json());

    let mut plan = TestPlan::one_write(StoreKind::Memory).with_keys(&[("ann", "acme", &[Role::Run])]);
    plan.limits = Limits { burst_max: 1, requests_per_second_max: 1, ..Limits::default() };
    let test_server = plan.build().await;
    let ann = test_server.as_key("ann");
    let mut answer = ann.get("/v1/runs").await;
    while answer.status == 200 {
        answer = ann.get("/v1/runs").await;
    }
    refusals.note(answer.json());

    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let elsewhere = [("origin", "https://example.com")];
    refusals.note(test_server.client.send(Method::GET, "/v1/runs", &elsewhere, None).await.json());
    refusals.note(test_server.client.send(Method::PUT, "/v1/threads", &[], None).await.json());
    refusals.note(test_server.client.get("/v1/thread").await.json());
    let plain = [("content-type", "text/plain")];
    refusals
        .note(test_server.client.send(Method::POST, "/v1/threads", &plain, Some("{}".into())).await.json());
}

async fn provoke_request_errors(refusals: &mut Refusals) {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let client = &test_server.client;
    refusals.note(client.get("/v1/threads/thr_0198f2c4").await.json());
    refusals.note(client.get("/v1/runs/run_0198f2c4").await.json());
    refusals.note(client.get("/v1/approvals/apr_0198f2c4").await.json());
    refusals.note(client.delete("/v1/grants/grt_0198f2c4").await.json());
    let thread = client.post("/v1/threads", json!({})).await.ok(201);
    let path = format!("/v1/threads/{}/messages", thread["id"].as_str().expect("an id"));
    refusals.note(client.post(&path, json!({"agent": "asistant", "text": "hello"})).await.json());
    let brought = json!({"agent": "assistant", "text": "hello", "tools": [{"name": "count"}]});
    refusals.note(client.post(&path, brought).await.json());
    let message = |text: &str| json!({"agent": "assistant", "text": text});
    let run = client.post_under_key(&path, "k", message("write it")).await.ok(202);
    client.run_reaches(run["run_id"].as_str().expect("an id"), "waiting_approval").await;
    refusals.note(client.post_under_key(&path, "k", message("write more")).await.json());
    refusals.note(client.post(&path, message("and this")).await.json());
}

async fn provoke_approval_errors(refusals: &mut Refusals) {
    let call = Reply::call("call_0", "count", json!({"by": 1}));
    let test_server = TestPlan::new(StoreKind::Memory, [call, Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let (_, approval) = client.begin_held_run("count").await;
    let path = format!("/v1/approvals/{approval}/approve");
    refusals.note(client.post(&path, json!({"expect_digset": "29dd"})).await.json());
    refusals.note(client.post(&path, json!({"expect_digest": "29dd"})).await.json());
    refusals.note(client.post(&path, json!({"arguments": {"by": "five"}})).await.json());
    *test_server.sink_fault.lock().expect("the lock is not poisoned") =
        Some("its address answered 503 Service Unavailable".to_owned());
    refusals.note(client.post_nothing(&path).await.json());
    *test_server.sink_fault.lock().expect("the lock is not poisoned") = None;
    client.post_nothing(&format!("/v1/approvals/{approval}/reject")).await.ok(200);
    refusals.note(client.post_nothing(&path).await.json());
    let (_, approval) = client.begin_held_run("count").await;
    test_server.change_tool("count").await;
    refusals.note(client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.json());
}

async fn provoke_other_suspension_errors(refusals: &mut Refusals) {
    let ask = Reply::call("call_0", "ask_user", json!({"question": "Sure?"}));
    let test_server = TestPlan::new(StoreKind::Memory, [ask]).build().await;
    let (_, question) = test_server.client.begin_held_run("ask").await;
    refusals.note(test_server.client.post_nothing(&format!("/v1/approvals/{question}/approve")).await.json());

    let later = Reply::call("call_0", "later", json!({}));
    let test_server = TestPlan::new(StoreKind::Memory, [later]).build().await;
    let run = test_server.client.begin_run("later").await;
    test_server.client.run_reaches(&run, "waiting_tool").await;
    test_server.client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    test_server.client.run_reaches(&run, "interrupted").await;
    let callback = test_server.callbacks.lock().expect("the lock is not poisoned")[0].clone();
    let path = callback.url.strip_prefix(CALLBACKS).expect("it is under the address that was configured");
    let tool: Client = test_server.client.with_token(callback.token.as_str());
    let body = Some(json!({"result": 1}).to_string());
    refusals.note(tool.send(Method::POST, &format!("/v1/callbacks{path}"), &[JSON], body).await.json());
}
