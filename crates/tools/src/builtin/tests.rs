//! Tests of the builtin tools that have no side effects.

use std::sync::Arc;
use std::time::Duration;

use engine::arguments::Schema;
use engine::live::ToolNotes;
use engine::store::Tenant;
use engine::tool::{
    Approval, AskKind, CancellationToken, EffectClass, OnExpiry, Outcome, Performer, ResumeMode, Resumed,
    SuspendRequest, Tool, ToolAnswer, ToolRequest,
};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{BuiltinError, Options, builtin, names};

pub(super) fn request(tool: &str, arguments: Value) -> ToolRequest {
    ToolRequest {
        tenant: Tenant::default(),
        thread: "thr_1".into(),
        run: "run_1".into(),
        call: "call_0".into(),
        tool: tool.into(),
        step: 1,
        attempt: 1,
        arguments: Arc::new(arguments),
        idempotency_key: "0a1b".to_owned(),
        approval: None,
        resume: None,
        callback: None,
        cancelled: CancellationToken::new(),
        notes: ToolNotes::discarding(),
    }
}

pub(super) fn success(value: Value) -> Outcome {
    Outcome::Answered(ToolAnswer::Success { value: Arc::new(value), warning: None })
}

pub(super) fn error(message: &str) -> Outcome {
    Outcome::Answered(ToolAnswer::Error { message: message.to_owned() })
}

fn tool(name: &str) -> Arc<dyn Tool> {
    builtin(name, &Options { folder: Some("never-used".into()) }).unwrap()
}

async fn called(name: &str, arguments: Value) -> Outcome {
    tool(name).call(request(name, arguments)).await
}

#[test]
fn every_name_gives_its_tool_with_the_effect_and_approval_of_the_contract() {
    let all: Vec<&str> = names().collect();
    assert_eq!(all, ["echo", "add", "sleep", "write_file", "boom", "ask_user"]);
    for name in all {
        let tool = tool(name);
        let definition = tool.definition();
        let expected = match name {
            "write_file" => (EffectClass::Write, Approval::Ask, Performer::Server),
            _ => (EffectClass::Read, Approval::Never, Performer::Server),
        };
        assert_eq!(definition.name.as_str(), name);
        assert_eq!(
            (definition.effect, definition.approval, definition.performer.clone()),
            expected,
            "{name}"
        );
    }
}

#[test]
fn an_unknown_name_is_refused_with_the_known_names() {
    let unknown = builtin("ehco", &Options::default()).err();
    assert_eq!(unknown, Some(BuiltinError::UnknownName { name: "ehco".to_owned() }));
    assert_eq!(
        unknown.unwrap().to_string(),
        "there is no builtin tool `ehco`; use one of echo, add, sleep, write_file, boom, ask_user"
    );
}

#[test]
fn write_file_without_a_folder_is_refused_before_it_can_write_anywhere() {
    let refused = builtin("write_file", &Options::default()).err();
    assert_eq!(refused, Some(BuiltinError::FolderMissing { name: "write_file" }));
    assert_eq!(
        refused.unwrap().to_string(),
        "the builtin tool `write_file` has no folder; set `folder` to where it may write"
    );
}

#[test]
fn schemas_take_good_arguments_and_describe_each_of_them() {
    let good = [
        ("echo", json!({"text": "a"})),
        ("echo", json!({"anything": 1})),
        ("add", json!({"a": 1, "b": 2.5})),
        ("sleep", json!({"ms": 600_000})),
        ("write_file", json!({"path": "a.txt", "text": ""})),
        ("boom", json!({})),
        ("ask_user", json!({"question": "Why?"})),
    ];
    let bad = [
        ("echo", json!("a")),
        ("add", json!({"a": 1})),
        ("add", json!({"a": 1, "b": "2"})),
        ("sleep", json!({"ms": 600_001})),
        ("sleep", json!({"ms": -1})),
        ("write_file", json!({"path": "", "text": ""})),
        ("write_file", json!({"path": "a.txt"})),
        ("boom", json!({"why": "not"})),
        ("ask_user", json!({"question": ""})),
    ];
    let fault = |name: &str, arguments: &Value| {
        Schema::compile(&tool(name).definition().parameters).unwrap().fault(arguments)
    };

    for (name, arguments) in good {
        assert_eq!(fault(name, &arguments), None, "{name} {arguments}");
    }
    for (name, arguments) in bad {
        assert!(fault(name, &arguments).is_some(), "{name} {arguments}");
    }
    for name in names() {
        let tool = tool(name);
        for (key, schema) in tool.definition().parameters["properties"].as_object().into_iter().flatten() {
            assert!(schema["description"].is_string(), "{name}.{key}");
        }
    }
}

#[tokio::test]
async fn echo_answers_its_text_or_all_it_was_given() {
    assert_eq!(called("echo", json!({"text": "a", "more": 1})).await, success(json!("a")));
    assert_eq!(called("echo", json!({"n": [1]})).await, success(json!({"n": [1]})));
}

#[tokio::test]
async fn add_keeps_integers_exact() {
    assert_eq!(called("add", json!({"a": 2, "b": 3})).await, success(json!(5)));
    assert_eq!(called("add", json!({"a": 2, "b": 0.5})).await, success(json!(2.5)));
    assert_eq!(called("add", json!({"a": i64::MAX, "b": -1})).await, success(json!(i64::MAX - 1)));
    assert_eq!(
        called("add", json!({"a": i64::MAX, "b": 1})).await,
        success(json!(9_223_372_036_854_775_808.0))
    );
}

#[tokio::test]
async fn add_refuses_what_has_no_sum() {
    assert_eq!(
        called("add", json!({"a": f64::MAX, "b": f64::MAX})).await,
        error(&format!("the sum of {0} and {0} is too large; use smaller numbers", json!(f64::MAX)))
    );
    assert_eq!(
        called("add", json!({"a": 1})).await,
        error("bad arguments for add: missing field `b`; keep to its schema")
    );
}

#[tokio::test(start_paused = true)]
async fn sleep_takes_the_requested_time() {
    let start = Instant::now();

    assert_eq!(called("sleep", json!({"ms": 600_000})).await, success(json!({"slept_ms": 600_000})));

    assert_eq!(start.elapsed(), Duration::from_secs(600));
    assert!(tool("sleep").definition().timeout > Duration::from_secs(600));
}

#[tokio::test(start_paused = true)]
async fn a_longer_sleep_is_refused_at_once() {
    let start = Instant::now();

    let refused = called("sleep", json!({"ms": 600_001})).await;

    assert_eq!(refused, error("600001 ms is too long; wait at most 600000 ms"));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_sleep_ends_when_it_is_cancelled() {
    let tool = tool("sleep");
    let request = request("sleep", json!({"ms": 5000}));
    let cancelled = request.cancelled.clone();
    let start = Instant::now();
    let mut call = tool.call(request);

    assert!(timeout(Duration::from_secs(2), &mut call).await.is_err());
    cancelled.cancel();

    assert_eq!(call.await, error("cancelled before 5000 ms were over"));
    assert_eq!(start.elapsed(), Duration::from_secs(2));
}

#[tokio::test]
#[should_panic(expected = "boom: this tool always panics")]
async fn boom_panics_in_its_attempt_and_not_before() {
    let tool = tool("boom");
    let attempt = tool.call(request("boom", json!({})));

    attempt.await;
}

#[tokio::test]
async fn ask_user_holds_its_call_with_the_question() {
    let held = called("ask_user", json!({"question": "Which colour?"})).await;

    let expected = SuspendRequest {
        kind: AskKind::Question,
        question: Some("Which colour?".to_owned()),
        schema: None,
        mode: ResumeMode::UseDecisionAsToolResult,
        resume_state: None,
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    };
    assert_eq!(held, Outcome::Answered(ToolAnswer::Pending(expected)));
}

#[tokio::test]
async fn ask_user_that_is_run_again_with_the_answer_passes_it_on() {
    let mut again = request("ask_user", json!({"question": "Which colour?"}));
    again.resume = Some(Resumed { state: None, answer: Some(Arc::new(json!("blue"))), by: "alice".into() });

    assert_eq!(tool("ask_user").call(again).await, success(json!("blue")));
}
