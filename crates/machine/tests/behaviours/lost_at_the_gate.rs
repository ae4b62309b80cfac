//! A worker was lost: before an attempt is repeated, the live configuration and the hooks are asked again.

use machine::decision::DecisionAction;
use machine::event::{CallErrorCode, Fact};
use machine::id::{CallId, Digest};
use machine::input::{Outcome, ToolAnswer};
use machine::phase::{Action, SuspendRequest};
use machine::policy::OnReject;
use machine::revision::{ATTEMPT_COUNT_MAX, Revision};
use machine::rules::{Rule, RuleAction};
use machine::status::{CallStatus, RunStatus};
use machine::suspension::{Held, ResumeMode};
use machine::tool::{Approval, EffectClass, Performer};
use machine::{Effect, Event, Input, Rejection};
use serde_json::json;

use crate::hooks::{block, fails, one, together};
use crate::story::{Story, names, pending, question, resume, success, tool};

/// Another worker has the run, processed all that had been accepted, and asks the gate next.
fn take_over(story: &mut Story) {
    let doubt_at = story.now.plus_ms(10_000);
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at });
    assert_eq!(story.ok(Input::InboxDrained), []);
}

/// The attempt of A was lost with its worker.
fn lost(tool: &str) -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", tool)]);
    take_over(&mut story);
    story
}

/// An approved attempt of a tool that may be repeated was lost.
fn approved_and_lost() -> Story {
    let mut story = Story::begin();
    story.tools.insert("refund".into(), tool(EffectClass::Idempotent, Approval::Ask));
    story.asks_for(&[("A", "refund")]);
    story.approves("A");
    assert_eq!(story.status("A"), CallStatus::Running);
    take_over(&mut story);
    story
}

fn wanted(story: &Story) -> Vec<Effect> {
    story.run.wanted().into_iter().collect()
}

fn code(event: &Event) -> Option<CallErrorCode> {
    match &event.fact {
        Fact::ExecutionFailed { error, .. } => Some(error.code),
        _ => None,
    }
}

#[test]
fn a_lost_attempt_that_may_be_repeated_passes_the_gate_and_gets_the_next_number() {
    let mut story = lost("upsert");
    assert_eq!((story.status("A"), story.run_status()), (CallStatus::Running, &RunStatus::Running));
    assert_eq!(wanted(&story), [Effect::Gate(CallId::from("A"))]);
    story.later(7);
    assert_eq!(names(&story.pass_gates()), ["tool.execution_started"]);
    let again = Effect::RunTool { call: CallId::from("A"), attempt: 2, not_before: story.now };
    assert_eq!(wanted(&story), [again]);
}

#[test]
fn an_attempt_that_is_under_way_is_not_at_the_gate_nor_is_a_lost_write() {
    let refused = |mut story: Story| {
        let gated = story.gated("A");
        let status = CallStatus::Running;
        let not_there = Rejection::NotAtGate { call: CallId::from("A"), status };
        assert_eq!(story.refused(Input::Gated(gated)), not_there);
    };
    let mut under_way = Story::begin();
    under_way.asks_for(&[("A", "echo")]);
    refused(under_way);
    refused(lost("post"));
}

#[test]
fn the_approval_of_a_lost_attempt_holds_for_its_repeat_while_the_tool_stays_what_was_shown() {
    let mut story = approved_and_lost();
    assert_eq!(names(&story.pass_gates()), ["tool.execution_started"]);
    assert_eq!(story.call("A").attempts, 2);
}

#[test]
fn a_lost_attempt_whose_tool_changed_meanwhile_is_held_again() {
    let mut story = approved_and_lost();
    story.tools.get_mut("refund").unwrap().definition = Digest::sha256(b"definition 2");
    let expected = ["tool.approval_voided", "tool.approval_requested", "run.waiting"];
    assert_eq!(names(&story.pass_gates()), expected);
    assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Suspended, 1));
    story.approves("A");
    assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 2));
}

#[test]
fn a_lost_attempt_whose_tool_is_a_write_by_now_is_in_doubt_and_not_repeated() {
    let mut story = approved_and_lost();
    story.tools.get_mut("refund").unwrap().class = EffectClass::Write;
    assert_eq!(names(&story.pass_gates()), ["tool.suspended", "run.waiting"]);
    assert_eq!(story.call("A").suspension().unwrap().held, Held::InDoubt { attempt: 1 });
    // Its late answer still settles it, and a person may still wish for a repeat.
    let late = success(json!("done"));
    story.ok(Input::ToolReturned { step: 1, call: CallId::from("A"), attempt: 1, outcome: late });
    assert_eq!(story.tool_text("A"), "done");
}

#[test]
fn a_lost_attempt_whose_tool_is_gone_blocked_or_denied_fails_and_says_why() {
    let mut removed = lost("upsert");
    removed.tools.remove("upsert");
    let mut blocked = lost("upsert");
    blocked.tools.get_mut("upsert").unwrap().approval = Approval::Block;
    let mut by_a_hook = lost("upsert");
    by_a_hook.gate_hooks.insert("A".into(), one("guard", block("closed for today")));
    for (mut story, why) in [
        (removed, CallErrorCode::ToolRemoved),
        (blocked, CallErrorCode::BlockedByPolicy),
        (by_a_hook, CallErrorCode::BlockedByPlugin),
    ] {
        let events = story.pass_gates();
        assert_eq!(events.iter().find_map(code), Some(why));
        let starts = story.names().iter().filter(|name| *name == "tool.execution_started").count();
        assert_eq!(starts, 1, "{why:?}");
    }
}

#[test]
fn a_gate_that_fails_before_a_repeat_is_closed() {
    let mut story = lost("echo");
    story.gate_hooks.insert("A".into(), together(&[fails("guard", "it panicked")]));
    let events = story.pass_gates();
    assert_eq!(names(&events)[..2], ["phase.answered", "tool.execution_failed"]);
    assert_eq!(code(&events[1]), Some(CallErrorCode::GateFailed));
}

#[test]
fn the_repeat_names_the_rule_that_let_it_through_like_the_first_attempt() {
    let rules = vec![Rule { tool: "echo".into(), when: Vec::new(), then: RuleAction::Allow }];
    let mut story = Story::begin_with(Revision { rules, ..Revision::default() });
    story.asks_for(&[("A", "echo")]);
    take_over(&mut story);
    story.pass_gates();
    let rules: Vec<Option<u16>> = story
        .log
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::ExecutionStarted { rule, .. } => Some(*rule),
            _ => None,
        })
        .collect();
    assert_eq!(rules, [Some(0), Some(0)]);
}

#[test]
fn a_repeat_whose_grant_is_revoked_is_held() {
    let mut story = Story::begin();
    story.tools.insert("refund".into(), tool(EffectClass::Idempotent, Approval::Ask));
    story.grants = vec![crate::story::auto_approval()];
    story.asks_for(&[("A", "refund")]);
    take_over(&mut story);
    story.grants.clear();
    assert_eq!(names(&story.pass_gates()), ["tool.approval_requested", "run.waiting"]);
}

#[test]
fn after_a_hundred_lost_attempts_the_next_gate_gives_the_call_up() {
    let mut story = lost("echo");
    for attempt in 2..=ATTEMPT_COUNT_MAX {
        story.pass_gates();
        assert_eq!(story.call("A").attempts, attempt);
        take_over(&mut story);
    }
    assert_eq!(code(&story.pass_gates()[0]), Some(CallErrorCode::NoAnswer));
    assert_eq!(story.tool_text("A"), "Error: no answer in 100 attempts");
}

#[test]
fn a_run_that_ends_does_not_wait_for_a_lost_attempt_that_will_not_be_repeated() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    take_over(&mut story);
    let end = DecisionAction::Cancel { reason: None, then: Some(OnReject::EndRun) };
    let decision = story.decision("B", end);
    story.ok(Input::Decide(decision));
    assert_eq!(story.tool_text("A"), "Cancelled: run_ended");
    assert_eq!(story.names().last().unwrap(), "run.ended");
}

#[test]
fn a_run_that_ends_waits_for_a_lost_write_until_its_doubt_is_due() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "post"), ("B", "transfer")]);
    take_over(&mut story);
    story.denies("B", Some(OnReject::EndRun));
    assert_eq!(
        (story.names().last().unwrap().as_str(), story.status("A")),
        ("run.ending", CallStatus::Running)
    );
    story.later(10_000);
    story.ok(Input::DeadlineReached);
    assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect");
    assert_eq!(story.names().last().unwrap(), "run.ended");
}

#[test]
fn a_run_that_was_ending_when_its_worker_was_lost_cancels_what_cannot_have_written() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.denies("B", Some(OnReject::EndRun));
    assert_eq!(story.names().last().unwrap(), "run.ending");
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at: story.now.plus_ms(10_000) });
    story.ok(Input::InboxDrained);
    assert_eq!(story.tool_text("A"), "Cancelled: run_ended");
    assert_eq!(story.names().last().unwrap(), "run.ended");
}

#[test]
fn a_plugin_that_asks_before_a_lost_attempt_is_repeated_keeps_the_tools_state_and_answer() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "upsert")]);
    story.returns("A", pending(ResumeMode::ReplayToolCall));
    story.answers("A", json!("the red one"));
    let belongs_to_the_tool = |story: &Story| (story.call("A").resume_state_seq, story.call("A").answer_seq);
    let before = belongs_to_the_tool(&story);
    take_over(&mut story);
    let asks = SuspendRequest { resume_state: None, ..question(ResumeMode::ReplayToolCall) };
    story.gate_hooks.insert("A".into(), one("guard", Action::Suspend(asks)));
    story.pass_gates();
    assert_eq!((story.status("A"), belongs_to_the_tool(&story)), (CallStatus::Suspended, before));
    story.answers("A", json!("go on"));
    assert_eq!((story.status("A"), belongs_to_the_tool(&story)), (CallStatus::Running, before));
}

#[test]
fn a_lost_attempt_whose_tool_moved_to_the_front_end_is_performed_there() {
    let mut story = lost("upsert");
    story.tools.get_mut("upsert").unwrap().performer = Performer::Client;
    assert_eq!(names(&story.pass_gates()), ["tool.suspended", "run.waiting"]);
    assert_eq!(story.call("A").suspension().unwrap().held, Held::ClientTool);
    story.answers("A", json!("picked"));
    assert_eq!(story.tool_text("A"), "picked");
}

#[test]
fn the_answer_of_a_lost_attempt_before_the_gate_settles_the_call() {
    for (tool, outcome, text) in [
        ("echo", success(json!("in time")), "in time"),
        ("post", success(json!("in time")), "in time"),
        ("echo", Outcome::Answered(ToolAnswer::Error { message: "no".into() }), "Error: no"),
    ] {
        let mut story = lost(tool);
        story.ok(Input::ToolReturned { step: 1, call: CallId::from("A"), attempt: 1, outcome });
        assert_eq!(story.tool_text("A"), text);
    }
    // An approval of a sibling is no reason to forget it.
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    take_over(&mut story);
    let decision = story.decision("B", resume());
    story.ok(Input::Decide(decision));
    story.ok(Input::ToolReturned { step: 1, call: "A".into(), attempt: 1, outcome: success(json!(1)) });
    assert_eq!(story.status("A"), CallStatus::Succeeded);
}

#[test]
fn a_run_that_was_ending_processes_the_late_answers_of_all_lost_attempts() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "upsert"), ("C", "transfer")]);
    story.denies("C", Some(OnReject::EndRun));
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at: story.now.plus_ms(10_000) });
    for id in ["A", "B"] {
        let outcome = success(json!(format!("{id} in time")));
        story.ok(Input::ToolReturned { step: 1, call: CallId::from(id), attempt: 1, outcome });
    }
    assert_eq!((story.tool_text("A"), story.tool_text("B")), ("A in time".into(), "B in time".into()));
    assert_eq!(story.names().last().unwrap(), "run.ended");
}
