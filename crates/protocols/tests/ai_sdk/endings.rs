//! How streams end, and that a client which posts by itself stops when the run does.

use protocols::ai_sdk::{Chunk, ChunkEncoder, ToolState};
use protocols::feed::{CompletedReason, RunEnd};
use serde_json::json;

use crate::chat_client::{Accepted, ChatClient, client_tools, fold, fresh, fresh_until, lines};
use crate::run_script::{RunScript, call};

fn last_lines(script: &RunScript, count: usize) -> Vec<String> {
    let lines = lines(&fresh(script));
    lines[lines.len() - count..].to_vec()
}

#[test]
fn c98_each_end_of_a_run_has_its_finish_reason() {
    let completed = |reason| RunEnd::Completed { reason, code: None, detail: None };
    let failed = |blocked| RunEnd::Failed { code: "X".into(), message: "it failed".into(), blocked };
    for (end, reason) in [
        (completed(CompletedReason::NaturalEnd), "stop"),
        (completed(CompletedReason::BehaviorRequested), "stop"),
        (completed(CompletedReason::Stopped), "stop"),
        (failed(false), "error"),
        (failed(true), "content-filter"),
    ] {
        let mut script = RunScript::begun();
        script.answer("Hello.", &[]).step_ended().ended(end.clone());
        let last = fresh(&script).pop().unwrap();
        assert_eq!(serde_json::to_value(&last).unwrap()["finishReason"], reason, "{end:?}");
    }
}

#[test]
fn a_failed_run_reports_its_error_before_it_finishes() {
    let mut script = RunScript::begun();
    script.delta("Hal").ended(RunEnd::Failed {
        code: "MODEL_ERROR".into(),
        message: "the model answered 500".into(),
        blocked: false,
    });
    let metadata = json!({"messageMetadata": {
        "error": {"code": "MODEL_ERROR", "message": "the model answered 500"},
        "status": "failed",
        "termination": {"reason": "error"},
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }});
    let metadata = metadata.to_string().replacen('{', r#"{"type":"message-metadata","#, 1);
    let expected = [
        r#"{"type":"text-end","id":"txt-1.1"}"#,
        r#"{"type":"finish-step"}"#,
        r#"{"type":"data-run","data":{"run_id":"run_1","status":"failed"},"transient":true}"#,
        &metadata,
        r#"{"type":"error","errorText":"the model answered 500"}"#,
        r#"{"type":"finish","finishReason":"error"}"#,
    ];
    assert_eq!(last_lines(&script, 6), expected);
}

#[test]
fn a_blocked_run_finishes_with_content_filter() {
    let mut script = RunScript::begun();
    script.step_ended().ended(RunEnd::Failed {
        code: "BLOCKED".into(),
        message: "blocked by policy".into(),
        blocked: true,
    });
    let chunks = fresh(&script);
    assert!(chunks.iter().all(|chunk| chunk.kind() != "error"));
    let last = serde_json::to_value(chunks.last().unwrap()).unwrap();
    assert_eq!(last["finishReason"], "content-filter");
    assert_eq!(last["messageMetadata"]["error"]["message"], "blocked by policy");
}

#[test]
fn an_interrupted_run_aborts_without_a_reason() {
    let a = call("a", "transfer");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).ask(&a, "apr_a").waits_for_approval();
    script.stored(protocols::feed::Body::RunInterrupting);
    script.cancelled(&a, "interrupted").step_ended().ended(RunEnd::Interrupted { code: None, by: None });
    assert_eq!(last_lines(&script, 1), [r#"{"type":"abort"}"#]);

    let wait = script.waits[0];
    let mut client = ChatClient::of(&fresh_until(&script, wait));
    client.respond("apr_a", true, None);
    let chunks = client.continue_over(&script, &Accepted::default(), script.items.len(), script.items.len());
    assert_eq!(chunks.last().map(Chunk::kind), Some("abort"));
    assert_eq!(client.state("a"), ToolState::OutputError);
    assert_eq!(client.tool("a").error_text.as_deref(), Some("Cancelled: interrupted"));
    assert!(!client.posts_by_itself());
}

#[test]
fn a_run_interrupted_in_the_middle_of_a_text_closes_it() {
    let mut script = RunScript::begun();
    script.reasoning_delta("hm").delta("Hal");
    script.stored(protocols::feed::Body::RunInterrupting);
    script.ended(RunEnd::Interrupted { code: Some("superseded".into()), by: None });
    let metadata = fold(&fresh(&script)).metadata.unwrap();
    assert_eq!(metadata["termination"], json!({"reason": "cancelled", "code": "superseded"}));
}

#[test]
fn a_run_that_never_started_aborts() {
    let mut script = RunScript::default();
    script.stored(protocols::feed::Body::RunQueued);
    script.ended(RunEnd::Interrupted { code: None, by: None });
    let kinds: Vec<String> = fresh(&script).iter().map(|chunk| chunk.kind().to_owned()).collect();
    assert_eq!(kinds, ["start", "data-run", "message-metadata", "abort"]);
}

#[test]
fn a_run_that_stops_after_its_tools_begins_an_empty_step() {
    let a = call("a", "finish");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).executing(&a).succeeded(&a, "1").step_ended();
    script.completed(CompletedReason::Stopped);
    let mut client = ChatClient::of(&fresh(&script));
    assert!(!client.posts_by_itself());
    // If it posts nevertheless, it gets nothing twice.
    let before = client.message.clone();
    let chunks = client.continue_over(&script, &Accepted::default(), script.items.len(), script.items.len());
    let kinds: Vec<&str> = chunks.iter().map(Chunk::kind).collect();
    assert_eq!(kinds, ["start", "data-run", "finish"]);
    assert_eq!(client.message, before);
}

#[test]
fn tool_errors_and_unknown_outcomes_are_errors_of_their_calls() {
    let (a, b) = (call("a", "boom"), call("b", "transfer"));
    let mut script = RunScript::begun();
    script.answer("", &[a.clone(), b.clone()]).executing(&a).failed(&a, "it broke").executing(&b);
    script.stored(protocols::feed::Body::Cancelled {
        call_id: "b".into(),
        tool: "transfer".into(),
        reason: "interrupted".into(),
        outcome_unknown: true,
    });
    script.ends_with("Sorry.");
    let client = ChatClient::of(&fresh(&script));
    assert_eq!(client.tool("a").error_text.as_deref(), Some("it broke"));
    assert_eq!(client.tool("b").error_text.as_deref(), Some("Cancelled; it may have taken effect"));
}

#[test]
fn c97_nothing_follows_the_end() {
    let mut script = RunScript::begun();
    script.answer("Hello.", &[]).step_ended().completed(CompletedReason::NaturalEnd);
    let mut encoder = ChunkEncoder::new(client_tools());
    let mut chunks = Vec::new();
    script.items.iter().for_each(|item| encoder.push(item, &mut chunks));
    assert!(encoder.is_done());
    let count = chunks.len();
    script.items.iter().for_each(|item| encoder.push(item, &mut chunks));
    encoder.idle(&mut chunks);
    encoder.fail("too late", &mut chunks);
    assert_eq!(chunks.len(), count);
}

#[test]
fn a_server_that_cannot_continue_closes_what_is_open() {
    let mut script = RunScript::begun();
    script.delta("Hal");
    let mut encoder = ChunkEncoder::new(client_tools());
    let mut chunks = Vec::new();
    script.items.iter().for_each(|item| encoder.push(item, &mut chunks));
    encoder.fail("the server is shutting down", &mut chunks);
    assert!(encoder.is_done());
    crate::chat_client::verify(protocols::ai_sdk::ChunkVerifier::new(), &chunks);
    let kinds: Vec<&str> = chunks.iter().rev().take(3).map(Chunk::kind).collect();
    assert_eq!(kinds, ["error", "finish-step", "text-end"]);
}
