//! Approvals show what a person needs to see: exactly what will run.

use engine::store::PathEntry;
use holdpoint_http::wire::approval::Approval;
use machine::Timestamp;
use machine::id::{Digest, Principal};
use machine::projection_rows::ApprovalStatus;
use machine::tool::Arguments;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::stories;

fn as_json(approval: &Approval) -> Value {
    serde_json::to_value(approval).unwrap()
}

#[test]
fn d27_a_pending_approval_shows_its_call_and_its_arguments_and_no_decision() {
    let mut held = stories::named("one_held_call").held("tool.approval_requested");
    held.path = vec![PathEntry {
        run: held.run.clone(),
        thread: held.thread.clone(),
        agent: held.agent.clone(),
        call: held.call.clone(),
    }];
    let approval = Approval::from_view(&held).with_description("Move money between two accounts");
    assert_eq!(
        as_json(&approval),
        json!({
            "id": "apr_1", "kind": "approval", "run_id": "run_1", "thread_id": "thr_1", "call_id": "call_1",
            "step": 1, "agent": "assistant", "tool": "transfer",
            "tool_description": "Move money between two accounts",
            "arguments": {"to": "bob", "amount": 5},
            "arguments_digest": "29ddb7bbd60d67fa1591798dc16ecfeddfbfbb48c6353113c32659d4e76a6078",
            "path": [{"run_id": "run_1", "agent": "assistant", "call_id": "call_1"}],
            "status": "pending",
            "created_at": "2026-01-01T00:00:00.915Z", "expires_at": "2026-01-02T00:00:00.915Z",
        })
    );
}

#[test]
fn d8_a_decided_approval_says_when_by_whom_and_why() {
    let mut held = stories::named("one_held_call").held("tool.approval_requested");
    held.status = ApprovalStatus::Rejected;
    held.decided_at = Some(Timestamp(1_767_225_601_000));
    held.decided_by = Some(Principal::from("ana"));
    held.reason = Some("unknown payee".into());
    let shown = as_json(&Approval::from_view(&held));
    assert_eq!(shown["status"], "rejected");
    assert_eq!(shown["decided_at"], "2026-01-01T00:00:01.000Z");
    assert_eq!((&shown["decided_by"], &shown["reason"]), (&json!("ana"), &json!("unknown payee")));
    assert!(shown.get("note").is_none() && shown.get("original_arguments").is_none(), "{shown}");
}

#[test]
fn edited_arguments_are_shown_beside_the_original_ones_with_their_own_digest() {
    let held = stories::named("one_held_call").held("tool.approval_requested");
    let digest = Digest::sha256(b"edited");
    let edited = Arguments::Valid { value: Arc::new(json!({"to": "bob", "amount": 4})), digest };
    let shown = as_json(&Approval::from_view(&held).with_edited_arguments(&edited));
    assert_eq!(shown["arguments"], json!({"to": "bob", "amount": 4}));
    assert_eq!(shown["original_arguments"], json!({"to": "bob", "amount": 5}));
    assert_eq!(shown["arguments_digest"], digest.to_string());
}

#[test]
fn what_may_not_be_what_it_looks_like_is_shown_escaped_and_flagged() {
    let held = stories::named("one_held_call").held("tool.approval_requested");
    let with = |value: Value| Arguments::Valid { value: Arc::new(value), digest: Digest::sha256(b"any") };
    let of = |value: Value| {
        as_json(&Approval::from_view(&held).with_edited_arguments(&with(value)).with_display())
    };
    assert!(of(json!({"to": "Jürgen", "text": "a\nb", "city": "東京"})).get("display").is_none());
    let hidden = of(json!({"to": "b\u{3164}ob", "\u{1b}": "p\u{430}y"}));
    assert_eq!(hidden["arguments"]["to"], "b\u{3164}ob", "exactly what will run");
    assert_eq!(
        hidden["display"],
        json!({
            "arguments": "{\"\\u001b\":\"p\u{430}y\",\"to\":\"b\\u3164ob\"}",
            "warnings": ["invisible", "mixed_scripts"],
        })
    );
    let mut question = stories::named("question_and_expiry").held("tool.suspended");
    Arc::make_mut(question.opened.as_mut().unwrap()).question = Some("\u{5d0}\u{202e}?".into());
    let asked = as_json(&Approval::from_view(&question).with_display());
    assert_eq!(asked["display"]["question"], "\u{5d0}\\u202e?");
    assert_eq!(asked["display"]["warnings"], json!(["invisible", "right_to_left"]));
}

#[test]
fn a_question_shows_itself_and_a_call_in_doubt_shows_its_choices() {
    let question = stories::named("question_and_expiry").held("tool.suspended");
    let asked = as_json(&Approval::from_view(&question));
    assert_eq!(asked["kind"], "question");
    assert!(asked["question"].is_string() && asked.get("choices").is_none(), "{asked}");
    let in_doubt = stories::named("late_answer_after_a_take_over").held("tool.suspended");
    let doubted = as_json(&Approval::from_view(&in_doubt));
    assert_eq!((&doubted["kind"], &doubted["choices"]), (&json!("in_doubt"), &json!(["retry", "give_up"])));
}
