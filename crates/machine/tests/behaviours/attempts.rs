//! Attempts and how they end: answered, not sent, unknown. A write whose outcome is unknown is in doubt.

use std::sync::Arc;

use machine::decision::{DecisionAction, Payload, Resume};
use machine::event::{CancelReason, Fact, InterruptCause, ResultFrom};
use machine::id::{CallId, Principal, idempotency_key};
use machine::input::{Outcome, ToolAnswer};
use machine::policy::OnReject;
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::{Held, SuspensionKind};
use machine::{Effect, Event, Input, InputOutcome, Rejection, Timestamp};
use serde_json::json;

use crate::story::{Story, cancel, names, not_sent, pending, resume, resume_with, success, unknown};

fn running(tool: &str) -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", tool)]);
    assert_eq!(story.status("A"), CallStatus::Running);
    story
}

fn in_doubt() -> Story {
    let mut story = running("post");
    let events = story.returns("A", unknown());
    assert_eq!(names(&events), ["tool.suspended", "run.waiting"]);
    story
}

fn returned(attempt: u32, outcome: Outcome) -> Input {
    Input::ToolReturned { step: 1, call: CallId::from("A"), attempt, outcome }
}

/// The attempt and the earliest time for it that an event announces.
fn started(event: &Event) -> (u32, Timestamp) {
    match &event.fact {
        Fact::ExecutionStarted { attempt, not_before, .. } => (*attempt, *not_before),
        _ => panic!("not a start"),
    }
}

#[test]
fn a95_an_attempt_succeeds_fails_or_suspends_and_nothing_else() {
    let cases = [
        (success(json!(1)), "tool.execution_succeeded"),
        (Outcome::Answered(ToolAnswer::Error { message: "no".into() }), "tool.execution_failed"),
        (pending(machine::suspension::ResumeMode::ReplayToolCall), "tool.suspended"),
    ];
    for (outcome, event) in cases {
        let mut story = running("echo");
        assert_eq!(names(&story.returns("A", outcome))[0], event);
        assert!(!story.names().contains(&"tool.cancelled".into()));
    }
}

#[test]
fn a99_b3_a_tool_that_throws_fails_its_call_and_not_the_run() {
    let mut story = running("echo");
    let events = story.fails("A");
    assert_eq!(names(&events), ["tool.execution_failed", "message.added", "step.ended", "step.started"]);
    assert_eq!(story.tool_text("A"), "Error: boom");
    assert_eq!(story.run_status(), &RunStatus::Running);
}

#[test]
fn b3_a_repeatable_tool_is_tried_three_times_with_growing_pauses() {
    for (tool, outcome, text) in [
        ("echo", unknown(), "Error: connection lost"),
        ("upsert", unknown(), "Error: connection lost"),
        ("echo", not_sent(), "Error: refused"),
        ("upsert", not_sent(), "Error: refused"),
    ] {
        let mut story = running(tool);
        let events = story.returns("A", outcome.clone());
        assert_eq!(names(&events), ["tool.execution_started"]);
        assert_eq!(started(&events[0]), (2, story.now.plus_ms(500)));
        let wanted =
            Effect::RunTool { call: CallId::from("A"), attempt: 2, not_before: story.now.plus_ms(500) };
        assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [wanted]);
        story.later(500);
        let events = story.returns("A", outcome.clone());
        assert_eq!(started(&events[0]), (3, story.now.plus_ms(1_000)));
        let events = story.returns("A", outcome);
        assert_eq!(names(&events)[0], "tool.execution_failed");
        assert_eq!(story.tool_text("A"), text);
    }
}

#[test]
fn b3_the_pause_is_what_the_server_asks_for_up_to_a_limit() {
    for (asked, pause) in [(None, 500), (Some(100), 500), (Some(2_000), 2_000), (Some(60_000), 5_000)] {
        let mut story = running("echo");
        let outcome = Outcome::Unknown { why: "busy".into(), retry_after_ms: asked };
        let events = story.returns("A", outcome);
        assert_eq!(started(&events[0]), (2, story.now.plus_ms(pause)), "{asked:?}");
    }
}

#[test]
fn b3_an_answer_between_failures_ends_the_call() {
    let mut story = running("upsert");
    story.returns("A", unknown());
    let key = idempotency_key(&story.run.control.run, &CallId::from("A"), &story.call("A").arguments);
    story.returns("A", success(json!("done")));
    assert_eq!(story.tool_text("A"), "done");
    assert_eq!(key.len(), 64);
}

#[test]
fn b3_a_write_that_was_not_sent_fails_at_once() {
    let mut story = running("post");
    let events = story.returns("A", not_sent());
    assert_eq!(names(&events)[0], "tool.execution_failed");
    assert_eq!(story.tool_text("A"), "Error: refused");
}

#[test]
fn b3_a_write_of_unknown_outcome_is_in_doubt_and_never_retried_unasked() {
    let story = in_doubt();
    assert_eq!(story.call("A").suspension().unwrap().held, Held::InDoubt { attempt: 1 });
    assert_eq!(story.run.control.pending()[0].kind, SuspensionKind::InDoubt);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    assert!(story.run.wanted().is_empty());
    assert_eq!(story.run.next_deadline(), None);
}

#[test]
fn b3_in_doubt_a_person_may_retry() {
    let mut story = in_doubt();
    let before = idempotency_key(&story.run.control.run, &CallId::from("A"), &story.call("A").arguments);
    let events = story.decides("A", resume());
    assert_eq!(names(&events), ["tool.resumed", "run.resumed", "tool.execution_started"]);
    assert_eq!(story.call("A").attempts, 2);
    let after = idempotency_key(&story.run.control.run, &CallId::from("A"), &story.call("A").arguments);
    assert_eq!(before, after);
    // The lost attempt cannot settle the call any more.
    let status = CallStatus::Running;
    let stale = Rejection::StaleAttempt { call: CallId::from("A"), attempt: 1, current: 2, status };
    assert_eq!(story.refused(returned(1, success(json!("late")))), stale);
    // And the second one may be lost like the first.
    story.returns("A", unknown());
    assert_eq!(story.call("A").suspension().unwrap().held, Held::InDoubt { attempt: 2 });
}

#[test]
fn b3_in_doubt_a_person_may_know_the_result() {
    let mut story = in_doubt();
    let events = story.decides("A", resume_with(json!({"id": 7})));
    assert_eq!(names(&events)[..3], ["tool.resumed", "run.resumed", "tool.execution_succeeded"]);
    assert!(matches!(&events[2].fact, Fact::ExecutionSucceeded { by: ResultFrom::Decision, .. }));
    assert_eq!(story.tool_text("A"), "{\"id\":7}");
}

#[test]
fn b3_in_doubt_a_decision_cannot_report_a_failure() {
    let mut story = in_doubt();
    let failed = Resume { payload: Payload::Error("it did not".into()), ..Resume::default() };
    let decision = story.decision("A", DecisionAction::Resume(failed));
    let why =
        "a call in doubt is retried, given its result, or given up; it cannot be reported as failed".into();
    let invalid = Rejection::Invalid { call: CallId::from("A"), why };
    assert_eq!(story.refused(Input::Decide(decision)), invalid);
    assert_eq!(story.status("A"), CallStatus::Suspended);
}

#[test]
fn b3_in_doubt_a_person_may_give_up_and_the_model_reads_what_that_means() {
    let mut story = in_doubt();
    let events = story.decides("A", cancel());
    assert_eq!(names(&events)[0], "tool.cancelled");
    assert!(matches!(
        &events[0].fact,
        Fact::ToolCancelled { reason: CancelReason::GivenUp, outcome_unknown: true, by, .. }
            if by.as_str() == "ana"
    ));
    assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect");
}

#[test]
fn b51_the_late_answer_of_the_attempt_in_doubt_settles_it_and_no_other_does() {
    for (outcome, event, text) in [
        (success(json!("done")), "tool.execution_succeeded", "done"),
        (Outcome::Answered(ToolAnswer::Error { message: "no".into() }), "tool.execution_failed", "Error: no"),
        (not_sent(), "tool.execution_failed", "Error: refused"),
    ] {
        let mut story = in_doubt();
        let events = story.ok(returned(1, outcome));
        assert_eq!(names(&events)[..3], ["tool.resumed", "run.resumed", event]);
        assert!(matches!(&events[0].fact, Fact::ToolResumed { by, .. } if *by == Principal::system()));
        assert_eq!(story.tool_text("A"), text);
    }
    let mut story = in_doubt();
    let status = CallStatus::Suspended;
    let stale = Rejection::StaleAttempt { call: CallId::from("A"), attempt: 2, current: 1, status };
    assert_eq!(story.refused(returned(2, success(json!("late")))), stale);
    // An attempt that still does not know says nothing new.
    assert_eq!(story.ok(returned(1, unknown())), []);
    assert_eq!(story.last_outcome, Some(InputOutcome::Duplicate));
}

#[test]
fn b51_the_late_answer_may_be_a_question_of_its_own() {
    let mut story = in_doubt();
    let events = story.ok(returned(1, pending(machine::suspension::ResumeMode::ReplayToolCall)));
    assert_eq!(names(&events), ["tool.resumed", "run.resumed", "tool.suspended", "run.waiting"]);
    assert_eq!(story.run.control.pending()[0].kind, SuspensionKind::Question);
}

#[test]
fn b51_a_call_that_may_have_taken_effect_says_so_however_it_is_cancelled() {
    let person = || InterruptCause::Person(Principal::from("ana"));
    let expected = "Cancelled; it may have taken effect";
    // While the write runs, while it is in doubt, and after a person asked for a retry that never started.
    let mut runs = running("post");
    let mut doubted = in_doubt();
    let mut to_retry = in_doubt();
    let decision = to_retry.decision("A", resume());
    to_retry.ok(Input::Decide(decision));
    for story in [&mut runs, &mut doubted, &mut to_retry] {
        story.ok(Input::Interrupt { cause: person() });
        assert_eq!(story.tool_text("A"), expected);
    }
    // A read, or a write that was never sent, leaves no doubt.
    let mut read = running("echo");
    let mut held = Story::begin();
    held.asks_for(&[("A", "transfer")]);
    for story in [&mut read, &mut held] {
        story.ok(Input::Interrupt { cause: person() });
        assert_eq!(story.tool_text("A"), "Cancelled: interrupted");
    }
}

#[test]
fn b51_a_retry_that_is_not_sent_or_refused_leaves_the_first_attempt_in_doubt_no_less() {
    // What attempt 1 did is unknown: an error that says "refused" would be a lie to the model.
    let mut not_sent_again = in_doubt();
    not_sent_again.decides("A", resume());
    not_sent_again.returns("A", not_sent());
    let mut removed = in_doubt();
    removed.tools.remove("post");
    removed.decides("A", resume());
    let mut blocked = in_doubt();
    blocked.gate_hooks.insert("A".into(), crate::hooks::one("guard", crate::hooks::block("no more")));
    blocked.decides("A", resume());
    for story in [&mut not_sent_again, &mut removed, &mut blocked] {
        assert_eq!(story.run.control.pending()[0].kind, SuspensionKind::InDoubt);
        assert_eq!(story.call("A").suspension().unwrap().held, Held::InDoubt { attempt: 1 });
        // The first attempt may still say how it ended.
        story.ok(returned(1, success(json!("it worked"))));
        assert_eq!(story.tool_text("A"), "it worked");
    }
}

#[test]
fn b3_an_accepted_supersede_is_processed_though_the_call_fell_in_doubt_meanwhile() {
    let mut story = in_doubt();
    let open = story.call("A").suspension().unwrap().id.clone();
    let events = story.ok(Input::Interrupt { cause: InterruptCause::Superseded("run_2".into()) });
    let cancelled = Fact::ToolCancelled {
        call_id: CallId::from("A"),
        reason: CancelReason::Superseded,
        text: None,
        by: Principal::system(),
        decision_id: None,
        outcome_unknown: true,
        suspension_id: Some(open),
    };
    assert_eq!(events[1].fact, cancelled);
    assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect");
    assert_eq!(story.names().last().unwrap(), "run.ended");
}

#[test]
fn b3_while_the_run_ends_a_write_of_unknown_outcome_is_cancelled_with_its_doubt() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "post"), ("B", "transfer")]);
    story.denies("B", Some(OnReject::EndRun));
    assert_eq!(story.status("A"), CallStatus::Running);
    let events = story.returns("A", unknown());
    assert_eq!(names(&events)[0], "tool.cancelled");
    assert!(matches!(
        &events[0].fact,
        Fact::ToolCancelled { reason: CancelReason::RunEnded, outcome_unknown: true, .. }
    ));
    assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect");
    assert_eq!(story.names().last().unwrap(), "run.ended");
}

#[test]
fn b3_while_the_run_ends_nothing_is_tried_again() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.denies("B", Some(OnReject::EndRun));
    let events = story.returns("A", unknown());
    assert_eq!(names(&events)[0], "tool.execution_failed");
    assert_eq!(story.names().last().unwrap(), "run.ended");
}

#[test]
fn a98_a_warning_reaches_the_model_with_the_result() {
    let mut story = running("echo");
    let warned = ToolAnswer::Success { value: Arc::new(json!("ok")), warning: Some("slow".into()) };
    story.returns("A", Outcome::Answered(warned));
    assert_eq!(story.tool_text("A"), "ok\nWarning: slow");
}
