//! The events of one call: an explicit family, from which alone a consumer knows the state of each call.

use std::collections::BTreeMap;

use machine::event::{Fact, Pending};
use machine::id::CallId;
use machine::suspension::ResumeMode;
use machine::{Event, Input, event_codec, fold};
use serde_json::{Value, json};

use crate::story::{Story, cancel, names, pending, success, unknown};

fn as_stored(event: &Event) -> Value {
    serde_json::from_str(&event_codec::encode(event).unwrap()).unwrap()
}

/// The family's events of one call, in order.
fn of_call(story: &Story, call: &str) -> Vec<String> {
    story
        .log
        .iter()
        .map(as_stored)
        .filter(|event| event["type"].as_str().unwrap().starts_with("tool."))
        .filter(|event| event["payload"]["call_id"] == call)
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect()
}

/// One turn in which every way of a call occurs.
fn story_of_every_ending() -> Story {
    let mut story = Story::begin();
    story.asks_for(&[
        ("auto", "echo"),
        ("throws", "echo"),
        ("approved", "transfer"),
        ("denied", "transfer"),
        ("asks", "echo"),
        ("blocked", "forbidden"),
        ("client", "pick_file"),
        ("doubted", "post"),
        ("missing", "nothing_of_this_name"),
    ]);
    story.returns("auto", success(json!(null)));
    story.fails("throws");
    story.approves("approved");
    story.denies("denied", None);
    story.returns("asks", pending(ResumeMode::ReplayToolCall));
    story.succeeds("approved");
    story.answers("client", json!("/a"));
    story.answers("asks", json!("b"));
    story.succeeds("asks");
    story.returns("doubted", unknown());
    story.decides("doubted", cancel());
    assert_eq!(story.run.control.step, 2);
    story
}

#[test]
fn b1_b3_an_automatic_call_is_requested_started_and_settled() {
    let story = story_of_every_ending();
    assert_eq!(
        of_call(&story, "auto"),
        ["tool.requested", "tool.execution_started", "tool.execution_succeeded"]
    );
    assert_eq!(
        of_call(&story, "throws"),
        ["tool.requested", "tool.execution_started", "tool.execution_failed"]
    );
}

#[test]
fn b1_a_call_is_recorded_as_done_as_soon_as_it_is() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "echo")]);
    assert_eq!(names(&story.succeeds("B")), ["tool.execution_succeeded"]);
}

#[test]
fn b5_an_approved_call_is_taken_from_the_list_and_runs_like_any_other() {
    let mut story = Story::begin();
    story.asks_for(&[("C", "transfer")]);
    assert_eq!(story.run.control.pending().len(), 1);
    let decision = story.decision("C", crate::story::resume());
    story.ok(Input::Decide(decision));
    assert_eq!(story.run.control.pending(), []);
    assert_eq!(
        of_call(&story_of_every_ending(), "approved"),
        [
            "tool.requested",
            "tool.approval_requested",
            "tool.approved",
            "tool.execution_started",
            "tool.execution_succeeded"
        ]
    );
}

#[test]
fn b6_b8_a_denied_call_is_over_without_ever_starting() {
    let story = story_of_every_ending();
    assert_eq!(of_call(&story, "denied"), ["tool.requested", "tool.approval_requested", "tool.denied"]);
    assert_eq!(story.tool_text("denied"), "Denied by ana: no");
}

#[test]
fn b15_b18_exactly_one_end_per_call_and_a_start_only_where_the_body_runs() {
    let story = story_of_every_ending();
    let ends = ["tool.execution_succeeded", "tool.execution_failed", "tool.cancelled", "tool.denied"];
    for call in ["auto", "throws", "approved", "denied", "asks", "blocked", "client", "doubted", "missing"] {
        let events = of_call(&story, call);
        assert_eq!(events[0], "tool.requested", "{call}");
        let end: Vec<usize> = (0..events.len()).filter(|at| ends.contains(&events[*at].as_str())).collect();
        assert_eq!(end, [events.len() - 1], "{call}: one end, and nothing after it");
        let starts = events.iter().filter(|name| *name == "tool.execution_started").count();
        let wanted = match call {
            "asks" => 2,
            "auto" | "throws" | "approved" | "doubted" => 1,
            _ => 0,
        };
        assert_eq!(starts, wanted, "{call}");
    }
    assert_eq!(of_call(&story, "missing"), ["tool.requested", "tool.execution_failed"]);
    assert_eq!(
        of_call(&story, "client"),
        ["tool.requested", "tool.suspended", "tool.resumed", "tool.execution_succeeded"]
    );
    assert_eq!(
        of_call(&story, "doubted"),
        ["tool.requested", "tool.execution_started", "tool.suspended", "tool.cancelled"]
    );
}

/// The error for a stored event of an unknown type lists the known types.
fn known_types() -> Vec<String> {
    let strange =
        json!({"v": 1, "seq": 1, "ts": 1, "step": null, "type": "tool.auto_executing", "payload": {}});
    let refused = event_codec::decode(&strange.to_string()).unwrap_err().to_string();
    let (_, listed) = refused.split_once("expected one of").expect("the types are listed");
    listed.split('`').filter(|word| word.contains('.')).map(str::to_owned).collect()
}

#[test]
fn b9_b10_b11_the_family_is_exactly_this_and_neither_logs_nor_legacy_events_are_in_it() {
    let family: Vec<String> = known_types().into_iter().filter(|name| name.starts_with("tool.")).collect();
    assert_eq!(
        family,
        [
            "tool.requested",
            "tool.approval_requested",
            "tool.approval_voided",
            "tool.approved",
            "tool.denied",
            "tool.suspended",
            "tool.resumed",
            "tool.execution_started",
            "tool.execution_succeeded",
            "tool.execution_failed",
            "tool.cancelled"
        ]
    );
    for diagnostic in ["tool.log", "tool.progress", "tool.auto_executing"] {
        let line = json!({"v": 1, "seq": 1, "ts": 1, "step": 1, "type": diagnostic,
                          "payload": {"call_id": "A", "text": "done"}});
        assert!(event_codec::decode(&line.to_string()).is_err(), "{diagnostic} would change a status");
    }
}

#[test]
fn b13_every_event_names_its_call_and_its_turn_and_carries_what_it_is_about() {
    let story = story_of_every_ending();
    let has = |event: &Value, field: &str| !event["payload"][field].is_null();
    for event in story.log.iter().map(as_stored) {
        let Some(kind) = event["type"].as_str().filter(|kind| kind.starts_with("tool.")) else { continue };
        assert!(event["payload"]["call_id"].as_str().is_some_and(|id| !id.is_empty()), "{event}");
        assert_eq!(event["step"], 1, "{event}");
        let extras: &[&str] = match kind {
            "tool.requested" => &["tool", "arguments"],
            "tool.approval_requested" => &["tool", "arguments", "suspension_id"],
            "tool.approved" => &["by", "approval_id"],
            "tool.denied" => &["by", "reason", "approval_id"],
            "tool.execution_started" => &["tool", "attempt"],
            "tool.execution_failed" => &["error"],
            "tool.resumed" => &["mode", "by"],
            "tool.suspended" => &["tool", "suspension_id", "held"],
            "tool.cancelled" => &["reason", "by"],
            "tool.execution_succeeded" => &["by"],
            other => panic!("{other} is new: what does it carry?"),
        };
        for field in extras {
            assert!(has(&event, field), "{field} is missing in {event}");
        }
    }
    // A result may be null, and is there.
    let auto =
        story.log.iter().map(as_stored).find(|event| {
            event["type"] == "tool.execution_succeeded" && event["payload"]["call_id"] == "auto"
        });
    assert_eq!(auto.unwrap()["payload"].get("result"), Some(&Value::Null));
}

#[test]
fn b14_a_denial_without_a_reason_has_a_text_of_its_own() {
    let mut story = Story::begin();
    let answered = story.answer("", &[("", "transfer", json!({})), ("", "transfer", json!({}))]);
    story.model_answers(answered);
    story.pass_gates();
    let ids: Vec<CallId> = story.run.control.calls.iter().map(|call| call.id.clone()).collect();
    assert_ne!(ids[0], ids[1], "a call without an id gets one");
    story.decides(ids[0].as_str(), cancel());
    story.denies(ids[1].as_str(), None);
    for event in story
        .log
        .iter()
        .map(as_stored)
        .filter(|event| event["type"].as_str().is_some_and(|kind| kind.starts_with("tool.")))
    {
        assert!(event["payload"]["call_id"].as_str().is_some_and(|id| !id.is_empty()), "{event}");
        let tool = &event["payload"]["tool"];
        assert!(tool.is_null() || tool == "transfer", "{event}");
    }
    // Who denied it is always said; why, where it was given.
    let denials: Vec<Value> =
        story.log.iter().map(as_stored).filter(|event| event["type"] == "tool.denied").collect();
    assert_eq!(denials.len(), 2);
    assert!(denials.iter().all(|event| event["payload"]["by"] == "ana"));
    assert_eq!(denials[1]["payload"]["reason"], "no");
    assert_eq!(story.tool_text(ids[0].as_str()), "Denied by ana");
    assert_eq!(story.tool_text(ids[1].as_str()), "Denied by ana: no");
}

/// A consumer that reads nothing but the family: it adds a call when it is held and takes it out when it
/// continues or ends.
fn watch(log: &[Event]) -> BTreeMap<CallId, String> {
    let mut held = BTreeMap::new();
    for event in log {
        match &event.fact {
            Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) => {
                held.insert(opened.call_id.clone(), opened.suspension_id.to_string());
            }
            Fact::ApprovalVoided { call_id, .. }
            | Fact::ToolApproved { call_id, .. }
            | Fact::ToolDenied { call_id, .. }
            | Fact::ToolResumed { call_id, .. }
            | Fact::ToolCancelled { call_id, .. } => {
                held.remove(call_id);
            }
            _ => {}
        }
    }
    held
}

#[test]
fn b12_b21_held_calls_can_be_derived_from_the_events_alone() {
    let story = story_of_every_ending();
    let mut most = 0;
    for end in 1..=story.log.len() {
        let (log, _) = story.log.split_at(end);
        let listed: BTreeMap<CallId, String> = fold(log)
            .unwrap()
            .pending()
            .into_iter()
            .map(|Pending { call_id, suspension_id, .. }| (call_id, suspension_id.to_string()))
            .collect();
        assert_eq!(watch(log), listed, "after event {end}");
        most = most.max(listed.len());
    }
    // Several at once: one being decided does not clear the others.
    assert_eq!(most, 3);
}

#[test]
fn b11_progress_of_a_tool_has_no_door_into_the_run() {
    // All that can be said to a run is an input; none of them is a line of a log.
    let line = json!({"tool_log": {"call": "A", "text": "succeeded"}});
    assert!(serde_json::from_value::<Input>(line).is_err());
    let returned = json!({"tool_returned": {"step": 1, "call": "A", "attempt": 1,
                                            "outcome": {"answered": {"error": {"message": "no"}}}}});
    assert!(serde_json::from_value::<Input>(returned).is_ok());
}

#[test]
fn b16_a_malformed_decision_is_dropped_and_the_next_good_one_counts() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let malformed = story.decision("A", crate::story::resume_with(json!({"yes": "please"})));
    let refused = story.refused(Input::Decide(malformed));
    let why = "an approval needs a plain yes: leave `result` out or set it to true".into();
    assert_eq!(refused, machine::Rejection::Invalid { call: CallId::from("A"), why });
    assert_eq!(names(&story.approves("A"))[0], "tool.approved");
}
