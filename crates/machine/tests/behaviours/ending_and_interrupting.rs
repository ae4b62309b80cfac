//! How a run is ended from within and from outside: what is awaited, what is closed, and how each call reads.

use machine::event::InterruptCause;
use machine::input::{Outcome, ToolAnswer};
use machine::phase::{Action, AskKind, SuspendRequest};
use machine::policy::{Execution, OnBlock, OnReject, Policy};
use machine::status::{CallStatus, RunStatus};
use machine::suspension::ResumeMode;
use machine::termination::{Cancelled as By, StopCode, Stopped, Termination};
use machine::tool::OnExpiry;
use machine::{Effect, Event, Fact, Input, Rejection};
use serde_json::json;

use crate::props::{hook, lines, payload, payloads, termination};
use crate::story::{Story, cancel, names, not_sent, pending, question, resume, success, unknown};

use CallStatus::{Cancelled, Running};

fn rejected(detail: &str) -> Termination {
    Termination::Stopped(Stopped { code: StopCode::Rejected, detail: Some(detail.into()) })
}

/// A and B wait for approval, C and D run: D may have written.
fn mixed() -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "echo"), ("D", "post")]);
    story
}

/// Each cancelled call with its reason, who cancelled it, and whether it may have taken effect.
fn cancelled(events: &[Event]) -> Vec<(String, String, String, bool)> {
    payloads(events, "tool.cancelled")
        .iter()
        .map(|p| {
            let text = |key: &str| p[key].as_str().unwrap().to_owned();
            (text("call_id"), text("reason"), text("by"), p["outcome_unknown"] == json!(true))
        })
        .collect()
}

fn of(call: &str, reason: &str, outcome_unknown: bool) -> (String, String, String, bool) {
    (call.into(), reason.into(), "system".into(), outcome_unknown)
}

#[test]
fn a_reject_that_ends_the_run_closes_what_is_held_and_awaits_what_executes() {
    let mut story = mixed();
    let events = story.denies("A", Some(OnReject::EndRun));
    assert_eq!(names(&events), ["tool.denied", "tool.cancelled", "run.ending"]);
    assert_eq!(cancelled(&events), [of("B", "run_ended", false)], "only the rejected call is denied");
    assert_eq!(story.run_status(), &RunStatus::Running);
    let wanted: Vec<Effect> = story.run.wanted().into_iter().collect();
    let run = |call: &str| Effect::RunTool { call: call.into(), attempt: 1, not_before: story.now };
    assert_eq!(wanted, [run("C"), run("D")], "executing calls are awaited");
    assert_eq!(names(&story.succeeds("C")), ["tool.execution_succeeded"]);
    let events = story.fails("D");
    assert_eq!(
        names(&events),
        [
            "tool.execution_failed",
            "message.added",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "run.ended"
        ]
    );
    assert_eq!(termination(&story), rejected("no"));
    assert_eq!(
        lines(&story),
        [
            "user: hello",
            "assistant: [A B C D]",
            "A: Denied by ana: no",
            "B: Cancelled: run_ended",
            "C: ok",
            "D: Error: boom"
        ]
    );
}

#[test]
fn while_a_run_is_ending_nothing_is_decided_and_nothing_starts() {
    let mut story = mixed();
    let decision = story.decision("B", resume());
    story.denies("A", Some(OnReject::EndRun));
    let refused = story.refused(Input::Decide(decision));
    assert_eq!(refused, Rejection::RunEnding);
    assert_eq!(refused.to_string(), "the run is ending; nothing is decided in it any more");
}

#[test]
fn while_a_run_is_ending_a_call_that_would_suspend_or_try_again_is_closed() {
    let mut story = mixed();
    story.denies("A", Some(OnReject::EndRun));
    let events = story.returns("C", pending(ResumeMode::ReplayToolCall));
    assert_eq!(cancelled(&events), [of("C", "run_ended", false)]);
    let events = story.returns("D", unknown());
    assert_eq!(cancelled(&events), [of("D", "run_ended", true)], "in doubt, and no person is asked any more");
    assert_eq!(termination(&story), rejected("no"));
    assert_eq!(
        lines(&story).split_off(2),
        [
            "A: Denied by ana: no",
            "B: Cancelled: run_ended",
            "C: Cancelled: run_ended",
            "D: Cancelled; it may have taken effect"
        ]
    );

    let mut story = mixed();
    story.denies("A", Some(OnReject::EndRun));
    let events = story.returns("C", unknown());
    assert_eq!(names(&events), ["tool.execution_failed"], "no further attempt");
    story.returns("D", not_sent());
    assert_eq!(termination(&story), rejected("no"));
}

#[test]
fn an_interrupt_ends_an_ending_run_at_once() {
    let mut story = mixed();
    story.denies("A", Some(OnReject::EndRun));
    let events = story.ok(Input::Interrupt { cause: InterruptCause::Person("ana".into()) });
    assert_eq!(cancelled(&events), [of("C", "interrupted", false), of("D", "interrupted", true)]);
    assert_eq!(termination(&story), Termination::Cancelled(By::Interrupted));
}

#[test]
fn the_word_of_the_rejection_comes_before_the_policy_and_continue_is_the_default() {
    for (policy, then, ends) in [
        (None, None, false),
        (None, Some(OnReject::EndRun), true),
        (Some(OnReject::EndRun), None, true),
        (Some(OnReject::EndRun), Some(OnReject::Continue), false),
        (Some(OnReject::Continue), Some(OnReject::EndRun), true),
        (Some(OnReject::Continue), None, false),
    ] {
        let mut story = Story::with_policy(Policy { on_reject: policy, ..Policy::default() });
        story.asks_for(&[("A", "transfer")]);
        story.denies("A", then);
        assert_eq!(story.run.control.ended().is_some(), ends, "{policy:?} {then:?}");
        assert_eq!(story.tool_text("A"), "Denied by ana: no");
    }
}

/// A waits for approval until `expires`; B runs.
fn expiring(on_expiry: OnExpiry, on_reject: Option<OnReject>) -> Story {
    let mut story = Story::with_policy(Policy { on_reject, ..Policy::default() });
    let tool = story.tools.get_mut("transfer").unwrap();
    tool.expires_in_ms = Some(1_000);
    tool.on_expiry = on_expiry;
    story.asks_for(&[("A", "transfer"), ("B", "echo"), ("C", "pick_file")]);
    story.later(1_000);
    story
}

#[test]
fn an_expiry_that_denies_lets_the_run_continue() {
    let mut story = expiring(OnExpiry::Deny, None);
    let events = story.ok(Input::DeadlineReached);
    assert_eq!(names(&events), ["tool.denied"]);
    let denied = payload(&events, "tool.denied");
    assert_eq!(
        (&denied["by"], &denied["reason"], &denied["expired"]),
        (&json!("system"), &json!("expired"), &json!(true))
    );
    assert_eq!(story.tool_text("A"), "Denied by system: expired");
    assert_eq!(["B", "C"].map(|id| story.status(id)), [Running, CallStatus::Suspended]);
}

#[test]
fn an_expiry_that_ends_the_run_awaits_what_executes() {
    let mut story = expiring(OnExpiry::EndRun, None);
    let events = story.ok(Input::DeadlineReached);
    assert_eq!(names(&events), ["tool.denied", "tool.cancelled", "run.ending"]);
    assert_eq!(cancelled(&events), [of("C", "run_ended", false)]);
    story.succeeds("B");
    let expired = Termination::Stopped(Stopped { code: StopCode::Expired, detail: None });
    assert_eq!(termination(&story), expired);
    assert_eq!(
        lines(&story).split_off(2),
        ["A: Denied by system: expired", "B: ok", "C: Cancelled: run_ended"]
    );
}

#[test]
fn an_expiry_that_denies_follows_on_reject() {
    let mut story = expiring(OnExpiry::Deny, Some(OnReject::EndRun));
    story.ok(Input::DeadlineReached);
    story.succeeds("B");
    assert_eq!(termination(&story).done_reason(), "stopped:rejected");
}

/// `on_reject` is about refusals of people: an answer that never comes is none.
#[test]
fn a_question_that_expires_lets_the_run_continue_whatever_on_reject_says() {
    for on_reject in [None, Some(OnReject::Continue), Some(OnReject::EndRun)] {
        let mut story = Story::with_policy(Policy { on_reject, ..Policy::default() });
        story.asks_for(&[("A", "upsert"), ("B", "echo")]);
        story.succeeds("B");
        let asked =
            SuspendRequest { expires_in_ms: Some(1_000), ..question(ResumeMode::UseDecisionAsToolResult) };
        story.returns("A", Outcome::Answered(ToolAnswer::Pending(asked)));
        story.later(1_000);
        let events = story.ok(Input::DeadlineReached);
        assert_eq!(cancelled(&events), [of("A", "expired", false)], "{on_reject:?}");
        assert_eq!((story.run.control.ended(), story.run.control.step), (None, 2), "{on_reject:?}");
        assert_eq!(story.tool_text("B"), "ok");
    }
}

#[test]
fn a_block_that_ends_the_run_awaits_what_executes() {
    let mut story = Story::with_policy(Policy { on_block: OnBlock::EndRun, ..Policy::default() });
    story.gate_hooks.insert("B".into(), hook(Action::Block { reason: "no".into() }));
    let calls = [("A", "post", json!({})), ("B", "echo", json!({})), ("C", "echo", json!({}))];
    let answered = story.answer("", &calls);
    story.model_answers(answered);
    story.pass_gate("A");
    let events = story.pass_gate("B");
    assert_eq!(names(&events), ["phase.answered", "tool.execution_failed", "tool.cancelled", "run.ending"]);
    let gated = story.gated("B");
    assert_eq!(story.refused(Input::Gated(gated)), Rejection::RunEnding);
    assert_eq!(story.status("C"), Cancelled);
    story.succeeds("A");
    assert_eq!(termination(&story), Termination::Blocked("blocked by guard: no".into()));
    assert_eq!(
        lines(&story).split_off(2),
        ["A: ok", "B: Error: blocked by guard: no", "C: Cancelled: run_ended"]
    );
}

#[test]
fn in_sequential_mode_the_unreached_calls_are_cancelled_too() {
    let mut story = Story::with_policy(Policy { execution: Execution::Sequential, ..Policy::default() });
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    let events = story.denies("A", Some(OnReject::EndRun));
    assert_eq!(cancelled(&events), [of("B", "run_ended", false)]);
    assert_eq!(termination(&story), rejected("no"));
    let expected = ["user: hello", "assistant: [A B]", "A: Denied by ana: no", "B: Cancelled: run_ended"];
    assert_eq!(lines(&story), expected);
}

#[test]
fn an_interrupt_waits_for_nothing_and_says_what_may_have_taken_effect() {
    let mut story = mixed();
    let events = story.ok(Input::Interrupt { cause: InterruptCause::Person("ana".into()) });
    assert_eq!(
        cancelled(&events),
        [
            of("A", "interrupted", false),
            of("B", "interrupted", false),
            of("C", "interrupted", false),
            of("D", "interrupted", true)
        ]
    );
    assert_eq!(
        lines(&story).split_off(2),
        [
            "A: Cancelled: interrupted",
            "B: Cancelled: interrupted",
            "C: Cancelled: interrupted",
            "D: Cancelled; it may have taken effect"
        ]
    );
    let late = Input::ToolReturned { step: 1, call: "C".into(), attempt: 1, outcome: success(json!(1)) };
    assert_eq!(story.refused(late), Rejection::RunEnded(Termination::Cancelled(By::Interrupted)));
}

#[test]
fn an_interrupted_run_that_was_queued_never_starts() {
    let mut story = Story::queued_with(machine::Revision::default(), crate::story::order(Policy::default()));
    story.ok(Input::Interrupt { cause: InterruptCause::Person("ana".into()) });
    assert_eq!(story.names(), ["run.queued", "run.interrupting", "run.ended"]);
}

#[test]
fn a_superseded_run_closes_its_calls_as_superseded_in_one_commit() {
    let mut story = mixed();
    let events = story.ok(Input::Interrupt { cause: InterruptCause::Superseded("run_2".into()) });
    assert_eq!(names(&events).first().unwrap(), "run.interrupting");
    assert_eq!(names(&events).last().unwrap(), "run.ended");
    assert_eq!(
        cancelled(&events),
        [
            of("A", "superseded", false),
            of("B", "superseded", false),
            of("C", "superseded", false),
            of("D", "superseded", true)
        ]
    );
    assert_eq!(termination(&story), Termination::Cancelled(By::Superseded));
    assert_eq!(story.tool_text("A"), "Cancelled: superseded");
}

#[test]
fn a_run_in_doubt_that_is_superseded_or_interrupted_says_that_the_call_may_have_taken_effect() {
    for (cause, by) in [
        (InterruptCause::Superseded("run_2".into()), By::Superseded),
        (InterruptCause::Person("ana".into()), By::Interrupted),
    ] {
        let mut story = Story::begin();
        story.asks_for(&[("A", "post")]);
        story.returns("A", unknown());
        story.ok(Input::Interrupt { cause });
        assert_eq!(termination(&story), Termination::Cancelled(by));
        assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect");
    }
}

#[test]
fn a_run_that_its_parent_interrupts_says_so() {
    let mut story = mixed();
    story.ok(Input::Interrupt { cause: InterruptCause::Parent("run_0".into()) });
    assert_eq!(termination(&story), Termination::Cancelled(By::ByParent));
}

#[test]
fn the_last_event_of_an_end_is_the_terminal_one_and_there_is_one() {
    let mut story = mixed();
    story.denies("A", Some(OnReject::EndRun));
    story.succeeds("C");
    story.returns("D", Outcome::Answered(ToolAnswer::Error { message: "x".into() }));
    let ends = story.log.iter().filter(|event| matches!(event.fact, Fact::RunEnded { .. })).count();
    assert_eq!(ends, 1);
    assert_eq!(story.names().last().unwrap(), "run.ended");
}

#[test]
fn a_run_that_ends_cancels_a_repeat_that_is_not_due_yet_and_awaits_one_that_is() {
    let pausing = || {
        let mut story = Story::begin();
        story.asks_for(&[("A", "upsert"), ("B", "transfer")]);
        story.returns("A", unknown());
        let not_before = story.now.plus_ms(500);
        let wanted = Effect::RunTool { call: "A".into(), attempt: 2, not_before };
        assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [wanted]);
        story
    };
    let mut early = pausing();
    early.later(499);
    let events = early.denies("B", Some(OnReject::EndRun));
    assert_eq!(cancelled(&events), [of("A", "run_ended", false)]);
    assert_eq!(early.names().last().unwrap(), "run.ended");
    let mut due = pausing();
    due.later(500);
    due.denies("B", Some(OnReject::EndRun));
    assert_eq!(due.status("A"), Running);
    due.succeeds("A");
    assert_eq!(due.tool_text("A"), "ok");
    assert_eq!(due.names().last().unwrap(), "run.ended");
}

#[test]
fn a_cancelled_call_names_the_suspension_that_is_closed_with_it() {
    let closes = |events: &[Event]| {
        let closed = payloads(events, "tool.cancelled");
        closed.into_iter().map(|p| (p["call_id"].clone(), p["suspension_id"].clone())).collect::<Vec<_>>()
    };
    let open = |story: &Story, id: &str| (json!(id), json!(story.call(id).suspension().unwrap().id.as_str()));
    let nothing = |id: &str| (json!(id), json!(null));
    let mut interrupted = mixed();
    let (a, b) = (open(&interrupted, "A"), open(&interrupted, "B"));
    let events = interrupted.ok(Input::Interrupt { cause: InterruptCause::Person("ana".into()) });
    assert_eq!(closes(&events), [a, b, nothing("C"), nothing("D")]);
    let mut ended = mixed();
    let b = open(&ended, "B");
    assert_eq!(closes(&ended.denies("A", Some(OnReject::EndRun))), [b]);
    let mut given_up = Story::begin();
    given_up.asks_for(&[("A", "post")]);
    given_up.returns("A", unknown());
    let a = open(&given_up, "A");
    assert_eq!(closes(&given_up.decides("A", cancel())), [a]);
    let mut expired = Story::begin();
    expired.asks_for(&[("A", "echo")]);
    let asks = SuspendRequest { expires_in_ms: Some(10), ..question(ResumeMode::ReplayToolCall) };
    expired.returns("A", Outcome::Answered(ToolAnswer::Pending(asks)));
    let a = open(&expired, "A");
    expired.later(10);
    assert_eq!(closes(&expired.ok(Input::DeadlineReached)), [a]);
}

#[test]
fn a_call_given_to_another_performer_may_have_taken_effect_when_it_is_cancelled() {
    let given = |tool: &str| {
        let mut story = Story::begin();
        story.asks_for(&[("A", tool), ("B", "transfer")]);
        let asks = question(ResumeMode::UseDecisionAsToolResult);
        let asks = SuspendRequest { kind: AskKind::External, expires_in_ms: Some(10), ..asks };
        story.returns("A", Outcome::Answered(ToolAnswer::Pending(asks)));
        story
    };
    let unknown = "Cancelled; it may have taken effect";
    for (tool, is_unknown) in [("post", true), ("upsert", false), ("echo", false)] {
        let reads = |story: &Story, reason: &str| {
            let plain = format!("Cancelled: {reason}");
            assert_eq!(story.tool_text("A"), if is_unknown { unknown } else { &plain }, "{tool}");
        };
        let mut ended = given(tool);
        ended.denies("B", Some(OnReject::EndRun));
        reads(&ended, "run_ended");
        let mut interrupted = given(tool);
        interrupted.ok(Input::Interrupt { cause: InterruptCause::Person("ana".into()) });
        reads(&interrupted, "interrupted");
        let mut superseded = given(tool);
        superseded.ok(Input::Interrupt { cause: InterruptCause::Superseded("run_2".into()) });
        reads(&superseded, "superseded");
        let mut expired = given(tool);
        expired.later(10);
        expired.ok(Input::DeadlineReached);
        reads(&expired, "expired");
        let mut decided = given(tool);
        decided.decides("A", cancel());
        assert_eq!(decided.tool_text("A"), "Cancelled", "the person who cancels it knows");
    }
    let mut awaited = Story::begin();
    awaited.asks_for(&[("A", "webhook"), ("B", "transfer")]);
    awaited.denies("B", Some(OnReject::EndRun));
    assert_eq!(awaited.tool_text("A"), "Cancelled: run_ended", "nothing was sent");
}

#[test]
fn a_run_that_ends_awaits_a_call_that_resumes_only_where_that_call_was_approved() {
    let asked = || {
        let mut story = Story::begin();
        story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "echo")]);
        story
    };
    // C resumes with the answer to its own question, which is no approval.
    let mut answered = asked();
    answered.returns("C", pending(ResumeMode::ReplayToolCall));
    answered.ok(Input::Decide(answered.decision("C", resume())));
    let events = answered.denies("A", Some(OnReject::EndRun));
    assert_eq!(cancelled(&events), [of("B", "run_ended", false), of("C", "run_ended", false)]);
    assert_eq!(termination(&answered), rejected("no"));
    // B was approved and ran, and is held by a question of its own.
    let mut held_again = asked();
    held_again.succeeds("C");
    held_again.approves("B");
    held_again.returns("B", pending(ResumeMode::ReplayToolCall));
    let events = held_again.denies("A", Some(OnReject::EndRun));
    assert_eq!(cancelled(&events), [of("B", "run_ended", false)]);
    assert_eq!(termination(&held_again), rejected("no"));
}
