//! Messages and interrupts show the caller who sent them: the name of the key, never something in a body.

use holdpoint_http::Role;
use models::scripted::Reply;
use serde_json::{Value, json};

use crate::client::{Client, kinds};
use crate::test_server::{StoreKind, TestPlan, on_all_stores};

on_all_stores! {
    a_message_and_an_interrupt_name_the_key_that_sent_them;
    a_run_that_a_later_message_replaced_was_interrupted_by_no_caller;
}

const KEYS: [(&str, &str, &[Role]); 2] = [("ann", "acme", &[Role::Run]), ("bob", "acme", &[Role::Run])];

async fn payload_of(client: &Client, run: &str, kind: &str) -> Value {
    let log = client.log(run).await;
    let found = log.iter().find(|event| event["type"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {:?}", kinds(&log)))["payload"].clone()
}

async fn a_message_and_an_interrupt_name_the_key_that_sent_them(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).with_keys(&KEYS).build().await;
    let (ann, bob) = (test_server.as_key("ann"), test_server.as_key("bob"));
    ann.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let path = "/v1/threads/t/messages";
    let forged = json!({"agent": "assistant", "text": "write it", "by": "bob"});
    ann.post(path, forged).await.refused(400, "BAD_REQUEST");
    let posted = ann.post(path, json!({"agent": "assistant", "text": "write it"})).await.ok(202);
    let run = posted["run_id"].as_str().unwrap();
    bob.run_reaches(run, "waiting_approval").await;

    let added = payload_of(&bob, run, "message.added").await;
    assert_eq!((&added["message"]["role"], &added["message"]["by"]), (&json!("user"), &json!("ann")));
    let by_role = |messages: &Value| -> Vec<(String, Value)> {
        let messages = messages["messages"].as_array().unwrap().iter();
        messages.map(|one| (one["role"].as_str().unwrap().to_owned(), one["by"].clone())).collect()
    };
    let expected = [("user".to_owned(), json!("ann")), ("assistant".to_owned(), Value::Null)];
    assert_eq!(by_role(&bob.get(path).await.ok(200)), expected);
    let transcript = bob.get(&format!("/v1/runs/{run}/transcript")).await.ok(200);
    assert_eq!(by_role(&transcript)[..2], expected);

    let interrupt = format!("/v1/runs/{run}/interrupt");
    bob.post(&interrupt, json!({"by": "ann"})).await.refused(400, "BAD_REQUEST");
    bob.post_nothing(&interrupt).await.ok(202);
    ann.run_reaches(run, "interrupted").await;
    for kind in ["run.interrupting", "run.interrupted"] {
        assert_eq!(payload_of(&ann, run, kind).await["by"], "bob", "{kind}");
    }
    let mut stream = ann.stream(&format!("/v1/runs/{run}/events"), &[]).await;
    let mut last = None;
    while let Some(frame) = stream.next_stored().await {
        last = Some(frame);
    }
    let last = last.expect("a last event");
    assert_eq!((last.event.as_str(), &last.data["payload"]["by"]), ("run.interrupted", &json!("bob")));
}

async fn a_run_that_a_later_message_replaced_was_interrupted_by_no_caller(store_kind: StoreKind) {
    let ask = Reply::call("q", "ask_user", json!({"question": "Sure?"}));
    let test_server = TestPlan::new(store_kind, [ask, Reply::text("Done.")]).with_keys(&KEYS).build().await;
    let (ann, bob) = (test_server.as_key("ann"), test_server.as_key("bob"));
    ann.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let path = "/v1/threads/t/messages";
    let posted = ann.post(path, json!({"agent": "assistant", "text": "one"})).await.ok(202);
    let first = posted["run_id"].as_str().unwrap();
    ann.run_reaches(first, "waiting_approval").await;
    let later = json!({"agent": "assistant", "text": "two", "on_busy": "interrupt"});
    let second = bob.post(path, later).await.ok(202)["run_id"].as_str().unwrap().to_owned();
    ann.run_reaches(first, "interrupted").await;
    for kind in ["run.interrupting", "run.interrupted"] {
        let payload = payload_of(&ann, first, kind).await;
        assert_eq!(payload.get("by"), None, "{kind}: {payload}");
    }
    ann.run_reaches(&second, "waiting_approval").await;
    assert_eq!(payload_of(&ann, &second, "message.added").await["message"]["by"], "bob");
}
