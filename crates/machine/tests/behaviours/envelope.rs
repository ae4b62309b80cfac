//! The log as a whole: dense numbers, derived ids, first and last event, and the same story from the same inputs.

use std::sync::Arc;

use machine::event::{Fact, InterruptCause, Message, Usage};
use machine::id::{CallId, Principal};
use machine::phase::{Action, HookAnswers, Phase, STATE_BYTES_MAX, Scope};
use machine::revision::Revision;
use machine::status::RunStatus;
use machine::termination::{ErrorCode, Termination};
use machine::{Event, Input, Timestamp, fold};
use serde_json::json;

use crate::hooks::{fails, hooked, one, together};
use crate::story::{Story, names, success};

/// A run with an approval, an error, a wait, and an answer.
fn finished_story() -> Story {
    let mut story = Story::begin();
    story.later(5);
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    story.later(5);
    story.fails("B");
    story.later(60_000);
    story.approves("A");
    story.succeeds("A");
    story.says("done");
    story
}

#[test]
fn a122_the_same_inputs_give_the_same_log() {
    assert_eq!(finished_story().log, finished_story().log);
    assert_eq!(finished_story().run, finished_story().run);
}

#[test]
fn a122_the_order_in_which_results_arrive_changes_events_and_not_what_the_model_reads() {
    let play = |order: [&str; 3]| {
        let mut story = Story::begin();
        story.asks_for(&[("A", "echo"), ("B", "echo"), ("C", "echo")]);
        for call in order {
            story.returns(call, success(json!(call)));
        }
        story
    };
    let first = play(["A", "B", "C"]);
    for order in [["A", "C", "B"], ["B", "A", "C"], ["B", "C", "A"], ["C", "A", "B"], ["C", "B", "A"]] {
        let other = play(order);
        assert_eq!(other.transcript(), first.transcript(), "{order:?}");
        assert_ne!(other.log, first.log);
    }
}

#[test]
fn a123_numbers_are_dense_from_one_times_never_run_backwards_and_steps_are_named() {
    let story = finished_story();
    let seqs: Vec<u64> = story.log.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=story.log.len() as u64).collect::<Vec<_>>());
    assert!(story.log.is_sorted_by_key(|event| event.at));
    let outside: Vec<String> = story
        .log
        .iter()
        .zip(names(&story.log))
        .filter(|(event, _)| event.step.is_none())
        .map(|(_, name)| name)
        .collect();
    // The user's message comes before the first step.
    assert_eq!(outside, ["run.queued", "run.started", "message.added", "run.ended"]);
    let step_of = |wanted: &str| -> Vec<Option<u32>> {
        story
            .log
            .iter()
            .zip(names(&story.log))
            .filter(|(_, name)| name == wanted)
            .map(|(event, _)| event.step)
            .collect()
    };
    assert_eq!(step_of("step.started"), [Some(1), Some(2)]);
    assert_eq!(step_of("step.ended"), [Some(1), Some(2)]);
    assert_eq!(step_of("tool.execution_succeeded"), [Some(1)]);
    assert_eq!(step_of("message.added"), [None, Some(1), Some(1), Some(1), Some(2)]);
    let Fact::RunQueued(order) = &story.log[0].fact else { panic!("the first event is run.queued") };
    assert_eq!((order.run_id.as_str(), order.thread_id.as_str()), ("run_1", "thr_1"));
}

#[test]
fn a123_a_worker_whose_clock_is_slow_does_not_turn_the_log_back() {
    let mut story = Story::begin();
    story.later(1_000);
    story.asks_for(&[("A", "echo")]);
    let before = story.run.control.at;
    story.now = Timestamp(1);
    let events = story.succeeds("A");
    assert!(!events.is_empty() && events.iter().all(|event| event.at == before));
}

#[test]
fn a124_the_first_and_the_last_event_and_the_ids_between_them() {
    let story = finished_story();
    let all = names(&story.log);
    assert_eq!(all[..3], ["run.queued", "run.started", "message.added"]);
    assert_eq!(all.iter().filter(|name| *name == "run.ended").count(), 1);
    assert_eq!(all.last().unwrap(), "run.ended");
    let mut steps = Vec::new();
    let mut messages = Vec::new();
    for event in &story.log {
        match &event.fact {
            Fact::StepStarted { message_id, .. } => steps.push(message_id.to_string()),
            Fact::MessageAdded(message) => messages.push(message.id().to_string()),
            _ => {}
        }
    }
    assert_eq!(steps, ["msg_run_1_1", "msg_run_1_2"]);
    assert_eq!(messages, ["msg_user", "msg_run_1_1", "msg_A", "msg_B", "msg_run_1_2"]);
}

#[test]
fn a124_a_retried_model_call_has_the_same_message_id() {
    let mut story = Story::begin();
    let failure =
        machine::input::ModelFailure { message: "busy".into(), retryable: true, retry_after_ms: None };
    story.ok(Input::ModelFailed { step: 1, attempt: 1, failure });
    let events = story.says("done");
    assert!(matches!(
        &events[0].fact,
        Fact::MessageAdded(Message::Assistant { id, .. }) if id.as_str() == "msg_run_1_1"
    ));
}

#[test]
fn a125_the_end_carries_what_was_used_and_the_log_has_the_rest() {
    let story = finished_story();
    let Fact::RunEnded { usage, termination, .. } = &story.log.last().unwrap().fact else {
        panic!("the last event is the end")
    };
    assert_eq!(*usage, Usage { input_tokens: 20, output_tokens: 10 });
    assert_eq!(*termination, Termination::NaturalEnd);
    let count = |name: &str| names(&story.log).iter().filter(|found| *found == name).count();
    let stats = ["step.started", "tool.requested", "tool.execution_failed", "model.retrying"].map(count);
    assert_eq!(stats, [2, 2, 1, 0]);
    // Also of a run that was interrupted.
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.ok(Input::Interrupt { cause: InterruptCause::Person(Principal::from("ana")) });
    let Fact::RunEnded { usage, .. } = &story.log.last().unwrap().fact else { panic!("no end") };
    assert_eq!(usage.total(), 15);
}

#[test]
fn a119_what_is_wrong_with_the_run_itself_ends_it_with_an_error() {
    let state = |bytes| HookAnswers {
        state_bytes_after: bytes,
        ..one("memory", Action::SetState { key: "k".into(), scope: Scope::Run, value: Arc::new(json!(1)) })
    };
    let cases = [
        (together(&[fails("memory", "no disk")]), "memory failed in BeforeInference: no disk"),
        (state(STATE_BYTES_MAX + 1), "plugin state would take 65537 bytes; at most 65536"),
    ];
    for (hooks, text) in cases {
        let mut story = Story::begin_with(hooked(&[Phase::BeforeInference]));
        story.ok(Input::PhaseAnswered { phase: Phase::BeforeInference, hooks });
        assert_eq!(story.run_status(), &RunStatus::Done(Termination::error(ErrorCode::Hook, text)));
        assert!(!story.names().contains(&"state.changed".into()));
    }
    let mut story = Story::begin_with(hooked(&[Phase::BeforeInference]));
    let hooks = state(STATE_BYTES_MAX);
    story.ok(Input::PhaseAnswered { phase: Phase::BeforeInference, hooks });
    assert_eq!(story.run_status(), &RunStatus::Running);
}

#[test]
fn a119_a_log_that_contradicts_itself_is_refused_loudly() {
    let story = finished_story();
    let spoil = |change: &dyn Fn(&mut Vec<Event>)| {
        let mut log = story.log.clone();
        change(&mut log);
        fold(&log).unwrap_err().to_string()
    };
    assert_eq!(spoil(&|log| log.clear()), "event 0 is impossible: the log is empty");
    let gap = spoil(&|log| {
        log.remove(4);
    });
    assert_eq!(gap, "event 6 is impossible: the numbers have a gap");
    let backwards = spoil(&|log| log[3].at = Timestamp(0));
    assert_eq!(backwards, "event 4 is impossible: time runs backwards");
    let after_the_end = spoil(&|log| {
        let mut again = log[1].clone();
        again.seq = log.len() as u64 + 1;
        again.at = log.last().unwrap().at;
        log.push(again);
    });
    assert!(after_the_end.ends_with("the run has ended"), "{after_the_end}");
    // A call that settles twice names both states.
    let settled = story.names().iter().position(|name| name == "tool.execution_failed").unwrap();
    let twice = spoil(&|log| {
        let mut again = log[settled].clone();
        again.seq += 1;
        log.truncate(settled + 1);
        log.push(again);
    });
    assert!(twice.ends_with("call B: a call that is Failed cannot become Failed"), "{twice}");
}

#[test]
fn a119_a_failing_tool_is_no_failing_run() {
    let mut story = Story::begin_with(Revision::default());
    story.asks_for(&[("A", "echo")]);
    story.fails("A");
    assert_eq!(story.run_status(), &RunStatus::Running);
    assert_eq!(story.run.control.consecutive_errors, 1);
    assert!(story.run.control.recent.contains(1, &CallId::from("A"), story.now));
}
