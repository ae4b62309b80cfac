//! The bounded memory of settled calls: distinguishes a late duplicate from an unknown id.

use machine::id::CallId;
use machine::input::Outcome;
use machine::recently_settled::{RECENT_SETTLED_MAX, RECENT_SETTLED_TTL_MS};
use machine::{Input, InputOutcome, Rejection};
use serde_json::json;

use crate::story::{Story, success, unknown};

fn late(step: u32, call: &str, outcome: Outcome) -> Input {
    Input::ToolReturned { step, call: CallId::from(call), attempt: 1, outcome }
}

/// One step with these calls, all settled; the next step has begun.
fn round(story: &mut Story, calls: &[&str]) {
    let asked: Vec<(&str, &str)> = calls.iter().map(|id| (*id, "echo")).collect();
    story.asks_for(&asked);
    for call in calls {
        story.succeeds(call);
    }
}

#[test]
fn b27_b30_a_late_duplicate_after_the_turn_closed_is_recognised_and_dropped() {
    let mut story = Story::begin();
    round(&mut story, &["A", "B"]);
    // The turn is gone from the control state; only the memory knows its calls.
    assert!(story.run.control.calls.is_empty());
    assert_eq!(story.run.control.recent.len(), 2);
    let before = story.run.clone();
    for outcome in [success(json!("again")), unknown()] {
        assert_eq!(story.ok(late(1, "A", outcome)), []);
        assert_eq!(story.last_outcome, Some(InputOutcome::Duplicate));
    }
    assert_eq!(story.run, before);
    // While the next turn is open it changes nothing there either.
    story.asks_for(&[("C", "echo")]);
    assert_eq!(story.ok(late(1, "B", success(json!("again")))), []);
    assert_eq!(story.run.control.calls.len(), 1);
}

#[test]
fn b36_the_key_is_turn_and_id_so_that_a_reused_id_is_a_call_of_its_own() {
    let mut story = Story::begin();
    round(&mut story, &["call_0"]);
    let recent = story.run.control.recent.clone();
    let id = CallId::from("call_0");
    assert!(recent.contains(1, &id, story.now));
    assert!(!recent.contains(2, &id, story.now));
    assert!(!recent.contains(1, &CallId::from("call_1"), story.now));
    // The provider uses the id again: the second turn has its own call, and its result settles it.
    let mut answered = story.answer("", &[("call_0", "echo", json!({}))]);
    answered.taken.insert(id);
    story.model_answers(answered);
    story.pass_gates();
    assert_eq!(story.run.control.calls[0].id.as_str(), "call_0~2");
    let refused = story.refused(late(2, "call_0", success(json!("unexpected"))));
    assert_eq!(refused, Rejection::UnknownCall(CallId::from("call_0")));
    story.succeeds("call_0~2");
    assert_eq!(story.run.control.step, 3);
}

#[test]
fn b33_b34_an_entry_is_known_for_five_minutes_and_not_a_millisecond_longer() {
    assert_eq!((RECENT_SETTLED_MAX, RECENT_SETTLED_TTL_MS), (128, 300_000));
    let mut story = Story::begin();
    round(&mut story, &["A"]);
    story.later(RECENT_SETTLED_TTL_MS);
    assert_eq!(story.ok(late(1, "A", success(json!("late")))), []);
    assert_eq!(story.last_outcome, Some(InputOutcome::Duplicate));
    // The hit did not make it any younger.
    story.later(1);
    assert_eq!(
        story.refused(late(1, "A", success(json!("late")))),
        Rejection::UnknownCall(CallId::from("A"))
    );
}

#[test]
fn b33_the_memory_is_bounded_and_the_oldest_goes_first() {
    let mut story = Story::begin();
    for step in 0..RECENT_SETTLED_MAX + 2 {
        round(&mut story, &[format!("call_{step}").as_str()]);
    }
    let recent = &story.run.control.recent;
    assert_eq!(recent.len(), RECENT_SETTLED_MAX);
    let contains = |step: usize| {
        let turn = u32::try_from(step + 1).unwrap();
        recent.contains(turn, &CallId::from(format!("call_{step}")), story.now)
    };
    assert_eq!([0, 1, 2, RECENT_SETTLED_MAX + 1].map(contains), [false, false, true, true]);
}

#[test]
fn b33_entries_that_are_too_old_make_room() {
    let mut story = Story::begin();
    round(&mut story, &["A", "B"]);
    story.later(RECENT_SETTLED_TTL_MS + 1);
    round(&mut story, &["C"]);
    assert_eq!(story.run.control.recent.len(), 1);
}

#[test]
fn b38_a_forgotten_duplicate_starts_nothing() {
    let mut story = Story::begin();
    round(&mut story, &["A"]);
    story.says("all done");
    let ended = story.log.len();
    story.later(RECENT_SETTLED_TTL_MS + 1);
    assert!(matches!(story.refused(late(1, "A", success(json!("late")))), Rejection::RunEnded(_)));
    assert_eq!(story.log.len(), ended);
    // Nor in a run that continues, between two turns, with no turn open.
    let mut story = Story::begin();
    round(&mut story, &["A"]);
    story.later(RECENT_SETTLED_TTL_MS + 1);
    let before = story.run.clone();
    let refused = story.refused(late(1, "A", success(json!("late"))));
    assert_eq!(refused, Rejection::UnknownCall(CallId::from("A")));
    assert_eq!(story.run, before);
    assert_eq!(story.run.control.step, 2);
}
