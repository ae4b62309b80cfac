//! Another worker takes the run over: what was accepted is processed first, then lost attempts are replaced or doubted.

use machine::event::{Fact, InterruptCause, LostAttempt};
use machine::id::{CallId, Principal};
use machine::inbox::{Item, drain, to_input};
use machine::input::{ModelFailure, Outcome};
use machine::revision::ATTEMPT_COUNT_MAX;
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::Held;
use machine::termination::{ErrorCode, Termination};
use machine::{Deadline, DeadlineReason, Effect, Input, InputOutcome, Rejection, Timestamp, fold};
use serde_json::json;

use crate::story::{Story, names, resume, resume_with, success, unknown};

const LEASE_MS: u64 = 10_000;

/// The worker is gone; the next one loads the run and says so.
fn crash(story: &mut Story) -> Vec<String> {
    story.run.control = fold(&story.log).unwrap();
    let doubt_at = story.now.plus_ms(LEASE_MS);
    names(&story.ok(Input::LeaseAcquired { epoch: 2, doubt_at }))
}

/// The events of each item that the run processes in this pass, in order.
fn process_inbox(story: &mut Story, inbox: &[Item]) -> Vec<String> {
    let mut recorded = Vec::new();
    for index in drain(&story.run.control, inbox, true) {
        if let Some(input) = to_input(&story.run.control, &inbox[index]) {
            recorded.extend(names(&story.ok(input)));
        }
    }
    recorded
}

fn running(tools: &[(&str, &str)]) -> Story {
    let mut story = Story::begin();
    story.asks_for(tools);
    story
}

fn returned(call: &str, attempt: u32, outcome: Outcome) -> Input {
    Input::ToolReturned { step: 1, call: CallId::from(call), attempt, outcome }
}

#[test]
fn a89_a_lost_attempt_is_named_and_a_repeatable_one_gets_a_new_number() {
    let mut story = running(&[("A", "echo"), ("B", "upsert"), ("C", "post")]);
    story.later(50);
    assert_eq!(crash(&mut story), ["run.recovered"]);
    let Fact::RunRecovered { epoch: 2, lost, lost_model_attempt: None, doubt_at } =
        &story.log.last().unwrap().fact
    else {
        panic!("it names what was lost")
    };
    let lost_ones = ["A", "B", "C"].map(|id| LostAttempt { call_id: CallId::from(id), attempt: 1 });
    assert_eq!(lost, &lost_ones);
    assert_eq!(*doubt_at, story.now.plus_ms(LEASE_MS));
    // Draining the inbox starts nothing: what may be repeated passes the gate again.
    assert_eq!(story.ok(Input::InboxDrained), []);
    let gates = ["A", "B"].map(|id| Effect::Gate(CallId::from(id)));
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), gates);
    assert_eq!(names(&story.pass_gates()), ["tool.execution_started", "tool.execution_started"]);
    assert_eq!((story.call("A").attempts, story.call("B").attempts, story.call("C").attempts), (2, 2, 1));
    // What the first attempts say now is stale.
    let status = CallStatus::Running;
    let stale = Rejection::StaleAttempt { call: CallId::from("A"), attempt: 1, current: 2, status };
    assert_eq!(story.refused(returned("A", 1, success(json!(1)))), stale);
}

#[test]
fn a89_a_lost_write_is_offered_to_a_person_one_lease_later_and_not_before() {
    let mut story = running(&[("A", "post")]);
    crash(&mut story);
    assert_eq!(story.ok(Input::InboxDrained), []);
    // Until then call and run are running, nothing is wanted, and a deadline says why.
    assert_eq!((story.status("A"), story.run_status()), (CallStatus::Running, &RunStatus::Running));
    assert!(story.run.wanted().is_empty());
    let at = story.now.plus_ms(LEASE_MS);
    let wanted = Deadline { at, reason: DeadlineReason::InDoubtDue, call: CallId::from("A") };
    assert_eq!(story.run.next_deadline(), Some(wanted));
    story.later(LEASE_MS - 1);
    assert_eq!(story.refused(Input::DeadlineReached), Rejection::NothingDue);
    story.later(1);
    assert_eq!(names(&story.ok(Input::DeadlineReached)), ["tool.suspended", "run.waiting"]);
    assert_eq!(story.call("A").suspension().unwrap().held, Held::InDoubt { attempt: 1 });
    assert_eq!(story.run.next_deadline(), None);
}

#[test]
fn a89_where_the_old_process_is_surely_gone_doubt_is_offered_at_once() {
    let mut story = running(&[("A", "post")]);
    let doubt_at = story.now;
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at });
    assert_eq!(names(&story.ok(Input::InboxDrained)), ["tool.suspended", "run.waiting"]);
}

#[test]
fn a89_what_was_accepted_before_the_crash_is_processed_before_anything_starts() {
    // The lost attempt had answered after all: no second attempt.
    let mut story = running(&[("A", "echo")]);
    crash(&mut story);
    let call = CallId::from("A");
    let late = Item::LateAnswer { step: 1, call, attempt: 1, outcome: success(json!("in time")) };
    assert_eq!(process_inbox(&mut story, &[late])[0], "tool.execution_succeeded");
    assert_eq!(story.ok(Input::InboxDrained), []);
    assert_eq!(story.tool_text("A"), "in time");
    // The run had been interrupted: nothing is tried again.
    let mut story = running(&[("A", "echo")]);
    crash(&mut story);
    let cause = InterruptCause::Person(Principal::from("ana"));
    process_inbox(&mut story, &[Item::Interrupt { cause }]);
    assert!(story.run.control.ended().is_some());
    let starts = story.names().iter().filter(|name| *name == "tool.execution_started").count();
    assert_eq!(starts, 1);
}

#[test]
fn a88_a_call_left_resuming_by_a_crash_continues_without_asking() {
    let mut story = running(&[("A", "transfer")]);
    let decision = story.decision("A", resume());
    story.ok(Input::Decide(decision));
    assert_eq!(story.status("A"), CallStatus::Resuming);
    assert_eq!(crash(&mut story), Vec::<String>::new());
    assert_eq!(story.ok(Input::InboxDrained), []);
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [Effect::Gate(CallId::from("A"))]);
    assert_eq!(names(&story.pass_gates()), ["tool.execution_started"]);
    assert_eq!(story.call("A").attempts, 1);
}

#[test]
fn a88_a_replay_that_had_started_is_in_doubt_like_any_other_write() {
    let mut story = running(&[("A", "transfer")]);
    story.approves("A");
    assert_eq!(crash(&mut story), ["run.recovered"]);
    story.ok(Input::InboxDrained);
    story.later(LEASE_MS);
    story.ok(Input::DeadlineReached);
    assert_eq!(story.call("A").suspension().unwrap().held, Held::InDoubt { attempt: 1 });
}

#[test]
fn a89_a_finished_sibling_is_never_run_again() {
    let mut story = running(&[("A", "echo"), ("B", "echo")]);
    story.succeeds("A");
    crash(&mut story);
    story.ok(Input::InboxDrained);
    story.pass_gates();
    let wanted: Vec<Effect> = story.run.wanted().into_iter().collect();
    let again = Effect::RunTool { call: CallId::from("B"), attempt: 2, not_before: story.now };
    assert_eq!(wanted, [again]);
    // The answer that settled A arrives once more: it had been said.
    assert_eq!(story.ok(returned("A", 1, success(json!("ok")))), []);
    assert_eq!(story.last_outcome, Some(InputOutcome::Duplicate));
}

#[test]
fn a89_a_run_that_waits_is_loaded_and_continues_where_it_was() {
    let mut story = running(&[("A", "transfer")]);
    assert_eq!(crash(&mut story), Vec::<String>::new());
    assert_eq!(story.ok(Input::InboxDrained), []);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    story.approves("A");
    story.succeeds("A");
    story.says("done");
    let again = story.names();
    let mut straight = running(&[("A", "transfer")]);
    straight.approves("A");
    straight.succeeds("A");
    straight.says("done");
    assert_eq!(again, straight.names());
}

#[test]
fn a45_a_lost_model_call_gets_a_new_number_and_costs_no_try() {
    let mut story = Story::begin();
    assert_eq!(crash(&mut story), ["run.recovered"]);
    let Fact::RunRecovered { lost_model_attempt: Some(1), lost, .. } = &story.log.last().unwrap().fact else {
        panic!("it names the model attempt")
    };
    assert!(lost.is_empty());
    assert!(story.run.wanted().is_empty());
    assert_eq!(names(&story.ok(Input::InboxDrained)), ["model.retrying"]);
    assert_eq!(story.model_attempt(), 2);
    let failure = ModelFailure { message: "busy".into(), retryable: true, retry_after_ms: None };
    let stale = Input::ModelFailed { step: 1, attempt: 1, failure: failure.clone() };
    assert_eq!(story.refused(stale), Rejection::StaleModelAttempt { step: 1, attempt: 1 });
    // Three tries are left, and their pauses start again from the first.
    for attempt in [2, 3] {
        story.ok(Input::ModelFailed { step: 1, attempt, failure: failure.clone() });
    }
    assert_eq!(story.run_status(), &RunStatus::Running);
    story.ok(Input::ModelFailed { step: 1, attempt: 4, failure });
    assert!(story.run.control.ended().is_some());
}

#[test]
fn a45_a_model_call_that_takes_its_worker_down_every_time_ends_the_run_in_the_end() {
    let mut story = Story::begin();
    for attempt in 1..ATTEMPT_COUNT_MAX {
        assert_eq!(story.model_attempt(), attempt);
        crash(&mut story);
        assert_eq!(names(&story.ok(Input::InboxDrained)), ["model.retrying"], "attempt {attempt}");
    }
    crash(&mut story);
    assert_eq!(names(&story.ok(Input::InboxDrained)), ["step.ended", "run.ended"]);
    let why = format!("the worker was lost in each of {ATTEMPT_COUNT_MAX} model calls");
    assert_eq!(story.run.control.ended(), Some(&Termination::error(ErrorCode::Model, &why)));
}

/// Failures and losses are counted apart: neither uses up what is left of the other.
#[test]
fn a45_model_calls_that_are_lost_between_failures_cost_no_try() {
    let mut story = Story::begin();
    let failure = ModelFailure { message: "busy".into(), retryable: true, retry_after_ms: None };
    for _ in 0..2 {
        let attempt = story.model_attempt();
        let failed = Input::ModelFailed { step: 1, attempt, failure: failure.clone() };
        assert_eq!(names(&story.ok(failed)), ["model.retrying"]);
        for _ in 0..5 {
            crash(&mut story);
            story.ok(Input::InboxDrained);
        }
    }
    assert_eq!((story.model_attempt(), story.run.control.ended()), (13, None));
    let attempt = story.model_attempt();
    story.ok(Input::ModelFailed { step: 1, attempt, failure });
    assert_eq!(story.run.control.ended(), Some(&Termination::error(ErrorCode::Model, "busy")));
}

#[test]
fn a89_a_lost_attempt_is_no_fault_of_the_tool() {
    let mut story = running(&[("A", "echo")]);
    crash(&mut story);
    story.ok(Input::InboxDrained);
    story.pass_gates();
    for attempt in [2, 3] {
        story.ok(returned("A", attempt, unknown()));
    }
    assert_eq!(story.status("A"), CallStatus::Running);
    story.ok(returned("A", 4, unknown()));
    assert_eq!(story.tool_text("A"), "Error: connection lost");
}

#[test]
fn a89_a_tool_that_takes_its_worker_down_every_time_is_given_up_in_the_end() {
    let mut story = running(&[("A", "echo")]);
    for _ in 0..=ATTEMPT_COUNT_MAX {
        if story.run.control.step > 1 {
            break;
        }
        crash(&mut story);
        story.ok(Input::InboxDrained);
        story.pass_gates();
    }
    assert_eq!(story.tool_text("A"), "Error: no answer in 100 attempts");
}

#[test]
fn a89_a_second_take_over_names_nothing_twice() {
    let mut story = running(&[("A", "post")]);
    crash(&mut story);
    // The second worker dies too, before it drained the inbox.
    assert_eq!(crash(&mut story), Vec::<String>::new());
    story.ok(Input::InboxDrained);
    story.later(LEASE_MS);
    assert_eq!(names(&story.ok(Input::DeadlineReached)), ["tool.suspended", "run.waiting"]);
}

#[test]
fn a89_a_decision_on_a_held_sibling_is_processed_before_lost_attempts_are_replaced() {
    let mut story = running(&[("A", "transfer"), ("B", "echo")]);
    let decision = story.decision("A", resume());
    crash(&mut story);
    assert_eq!(process_inbox(&mut story, &[Item::Decision(decision)]), ["tool.approved"]);
    assert_eq!(story.ok(Input::InboxDrained), []);
    assert_eq!((story.status("A"), story.call("B").attempts), (CallStatus::Resuming, 1));
    assert_eq!(names(&story.pass_gates()), ["tool.execution_started", "tool.execution_started"]);
    assert_eq!(story.call("B").attempts, 2);
    // A repeat of the decision starts nothing.
    let events = story.say(Input::Decide(machine::decision::Decision {
        id: None,
        call: CallId::from("A"),
        suspension: "apr_of_before".into(),
        by: Principal::from("ana"),
        accepted_at: Timestamp(0),
        definition_now: None,
        action: resume_with(json!(true)),
    }));
    let status = CallStatus::Running;
    assert_eq!(events, Err(Rejection::NotSuspended { call: CallId::from("A"), status }));
    assert_eq!(story.call("A").attempts, 1);
}
