//! The calls of a run and its state paths, folded from its log, against what the machine folds from it.

use std::collections::BTreeMap;

use engine::store::CommittedEvent;
use engine::store::StateView;
use holdpoint_http::wire::call::{Call, call_fold};
use holdpoint_http::wire::enums::CallStatus;
use holdpoint_http::wire::state::State;
use machine::phase::Scope;
use serde_json::{Value, json};

use crate::stories::{self, Story};

fn calls_after(story: &Story, count: usize) -> Vec<Call> {
    let mut folded = call_fold();
    story.committed()[..count].iter().for_each(|committed: &CommittedEvent| folded.add(committed));
    folded.finish().calls
}

#[test]
fn after_every_event_of_every_story_the_calls_are_what_the_machine_says_they_are() {
    let mut compared = 0;
    for story in stories::all() {
        for count in 1..=story.events.len() {
            let shown: BTreeMap<String, Call> =
                calls_after(&story, count).into_iter().map(|call| (call.call_id.clone(), call)).collect();
            for call in &story.control(count).calls {
                let shown = &shown[call.id.as_str()];
                let place = format!("{}, event {count}, call {}", story.name, call.id);
                assert_eq!(shown.status, CallStatus::from(call.status()), "{place}");
                assert_eq!(shown.attempts, call.attempts, "{place}");
                let held = call.suspension().map(|open| open.id.as_str());
                assert_eq!(shown.suspension.as_ref().map(|open| open.id.as_str()), held, "{place}");
                compared += 1;
            }
        }
    }
    assert!(compared > 200, "only {compared} calls were compared");
}

#[test]
fn a_held_call_shows_what_holds_it_and_a_settled_one_what_came_of_it() {
    let story = stories::named("one_held_call");
    let waiting = serde_json::to_value(&calls_after(&story, 8)[0]).unwrap();
    assert_eq!(
        waiting,
        json!({
            "call_id": "call_1", "tool": "transfer", "step": 1, "status": "suspended",
            "arguments": {"to": "bob", "amount": 5}, "attempts": 0,
            "suspension": {
                "id": "apr_1", "kind": "approval", "resume_mode": "replay_tool_call", "approval_id": "apr_1",
                "created_at": "2026-01-01T00:00:00.915Z", "expires_at": "2026-01-02T00:00:00.915Z",
            },
        })
    );
    let ended = serde_json::to_value(&calls_after(&story, story.events.len())[0]).unwrap();
    assert_eq!((&ended["status"], &ended["attempts"]), (&json!("succeeded"), &json!(1)));
    assert!(ended.get("suspension").is_none() && ended.get("result").is_some(), "{ended}");
}

#[test]
fn a_denied_call_says_by_whom_and_why() {
    let story = stories::named("rejected_ends_run");
    let calls = calls_after(&story, story.events.len());
    let denied: Vec<Value> = calls
        .iter()
        .filter(|call| call.denied.is_some())
        .map(|call| serde_json::to_value(call).unwrap())
        .collect();
    assert_eq!(denied.len(), 1, "{calls:?}");
    assert_eq!(denied[0]["status"], "cancelled");
    assert!(
        denied[0]["denied"]["by"].is_string() && denied[0]["denied"]["reason"].is_string(),
        "{}",
        denied[0]
    );
}

fn state_after(story: &Story, count: usize, kept: &[StateView]) -> Value {
    let mut folded = call_fold();
    story.committed()[..count].iter().for_each(|committed| folded.add(committed));
    serde_json::to_value(State::new(&story.view(count), folded, kept)).unwrap()
}

#[test]
fn a73_the_state_paths_show_a_decision_from_when_it_is_recorded_until_the_call_continues() {
    let story = stories::named("one_held_call");
    let waiting = state_after(&story, 8, &[]);
    assert_eq!(
        waiting["__run"],
        json!({
            "id": "run_1", "status": "waiting", "done_reason": null, "updated_at": "2026-01-01T00:00:00.915Z",
        })
    );
    assert_eq!(waiting["__suspended_tool_calls"]["call_1"]["suspension"]["id"], "apr_1");
    assert_eq!(waiting["__resume_decisions"], json!({}));
    let approved = state_after(&story, 9, &[]);
    assert_eq!(approved["__tool_call_states"]["call_1"]["status"], "resuming");
    assert_eq!(approved["__suspended_tool_calls"], json!({}));
    assert_eq!(approved["__resume_decisions"]["call_1"]["decision_id"], "dec_1");
    assert_eq!(approved["__resume_decisions"]["call_1"]["by"], "ana");
    let started = state_after(&story, 11, &[]);
    assert_eq!(started["__resume_decisions"], json!({}));
    let ended = state_after(&story, story.events.len(), &[]);
    assert_eq!(
        (&ended["__run"]["status"], &ended["__run"]["done_reason"]),
        (&json!("done"), &json!("natural"))
    );
}

#[test]
fn a_patch_of_plugin_state_names_the_place_where_the_state_shows_it() {
    let row = |scope, key: &str| StateView {
        plugin: "memory".into(),
        scope,
        key: key.into(),
        value: Some(std::sync::Arc::new(json!(1))),
    };
    let story = stories::named("plain_answer");
    let state =
        state_after(&story, story.events.len(), &[row(Scope::Run, "seen"), row(Scope::Thread, "seen")]);
    assert_eq!((&state["memory.seen"], &state["thread:memory.seen"]), (&json!(1), &json!(1)));
    for story in stories::all() {
        for envelope in
            story.envelopes_as_json().iter().filter(|envelope| envelope["type"] == "state.changed")
        {
            let patch = &envelope["payload"]["patch"][0];
            let path = patch["path"].as_str().unwrap();
            assert_eq!(patch["op"], "add");
            // One step below the document: `add` needs no parent that might not be there.
            assert!(path.starts_with('/') && !path[1..].contains('/'), "{path}");
        }
    }
}
