//! Call ids: the model's own where it is usable and new in the thread, another one otherwise.

use std::collections::BTreeSet;

use machine::Input;
use machine::event::RunRequest;
use machine::id::{CallId, RunId, late_message_id, plugin_note_id, tool_message_id};
use machine::revision::{CALL_ID_BYTES_MAX, Revision};
use machine::transcript::ModelMessage;
use serde_json::json;

use crate::story::{Story, order};

/// The ids that calls with these asked ids get in step 1 of a fresh run.
fn assigned(asked: &[&str], taken: &[&str]) -> Vec<String> {
    let story = declared(Story::begin(), asked, taken);
    story.run.control.calls.iter().map(|call| call.id.to_string()).collect()
}

fn declared(mut story: Story, asked: &[&str], taken: &[&str]) -> Story {
    let calls: Vec<_> = asked.iter().map(|id| (*id, "echo", json!({"of": id}))).collect();
    let mut answered = story.answer("", &calls);
    answered.taken = taken.iter().map(|id| CallId::from(*id)).collect();
    story.model_answers(answered);
    story
}

#[test]
fn b37_the_same_id_twice_in_one_answer_becomes_two_calls() {
    assert_eq!(assigned(&["x", "x", "x"], &[]), ["x", "x~2", "x~3"]);
    // An id that looks like an assigned one is stepped over.
    assert_eq!(assigned(&["x", "x~2", "x"], &[]), ["x", "x~2", "x~3"]);
    assert_eq!(assigned(&["x~2", "x", "x"], &[]), ["x~2", "x", "x~3"]);
}

#[test]
fn b37_both_calls_settle_and_the_turn_completes() {
    let mut story = declared(Story::begin(), &["x", "x"], &[]);
    story.pass_gates();
    story.succeeds("x");
    assert_eq!(story.run.control.step, 1);
    story.fails("x~2");
    assert_eq!(story.run.control.step, 2);
    let ids: Vec<String> = story
        .transcript()
        .iter()
        .filter_map(|message| match message {
            ModelMessage::Tool { call, text } => Some(format!("{call} {text}")),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["x ok", "x~2 Error: boom"]);
}

#[test]
fn b36_an_id_that_the_thread_has_used_gets_the_next_free_number() {
    assert_eq!(assigned(&["x"], &["x"]), ["x~2"]);
    assert_eq!(assigned(&["x"], &["x", "x~2", "x~3"]), ["x~4"]);
    assert_eq!(assigned(&["x"], &["y"]), ["x"]);
}

#[test]
fn b14_an_empty_or_overlong_id_is_replaced() {
    let ids = assigned(&["", ""], &[]);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 2);
    assert!(ids.iter().all(|id| !id.is_empty()));
    let fits = "i".repeat(CALL_ID_BYTES_MAX);
    assert_eq!(assigned(&[&fits], &[]), [fits.as_str()]);
    let too_long = format!("{fits}i");
    let [replaced] = &assigned(&[&too_long], &[])[..] else { panic!("one call") };
    assert!(!replaced.is_empty() && replaced.len() <= CALL_ID_BYTES_MAX);
}

/// The store shows a run the ids of its thread that equal an asked id or extend it with `~` and a number; an id
/// that is made up must be new in the thread without that help.
#[test]
fn b14_b36_ids_generated_in_two_runs_of_a_thread_differ() {
    let in_run = |run: &str| {
        let order = RunRequest { run_id: RunId::from(run), ..order(Revision::default().policy) };
        let mut story = Story::queued_with(Revision::default(), order);
        story.ok(Input::Start { after: None });
        let story = declared(story, &[""], &[]);
        story.run.control.calls[0].id.clone()
    };
    assert_ne!(in_run("run_1"), in_run("run_2"));
}

#[test]
fn b36_an_open_call_of_an_earlier_turn_keeps_its_id() {
    use machine::policy::{Continuation, Policy};
    let mut story = Story::with_policy(Policy { continuation: Continuation::Eager, ..Policy::default() });
    story.asks_for(&[("x", "transfer"), ("y", "echo")]);
    story.succeeds("y");
    // Also without the store's help: the call is in the control state.
    let story = declared(story, &["x"], &[]);
    let ids: Vec<&str> = story.run.control.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["x", "x~2"]);
}

#[test]
fn an_id_with_the_runs_own_name_in_front_is_replaced_so_that_no_two_messages_have_one_id() {
    // The tool message of a call `run_1_2` would have the id of the assistant message of step 2.
    let ids = assigned(&["run_1_2", "run_1", "run_2_1", "my_run_1_2"], &[]);
    assert!(ids[..2].iter().all(|id| id.starts_with("call_")), "{ids:?}");
    assert_eq!(ids[2..], ["run_2_1", "my_run_1_2"]);
}

#[test]
fn ids_of_late_results_and_notes_are_no_ids_of_tool_messages() {
    let (call, other) = (CallId::from("a"), CallId::from("a_late"));
    assert_eq!(late_message_id(&call).as_str(), "late_a");
    assert_eq!(plugin_note_id(&call, 12).as_str(), "note_12_a");
    assert_eq!(tool_message_id(&other).as_str(), "msg_a_late");
    // The first underscore after the number ends it, whatever the id of the call is.
    assert_ne!(plugin_note_id(&CallId::from("2_a"), 1), plugin_note_id(&call, 12));
}
