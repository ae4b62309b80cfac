//! The outcome of an attempt, by what the server does and by whether the call may be repeated.

use std::sync::Arc;

use engine::tool::{AskKind, Outcome, ResumeMode, Tool, ToolAnswer, ToolDefinition};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tools::http::{HttpSettings, HttpTool};

use crate::fake::{Fake, Turn, request};

fn writing() -> ToolDefinition {
    ToolDefinition::new("transfer", "Moves money")
}

fn reading() -> ToolDefinition {
    writing().read()
}

async fn after(turn: Turn, definition: ToolDefinition) -> Outcome {
    let fake = Fake::serving([turn]).await;
    let tool = HttpTool::new(definition, &HttpSettings::at(&fake.url())).unwrap();
    tool.call(request()).await
}

fn success(value: Value, warning: Option<&str>) -> Outcome {
    Outcome::Answered(ToolAnswer::Success { value: Arc::new(value), warning: warning.map(str::to_owned) })
}

fn error(message: &str) -> Outcome {
    Outcome::Answered(ToolAnswer::Error { message: message.to_owned() })
}

fn unknown(outcome: &Outcome) -> (&str, Option<u64>) {
    let Outcome::Unknown { why, retry_after_ms } = outcome else { panic!("{outcome:?}") };
    (why, *retry_after_ms)
}

#[tokio::test]
async fn a_body_is_the_result_and_json_where_it_says_so() {
    let cases = [
        (Turn::answer("200 OK", "application/json", r#"{"id":7}"#), json!({"id": 7})),
        (Turn::answer("200 OK", "Application/JSON; charset=utf-8", "[1]"), json!([1])),
        (Turn::answer("201 Created", "application/hal+json", "1.5"), json!(1.5)),
        (Turn::answer("200 OK", "text/plain", r#"{"id":7}"#), json!(r#"{"id":7}"#)),
        (Turn::with("200 OK", "", "sent"), json!("sent")),
        (Turn::with("200 OK", "", ""), json!("")),
        (Turn::answer("200 OK", "application/json", ""), Value::Null),
        (Turn::with("204 No Content", "", ""), Value::Null),
    ];
    for (turn, value) in cases {
        assert_eq!(after(turn, writing()).await, success(value, None));
    }
}

#[tokio::test]
async fn a_warning_goes_with_the_result() {
    let turn = Turn::with("200 OK", "Holdpoint-Warning: half of it\r\n", "sent");
    assert_eq!(after(turn, writing()).await, success(json!("sent"), Some("half of it")));
    let turn = Turn::answer("200 OK", "application/json", "sent");
    let Outcome::Answered(ToolAnswer::Success { value, warning }) = after(turn, writing()).await else {
        panic!("it succeeded")
    };
    assert_eq!(*value, json!("sent"), "it did run: its answer is not thrown away");
    assert!(warning.unwrap().starts_with("the answer is called JSON and is none"));
}

#[tokio::test]
async fn a_refusal_is_what_the_model_reads() {
    let turn = Turn::answer("422 Unprocessable Content", "text/plain", " no such account \n");
    assert_eq!(after(turn, writing()).await, error("no such account"));
    let turn = Turn::with("404 Not Found", "", "");
    assert_eq!(after(turn, reading()).await, error("the tool answered 404 Not Found"));
    let moved = after(Turn::with("302 Found", "location: http://example.com/\r\n", ""), writing()).await;
    let Outcome::Answered(ToolAnswer::Error { message }) = moved else { panic!("{moved:?}") };
    assert!(message.contains("302") && message.contains("redirects are not followed"), "{message}");
}

#[tokio::test]
async fn a_202_holds_the_call_with_what_the_tool_asks() {
    let pending = |outcome: Outcome| {
        let Outcome::Answered(ToolAnswer::Pending(asked)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(asked.kind, AskKind::External);
        asked
    };
    let plain = pending(after(Turn::with("202 Accepted", "", ""), writing()).await);
    assert_eq!((plain.question, plain.mode), (None, ResumeMode::UseDecisionAsToolResult));
    let body = json!({"question": "Which one?", "schema": {"type": "string"}, "resume_mode": "replay_tool_call",
        "state": {"ticket": 7}});
    let turn = Turn::answer("202 Accepted", "application/json", &body.to_string());
    let asked = pending(after(turn, writing()).await);
    assert_eq!((asked.question.as_deref(), asked.mode), (Some("Which one?"), ResumeMode::ReplayToolCall));
    assert_eq!(
        (asked.schema.as_deref(), asked.resume_state.as_deref()),
        (Some(&body["schema"]), Some(&body["state"]))
    );
    let lying = Turn::answer("202 Accepted", "application/json", r#"{"resume_mode":"never"}"#);
    let held = pending(after(lying, writing()).await);
    assert!(held.question.unwrap().contains("could not be read"), "the tool is at work all the same");
}

#[tokio::test]
async fn an_inconclusive_answer_leaves_a_doubt_or_is_retried() {
    let busy = || Turn::with("503 Service Unavailable", "retry-after: 2\r\n", "come back");
    for definition in [writing(), reading(), writing().idempotent()] {
        let outcome = after(busy(), definition).await;
        let (why, wait) = unknown(&outcome);
        assert_eq!((why, wait), ("the tool answered 503 Service Unavailable: come back", Some(2_000)));
    }
    assert_eq!(after(Turn::with("500 Oops", "", "broken"), writing()).await, error("broken"));
    let outcome = after(Turn::with("500 Oops", "", "broken"), reading()).await;
    assert_eq!(unknown(&outcome).0, "the tool answered 500 Internal Server Error: broken");
    let limited = || Turn::with("429 Too Many Requests", "retry-after: 1\r\n", "slowly");
    assert_eq!(after(limited(), writing()).await, error("slowly"));
    assert_eq!(unknown(&after(limited(), reading()).await).1, Some(1_000));
}

#[tokio::test]
async fn a_connection_that_is_lost_after_sending_leaves_a_doubt() {
    let cut = [
        "",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhalf",
        "no HTTP at all\r\n\r\n",
    ];
    for bytes in cut {
        let outcome = after(Turn::SendAndClose(bytes.into()), writing()).await;
        assert!(unknown(&outcome).0.contains("lost"), "{bytes:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_refused_connection_means_nothing_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let tool = HttpTool::new(writing(), &HttpSettings::at(&url)).unwrap();
    let outcome = tool.call(request()).await;
    let Outcome::NotSent { why, .. } = &outcome else { panic!("{outcome:?}") };
    assert!(why.starts_with("the tool could not be reached: "), "{why}");
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_an_error_that_says_what_happened() {
    let long = "x".repeat(100);
    let fake = Fake::serving([
        Turn::with("200 OK", "", &long),
        Turn::with("400 Bad Request", "", &long),
        Turn::with("202 Accepted", "", &long),
        Turn::with("200 OK", "", &long[..99]),
    ])
    .await;
    let settings = HttpSettings { response_bytes_max: 99, ..HttpSettings::at(&fake.url()) };
    let tool = HttpTool::new(writing(), &settings).unwrap();
    let done = tool.call(request()).await;
    assert_eq!(done, error("the call succeeded, but its answer has more than 99 bytes"));
    let refused = tool.call(request()).await;
    assert_eq!(refused, error("the tool answered 400 Bad Request, with more than 99 bytes"));
    let pending = tool.call(request()).await;
    let why = "the tool answered 202, so it may be at work, but its answer has more than 99 bytes";
    assert_eq!(pending, error(why));
    assert_eq!(tool.call(request()).await, success(json!("x".repeat(99)), None));
}

#[tokio::test]
async fn a_cancelled_call_closes_its_connection() {
    let fake = Fake::serving([Turn::Stall]).await;
    let tool = HttpTool::new(writing(), &HttpSettings::at(&fake.url())).unwrap();
    let asked = request();
    let stop = asked.cancelled.clone();
    let call = tokio::spawn(async move { tool.call(asked).await });
    fake.asked.notified().await;
    stop.cancel();
    assert_eq!(unknown(&call.await.unwrap()).0, "the call was cancelled before the answer arrived");
    fake.left.notified().await;
}
