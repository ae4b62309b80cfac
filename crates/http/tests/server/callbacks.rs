//! Callbacks: a tool that answered "later" reports with its token, once; without the token no report is accepted.

use std::time::Duration;

use engine::store::Tenant;
use engine::tool::Callback;
use holdpoint_http::{Limits, Role};
use hyper::Method;
use models::scripted::Reply;
use serde_json::{Value, json};

use crate::client::{Answer, Client, JSON};
use crate::test_server::{CALLBACKS, StoreKind, TestPlan, TestServer, on_both_stores};

on_both_stores! {
    a_tool_reports_the_result_of_its_call_without_a_key;
    a_tool_reports_that_its_call_failed;
    a_callback_counts_once;
    a_caller_without_the_token_learns_nothing;
    a_report_is_refused_once_the_call_was_answered_otherwise;
    an_ended_run_takes_no_report;
    a_tool_that_answered_at_once_has_nothing_to_report;
    a_tool_may_be_faster_than_its_own_answer;
    a_report_that_does_not_fit_spends_nothing;
    a_tool_that_wishes_to_be_called_again_gets_the_report_as_its_answer;
    a_tool_whose_answer_was_lost_can_report_what_happened;
    another_attempt_has_another_token;
    the_token_of_a_lost_attempt_does_not_answer_for_the_next_one;
    a_callback_appears_in_no_response_of_the_server;
    a_report_is_read_strictly;
    a_tool_sends_logs_and_progress_while_its_call_is_under_way;
}

fn one_call(answer: &str) -> [Reply; 2] {
    [Reply::call("call/0 ?#%2F", "later", json!({"answer": answer})), Reply::text("Done.")]
}

/// A run whose tool said "later", and what the tool may report with.
async fn held(test_server: &TestServer, client: &Client) -> (String, Callback) {
    let run = client.begin_run("go").await;
    client.run_reaches(&run, "waiting_tool").await;
    (run, last(test_server))
}

fn last(test_server: &TestServer) -> Callback {
    test_server
        .callbacks
        .lock()
        .expect("the lock is not poisoned")
        .last()
        .expect("the tool was called")
        .clone()
}

fn path(callback: &Callback) -> String {
    let path = callback.url.strip_prefix(CALLBACKS).expect("it is under the address that was configured");
    format!("/v1/callbacks{path}")
}

async fn report(test_server: &TestServer, callback: &Callback, body: Value) -> Answer {
    test_server.client.with_token(callback.token.as_str()).post(&path(callback), body).await
}

/// The first call of a run, as everybody sees it.
async fn call(client: &Client, run: &str) -> Value {
    client.get(&format!("/v1/runs/{run}/calls")).await.ok(200)["calls"][0].clone()
}

async fn a_tool_reports_the_result_of_its_call_without_a_key(store_kind: StoreKind) {
    let keys: [(&str, &str, &[Role]); 1] = [("admin", "acme/öst", &[Role::Admin])];
    let test_server = TestPlan::new(store_kind, one_call("later")).with_keys(&keys).build().await;
    let admin = test_server.as_key("admin");
    let (run, callback) = held(&test_server, &admin).await;
    let taken = report(&test_server, &callback, json!({"result": {"sent": 5.5}})).await.ok(200);
    assert_eq!((&taken["call_id"], &taken["outcome"]), (&json!("call/0 ?#%2F"), &json!("applied")));
    admin.run_reaches(&run, "completed").await;
    let shown = call(&admin, &run).await;
    assert_eq!((&shown["status"], &shown["result"]), (&json!("succeeded"), &json!({"sent": 5.5})));
    let resumed = admin.log(&run).await.into_iter().find(|event| event["type"] == "tool.resumed");
    assert_eq!(resumed.expect("it was held")["payload"]["by"], "tool:later", "the log says who it was");
}

async fn a_tool_reports_that_its_call_failed(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("later")).build().await;
    let (run, callback) = held(&test_server, &test_server.client).await;
    let far_too_long = "x".repeat(65_537);
    report(&test_server, &callback, json!({"error": far_too_long})).await.refused(400, "BAD_REQUEST");
    let trace = format!("no such account{}", " at a line of a long trace".repeat(2_500));
    report(&test_server, &callback, json!({"error": trace})).await.ok(200);
    test_server.client.run_reaches(&run, "completed").await;
    let shown = call(&test_server.client, &run).await;
    assert_eq!(shown["status"], "failed");
    assert!(shown["error"].to_string().contains("no such account"), "{shown}");
}

async fn a_callback_counts_once(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("later")).build().await;
    let (run, callback) = held(&test_server, &test_server.client).await;
    report(&test_server, &callback, json!({"result": 1})).await.ok(200);
    // A tool that did not get the response learns that there is nothing to repeat.
    for again in [json!({"result": 1}), json!({"result": 2}), json!({"error": "no"})] {
        let details = report(&test_server, &callback, again).await.refused(409, "CALLBACK_SPENT");
        assert_eq!((&details["reason"], &details["run_id"]), (&json!("taken"), &json!(run)), "{details}");
    }
    test_server.client.run_reaches(&run, "completed").await;
    let details = report(&test_server, &callback, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    assert_eq!(details["reason"], "taken", "also after the end");
    assert_eq!(call(&test_server.client, &run).await["result"], 1, "the first report counts");
}

async fn a_caller_without_the_token_learns_nothing(store_kind: StoreKind) {
    let keys: [(&str, &str, &[Role]); 1] = [("admin", "acme", &[Role::Admin])];
    let test_server = TestPlan::new(store_kind, one_call("later")).with_keys(&keys).build().await;
    let admin = test_server.as_key("admin");
    let (run, callback) = held(&test_server, &admin).await;
    let there = path(&callback);
    let (_, other) = held(&test_server, &admin).await;
    let mut answers = Vec::new();
    for (client, asked) in [
        (test_server.client.clone(), there.clone()),
        (test_server.client.with_token("guessed"), there.clone()),
        (admin.clone(), there.clone()),
        (test_server.client.with_token(other.token.as_str()), there.clone()),
        (test_server.client.with_token(callback.token.as_str()), path(&other)),
        (test_server.client.with_token(callback.token.as_str()), format!("{there}00")),
        (test_server.client.with_token(callback.token.as_str()), "/v1/callbacks/none".to_owned()),
    ] {
        // Without the token the response says nothing about the body either.
        let answer = client.post(&asked, json!({"nonsense": true})).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "UNAUTHORIZED"), "{asked}");
        answers.push(answer.text);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "it is the same for all of them: {answers:?}");
    assert_eq!(admin.get(&format!("/v1/runs/{run}")).await.ok(200)["status"], "waiting_tool");
    // A token of a callback opens nothing else.
    let tool = test_server.client.with_token(callback.token.as_str());
    tool.get(&format!("/v1/runs/{run}")).await.refused(401, "UNAUTHORIZED");
}

async fn a_report_is_refused_once_the_call_was_answered_otherwise(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("later")).build().await;
    let (run, callback) = held(&test_server, &test_server.client).await;
    let decisions =
        json!({"decisions": [{"call_id": "call/0 ?#%2F", "action": "resume", "result": "by hand"}]});
    test_server.client.post(&format!("/v1/runs/{run}/decisions"), decisions).await.ok(200);
    let details = report(&test_server, &callback, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    assert_eq!(details["reason"], "over");
    test_server.client.run_reaches(&run, "completed").await;
    assert_eq!(call(&test_server.client, &run).await["result"], "by hand");
}

async fn an_ended_run_takes_no_report(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("later")).build().await;
    let (run, callback) = held(&test_server, &test_server.client).await;
    test_server.client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    test_server.client.run_reaches(&run, "interrupted").await;
    let details = report(&test_server, &callback, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    assert_eq!(details["reason"], "over");
    let thread = test_server.client.get(&format!("/v1/runs/{run}")).await.ok(200)["thread_id"].clone();
    let gone = test_server.client.delete(&format!("/v1/threads/{}", thread.as_str().expect("an id"))).await;
    assert_eq!(gone.status, 204);
    report(&test_server, &callback, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
}

async fn a_tool_that_answered_at_once_has_nothing_to_report(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("at once")).build().await;
    let run = test_server.client.begin_run("go").await;
    test_server.client.run_reaches(&run, "completed").await;
    let details =
        report(&test_server, &last(&test_server), json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    assert_eq!(details["reason"], "over");
    assert_eq!(call(&test_server.client, &run).await["result"], json!({"answer": "at once"}));
}

async fn a_tool_may_be_faster_than_its_own_answer(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("slowly")).build().await;
    let run = test_server.client.begin_run("go").await;
    test_server.begun.notified().await;
    let callback = last(&test_server);
    let reporting = report(&test_server, &callback, json!({"result": "soon"}));
    let answering = async {
        test_server.client.run_reaches(&run, "running").await;
        test_server.gate.notify_one();
    };
    let (reported, ()) = tokio::join!(reporting, answering);
    assert_eq!(reported.ok(200)["outcome"], "applied");
    test_server.client.run_reaches(&run, "completed").await;
    assert_eq!(call(&test_server.client, &run).await["result"], "soon");

    // A tool that never says "later" gets an error that says that it has to.
    let limits = Limits { decision_timeout: Duration::from_millis(50), ..Limits::default() };
    let test_server = TestPlan { limits, ..TestPlan::new(store_kind, one_call("slowly")) }.build().await;
    test_server.client.begin_run("go").await;
    test_server.begun.notified().await;
    let details =
        report(&test_server, &last(&test_server), json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    assert_eq!((&details["reason"], &details["call_status"]), (&json!("under_way"), &json!("running")));
}

async fn a_report_that_does_not_fit_spends_nothing(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("number")).build().await;
    let (run, callback) = held(&test_server, &test_server.client).await;
    report(&test_server, &callback, json!({"result": "five"})).await.refused(422, "INVALID_ARGUMENTS");
    report(&test_server, &callback, json!({"result": 5})).await.ok(200);
    test_server.client.run_reaches(&run, "completed").await;
    assert_eq!(call(&test_server.client, &run).await["result"], 5);
}

async fn a_tool_that_wishes_to_be_called_again_gets_the_report_as_its_answer(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("replay")).build().await;
    let (run, first) = held(&test_server, &test_server.client).await;
    report(&test_server, &first, json!({"result": null})).await.refused(422, "INVALID_ARGUMENTS");
    report(&test_server, &first, json!({"result": {"ready": true}})).await.ok(200);
    test_server.client.run_reaches(&run, "completed").await;
    let given = test_server.callbacks.lock().expect("the lock is not poisoned").clone();
    assert_eq!(given.len(), 2, "it was called again");
    assert_ne!(given[0], given[1]);
    for callback in &given {
        report(&test_server, callback, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    }
}

async fn a_tool_whose_answer_was_lost_can_report_what_happened(store_kind: StoreKind) {
    for (said, status) in
        [(json!({"result": "it was sent"}), "succeeded"), (json!({"error": "no"}), "failed")]
    {
        let test_server = TestPlan::new(store_kind, one_call("lost")).build().await;
        let (run, doubt) = test_server.client.begin_held_run("go").await;
        let callback = last(&test_server);
        report(&test_server, &callback, said.clone()).await.ok(200);
        test_server.client.run_reaches(&run, "completed").await;
        assert_eq!(call(&test_server.client, &run).await["status"], status);
        let approval = test_server.client.get(&format!("/v1/approvals/{doubt}")).await.ok(200);
        assert_ne!(approval["status"], "pending", "no person has to be asked any more");
        report(&test_server, &callback, said).await.refused(409, "CALLBACK_SPENT");
    }
}

async fn another_attempt_has_another_token(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("lost")).build().await;
    let (run, doubt) = test_server.client.begin_held_run("go").await;
    let first = last(&test_server);
    let retry = json!({"choice": "retry"});
    test_server.client.post(&format!("/v1/approvals/{doubt}/answer"), retry).await.ok(200);
    let again = |seen: &Value| {
        let asked = seen["pending"][0]["approval_id"].as_str();
        seen["status"] == "waiting_approval" && asked.is_some_and(|id| id != doubt)
    };
    test_server.client.run_until(&run, again).await;
    let second = last(&test_server);
    assert_ne!(first, second);
    report(&test_server, &first, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    report(&test_server, &second, json!({"result": 2})).await.ok(200);
    test_server.client.run_reaches(&run, "completed").await;
    assert_eq!(call(&test_server.client, &run).await["result"], 2);
}

async fn the_token_of_a_lost_attempt_does_not_answer_for_the_next_one(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("lost at first")).build().await;
    let (run, doubt) = test_server.client.begin_held_run("go").await;
    let first = last(&test_server);
    let retry = json!({"choice": "retry"});
    test_server.client.post(&format!("/v1/approvals/{doubt}/answer"), retry).await.ok(200);
    // The second attempt says "later".
    test_server.client.run_reaches(&run, "waiting_tool").await;
    let second = last(&test_server);
    assert_ne!(first, second);
    for stale in [json!({"result": 1}), json!({"error": "no"})] {
        let details = report(&test_server, &first, stale).await.refused(409, "CALLBACK_SPENT");
        assert_eq!(details["reason"], "over");
    }
    assert_eq!(call(&test_server.client, &run).await["status"], "suspended", "nothing of it was taken");
    report(&test_server, &second, json!({"result": 2})).await.ok(200);
    test_server.client.run_reaches(&run, "completed").await;
    assert_eq!(call(&test_server.client, &run).await["result"], 2);
}

async fn a_callback_appears_in_no_response_of_the_server(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("replay")).build().await;
    let client = &test_server.client;
    let (run, first) = held(&test_server, client).await;
    let mut seen = String::new();
    let paths =
        ["", "/events", "/calls", "/state", "/transcript"].map(|what| format!("/v1/runs/{run}{what}"));
    let lists = ["/v1/runs", "/v1/approvals", "/v1/agents", "/metrics"].map(str::to_owned);
    for path in paths.iter().chain(&lists) {
        seen.push_str(&client.get(path).await.text);
    }
    seen.push_str(&report(&test_server, &first, json!({"result": true})).await.text);
    seen.push_str(&report(&test_server, &first, json!({"result": true})).await.text);
    client.run_reaches(&run, "completed").await;
    for path in paths.iter().chain(&lists) {
        seen.push_str(&client.get(path).await.text);
    }
    assert!(seen.contains("tool:later") && seen.contains("It takes a while."), "all of it was read");
    let keys = test_server.engine.store().callback_keys(None).await.expect("it can be read").expect("there");
    let key: String = keys.current.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    for callback in test_server.callbacks.lock().expect("the lock is not poisoned").iter() {
        assert!(!seen.contains(callback.token.as_str()), "the token");
        assert!(!seen.contains(callback.url.rsplit('/').next().expect("a path")), "the address");
    }
    assert!(!seen.contains(&key), "the key");
    assert_eq!(test_server.engine.verify_callback("5b5d", &key).await, None);
}

async fn a_report_is_read_strictly(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("later")).build().await;
    let (run, callback) = held(&test_server, &test_server.client).await;
    for bad in [
        json!({}),
        json!({"result": 1, "error": "no"}),
        json!({"error": null}),
        json!({"error": 5}),
        json!({"result": 1, "by": "ann"}),
        json!([]),
        json!({"log": null}),
        json!({"log": 5}),
        json!({"log": "x".repeat(4_097)}),
        json!({"progress": 5}),
        json!({"progress": {"text": "x".repeat(4_096)}}),
        json!({"log": "a", "result": 1}),
        json!({"log": "a", "progress": {}}),
    ] {
        report(&test_server, &callback, bad).await.refused(400, "BAD_REQUEST");
    }
    let tool = test_server.client.with_token(callback.token.as_str());
    let path = path(&callback);
    let untyped = tool.send(Method::POST, &path, &[], Some("{\"result\": 1}".into())).await;
    untyped.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    tool.get(&path).await.refused(405, "METHOD_NOT_ALLOWED");
    let foreign = [JSON, ("host", "evil.example")];
    let foreign = tool.send(Method::POST, &path, &foreign, Some("{\"result\": 1}".into())).await;
    foreign.refused(403, "ORIGIN_REFUSED");
    assert_eq!(call(&test_server.client, &run).await["status"], "suspended", "nothing of it was taken");
    test_server.server.drain();
    report(&test_server, &callback, json!({"result": 1})).await.refused(503, "DRAINING");
    let stored = test_server.engine.view(&Tenant::default(), &run.as_str().into()).await.expect("it is read");
    assert!(stored.is_some_and(|run| !run.status.ended()));
}

async fn a_tool_sends_logs_and_progress_while_its_call_is_under_way(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, one_call("slowly")).build().await;
    let client = &test_server.client;
    let run = client.begin_run("go").await;
    test_server.begun.notified().await;
    let callback = last(&test_server);
    let mut stream = client.stream(&format!("/v1/runs/{run}/events"), &[]).await;
    let shown = report(&test_server, &callback, json!({"log": "half of it"})).await.ok(200);
    assert_eq!(shown["outcome"], "applied");
    report(&test_server, &callback, json!({"progress": {"done": 0.5}})).await.ok(200);
    let mut notes = Vec::new();
    while notes.len() < 2 {
        let frame = stream.next().await.expect("the run continues");
        if ["tool.log", "tool.progress"].contains(&frame.event.as_str()) {
            assert_eq!(frame.id, None, "it is not stored");
            let payload = &frame.data["payload"];
            assert_eq!((&payload["call_id"], &payload["attempt"]), (&json!("call/0 ?#%2F"), &json!(1)));
            notes.push((frame.event, payload.get("text").or(payload.get("progress")).cloned()));
        }
    }
    let expected = [("tool.log", json!("half of it")), ("tool.progress", json!({"done": 0.5}))];
    assert_eq!(notes, expected.map(|(name, shown)| (name.to_owned(), Some(shown))));
    assert_eq!(client.get(&format!("/v1/runs/{run}")).await.ok(200)["status"], "running");
    test_server.gate.notify_one();
    client.run_reaches(&run, "waiting_tool").await;
    let before = client.log(&run).await;
    report(&test_server, &callback, json!({"log": "almost done"})).await.ok(200);
    assert_eq!(client.log(&run).await, before, "a note changes nothing");
    report(&test_server, &callback, json!({"result": 1})).await.ok(200);
    for late in [json!({"log": "x"}), json!({"progress": {}})] {
        report(&test_server, &callback, late.clone()).await.refused(409, "CALLBACK_SPENT");
        client.run_reaches(&run, "completed").await;
        report(&test_server, &callback, late).await.refused(409, "CALLBACK_SPENT");
    }
}
