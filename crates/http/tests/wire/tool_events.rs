//! What a client reads of tool calls without asking for anything else: each event names its call, its run and its step, and
//! carries what its kind is about.

use std::collections::BTreeMap;

use holdpoint_http::wire::run::Run;
use machine::event::Fact;
use serde_json::{Value, json};

use crate::stories;

/// The fields that every event of this kind has, null or not.
fn fields_of(kind: &str) -> &'static [&'static str] {
    match kind {
        "tool.requested" => &["call_id", "tool", "arguments", "turn_id"],
        "tool.approval_requested" => &["call_id", "tool", "arguments", "approval_id"],
        "tool.approved" => &["call_id", "tool", "by", "approval_id", "reason"],
        "tool.approval_voided" => &["call_id", "tool", "by", "approval_id", "reason"],
        "tool.denied" => &["call_id", "tool", "by", "approval_id", "reason"],
        "tool.suspended" => &["call_id", "tool", "kind", "suspension_id", "arguments", "resume_mode"],
        "tool.resumed" => &["call_id", "tool", "suspension_id", "by", "mode"],
        "tool.execution_started" => &["call_id", "tool", "attempt"],
        "tool.execution_succeeded" => &["call_id", "tool", "result"],
        "tool.execution_failed" => &["call_id", "tool", "error"],
        "tool.cancelled" => &["call_id", "tool", "reason"],
        other => panic!("{other} is new: what does it carry?"),
    }
}

#[test]
fn b13_every_tool_event_names_its_call_and_its_turn_and_carries_what_it_is_about() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut results = Vec::new();
    for story in stories::all() {
        let (thread, run) = story.ids();
        let sent = story.envelopes_as_json();
        let mut turns: BTreeMap<String, (Value, Value)> = BTreeMap::new();
        // The run that every event names has the agent.
        let shown = serde_json::to_value(Run::from_view(&story.view(story.events.len()))).unwrap();
        assert_eq!((&shown["id"], shown["agent"].is_string()), (&json!(run), true), "{shown}");
        for event in &sent {
            let kind = event["type"].as_str().unwrap();
            if !kind.starts_with("tool.") {
                continue;
            }
            *seen.entry(kind.to_owned()).or_default() += 1;
            let payload = event["payload"].as_object().unwrap();
            assert_eq!((&event["thread_id"], &event["run_id"]), (&json!(thread), &json!(run)), "{event}");
            for field in fields_of(kind) {
                assert!(payload.contains_key(*field), "{}: {field} is missing in {event}", story.name);
            }
            let call = payload["call_id"].as_str().filter(|id| !id.is_empty()).expect("a call has an id");
            if kind == "tool.requested" {
                assert!(payload["turn_id"].is_string() && event["step"].is_u64(), "{event}");
                turns.insert(call.to_owned(), (payload["tool"].clone(), event["step"].clone()));
            }
            // A late event of a call names the step that asked for it, and the same tool.
            let (tool, step) = &turns[call];
            assert_eq!(&event["step"], step, "{}: {event}", story.name);
            assert_eq!(&payload["tool"], tool, "{}: {event}", story.name);
            match kind {
                "tool.execution_succeeded" => results.push(payload["result"].clone()),
                "tool.execution_failed" => {
                    let error = &payload["error"];
                    assert!(error["code"].is_string() && error["message"].is_string(), "{event}");
                }
                "tool.denied" => {
                    let said = sent.iter().map(|event| &event["payload"]["message"]);
                    let said = said.filter(|message| message["call_id"] == call && message["role"] == "tool");
                    let texts: Vec<&str> = said.filter_map(|message| message["content"].as_str()).collect();
                    let [text] = texts.as_slice() else { panic!("{}: {texts:?}", story.name) };
                    let reason = payload["reason"].as_str().expect("a reason was given");
                    assert!(text.starts_with("Denied by") && text.contains(reason), "{text}");
                }
                "tool.cancelled" => assert!(payload["reason"].is_string(), "{event}"),
                _ => {}
            }
        }
    }
    for kind in [
        "approval_requested",
        "approved",
        "denied",
        "execution_started",
        "execution_succeeded",
        "execution_failed",
    ] {
        assert!(seen.contains_key(&format!("tool.{kind}")), "no story has {kind}: {seen:?}");
    }
    assert!(results.len() > 5 && results.iter().any(|result| !result.is_null()), "{results:?}");
}

fn payloads(name: &str, kind: &str) -> Vec<Value> {
    let sent = stories::named(name).envelopes_as_json();
    let wanted = sent.into_iter().filter(|event| event["type"] == kind);
    wanted.map(|event| event["payload"].clone()).collect()
}

#[test]
fn a_suspension_shows_everything_that_its_answer_needs() {
    let [question] = payloads("question_and_expiry", "tool.suspended").try_into().unwrap();
    let [asked] = payloads("question_and_expiry", "tool.requested")
        .into_iter()
        .take(1)
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    assert_eq!(
        question,
        json!({"call_id": "call_1", "tool": "pay_later", "kind": "question", "suspension_id": "apr_2",
            "arguments": asked["arguments"], "question": "Which account?", "schema": {"type": "string"},
            "resume_mode": "replay_tool_call"})
    );
    let [resumed] = payloads("question_and_expiry", "tool.resumed").try_into().unwrap();
    assert_eq!((&resumed["tool"], &resumed["suspension_id"]), (&json!("pay_later"), &json!("apr_2")));
    let [delegated] = payloads("child_run", "tool.suspended").try_into().unwrap();
    assert_eq!((&delegated["kind"], &delegated["child_run_id"]), (&json!("child_run"), &json!("run_child")));
    assert!(delegated["arguments"].is_object(), "{delegated}");
}

#[test]
fn a_decision_without_a_reason_says_that_none_was_given() {
    let mut story = stories::named("rejected_ends_run");
    let denied = |story: &stories::Story| {
        let sent = story.envelopes_as_json();
        let found = sent.iter().find(|event| event["type"] == "tool.denied").expect("a denial");
        found["payload"]["reason"].clone()
    };
    assert_eq!(denied(&story), "wrong account");
    for none in [None, Some(String::new())] {
        for event in &mut story.events {
            if let Fact::ToolDenied { reason, .. } = &mut event.fact {
                reason.clone_from(&none);
            }
        }
        assert_eq!(denied(&story), "no reason given");
    }
    let [approved] = payloads("one_held_call", "tool.approved").try_into().unwrap();
    assert_eq!((&approved["approval_id"], &approved["reason"]), (&json!("apr_1"), &json!("known payee")));
    let mut story = stories::named("one_held_call");
    for event in &mut story.events {
        if let Fact::ToolApproved { note, .. } = &mut event.fact {
            *note = None;
        }
    }
    let sent = story.envelopes_as_json();
    let approved = sent.iter().find(|event| event["type"] == "tool.approved").expect("an approval");
    assert_eq!(approved["payload"]["reason"], "no reason given");
}
