//! The turn barrier: results settle by call id, and one continuation follows when every expected one is there.

use machine::event::{Fact, InterruptCause, Message};
use machine::id::{CallId, Principal, ToolName};
use machine::input::Outcome;
use machine::phase::Phase;
use machine::policy::{Continuation, Execution, OnBusy, Policy, PolicyRequest, WhileWaiting};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::thread::{Admission, Busy, FrontState, IfBusy, ThreadState, admit};
use machine::transcript::ModelMessage;
use machine::{Effect, Event, Input, InputOutcome, Rejection, fold};
use serde_json::json;

use crate::hooks::hooked;
use crate::story::{Story, cancel, invalid, names, success};

fn three_reads() -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "echo"), ("C", "echo")]);
    story
}

fn returned(step: u32, call: &str, attempt: u32, outcome: Outcome) -> Input {
    Input::ToolReturned { step, call: CallId::from(call), attempt, outcome }
}

/// The calls whose tool messages an input added, in order.
fn tool_messages(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::MessageAdded(Message::Tool { call_id, .. }) => Some(call_id.as_str()),
            _ => None,
        })
        .collect()
}

fn continuations(story: &Story) -> usize {
    story.names().iter().filter(|name| *name == "step.started").count() - 1
}

#[test]
fn b22_the_turn_is_declared_in_the_models_order_before_anything_runs() {
    let mut story = Story::begin();
    let calls =
        [("C", "echo"), ("A", "transfer"), ("B", "echo")].map(|(id, tool)| (id, tool, json!({"of": id})));
    let answered = story.answer("", &calls);
    let events = story.model_answers(answered);
    assert_eq!(names(&events), ["message.added", "tool.requested", "tool.requested", "tool.requested"]);
    let declared: Vec<(&str, CallStatus)> =
        story.run.control.calls.iter().map(|call| (call.id.as_str(), call.status())).collect();
    assert_eq!(declared, [("C", CallStatus::New), ("A", CallStatus::New), ("B", CallStatus::New)]);
}

#[test]
fn b2_b23_b24_first_and_middle_results_only_settle_and_the_last_closes_the_turn_once() {
    let mut story = three_reads();
    assert_eq!(names(&story.returns("C", success(json!(3)))), ["tool.execution_succeeded"]);
    assert_eq!(names(&story.returns("A", success(json!(1)))), ["tool.execution_succeeded"]);
    assert!(!story.run.wanted().iter().any(|effect| matches!(effect, Effect::CallModel { .. })));
    let events = story.returns("B", success(json!(2)));
    assert_eq!(
        names(&events),
        [
            "tool.execution_succeeded",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "step.started"
        ]
    );
    // In the model's order, whatever came first.
    assert_eq!(tool_messages(&events), ["A", "B", "C"]);
    assert_eq!(continuations(&story), 1);
}

#[test]
fn b24_b41_the_model_reads_every_result_in_call_order_after_its_own_message() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "transfer"), ("C", "echo"), ("D", "forbidden")]);
    story.fails("C");
    story.denies("B", None);
    story.returns("A", success(json!({"n": 1})));
    let messages = story.transcript();
    let shape: Vec<String> = messages
        .iter()
        .map(|message| match message {
            ModelMessage::User { .. } => "user".into(),
            ModelMessage::Assistant { calls, .. } => {
                calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>().join("+")
            }
            ModelMessage::Tool { call, text } => format!("{call}: {text}"),
            ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => text.clone(),
        })
        .collect();
    assert_eq!(
        shape,
        [
            "user",
            "A+B+C+D",
            "A: {\"n\":1}",
            "B: Denied by ana: no",
            "C: Error: boom",
            "D: Error: blocked by policy"
        ]
    );
}

#[test]
fn b7_b25_approved_and_denied_in_one_turn_give_one_continuation() {
    let mut story = Story::begin();
    story.asks_for(&[("E", "transfer"), ("F", "transfer")]);
    story.approves("E");
    let events = story.denies("F", None);
    assert_eq!(names(&events), ["tool.denied"]);
    story.succeeds("E");
    assert_eq!(continuations(&story), 1);
    assert_eq!((story.tool_text("E"), story.tool_text("F")), ("ok".into(), "Denied by ana: no".into()));
}

#[test]
fn b26_b35_a_duplicate_result_in_an_open_turn_changes_nothing() {
    let mut story = three_reads();
    story.returns("A", success(json!("first")));
    let before = story.run.clone();
    for outcome in [success(json!("first")), success(json!("second")), crate::story::unknown()] {
        assert_eq!(story.ok(returned(1, "A", 1, outcome)), []);
        assert_eq!(story.last_outcome, Some(InputOutcome::Duplicate));
    }
    assert_eq!(story.run, before);
    story.succeeds("B");
    story.succeeds("C");
    assert_eq!(story.tool_text("A"), "first");
    let ends = story.names().iter().filter(|name| *name == "tool.execution_succeeded").count();
    assert_eq!(ends, 3);
}

#[test]
fn b28_b39_a_result_that_the_turn_does_not_expect_changes_nothing() {
    let mut story = three_reads();
    for stranger in ["X", ""] {
        let refused = story.refused(returned(1, stranger, 1, success(json!(1))));
        assert_eq!(refused, Rejection::UnknownCall(CallId::from(stranger)));
    }
    assert_eq!(story.run.control.calls.len(), 3);
    for call in ["A", "B", "C"] {
        story.succeeds(call);
    }
    assert_eq!(continuations(&story), 1);
}

#[test]
fn b29_a_result_of_another_turn_changes_nothing_even_if_the_id_fits() {
    let mut story = three_reads();
    for step in [0, 2] {
        let refused = story.refused(returned(step, "A", 1, success(json!(1))));
        assert_eq!(refused, Rejection::WrongStep { call: CallId::from("A"), step, current: 1 });
    }
    assert_eq!(story.status("A"), CallStatus::Running);
}

#[test]
fn b40_a_posted_result_names_no_turn_and_settles_in_the_open_one() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    story.asks_for(&[("B", "webhook")]);
    let events = story.answers("B", json!("posted"));
    assert!(events.iter().all(|event| event.step == Some(2) || event.step == Some(3)));
    assert_eq!(names(&events)[2], "tool.execution_succeeded");
    assert_eq!(events[2].step, Some(2));
}

#[test]
fn b44_a_completion_that_is_processed_twice_continues_once() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "echo")]);
    story.succeeds("A");
    story.succeeds("B");
    assert_eq!(continuations(&story), 1);
    // The worker crashed before its commit was confirmed, and gets the last result again.
    story.run.control = fold(&story.log).unwrap();
    assert_eq!(story.ok(returned(1, "B", 1, success(json!("ok")))), []);
    assert_eq!((continuations(&story), story.run.control.step), (1, 2));
}

#[test]
fn a120_every_result_is_stored_when_it_settles_and_not_with_its_round() {
    let mut story = three_reads();
    for call in ["B", "A"] {
        let events = story.succeeds(call);
        assert_eq!(names(&events), ["tool.execution_succeeded"]);
        // What is stored now survives the loss of the worker: a finished sibling is not run again.
        let reloaded = fold(&story.log).unwrap();
        assert_eq!(reloaded.call(&CallId::from(call)).unwrap().status(), CallStatus::Succeeded);
    }
}

#[test]
fn a118_a_tool_error_is_reported_to_the_model_and_the_run_continues() {
    let mut story = Story::begin();
    let calls = [("A", "nothing_of_this_name"), ("B", "echo"), ("C", "forbidden"), ("D", "echo")]
        .map(|(id, tool)| (id, tool, json!({"of": id})));
    let mut answered = story.answer("", &calls);
    answered.calls[1].arguments = invalid("not an object");
    story.model_answers(answered);
    story.pass_gates();
    let events = story.fails("D");
    assert_eq!(tool_messages(&events), ["A", "B", "C", "D"]);
    let texts = ["A", "B", "C", "D"].map(|call| story.tool_text(call));
    assert_eq!(
        texts,
        ["Error: there is no such tool", "Error: not an object", "Error: blocked by policy", "Error: boom"]
    );
    assert!(matches!(story.run.wanted().first(), Some(Effect::CallModel { step: 2, .. })));
}

#[test]
fn a69_a_turn_with_a_held_call_never_goes_to_the_model() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("C", "echo")]);
    let events = story.succeeds("C");
    assert_eq!(names(&events), ["tool.execution_succeeded", "run.waiting"]);
    assert!(story.run.wanted().is_empty());
    // The decision is replayed first, and only its result leads to the model.
    assert_eq!(names(&story.approves("A"))[2..], ["tool.execution_started"]);
    assert_eq!(tool_messages(&story.succeeds("A")), ["A", "C"]);
    assert_eq!(continuations(&story), 1);
}

#[test]
fn a70_a_decision_that_came_while_tools_ran_keeps_the_run_from_waiting() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("C", "echo")]);
    story.approves("A");
    let events = story.succeeds("C");
    // No stale verdict: what was held a moment ago runs.
    assert_eq!(names(&events), ["tool.execution_succeeded"]);
    assert_eq!(story.run_status(), &RunStatus::Running);
}

#[test]
fn a121_with_eager_one_settled_call_is_enough_to_continue() {
    let mut story = Story::with_policy(Policy { continuation: Continuation::Eager, ..Policy::default() });
    story.asks_for(&[("A", "transfer"), ("C", "echo")]);
    let events = story.succeeds("C");
    assert_eq!(
        names(&events),
        ["tool.execution_succeeded", "message.added", "message.added", "step.ended", "step.started"]
    );
    assert_eq!(tool_messages(&events), ["A", "C"]);
    assert_eq!(story.tool_text("A"), "Not executed yet: awaiting approval");
    // With nothing but held calls there is nothing to tell: it waits.
    let mut story = Story::with_policy(Policy { continuation: Continuation::Eager, ..Policy::default() });
    story.asks_for(&[("A", "transfer")]);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    // The default waits for all.
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("C", "echo")]);
    story.succeeds("C");
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
}

#[test]
fn a116_a117_a_sequential_turn_stops_at_a_held_call_and_runs_the_rest_after_it() {
    let mut story = Story::with_policy(Policy { execution: Execution::Sequential, ..Policy::default() });
    story.asks_for(&[("A", "echo"), ("B", "transfer"), ("C", "echo")]);
    let statuses = |story: &Story| ["A", "B", "C"].map(|id| story.status(id));
    assert_eq!(statuses(&story), [CallStatus::Running, CallStatus::New, CallStatus::New]);
    story.succeeds("A");
    assert_eq!(statuses(&story), [CallStatus::Succeeded, CallStatus::Suspended, CallStatus::New]);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    assert!(story.run.wanted().is_empty());
    story.denies("B", None);
    assert_eq!(statuses(&story), [CallStatus::Succeeded, CallStatus::Cancelled, CallStatus::Running]);
    let events = story.succeeds("C");
    assert_eq!(tool_messages(&events), ["A", "B", "C"]);
    assert_eq!(continuations(&story), 1);
}

#[test]
fn a117_calls_that_were_never_reached_are_cancelled_with_a_message_when_the_run_is_interrupted() {
    let mut story = Story::with_policy(Policy { execution: Execution::Sequential, ..Policy::default() });
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    let cause = InterruptCause::Person(Principal::from("ana"));
    let events = story.ok(Input::Interrupt { cause });
    assert_eq!(tool_messages(&events), ["A", "B"]);
    assert_eq!(story.tool_text("B"), "Cancelled: interrupted");
}

#[test]
fn b31_a_denial_goes_through_the_barrier_and_never_straight_to_the_model() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    let events = story.decides("A", cancel());
    assert_eq!(names(&events), ["tool.denied"]);
    assert_eq!(continuations(&story), 0);
    story.succeeds("B");
    assert_eq!(continuations(&story), 1);
}

#[test]
fn b43_a_message_that_meets_an_open_turn_never_gets_into_it() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let front = story.run.control.run.clone();
    let waits =
        ThreadState::Busy { front: front.clone(), front_is: FrontState::Waiting, in_doubt: false, queued: 0 };
    let agent = Policy::default();
    let asks = PolicyRequest::default();
    assert_eq!(
        admit(&waits, IfBusy::resolve(None, &asks, &agent)),
        Admission::Refuse(Busy::ActiveRun(front.clone()))
    );
    let enqueue = PolicyRequest { while_waiting: Some(WhileWaiting::Enqueue), ..asks };
    assert_eq!(admit(&waits, IfBusy::resolve(None, &enqueue, &agent)), Admission::Enqueue);
    let interrupt = Some(OnBusy::Interrupt);
    assert_eq!(admit(&waits, IfBusy::resolve(interrupt, &asks, &agent)), Admission::Supersede);
    // Whatever is decided about it, the open run accepts no second user message.
    assert_eq!(story.refused(Input::Start { after: None }), Rejection::AlreadyStarted);
    story.approves("A");
    story.succeeds("A");
    let users = story.transcript().iter().filter(|m| matches!(m, ModelMessage::User { .. })).count();
    assert_eq!(users, 1);
}

#[test]
fn b2_b24_with_hooks_after_tools_the_turn_closes_once_they_answered() {
    let mut story = Story::begin_with(hooked(&[Phase::AfterToolExecute]));
    story.asks_for(&[("A", "echo")]);
    assert_eq!(names(&story.succeeds("A")), ["tool.execution_succeeded"]);
    let answers = vec![(CallId::from("A"), machine::phase::HookAnswers::default())];
    let events = story.ok(Input::AfterTools { heard: answers });
    assert_eq!(names(&events), ["message.added", "step.ended", "step.started"]);
}

#[test]
fn b14_an_answer_without_a_tools_name_is_no_answer() {
    let mut story = Story::begin();
    let mut answered = story.answer("", &[("A", "echo", json!({}))]);
    answered.calls[0].tool = ToolName::from("");
    let events = story.ok(Input::ModelAnswered(answered));
    assert_eq!(names(&events), ["model.retrying"]);
    assert!(story.run.control.calls.is_empty());
}
