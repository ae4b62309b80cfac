//! Answers of the model that are empty, or ask for more calls than a run can take.

use machine::event::{Message, Usage};
use machine::input::{ModelFailure, RequestedCall};
use machine::phase::{Action, Phase};
use machine::policy::{Continuation, Policy};
use machine::revision::{CALLS_OPEN_MAX, Limits, Revision};
use machine::status::RunStatus;
use machine::termination::Termination;
use machine::transcript::ModelMessage;
use machine::{Event, Fact, Input};
use serde_json::json;

use crate::hooks::{hooked, one};
use crate::story::{Story, names, success, valid};

fn answers_empty(story: &mut Story) -> Vec<String> {
    let answered = story.answer("", &[]);
    names(&story.ok(Input::ModelAnswered(answered)))
}

fn ended(story: &Story) -> Option<&Termination> {
    story.run.control.ended()
}

const NATURAL_END: [&str; 3] = ["message.added", "step.ended", "run.ended"];

#[test]
fn an_empty_answer_is_tried_again_once_on_the_first_step_and_then_ends_the_run() {
    let mut story = Story::begin();
    assert_eq!(answers_empty(&mut story), ["model.retrying"]);
    story.later(500);
    assert_eq!(answers_empty(&mut story), NATURAL_END);
    assert_eq!(ended(&story), Some(&Termination::NaturalEnd));
    let Some(Fact::MessageAdded(Message::Assistant { text, calls, .. })) =
        story.log.iter().rev().nth(2).map(|event| &event.fact)
    else {
        panic!("{:?}", story.log)
    };
    assert_eq!((text.as_str(), calls.len()), ("", 0));
    // Providers refuse an empty assistant message: the next run's model reads none.
    assert!(matches!(story.transcript().as_slice(), [ModelMessage::User { .. }]));
}

#[test]
fn words_after_an_empty_answer_are_the_answer() {
    let mut story = Story::begin();
    assert_eq!(answers_empty(&mut story), ["model.retrying"]);
    let answered = story.answer("done", &[]);
    assert_eq!(names(&story.ok(Input::ModelAnswered(answered))), NATURAL_END);
}

#[test]
fn an_empty_answer_on_a_later_step_ends_the_run_at_once() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.returns("A", success(json!(1)));
    assert_eq!(story.run.control.step, 2);
    assert_eq!(answers_empty(&mut story), NATURAL_END);
    assert_eq!(ended(&story), Some(&Termination::NaturalEnd));
}

#[test]
fn a_failed_call_of_the_model_does_not_use_up_the_one_retry_of_an_empty_answer() {
    let mut story = Story::begin();
    let failure = ModelFailure { message: "503".into(), retryable: true, retry_after_ms: None };
    story.ok(Input::ModelFailed { step: 1, attempt: 1, failure });
    assert_eq!(answers_empty(&mut story), ["model.retrying"]);
    assert_eq!(answers_empty(&mut story), NATURAL_END);
}

#[test]
fn an_empty_answer_on_the_last_permitted_try_ends_the_run_and_does_not_fail_it() {
    let limits = Limits { model_try_count_max: 1, ..Limits::default() };
    let mut story = Story::begin_with(Revision { limits, ..Revision::default() });
    assert_eq!(answers_empty(&mut story), NATURAL_END);
}

#[test]
fn an_empty_answer_beside_open_calls_waits_for_them() {
    let mut story = Story::with_policy(Policy { continuation: Continuation::Eager, ..Policy::default() });
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.returns("A", success(json!(1)));
    assert_eq!(story.run.control.step, 2);
    assert_eq!(answers_empty(&mut story), ["message.added", "step.ended", "run.waiting"]);
    assert_eq!(ended(&story), None);
}

fn asks_for(story: &mut Story, count: usize) -> Vec<Event> {
    let mut answered = story.answer("", &[]);
    answered.calls = (0..count)
        .map(|n| RequestedCall {
            id: format!("c{n}"),
            tool: "echo".into(),
            arguments: valid(json!({"n": n})),
        })
        .collect();
    story.model_answers(answered)
}

fn dropped(events: &[Event]) -> Option<(u32, u32)> {
    events.iter().find_map(|event| {
        let Fact::MessageAdded(Message::CallsDropped { taken, dropped, .. }) = &event.fact else {
            return None;
        };
        Some((*taken, *dropped))
    })
}

#[test]
fn of_too_many_calls_the_first_that_fit_are_taken_and_a_note_counts_the_rest() {
    let mut story = Story::begin();
    let events = asks_for(&mut story, CALLS_OPEN_MAX + 6);
    assert_eq!(dropped(&events), Some((64, 6)));
    let taken: Vec<&str> = story.run.control.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(taken, (0..CALLS_OPEN_MAX).map(|n| format!("c{n}")).collect::<Vec<_>>());
    story.pass_gates();
    for n in 0..CALLS_OPEN_MAX {
        story.returns(&format!("c{n}"), success(json!(n)));
    }
    // The model reads one result for each call that it finds in its own message, then the note.
    let input = story.transcript();
    let [ModelMessage::User { .. }, ModelMessage::Assistant { calls, .. }, results @ .., last] =
        input.as_slice()
    else {
        panic!("{input:?}")
    };
    assert_eq!((calls.len(), results.len()), (CALLS_OPEN_MAX, CALLS_OPEN_MAX));
    for (call, result) in calls.iter().zip(results) {
        assert!(matches!(result, ModelMessage::Tool { call: of, .. } if *of == call.id), "{result:?}");
    }
    let text = "[Only the first 64 of the 70 calls in your last answer were accepted. The other 6 did not run, because \
                too many calls would have been open at the same time. Ask again for those that are still needed.]";
    assert_eq!(last, &ModelMessage::Notice { text: text.into() });
    assert_eq!(story.run.control.step, 2);
}

#[test]
fn more_calls_than_an_index_can_name_are_dropped_like_any_others() {
    let mut story = Story::begin();
    assert_eq!(dropped(&asks_for(&mut story, 70_000)), Some((64, 69_936)));
}

#[test]
fn exactly_as_many_calls_as_fit_leave_no_note() {
    let mut story = Story::begin();
    assert_eq!(dropped(&asks_for(&mut story, CALLS_OPEN_MAX)), None);
    assert_eq!(story.run.control.calls.len(), CALLS_OPEN_MAX);
}

#[test]
fn calls_that_a_plugin_drops_take_no_room_and_are_not_in_the_note() {
    let mut story = Story::begin_with(hooked(&[Phase::AfterInference]));
    let mut answered = story.answer("", &[]);
    answered.calls = (0..CALLS_OPEN_MAX + 2)
        .map(|n| RequestedCall { id: format!("c{n}"), tool: "echo".into(), arguments: valid(json!({})) })
        .collect();
    answered.hooks = one("guard", Action::DropCall { index: 0 });
    let events = story.ok(Input::ModelAnswered(answered));
    assert_eq!(dropped(&events), Some((64, 1)));
}

#[test]
fn calls_that_are_still_open_take_room_and_the_note_is_read_with_their_results() {
    let mut story = Story::with_policy(Policy { continuation: Continuation::Eager, ..Policy::default() });
    let held: Vec<(String, &str)> = (0..CALLS_OPEN_MAX - 1).map(|n| (format!("h{n}"), "transfer")).collect();
    let mut calls: Vec<(&str, &str)> = held.iter().map(|(id, tool)| (id.as_str(), *tool)).collect();
    calls.push(("A", "echo"));
    story.asks_for(&calls);
    story.returns("A", success(json!(1)));
    assert_eq!(dropped(&asks_for(&mut story, 3)), Some((1, 2)));
    story.pass_gates();
    story.returns("c0", success(json!(0)));
    assert_eq!(story.run.control.step, 3);
    assert!(matches!(story.transcript().last(), Some(ModelMessage::Notice { .. })));
    assert_eq!(story.run.control.status, RunStatus::Running);
}

#[test]
fn usage_of_an_answer_with_dropped_calls_counts() {
    let mut story = Story::begin();
    asks_for(&mut story, CALLS_OPEN_MAX + 1);
    assert_eq!(story.run.control.usage, Usage { input_tokens: 10, output_tokens: 5 });
}
