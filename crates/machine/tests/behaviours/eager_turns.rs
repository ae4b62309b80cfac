//! `eager`: the model is called again while calls are held, and their results follow as notes.

use machine::event::{Message, NoteBody};
use machine::id::late_message_id;
use machine::policy::{Continuation, Execution, Policy};
use machine::revision::StopCondition;
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::ResumeMode;
use machine::termination::Termination;
use machine::{Effect, Event, Fact, Input, Revision};
use serde_json::json;

use crate::props::{lines, payloads, termination};
use crate::story::{Story, names, pending, unknown};

use CallStatus::{New, Running, Suspended};

fn policy() -> Policy {
    Policy { continuation: Continuation::Eager, ..Policy::default() }
}

fn eager() -> Story {
    Story::with_policy(policy())
}

fn waits(story: &Story) -> bool {
    story.run_status() == &RunStatus::Waiting(WaitingOn::Person)
}

#[test]
fn the_model_is_called_again_once_one_call_is_done_and_none_executes() {
    let mut story = eager();
    story.asks_for(&[("A", "echo"), ("B", "echo"), ("C", "transfer")]);
    assert_eq!(names(&story.succeeds("A")), ["tool.execution_succeeded"], "B still runs");
    assert_eq!(
        names(&story.succeeds("B")),
        [
            "tool.execution_succeeded",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "step.started"
        ]
    );
    let expected =
        ["user: hello", "assistant: [A B C]", "A: ok", "B: ok", "C: Not executed yet: awaiting approval"];
    assert_eq!(lines(&story), expected);
    assert_eq!((story.run_status(), story.status("C")), (&RunStatus::Running, Suspended));
}

#[test]
fn with_every_call_held_the_model_is_not_called_again() {
    let mut story = eager();
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    assert!(waits(&story));
    assert_eq!(story.run.control.step, 1);
    story.denies("A", None);
    assert_eq!(story.run.control.step, 2, "a denied call is one that is done");
}

#[test]
fn the_placeholder_stays_and_the_late_result_is_a_note_that_wakes_the_model() {
    let mut story = eager();
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.succeeds("A");
    story.says("I wait for B");
    assert!(waits(&story), "the run does not end while a call is open");
    assert!(story.run.wanted().is_empty());
    story.approves("B");
    let events = story.succeeds("B");
    assert_eq!(names(&events), ["tool.execution_succeeded", "message.added", "step.started"]);
    assert_eq!(payloads(&events, "message.added").first().unwrap()["id"], "late_B");
    story.says("all done");
    assert_eq!(
        lines(&story),
        [
            "user: hello",
            "assistant: [A B]",
            "A: ok",
            "B: Not executed yet: awaiting approval",
            "assistant: I wait for B[]",
            "note B: Result of the earlier call B (transfer): ok",
            "assistant: all done[]"
        ]
    );
    assert_eq!(termination(&story), Termination::NaturalEnd);
}

#[test]
fn a_result_that_comes_while_the_model_is_called_is_reported_before_its_next_call() {
    let mut story = eager();
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.succeeds("A");
    story.approves("B");
    assert_eq!(names(&story.succeeds("B")), ["tool.execution_succeeded"], "the model is under way");
    let events = story.says("meanwhile");
    assert_eq!(names(&events), ["message.added", "step.ended", "message.added", "step.started"]);
    let expected = [
        "user: hello",
        "assistant: [A B]",
        "A: ok",
        "B: Not executed yet: awaiting approval",
        "assistant: meanwhile[]",
        "note B: Result of the earlier call B (transfer): ok",
    ];
    assert_eq!(lines(&story), expected);
}

#[test]
fn a_late_result_wakes_the_model_though_the_later_turn_is_held_entirely() {
    let mut story = eager();
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.succeeds("A");
    story.asks_for(&[("C", "transfer")]);
    assert!(waits(&story));
    story.approves("B");
    story.succeeds("B");
    assert_eq!(story.run.control.step, 3, "the model reads B's result, and C has a placeholder");
    assert_eq!(
        lines(&story),
        [
            "user: hello",
            "assistant: [A B]",
            "A: ok",
            "B: Not executed yet: awaiting approval",
            "assistant: [C]",
            "C: Not executed yet: awaiting approval",
            "note B: Result of the earlier call B (transfer): ok"
        ]
    );
}

#[test]
fn a_turn_with_open_calls_stays_open_beside_later_ones() {
    let mut story = eager();
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.succeeds("A");
    story.asks_for(&[("C", "echo"), ("D", "transfer")]);
    story.succeeds("C");
    assert_eq!(story.run.control.step, 3);
    let open: Vec<(&str, u32)> =
        story.run.control.calls.iter().map(|call| (call.id.as_str(), call.step)).collect();
    assert_eq!(open, [("B", 1), ("D", 2)]);
    let events = story.denies("D", None);
    assert_eq!(events.first().unwrap().step, Some(2), "a fact belongs to the step that asked for the call");
    assert_eq!(story.status("B"), Suspended);
}

#[test]
fn each_kind_of_suspension_has_its_own_placeholder() {
    let mut story = eager();
    let calls = [
        ("A", "transfer"),
        ("B", "pick_file"),
        ("C", "webhook"),
        ("D", "echo"),
        ("E", "post"),
        ("F", "researcher"),
        ("G", "echo"),
    ];
    story.asks_for(&calls);
    story.returns("D", pending(ResumeMode::ReplayToolCall));
    story.returns("E", unknown());
    story.succeeds("G");
    assert_eq!(
        lines(&story),
        [
            "user: hello",
            "assistant: [A B C D E F G]",
            "A: Not executed yet: awaiting approval",
            "B: Not finished yet: awaiting the result",
            "C: Not finished yet: awaiting the result",
            "D: Not finished yet: awaiting an answer",
            "E: Outcome unknown: awaiting a person's decision",
            "F: Not finished yet: a sub-agent is working on it",
            "G: ok"
        ]
    );
}

#[test]
fn late_results_are_reported_in_call_order_with_their_outcomes() {
    let mut story = eager();
    story.asks_for(&[("A", "echo"), ("B", "transfer"), ("C", "transfer"), ("D", "transfer")]);
    story.succeeds("A");
    story.denies("D", None);
    story.approves("C");
    story.fails("C");
    story.says("well");
    let notes: Vec<String> = lines(&story).into_iter().filter(|line| line.starts_with("note")).collect();
    assert_eq!(
        notes,
        [
            "note C: Result of the earlier call C (transfer): Error: boom",
            "note D: Result of the earlier call D (transfer): Denied by ana: no"
        ]
    );
    assert_eq!(story.run.control.step, 3);
}

#[test]
fn sequential_leaves_unreached_calls_as_not_executed_and_runs_them_later() {
    let mut story = Story::with_policy(Policy { execution: Execution::Sequential, ..policy() });
    story.asks_for(&[("A", "echo"), ("B", "transfer"), ("C", "echo")]);
    story.succeeds("A");
    assert_eq!((story.status("B"), story.status("C")), (Suspended, New));
    let expected = [
        "user: hello",
        "assistant: [A B C]",
        "A: ok",
        "B: Not executed yet: awaiting approval",
        "C: Not executed yet",
    ];
    assert_eq!(lines(&story), expected);
    story.denies("B", None);
    assert_eq!(story.status("C"), Running);
}

#[test]
fn a_stop_condition_waits_for_open_calls_and_their_results_are_recorded_before_the_end() {
    let stop = vec![StopCondition::MaxRounds { rounds: 1 }];
    let mut story = Story::begin_with(Revision { stop, policy: policy(), ..Revision::default() });
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.succeeds("A");
    assert!(waits(&story), "the model is not called again, and B is not dropped");
    story.approves("B");
    let events = story.succeeds("B");
    assert_eq!(names(&events), ["tool.execution_succeeded", "message.added", "run.ended"]);
    assert_eq!(termination(&story).done_reason(), "stopped:max_rounds");
    let read = lines(&story);
    assert_eq!(read.last().unwrap(), "note B: Result of the earlier call B (transfer): ok");
}

#[test]
fn a_result_of_an_earlier_step_is_taken_for_its_own_turn_only() {
    let mut story = eager();
    story.asks_for(&[("A", "echo"), ("B", "post"), ("C", "transfer")]);
    story.succeeds("A");
    story.returns("B", unknown());
    assert_eq!(story.run.control.step, 2);
    let late = |step| Input::ToolReturned {
        step,
        call: "B".into(),
        attempt: 1,
        outcome: crate::story::success(json!("late")),
    };
    let other = machine::Rejection::WrongStep { call: "B".into(), step: 2, current: 1 };
    assert_eq!(story.refused(late(2)), other);
    assert_eq!(names(&story.ok(late(1))), ["tool.resumed", "tool.execution_succeeded"]);
    story.says("hm");
    let read = lines(&story);
    assert_eq!(read.last().unwrap(), "note B: Result of the earlier call B (post): late");
    assert!(story.run.wanted().iter().any(|effect| matches!(effect, Effect::CallModel { step: 3, .. })));
}

#[test]
fn a_log_cannot_bring_a_late_result_of_a_call_that_is_held_or_that_has_no_placeholder() {
    let late = |story: &Story, call: &str| {
        let body = NoteBody::Late { seq: 1 };
        let note = Message::Note { id: late_message_id(&call.into()), call_id: call.into(), body };
        let seq = story.run.control.seq + 1;
        Event { seq, at: story.now, step: None, fact: Fact::MessageAdded(note) }
    };
    // A is held behind its placeholder.
    let mut held = Story::with_policy(policy());
    held.asks_for(&[("A", "transfer"), ("B", "echo")]);
    held.succeeds("B");
    // B is settled, and C executes, so that no tool message is written yet.
    let mut settled = Story::with_policy(policy());
    settled.asks_for(&[("B", "echo"), ("C", "echo")]);
    settled.succeeds("B");
    for (story, call) in [(&mut held, "A"), (&mut settled, "B")] {
        let event = late(story, call);
        let refused = story.run.apply(&event).unwrap_err().to_string();
        assert!(refused.contains(&format!("call {call} has no late result")), "{refused}");
    }
}
