//! An attempt in doubt answers after all, or another one does: what is known then, and what the model reads.

use machine::event::{CallErrorCode, Fact, ResultFrom};
use machine::id::{CallId, Digest, Principal};
use machine::input::{Outcome, ToolAnswer};
use machine::phase::{Action, SuppliedResult, SuspendRequest};
use machine::status::CallStatus;
use machine::suspension::{Held, ResumeMode};
use machine::{Input, InputOutcome, Rejection};
use serde_json::json;

use crate::hooks::one;
use crate::props::payload;
use crate::story::{Story, cancel, names, not_sent, pending, question, resume, success, unknown};

fn returned(attempt: u32, outcome: Outcome) -> Input {
    Input::ToolReturned { step: 1, call: CallId::from("A"), attempt, outcome }
}

fn error(message: &str) -> Outcome {
    Outcome::Answered(ToolAnswer::Error { message: message.into() })
}

/// What attempt 1 of this write did is unknown.
fn in_doubt(tool: &str) -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", tool)]);
    if story.status("A") == CallStatus::Suspended {
        story.approves("A");
    }
    story.returns("A", unknown());
    assert_eq!(story.call("A").doubted, [1]);
    story
}

/// A person asked for a retry, and it has not started.
fn to_be_retried() -> Story {
    let mut story = in_doubt("post");
    let decision = story.decision("A", resume());
    story.ok(Input::Decide(decision));
    assert_eq!(story.status("A"), CallStatus::Resuming);
    story
}

#[test]
fn the_late_success_of_the_attempt_in_doubt_makes_a_retry_needless_that_has_not_started() {
    let mut story = to_be_retried();
    let events = story.ok(returned(1, success(json!("it worked"))));
    assert_eq!(names(&events)[0], "tool.execution_succeeded");
    assert!(matches!(&events[0].fact, Fact::ExecutionSucceeded { by: ResultFrom::Tool, .. }));
    assert_eq!(story.tool_text("A"), "it worked");
    let starts = story.names().iter().filter(|name| *name == "tool.execution_started").count();
    assert_eq!(starts, 1);
}

#[test]
fn any_other_late_answer_leaves_a_requested_retry_as_it_is() {
    for outcome in [error("no"), not_sent(), unknown(), pending(ResumeMode::ReplayToolCall)] {
        let mut story = to_be_retried();
        assert_eq!(story.ok(returned(1, outcome)), []);
        assert_eq!(story.last_outcome, Some(InputOutcome::Duplicate));
        story.pass_gates();
        assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 2));
    }
}

#[test]
fn the_late_answer_settles_a_call_whose_retry_is_held_because_the_tool_changed() {
    let mut story = in_doubt("transfer");
    story.tools.get_mut("transfer").unwrap().definition = Digest::sha256(b"definition 2");
    story.decides("A", resume());
    let open = story.call("A").suspension().unwrap().clone();
    assert!(matches!(open.held, Held::Approval { .. }));
    let events = story.ok(returned(1, success(json!("it worked"))));
    assert_eq!(names(&events)[..3], ["tool.resumed", "run.resumed", "tool.execution_succeeded"]);
    let resumed = Fact::ToolResumed {
        call_id: CallId::from("A"),
        suspension_id: open.id,
        mode: ResumeMode::UseDecisionAsToolResult,
        by: Principal::system(),
        decision_id: None,
        late_attempt: Some(1),
        answer: None,
        arguments: None,
    };
    assert_eq!(events[0].fact, resumed);
    assert_eq!(story.tool_text("A"), "it worked");
}

#[test]
fn a_doubt_that_was_resolved_does_not_come_back() {
    // The outcome of attempts 1 and 2 is unknown. Then each says that it was never sent, the later one first.
    let mut story = in_doubt("post");
    story.decides("A", resume());
    story.returns("A", unknown());
    assert_eq!(story.call("A").doubted, [1, 2]);
    story.ok(returned(2, not_sent()));
    assert_eq!(story.call("A").suspension().unwrap().held, Held::InDoubt { attempt: 1 });
    assert_eq!(story.call("A").doubted, [1]);
    let events = story.ok(returned(1, not_sent()));
    assert_eq!(names(&events)[2], "tool.execution_failed");
    assert_eq!(story.tool_text("A"), "Error: refused");
}

#[test]
fn an_earlier_attempt_that_answers_leaves_the_later_one_in_doubt_only_where_it_did_not_settle_the_call() {
    let doubted_twice = || {
        let mut story = in_doubt("post");
        story.decides("A", resume());
        story.returns("A", unknown());
        story
    };
    let mut story = doubted_twice();
    story.ok(returned(1, success(json!("it worked"))));
    assert_eq!(story.tool_text("A"), "it worked");
    let mut story = doubted_twice();
    story.ok(returned(1, not_sent()));
    assert_eq!(story.call("A").suspension().unwrap().held, Held::InDoubt { attempt: 2 });
    let mut story = doubted_twice();
    story.ok(returned(1, error("no")));
    assert_eq!(story.tool_text("A"), "Error: no; an earlier attempt may have taken effect");
}

#[test]
fn a_question_that_the_attempt_in_doubt_asks_late_ends_its_doubt() {
    let mut story = in_doubt("post");
    story.ok(returned(1, pending(ResumeMode::ReplayToolCall)));
    assert_eq!(story.call("A").doubted, <[u32; 0]>::default());
    story.decides("A", cancel());
    assert_eq!(story.tool_text("A"), "Cancelled");
}

#[test]
fn the_answer_to_a_question_that_an_attempt_in_doubt_asks_late_reaches_the_tool() {
    for resume_state in [None, Some(std::sync::Arc::new(json!({"cursor": 7})))] {
        let mut story = in_doubt("post");
        let asks = SuspendRequest { resume_state, ..question(ResumeMode::ReplayToolCall) };
        story.ok(returned(1, Outcome::Answered(ToolAnswer::Pending(asks))));
        let events = story.answers("A", json!("the red one"));
        assert_eq!(names(&events), ["tool.resumed", "run.resumed", "tool.execution_started"]);
        assert_eq!(story.call("A").answer_seq, Some(events[0].seq));
    }
}

#[test]
fn the_late_answer_of_a_doubted_attempt_is_stale_once_another_attempt_settled_the_call() {
    // B is held, so that A stays in the control after it has settled.
    let mut story = Story::begin();
    story.asks_for(&[("A", "post"), ("B", "transfer")]);
    story.returns("A", unknown());
    story.decides("A", resume());
    story.succeeds("A");
    let status = CallStatus::Succeeded;
    for outcome in [success(json!("late")), error("late"), not_sent()] {
        let stale = Rejection::StaleAttempt { call: CallId::from("A"), attempt: 1, current: 2, status };
        assert_eq!(story.refused(returned(1, outcome)), stale);
    }
}

#[test]
fn a_repeat_that_fails_says_that_an_earlier_attempt_may_have_taken_effect() {
    let mut story = in_doubt("post");
    story.decides("A", resume());
    let events = story.returns("A", error("duplicate reference"));
    assert_eq!(payload(&events, "tool.execution_failed")["outcome_unknown"], true);
    assert_eq!(story.tool_text("A"), "Error: duplicate reference; an earlier attempt may have taken effect");
    // Without a doubt nothing is said, and nothing is stored.
    let mut story = Story::begin();
    story.asks_for(&[("A", "post")]);
    let events = story.returns("A", error("duplicate reference"));
    assert_eq!(payload(&events, "tool.execution_failed").get("outcome_unknown"), None);
    assert_eq!(story.tool_text("A"), "Error: duplicate reference");
}

#[test]
fn an_error_that_a_plugin_supplies_is_the_plugins_and_no_answer_of_the_tool() {
    let supplied = || one("cache", Action::SetResult(SuppliedResult::Error { message: "stale".into() }));
    let mut story = Story::begin();
    story.gate_hooks.insert("A".into(), supplied());
    let events = story.asks_for(&[("A", "post")]);
    let failed = events.iter().find_map(|event| match &event.fact {
        Fact::ExecutionFailed { error, outcome_unknown, .. } => Some((error.code, *outcome_unknown)),
        _ => None,
    });
    assert_eq!(failed, Some((CallErrorCode::PluginError, false)));
    assert_eq!(story.tool_text("A"), "Error: stale");
    // So it cannot end a doubt about an attempt of the tool.
    let mut story = in_doubt("post");
    story.gate_hooks.insert("A".into(), supplied());
    story.decides("A", resume());
    assert_eq!(story.call("A").suspension().unwrap().held, Held::InDoubt { attempt: 1 });
}

#[test]
fn a_plugin_that_holds_a_repeat_does_not_end_the_doubt_about_the_first_attempt() {
    // With a state of its own the plugin asks in the tool's place; the tool has still not answered.
    for resume_state in [None, Some(std::sync::Arc::new(json!({"cursor": 7})))] {
        let mut story = in_doubt("post");
        let asks = SuspendRequest { resume_state, ..question(ResumeMode::ReplayToolCall) };
        let supplied = Action::SetResult(SuppliedResult::Pending(asks));
        story.gate_hooks.insert("A".into(), one("cache", supplied));
        story.decides("A", resume());
        assert_eq!(story.call("A").doubted, [1]);
        story.decides("A", cancel());
        assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect");
    }
}

#[test]
fn a_question_that_one_attempt_in_doubt_asks_late_leaves_the_other_in_doubt() {
    let mut story = in_doubt("post");
    story.decides("A", resume());
    story.returns("A", unknown());
    story.ok(returned(1, pending(ResumeMode::ReplayToolCall)));
    assert_eq!(story.call("A").doubted, [2]);
    story.decides("A", cancel());
    assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect");
}
