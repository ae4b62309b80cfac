//! How the states of the calls and the state of the run go together.

use machine::event::{Event, Fact, Message, ToolBody};
use machine::id::{CallId, MessageId, RunId};
use machine::phase::Action;
use machine::policy::{Continuation, Policy};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::termination::{Cancelled, ErrorCode, Termination};
use machine::transcript::{ModelMessage, Transcript};
use machine::{Effect, delivery};
use serde_json::json;

use crate::order_of_phases::by;
use crate::run_status::{fails_permanently, interrupts};
use crate::story::{Story, names, order};

use CallStatus::{New, Resuming, Running, Succeeded, Suspended};

const WAITING: RunStatus = RunStatus::Waiting(WaitingOn::Person);

pub(crate) fn eager() -> Policy {
    Policy { continuation: Continuation::Eager, ..Policy::default() }
}

fn model_is_wanted(story: &Story) -> bool {
    story.run.wanted().iter().any(|effect| matches!(effect, Effect::CallModel { .. }))
}

/// Who is held, in call order.
fn held(story: &Story) -> Vec<String> {
    story.run.control.pending().iter().map(|open| open.call_id.as_str().to_owned()).collect()
}

#[test]
fn a1_run_and_call_have_states_of_their_own() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    let both = |story: &Story| (story.status("A"), story.run_status().clone());
    assert_eq!(both(&story), (Suspended, RunStatus::Running));
    story.succeeds("B");
    assert_eq!(both(&story), (Suspended, WAITING), "the run moved, the call did not");
    story.approves("A");
    assert_eq!(both(&story), (Running, RunStatus::Running));
    story.fails("A");
    assert_eq!(story.run_status(), &RunStatus::Running, "a call that ended badly ends no run");
}

#[test]
fn a3_a31_run_waits_when_every_outcome_of_the_round_is_suspended() {
    let mut story = Story::begin();
    let events = story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    assert_eq!(names(&events).last().unwrap(), "run.waiting");
    assert_eq!((story.status("A"), story.status("B"), story.run_status()), (Suspended, Suspended, &WAITING));
    assert_eq!(story.run.wanted().len(), 0, "the loop has returned");
    let Fact::RunWaiting { on, pending } = &story.log.last().unwrap().fact else { panic!() };
    assert_eq!((*on, pending), (WaitingOn::Person, &story.run.control.pending()));
    assert_eq!(held(&story), ["A", "B"]);
}

#[test]
fn a3_a31_even_under_eager_nothing_continues_while_all_are_held() {
    let mut story = Story::with_policy(eager());
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    assert_eq!((story.run_status(), story.run.control.step), (&WAITING, 1));
    assert_eq!(story.run.wanted().len(), 0);
}

#[test]
fn a29_each_call_changes_state_independently_of_its_siblings() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "post"), ("C", "echo"), ("D", "nowhere")]);
    let all = |story: &Story| ["A", "B", "C", "D"].map(|id| story.status(id));
    assert_eq!(all(&story), [Suspended, Running, Running, CallStatus::Failed]);
    story.succeeds("C");
    assert_eq!(all(&story), [Suspended, Running, Succeeded, CallStatus::Failed]);
    story.approves("A");
    assert_eq!(all(&story), [Running, Running, Succeeded, CallStatus::Failed]);
    story.fails("A");
    assert_eq!(all(&story), [CallStatus::Failed, Running, Succeeded, CallStatus::Failed]);
}

#[test]
fn a30_run_is_judged_when_nothing_of_the_round_executes_any_more_and_then_once() {
    let mut story = Story::begin();
    let mut events = story.asks_for(&[("A", "transfer"), ("B", "echo"), ("C", "echo"), ("D", "transfer")]);
    events.extend(story.succeeds("B"));
    assert!(!names(&events).contains(&"run.waiting".to_owned()), "C still runs");
    assert_eq!(story.run_status(), &RunStatus::Running);
    assert_eq!(names(&story.succeeds("C")), ["tool.execution_succeeded", "run.waiting"]);
    assert_eq!(story.names().iter().filter(|name| *name == "run.waiting").count(), 1);
}

#[test]
fn a32_under_eager_one_settled_call_is_enough_to_call_the_model_again() {
    let mut story = Story::with_policy(eager());
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    let events = story.succeeds("B");
    assert_eq!(
        names(&events),
        ["tool.execution_succeeded", "message.added", "message.added", "step.ended", "step.started"]
    );
    assert_eq!((story.run_status(), story.status("A")), (&RunStatus::Running, Suspended));
    assert!(model_is_wanted(&story));
    assert!(!story.names().contains(&"run.waiting".to_owned()));
}

#[test]
fn a32_by_default_the_model_waits_for_every_call() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    story.succeeds("B");
    assert_eq!((story.run_status(), story.run.control.step), (&WAITING, 1));
    assert!(!model_is_wanted(&story));
}

#[test]
fn a33_decision_takes_its_call_over_resuming_to_its_end_and_the_run_back_to_running() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let decision = story.decision("A", crate::story::resume());
    let events = story.ok(machine::Input::Decide(decision));
    assert_eq!(names(&events), ["tool.approved", "run.resumed"]);
    assert_eq!((story.status("A"), story.run_status()), (Resuming, &RunStatus::Running));
    assert_eq!(names(&story.pass_gates()), ["tool.execution_started"]);
    assert_eq!(story.status("A"), Running);
    let events = story.succeeds("A");
    assert_eq!(names(&events), ["tool.execution_succeeded", "message.added", "step.ended", "step.started"]);
    assert_eq!(story.tool_text("A"), "ok");
}

/// [ok, held, ok] under `eager`, and the model was called a second time.
fn mixed_round() -> Story {
    let mut story = Story::with_policy(eager());
    story.asks_for(&[("A", "echo"), ("B", "transfer"), ("C", "echo")]);
    story.succeeds("A");
    assert!(!model_is_wanted(&story));
    story.succeeds("C");
    assert!(model_is_wanted(&story));
    story
}

#[test]
fn a34_mixed_round_calls_the_model_again_and_then_waits_for_the_one_that_is_held() {
    let mut story = mixed_round();
    let events = story.says("meanwhile");
    assert_eq!(names(&events), ["message.added", "step.ended", "run.waiting"]);
    assert_eq!((story.run_status(), held(&story)), (&WAITING, vec!["B".to_owned()]));
    let calls: Vec<&str> = story.run.control.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(calls, ["B"], "a settled call whose result the model has read has left the state");
}

/// The roles and texts that the model would read, without ids.
fn read(story: &Story) -> Vec<String> {
    story
        .transcript()
        .iter()
        .map(|message| match message {
            ModelMessage::User { content, .. } => format!("user {content}"),
            ModelMessage::Assistant { text, calls, .. } => {
                let ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
                format!("assistant {text:?} {}", ids.join(" "))
            }
            ModelMessage::Tool { call, text } => format!("tool {call}: {text}"),
            ModelMessage::Note { call, text, .. } => format!("note {call}: {text}"),
            ModelMessage::Notice { text } => format!("notice: {text}"),
        })
        .collect()
}

#[test]
fn a35_held_call_has_a_placeholder_that_stays_and_its_result_follows_as_a_note() {
    let mut story = mixed_round();
    let paired = [
        "user \"hello\"",
        "assistant \"\" A B C",
        "tool A: ok",
        "tool B: Not executed yet: awaiting approval",
        "tool C: ok",
    ];
    assert_eq!(read(&story), paired);
    story.says("meanwhile");
    assert_eq!(read(&story)[..5], paired, "with no real result it is kept");
    assert_eq!(read(&story)[5..], ["assistant \"meanwhile\" "]);
    story.approves("B");
    let events = story.succeeds("B");
    assert_eq!(names(&events), ["tool.execution_succeeded", "message.added", "step.started"]);
    assert_eq!(read(&story)[..5], paired, "what the model has read does not change later");
    assert_eq!(
        read(&story)[5..],
        ["assistant \"meanwhile\" ", "note B: Result of the earlier call B (transfer): ok"]
    );
    assert!(model_is_wanted(&story), "the late result wakes the model");
}

#[test]
fn a36_tool_message_of_a_call_that_no_assistant_message_asked_for_is_not_read() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    let mut transcript = Transcript::default();
    let stray = |seq| Event {
        seq,
        at: story.now,
        step: Some(1),
        fact: Fact::MessageAdded(Message::Tool {
            id: MessageId::from("msg_X"),
            call_id: CallId::from("X"),
            status: Succeeded,
            body: ToolBody::Settled { seq: 1 },
        }),
    };
    for event in &story.log {
        transcript.push(event);
        transcript.push(&stray(event.seq));
    }
    assert_eq!(transcript.model_input(), story.transcript().into_iter().collect());
}

#[test]
fn a37_later_round_that_completes_leaves_the_held_call_of_an_earlier_one() {
    let mut story = mixed_round();
    let suspension = story.call("B").suspension().cloned();
    story.asks_for(&[("D", "echo")]);
    story.succeeds("D");
    assert_eq!(story.run.control.step, 3);
    assert_eq!(story.call("B").suspension().cloned(), suspension);
    story.says("still waiting");
    assert_eq!((story.run_status(), held(&story)), (&WAITING, vec!["B".to_owned()]));
}

#[test]
fn a13_end_with_a_call_still_held_becomes_a_wait_and_no_answer_is_handed_out() {
    let mut wishes = order(eager());
    wishes.parent = Some(machine::event::Parent {
        run_id: RunId::from("run_0"),
        call_id: CallId::from("P"),
        depth: 1,
        grant_tokens: None,
        grant_descendants: None,
    });
    let revision = machine::Revision { policy: eager(), ..machine::Revision::default() };
    let mut story = Story::queued_with(revision, wishes);
    story.ok(machine::Input::Start { after: None });
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    story.succeeds("B");
    let before = story.run.control.clone();
    let events = story.says("all done");
    assert_eq!(names(&events), ["message.added", "step.ended", "run.waiting"]);
    assert_eq!(delivery::deliveries(Some(&before), &events, "all done").unwrap(), []);
    assert_eq!((story.run_status(), story.run.control.ended()), (&WAITING, None));
}

#[test]
fn a13_stop_condition_with_a_call_still_held_waits_and_stops_after_it() {
    let mut story = Story::begin_with(machine::Revision {
        policy: eager(),
        stop: vec![machine::revision::StopCondition::MaxRounds { rounds: 1 }],
        ..machine::Revision::default()
    });
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    story.succeeds("B");
    assert_eq!((story.run_status(), held(&story)), (&WAITING, vec!["A".to_owned()]));
    story.approves("A");
    let events = story.succeeds("A");
    assert_eq!(names(&events), ["tool.execution_succeeded", "message.added", "run.ended"]);
    let how = Termination::stopped(machine::termination::StopCode::MaxRounds, "1 of 1 rounds".to_owned());
    assert_eq!(story.run_status(), &RunStatus::Done(how));
}

#[test]
fn a13_plugin_that_asks_for_the_end_does_not_wait_for_a_held_call() {
    let mut story = mixed_round();
    let mut answered = story.answer("enough", &[]);
    answered.hooks = by("guard", vec![Action::End]);
    let events = story.model_answers(answered);
    assert_eq!(
        names(&events),
        ["phase.answered", "message.added", "tool.cancelled", "message.added", "step.ended", "run.ended"]
    );
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::BehaviorRequested));
    let last = read(&story).pop().unwrap();
    assert_eq!(last, "note B: Result of the earlier call B (transfer): Cancelled: run_ended");
}

#[test]
fn a14_interrupt_ends_the_run_whatever_is_held() {
    let mut story = mixed_round();
    let events = interrupts(&mut story);
    assert_eq!(
        names(&events),
        ["run.interrupting", "tool.cancelled", "message.added", "message.added", "step.ended", "run.ended"]
    );
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::Cancelled(Cancelled::Interrupted)));
    let last = read(&story).pop().unwrap();
    assert_eq!(last, "note B: Result of the earlier call B (transfer): Cancelled: interrupted");
}

#[test]
fn a14_error_ends_the_run_whatever_is_held() {
    let mut story = mixed_round();
    let events = fails_permanently(&mut story, "no such model");
    assert_eq!(names(&events), ["tool.cancelled", "message.added", "step.ended", "run.ended"]);
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::error(ErrorCode::Model, "no such model")));
    assert_eq!(held(&story), [] as [&str; 0]);
}

#[test]
fn a29_new_call_waits_at_the_gate_by_itself() {
    let mut story = Story::begin();
    let asked = story.answer("", &[("A", "echo", json!({})), ("B", "echo", json!({}))]);
    story.model_answers(asked);
    story.pass_gate("B");
    assert_eq!((story.status("A"), story.status("B")), (New, Running));
    story.succeeds("B");
    assert_eq!((story.status("A"), story.status("B")), (Running, Succeeded));
}
