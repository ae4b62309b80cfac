//! What the run's stored state still has room for, to the byte: calls that are held, answers, and calls in doubt.

use machine::control::CONTROL_BYTES_MAX;
use machine::event::{CallErrorCode, Event, Fact};
use machine::id::Principal;
use machine::input::ModelAnswered;
use machine::output::OutputFit;
use machine::{Input, Run};
use serde_json::json;

use crate::story::{Story, names, success, unknown};

/// What a held call takes, with the gate's policy as its only asker.
const HELD_BYTES: usize = 160 + 4;
/// Kept free for each call that is neither held nor settled.
const DOUBT_BYTES: usize = 60;

/// The run, with a name in its state that is so long that this many bytes are left.
fn with_room(run: &Run, bytes: usize) -> Run {
    let mut run = run.clone();
    let stored = |run: &Run| run.control.encode().unwrap().len();
    let long = |length: usize| Some(Principal::from("n".repeat(length)));
    // The length itself is stored in one byte or two; with this name it takes two.
    run.control.loosened_by = long(1_000);
    let missing = CONTROL_BYTES_MAX - bytes - stored(&run);
    run.control.loosened_by = long(1_000 + missing);
    assert_eq!(stored(&run), CONTROL_BYTES_MAX - bytes);
    run
}

#[track_caller]
fn decided(run: &Run, story: &Story, input: &Input) -> Vec<Event> {
    run.decide(input, story.now).unwrap().events
}

fn is_held(events: &[Event]) -> bool {
    match &events[0].fact {
        Fact::ApprovalRequested(_) => true,
        Fact::ExecutionFailed { error, .. } if error.code == CallErrorCode::StateFull => false,
        other => panic!("{other:?}"),
    }
}

/// A is at the gate, which holds it. The others went before it.
#[track_caller]
fn takes(story: &Story, expected_bytes: usize) {
    let gate = Input::Gated(story.gated("A"));
    assert!(is_held(&decided(&with_room(&story.run, expected_bytes), story, &gate)));
    assert!(!is_held(&decided(&with_room(&story.run, expected_bytes - 1), story, &gate)));
}

#[test]
fn a_call_is_held_only_where_the_state_has_room_for_it() {
    let mut story = Story::begin();
    let answered = story.answer("", &[("A", "transfer", json!({}))]);
    story.model_answers(answered);
    takes(&story, HELD_BYTES + DOUBT_BYTES);
}

#[test]
fn room_is_kept_for_the_doubt_of_running_calls_and_not_for_settled_or_held_ones() {
    let asked = || {
        let mut story = Story::begin();
        let answered = story.answer("", &[("B", "post", json!({})), ("A", "transfer", json!({}))]);
        story.model_answers(answered);
        story.pass_gate("B");
        story
    };
    let running = asked();
    takes(&running, HELD_BYTES + 2 * DOUBT_BYTES);
    let mut settled = asked();
    let attempt_of_b = |outcome| Input::ToolReturned { step: 1, call: "B".into(), attempt: 1, outcome };
    settled.ok(attempt_of_b(success(json!("ok"))));
    takes(&settled, HELD_BYTES + DOUBT_BYTES);
    let mut in_doubt = asked();
    in_doubt.ok(attempt_of_b(unknown()));
    takes(&in_doubt, HELD_BYTES + DOUBT_BYTES);
}

#[test]
fn an_answer_is_asked_for_again_where_the_state_has_no_room_for_the_fault_in_it() {
    let mut story = Story::begin();
    let mut judged =
        |fit| Input::ModelAnswered(ModelAnswered { output: Some(fit), ..story.answer("text", &[]) });
    let why = "\"total\" is a required property";
    let inputs =
        [(judged(OutputFit::Fits), 16), (judged(OutputFit::Unfit { why: why.into() }), 16 + why.len())];
    for (input, bytes) in inputs {
        let first = |room| names(&decided(&with_room(&story.run, room), &story, &input)).remove(0);
        assert_eq!(first(bytes), "message.added");
        assert_eq!(first(bytes - 1), "model.retrying");
    }
}

#[test]
fn calls_are_taken_in_order_as_long_as_the_state_has_room_to_hold_them() {
    let mut story = Story::begin();
    let long = "i".repeat(50);
    let answered = story.answer("", &[("A", "echo", json!({})), (&long, "transfer", json!({}))]);
    let input = Input::ModelAnswered(answered);
    // An id of the model's that is short takes as much as one that the machine makes up.
    let bytes = (160 + "echo".len() + 40) + (160 + "transfer".len() + 50);
    let taken = |room| {
        let events = decided(&with_room(&story.run, room), &story, &input);
        events.iter().filter(|event| matches!(event.fact, Fact::ToolRequested { .. })).count()
    };
    assert_eq!((taken(bytes), taken(bytes - 1)), (2, 1));
    let first = 160 + "echo".len() + 40;
    assert_eq!((taken(first), taken(first - 1)), (1, 0));
}
