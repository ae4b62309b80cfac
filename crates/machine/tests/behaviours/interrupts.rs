//! An interrupt does not wait, and a late success never beats it.

use machine::event::{CancelReason, Fact, InterruptCause, Message};
use machine::id::{CallId, Principal, RunId};
use machine::input::ModelFailure;
use machine::phase::{HookAnswers, Phase};
use machine::policy::{OnReject, Policy};
use machine::revision::Revision;
use machine::status::{CallStatus, RunStatus};
use machine::termination::{Cancelled, StopCode, Termination};
use machine::thread::{Admission, IfBusy, ThreadState, admit};
use machine::transcript::ModelMessage;
use machine::{Effect, Event, Input, Rejection};
use serde_json::json;

use crate::hooks::hooked;
use crate::plain_transcript::Compared;
use crate::story::{Story, names, order, resume, success};

fn by_ana() -> Input {
    Input::Interrupt { cause: InterruptCause::Person(Principal::from("ana")) }
}

fn interrupted() -> RunStatus {
    RunStatus::Done(Termination::Cancelled(Cancelled::Interrupted))
}

/// Call, reason and whether it may have taken effect, of every call that an input cancelled.
fn cancelled(events: &[Event]) -> Vec<(&str, CancelReason, bool)> {
    events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::ToolCancelled { call_id, reason, outcome_unknown, .. } => {
                Some((call_id.as_str(), *reason, *outcome_unknown))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn a102_a103_a107_b51_an_interrupt_ends_the_run_at_once_whatever_its_tools_do() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "post"), ("C", "transfer"), ("D", "echo")]);
    story.succeeds("D");
    let events = story.ok(by_ana());
    // One decision, no second round: a tool that ignores its token holds nothing up.
    assert_eq!(
        names(&events),
        [
            "run.interrupting",
            "tool.cancelled",
            "tool.cancelled",
            "tool.cancelled",
            "message.added",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "run.ended"
        ]
    );
    assert_eq!(story.run_status(), &interrupted());
    assert!(story.run.wanted().is_empty());
    // Not reported as a failed or blocked tool.
    let reason = CancelReason::Interrupted;
    assert_eq!(cancelled(&events), [("A", reason, false), ("B", reason, true), ("C", reason, false)]);
    assert!(!story.names().contains(&"tool.execution_failed".into()));
    // The late success is dropped.
    for call in ["A", "B"] {
        let late = Input::ToolReturned {
            step: 1,
            call: CallId::from(call),
            attempt: 1,
            outcome: success(json!("late")),
        };
        let ended = Termination::Cancelled(Cancelled::Interrupted);
        assert_eq!(story.refused(late), Rejection::RunEnded(ended));
    }
}

#[test]
fn a105_the_assistant_message_stays_and_every_call_has_exactly_one_result() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "post"), ("C", "transfer"), ("D", "echo")]);
    story.succeeds("D");
    story.ok(by_ana());
    let texts: Vec<String> = story
        .transcript()
        .into_iter()
        .map(|message| match message {
            ModelMessage::Assistant { calls, .. } => format!("{} calls", calls.len()),
            ModelMessage::Tool { text, .. } => text,
            ModelMessage::User { .. } => "user".into(),
            ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => format!("note {text}"),
        })
        .collect();
    assert_eq!(
        texts,
        [
            "user",
            "4 calls",
            "Cancelled: interrupted",
            "Cancelled; it may have taken effect",
            "Cancelled: interrupted",
            "ok"
        ]
    );
}

#[test]
fn a106_b51_what_the_model_was_about_to_say_is_not_part_of_the_conversation() {
    let mut story = Story::begin();
    let late = story.answer("too late", &[]);
    let events = story.ok(by_ana());
    assert_eq!(names(&events), ["run.interrupting", "message.added", "step.ended", "run.ended"]);
    assert!(matches!(story.refused(Input::ModelAnswered(late)), Rejection::RunEnded(_)));
    let failure = ModelFailure { message: "cut".into(), retryable: true, retry_after_ms: None };
    let failed = Input::ModelFailed { step: 1, attempt: 1, failure };
    assert!(matches!(story.refused(failed), Rejection::RunEnded(_)));
    // The next run reads that there was no answer, and not what might have become one.
    let text = machine::model_text::INTERRUPTION.into();
    assert_eq!(story.transcript()[1..], [ModelMessage::Notice { text }]);
}

#[test]
fn a108_a_run_interrupted_before_it_starts_never_calls_the_model() {
    let mut story = Story::queued_with(Revision::default(), order(Policy::default()));
    let events = story.ok(by_ana());
    assert_eq!(names(&events), ["run.interrupting", "run.ended"]);
    assert_eq!(story.run_status(), &interrupted());
    assert!(matches!(story.refused(Input::Start { after: None }), Rejection::RunEnded(_)));
    assert!(!story.names().contains(&"run.started".into()));
    assert_eq!(story.transcript(), []);
}

#[test]
fn a102_hooks_of_the_end_are_not_waited_for() {
    let mut story = Story::begin_with(hooked(&[Phase::RunEnd, Phase::StepEnd, Phase::AfterToolExecute]));
    story.asks_for(&[("A", "echo")]);
    let events = story.ok(by_ana());
    assert_eq!(names(&events).last().unwrap(), "run.ended");
    assert!(story.run.wanted().is_empty());
}

#[test]
fn b49_a_held_call_is_interrupted_before_it_ran() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let decision = story.decision("A", resume());
    let events = story.ok(by_ana());
    assert_eq!(
        names(&events),
        ["run.interrupting", "tool.cancelled", "message.added", "step.ended", "run.ended"]
    );
    assert_eq!(cancelled(&events), [("A", CancelReason::Interrupted, false)]);
    assert_eq!(story.tool_text("A"), "Cancelled: interrupted");
    assert!(!story.names().contains(&"tool.execution_started".into()));
    // The approval that comes after it is for nothing.
    assert!(matches!(story.refused(Input::Decide(decision)), Rejection::RunEnded(_)));
}

#[test]
fn b50_a_second_interrupt_changes_nothing() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.ok(by_ana());
    let log = story.log.clone();
    let ended = Termination::Cancelled(Cancelled::Interrupted);
    assert_eq!(story.refused(by_ana()), Rejection::RunEnded(ended));
    assert_eq!(story.log, log);
}

#[test]
fn b52_an_attempt_that_was_recorded_but_not_begun_is_not_wanted_any_more() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "post")]);
    let attempt = Effect::RunTool { call: CallId::from("A"), attempt: 1, not_before: story.now };
    // The start is stored, the worker has not begun it yet: the interrupt takes the wish away.
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [attempt]);
    story.ok(by_ana());
    assert!(story.run.wanted().is_empty());
}

#[test]
fn b53_the_next_message_of_the_thread_works_and_reads_what_happened() {
    let mut first = Story::begin();
    first.asks_for(&[("A", "post")]);
    first.ok(by_ana());
    let if_busy = IfBusy::resolve(None, &machine::policy::PolicyRequest::default(), &Policy::default());
    assert_eq!(admit(&ThreadState::Free, if_busy), Admission::Hold);
    let mut next = order(Policy::default());
    next.run_id = RunId::from("run_2");
    next.message.as_mut().unwrap().id = "msg_user_2".into();
    let mut second = Story::queued_with(Revision::default(), next);
    second.ok(Input::Start { after: Some("msg_A".into()) });
    second.says("I see");
    assert_eq!(second.run_status(), &RunStatus::Done(Termination::NaturalEnd));
    let mut thread = Compared::default();
    first.log.iter().chain(&second.log).for_each(|event| thread.push(event));
    let roles: Vec<&str> = thread
        .shared
        .model_input()
        .iter()
        .map(|message| match message {
            ModelMessage::User { .. } => "user",
            ModelMessage::Assistant { .. } => "assistant",
            ModelMessage::Tool { .. } => "tool",
            ModelMessage::Note { .. } | ModelMessage::Notice { .. } => "note",
        })
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user", "assistant"]);
}

#[test]
fn a104_refusing_a_tool_and_stopping_a_run_are_two_things() {
    // A refusal fails one call, and the run continues.
    let mut story = Story::begin();
    story.asks_for(&[("A", "forbidden"), ("B", "echo")]);
    assert_eq!((story.status("A"), story.status("B")), (CallStatus::Failed, CallStatus::Running));
    assert_eq!(story.run_status(), &RunStatus::Running);
    // An interrupt cancels what is open, leaves what is settled, and ends the run.
    let events = story.ok(by_ana());
    assert_eq!(cancelled(&events), [("B", CancelReason::Interrupted, false)]);
    assert_eq!(story.tool_text("A"), "Error: blocked by policy");
    assert_eq!(story.run_status(), &interrupted());
}

#[test]
fn a104_end_run_waits_for_what_executes_and_an_interrupt_ends_that_wait() {
    let rejected = || RunStatus::Done(Termination::stopped(StopCode::Rejected, Some("no".to_owned())));
    let ending = || {
        let mut story = Story::begin();
        story.asks_for(&[("A", "echo"), ("B", "transfer"), ("C", "transfer")]);
        let events = story.denies("B", Some(OnReject::EndRun));
        assert_eq!(names(&events), ["tool.denied", "tool.cancelled", "run.ending"]);
        assert_eq!(cancelled(&events), [("C", CancelReason::RunEnded, false)]);
        assert_eq!((story.status("A"), story.run_status()), (CallStatus::Running, &RunStatus::Running));
        story
    };
    let mut story = ending();
    assert_eq!(names(&story.succeeds("A")).last().unwrap(), "run.ended");
    assert_eq!(story.run_status(), &rejected());
    assert_eq!(story.tool_text("A"), "ok");
    let mut story = ending();
    story.ok(by_ana());
    assert_eq!(story.run_status(), &interrupted());
}

#[test]
fn a104_while_a_run_ends_nothing_is_decided_and_a_call_that_would_wait_is_cancelled() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "transfer"), ("C", "transfer")]);
    let on_c = story.decision("C", resume());
    story.denies("B", Some(OnReject::EndRun));
    assert_eq!(story.refused(Input::Decide(on_c)), Rejection::RunEnding);
    let asks = crate::story::pending(machine::suspension::ResumeMode::ReplayToolCall);
    let events = story.returns("A", asks);
    assert_eq!(cancelled(&events), [("A", CancelReason::RunEnded, false)]);
    assert_eq!(names(&events).last().unwrap(), "run.ended");
}

#[test]
fn a102_a_superseded_run_says_so_on_every_call() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "pick_file")]);
    let cause = InterruptCause::Superseded(RunId::from("run_2"));
    let events = story.ok(Input::Interrupt { cause });
    let reason = CancelReason::Superseded;
    assert_eq!(cancelled(&events), [("A", reason, false), ("B", reason, false)]);
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::Cancelled(Cancelled::Superseded)));
    assert_eq!(story.tool_text("A"), "Cancelled: superseded");
}

#[test]
fn a102_an_interrupt_while_hooks_of_the_end_are_asked_ends_the_run() {
    let mut story = Story::begin_with(hooked(&[Phase::RunEnd]));
    story.says("done");
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [Effect::RunPhase(Phase::RunEnd)]);
    story.ok(by_ana());
    assert_eq!(story.run_status(), &interrupted());
    let late = Input::PhaseAnswered { phase: Phase::RunEnd, hooks: HookAnswers::default() };
    assert!(matches!(story.refused(late), Rejection::RunEnded(_)));
    assert!(!story.log.iter().any(|event| matches!(&event.fact, Fact::MessageAdded(Message::Note { .. }))));
}
