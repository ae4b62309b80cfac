//! Callbacks: a tool that answered "later" reports with its token, once, and nobody else can.

use std::time::Duration;

use engine::store::Tenant;
use engine::tool::Callback;
use holdpoint_http::{Limits, Role};
use hyper::Method;
use models::scripted::Reply;
use serde_json::{Value, json};

use crate::client::{Answer, Client, JSON};
use crate::stage::{CALLBACKS, Kept, Plan, Stage, on_both_stores};

on_both_stores! {
    a_tool_reports_the_result_of_its_call_without_a_key;
    a_tool_reports_that_its_call_failed;
    a_callback_counts_once;
    whoever_has_not_the_token_is_told_nothing;
    somebody_else_was_faster;
    a_run_that_is_over_hears_nobody;
    a_tool_that_answered_at_once_has_nothing_to_report;
    a_tool_may_be_faster_than_its_own_answer;
    a_report_that_does_not_fit_spends_nothing;
    a_tool_that_wishes_to_be_called_again_gets_the_report_as_its_answer;
    a_tool_whose_answer_was_lost_knows_what_happened;
    another_attempt_has_another_token;
    the_token_of_a_lost_attempt_does_not_answer_for_the_next_one;
    a_callback_stands_in_no_answer_of_the_server;
    a_report_is_read_strictly;
}

fn one_call(answer: &str) -> [Reply; 2] {
    [Reply::call("call/0 ?#%2F", "later", json!({"answer": answer})), Reply::text("Done.")]
}

/// A run whose tool said "later", and what the tool may report with.
async fn held(stage: &Stage, client: &Client) -> (String, Callback) {
    let run = client.begin_run("go").await;
    client.run_reaches(&run, "waiting_tool").await;
    (run, last(stage))
}

fn last(stage: &Stage) -> Callback {
    stage.callbacks.lock().expect("nobody panicked").last().expect("the tool was called").clone()
}

fn path(callback: &Callback) -> String {
    let path = callback.url.strip_prefix(CALLBACKS).expect("it is under the address that was configured");
    format!("/v1/callbacks{path}")
}

async fn report(stage: &Stage, callback: &Callback, body: Value) -> Answer {
    stage.client.with_token(callback.token.as_str()).post(&path(callback), body).await
}

/// The first call of a run, as everybody sees it.
async fn call(client: &Client, run: &str) -> Value {
    client.get(&format!("/v1/runs/{run}/calls")).await.ok(200)["calls"][0].clone()
}

async fn a_tool_reports_the_result_of_its_call_without_a_key(kept: Kept) {
    let keys: [(&str, &str, &[Role]); 1] = [("admin", "acme/öst", &[Role::Admin])];
    let stage = Plan::new(kept, one_call("later")).with_keys(&keys).build().await;
    let admin = stage.as_key("admin");
    let (run, callback) = held(&stage, &admin).await;
    let taken = report(&stage, &callback, json!({"result": {"sent": 5.5}})).await.ok(200);
    assert_eq!((&taken["call_id"], &taken["outcome"]), (&json!("call/0 ?#%2F"), &json!("applied")));
    admin.run_reaches(&run, "completed").await;
    let shown = call(&admin, &run).await;
    assert_eq!((&shown["status"], &shown["result"]), (&json!("succeeded"), &json!({"sent": 5.5})));
    let resumed = admin.log(&run).await.into_iter().find(|event| event["type"] == "tool.resumed");
    assert_eq!(resumed.expect("it was held")["payload"]["by"], "tool:later", "the log says who it was");
}

async fn a_tool_reports_that_its_call_failed(kept: Kept) {
    let stage = Plan::new(kept, one_call("later")).build().await;
    let (run, callback) = held(&stage, &stage.client).await;
    let far_too_long = "x".repeat(65_537);
    report(&stage, &callback, json!({"error": far_too_long})).await.refused(400, "BAD_REQUEST");
    let trace = format!("no such account{}", " at a line of a long trace".repeat(2_500));
    report(&stage, &callback, json!({"error": trace})).await.ok(200);
    stage.client.run_reaches(&run, "completed").await;
    let shown = call(&stage.client, &run).await;
    assert_eq!(shown["status"], "failed");
    assert!(shown["error"].to_string().contains("no such account"), "{shown}");
}

async fn a_callback_counts_once(kept: Kept) {
    let stage = Plan::new(kept, one_call("later")).build().await;
    let (run, callback) = held(&stage, &stage.client).await;
    report(&stage, &callback, json!({"result": 1})).await.ok(200);
    // Whoever did not get the answer learns that there is nothing to repeat.
    for again in [json!({"result": 1}), json!({"result": 2}), json!({"error": "no"})] {
        let details = report(&stage, &callback, again).await.refused(409, "CALLBACK_SPENT");
        assert_eq!((&details["reason"], &details["run_id"]), (&json!("taken"), &json!(run)), "{details}");
    }
    stage.client.run_reaches(&run, "completed").await;
    let details = report(&stage, &callback, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    assert_eq!(details["reason"], "taken", "also after the end");
    assert_eq!(call(&stage.client, &run).await["result"], 1, "the first one stands");
}

async fn whoever_has_not_the_token_is_told_nothing(kept: Kept) {
    let keys: [(&str, &str, &[Role]); 1] = [("admin", "acme", &[Role::Admin])];
    let stage = Plan::new(kept, one_call("later")).with_keys(&keys).build().await;
    let admin = stage.as_key("admin");
    let (run, callback) = held(&stage, &admin).await;
    let there = path(&callback);
    let (_, other) = held(&stage, &admin).await;
    let mut answers = Vec::new();
    for (client, asked) in [
        (stage.client.clone(), there.clone()),
        (stage.client.with_token("guessed"), there.clone()),
        (admin.clone(), there.clone()),
        (stage.client.with_token(other.token.as_str()), there.clone()),
        (stage.client.with_token(callback.token.as_str()), path(&other)),
        (stage.client.with_token(callback.token.as_str()), format!("{there}00")),
        (stage.client.with_token(callback.token.as_str()), "/v1/callbacks/none".to_owned()),
    ] {
        // What is wrong with the body is nobody's business either.
        let answer = client.post(&asked, json!({"nonsense": true})).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "UNAUTHORIZED"), "{asked}");
        answers.push(answer.text);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "it is the same for all of them: {answers:?}");
    assert_eq!(admin.get(&format!("/v1/runs/{run}")).await.ok(200)["status"], "waiting_tool");
    // A token of a callback opens nothing else.
    let tool = stage.client.with_token(callback.token.as_str());
    tool.get(&format!("/v1/runs/{run}")).await.refused(401, "UNAUTHORIZED");
}

async fn somebody_else_was_faster(kept: Kept) {
    let stage = Plan::new(kept, one_call("later")).build().await;
    let (run, callback) = held(&stage, &stage.client).await;
    let decisions =
        json!({"decisions": [{"call_id": "call/0 ?#%2F", "action": "resume", "result": "by hand"}]});
    stage.client.post(&format!("/v1/runs/{run}/decisions"), decisions).await.ok(200);
    let details = report(&stage, &callback, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    assert_eq!(details["reason"], "over");
    stage.client.run_reaches(&run, "completed").await;
    assert_eq!(call(&stage.client, &run).await["result"], "by hand");
}

async fn a_run_that_is_over_hears_nobody(kept: Kept) {
    let stage = Plan::new(kept, one_call("later")).build().await;
    let (run, callback) = held(&stage, &stage.client).await;
    stage.client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    stage.client.run_reaches(&run, "interrupted").await;
    let details = report(&stage, &callback, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    assert_eq!(details["reason"], "over");
    let thread = stage.client.get(&format!("/v1/runs/{run}")).await.ok(200)["thread_id"].clone();
    let gone = stage.client.delete(&format!("/v1/threads/{}", thread.as_str().expect("an id"))).await;
    assert_eq!(gone.status, 204);
    report(&stage, &callback, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
}

async fn a_tool_that_answered_at_once_has_nothing_to_report(kept: Kept) {
    let stage = Plan::new(kept, one_call("at once")).build().await;
    let run = stage.client.begin_run("go").await;
    stage.client.run_reaches(&run, "completed").await;
    let details = report(&stage, &last(&stage), json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    assert_eq!(details["reason"], "over");
    assert_eq!(call(&stage.client, &run).await["result"], json!({"answer": "at once"}));
}

async fn a_tool_may_be_faster_than_its_own_answer(kept: Kept) {
    let stage = Plan::new(kept, one_call("slowly")).build().await;
    let run = stage.client.begin_run("go").await;
    stage.begun.notified().await;
    let callback = last(&stage);
    let reporting = report(&stage, &callback, json!({"result": "soon"}));
    let answering = async {
        stage.client.run_reaches(&run, "running").await;
        stage.gate.notify_one();
    };
    let (reported, ()) = tokio::join!(reporting, answering);
    assert_eq!(reported.ok(200)["outcome"], "applied");
    stage.client.run_reaches(&run, "completed").await;
    assert_eq!(call(&stage.client, &run).await["result"], "soon");

    // One that never says "later" is told that it has to.
    let limits = Limits { decided_time: Duration::from_millis(50), ..Limits::default() };
    let stage = Plan { limits, ..Plan::new(kept, one_call("slowly")) }.build().await;
    stage.client.begin_run("go").await;
    stage.begun.notified().await;
    let details = report(&stage, &last(&stage), json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    assert_eq!((&details["reason"], &details["call_status"]), (&json!("under_way"), &json!("running")));
}

async fn a_report_that_does_not_fit_spends_nothing(kept: Kept) {
    let stage = Plan::new(kept, one_call("number")).build().await;
    let (run, callback) = held(&stage, &stage.client).await;
    report(&stage, &callback, json!({"result": "five"})).await.refused(422, "INVALID_ARGUMENTS");
    report(&stage, &callback, json!({"result": 5})).await.ok(200);
    stage.client.run_reaches(&run, "completed").await;
    assert_eq!(call(&stage.client, &run).await["result"], 5);
}

async fn a_tool_that_wishes_to_be_called_again_gets_the_report_as_its_answer(kept: Kept) {
    let stage = Plan::new(kept, one_call("replay")).build().await;
    let (run, first) = held(&stage, &stage.client).await;
    report(&stage, &first, json!({"result": null})).await.refused(422, "INVALID_ARGUMENTS");
    report(&stage, &first, json!({"result": {"ready": true}})).await.ok(200);
    stage.client.run_reaches(&run, "completed").await;
    let given = stage.callbacks.lock().expect("nobody panicked").clone();
    assert_eq!(given.len(), 2, "it was called again");
    assert_ne!(given[0], given[1]);
    for callback in &given {
        report(&stage, callback, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    }
}

async fn a_tool_whose_answer_was_lost_knows_what_happened(kept: Kept) {
    for (said, status) in
        [(json!({"result": "it was sent"}), "succeeded"), (json!({"error": "no"}), "failed")]
    {
        let stage = Plan::new(kept, one_call("lost")).build().await;
        let (run, doubt) = stage.client.begin_held_run("go").await;
        let callback = last(&stage);
        report(&stage, &callback, said.clone()).await.ok(200);
        stage.client.run_reaches(&run, "completed").await;
        assert_eq!(call(&stage.client, &run).await["status"], status);
        let approval = stage.client.get(&format!("/v1/approvals/{doubt}")).await.ok(200);
        assert_ne!(approval["status"], "pending", "nobody has to be asked any more");
        report(&stage, &callback, said).await.refused(409, "CALLBACK_SPENT");
    }
}

async fn another_attempt_has_another_token(kept: Kept) {
    let stage = Plan::new(kept, one_call("lost")).build().await;
    let (run, doubt) = stage.client.begin_held_run("go").await;
    let first = last(&stage);
    let retry = json!({"choice": "retry"});
    stage.client.post(&format!("/v1/approvals/{doubt}/answer"), retry).await.ok(200);
    let again = |seen: &Value| {
        let asked = seen["pending"][0]["approval_id"].as_str();
        seen["status"] == "waiting_approval" && asked.is_some_and(|id| id != doubt)
    };
    stage.client.run_until(&run, again).await;
    let second = last(&stage);
    assert_ne!(first, second);
    report(&stage, &first, json!({"result": 1})).await.refused(409, "CALLBACK_SPENT");
    report(&stage, &second, json!({"result": 2})).await.ok(200);
    stage.client.run_reaches(&run, "completed").await;
    assert_eq!(call(&stage.client, &run).await["result"], 2);
}

async fn the_token_of_a_lost_attempt_does_not_answer_for_the_next_one(kept: Kept) {
    let stage = Plan::new(kept, one_call("lost at first")).build().await;
    let (run, doubt) = stage.client.begin_held_run("go").await;
    let first = last(&stage);
    let retry = json!({"choice": "retry"});
    stage.client.post(&format!("/v1/approvals/{doubt}/answer"), retry).await.ok(200);
    // The second attempt says "later".
    stage.client.run_reaches(&run, "waiting_tool").await;
    let second = last(&stage);
    assert_ne!(first, second);
    for stale in [json!({"result": 1}), json!({"error": "no"})] {
        let details = report(&stage, &first, stale).await.refused(409, "CALLBACK_SPENT");
        assert_eq!(details["reason"], "over");
    }
    assert_eq!(call(&stage.client, &run).await["status"], "suspended", "nothing of it was taken");
    report(&stage, &second, json!({"result": 2})).await.ok(200);
    stage.client.run_reaches(&run, "completed").await;
    assert_eq!(call(&stage.client, &run).await["result"], 2);
}

async fn a_callback_stands_in_no_answer_of_the_server(kept: Kept) {
    let stage = Plan::new(kept, one_call("replay")).build().await;
    let client = &stage.client;
    let (run, first) = held(&stage, client).await;
    let mut seen = String::new();
    let paths =
        ["", "/events", "/calls", "/state", "/transcript"].map(|what| format!("/v1/runs/{run}{what}"));
    let lists = ["/v1/runs", "/v1/approvals", "/v1/agents", "/metrics"].map(str::to_owned);
    for path in paths.iter().chain(&lists) {
        seen.push_str(&client.get(path).await.text);
    }
    seen.push_str(&report(&stage, &first, json!({"result": true})).await.text);
    seen.push_str(&report(&stage, &first, json!({"result": true})).await.text);
    client.run_reaches(&run, "completed").await;
    for path in paths.iter().chain(&lists) {
        seen.push_str(&client.get(path).await.text);
    }
    assert!(seen.contains("tool:later") && seen.contains("It takes a while."), "all of it was read");
    let keys = stage.engine.store().callback_keys(None).await.expect("it can be read").expect("there");
    let key: String = keys.current.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    for callback in stage.callbacks.lock().expect("nobody panicked").iter() {
        assert!(!seen.contains(callback.token.as_str()), "the token");
        assert!(!seen.contains(callback.url.rsplit('/').next().expect("a path")), "the address");
    }
    assert!(!seen.contains(&key), "the key");
    assert_eq!(stage.engine.verify_callback("5b5d", &key).await, None);
}

async fn a_report_is_read_strictly(kept: Kept) {
    let stage = Plan::new(kept, one_call("later")).build().await;
    let (run, callback) = held(&stage, &stage.client).await;
    for bad in [
        json!({}),
        json!({"result": 1, "error": "no"}),
        json!({"error": null}),
        json!({"error": 5}),
        json!({"result": 1, "by": "ann"}),
        json!([]),
    ] {
        report(&stage, &callback, bad).await.refused(400, "BAD_REQUEST");
    }
    let tool = stage.client.with_token(callback.token.as_str());
    let path = path(&callback);
    let untyped = tool.send(Method::POST, &path, &[], Some("{\"result\": 1}".into())).await;
    untyped.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    tool.get(&path).await.refused(405, "METHOD_NOT_ALLOWED");
    let foreign = [JSON, ("host", "evil.example")];
    let foreign = tool.send(Method::POST, &path, &foreign, Some("{\"result\": 1}".into())).await;
    foreign.refused(403, "ORIGIN_REFUSED");
    assert_eq!(call(&stage.client, &run).await["status"], "suspended", "nothing of it was taken");
    stage.server.drain();
    report(&stage, &callback, json!({"result": 1})).await.refused(503, "DRAINING");
    let stored = stage.engine.view(&Tenant::default(), &run.as_str().into()).await.expect("it is read");
    assert!(stored.is_some_and(|run| !run.status.ended()));
}
