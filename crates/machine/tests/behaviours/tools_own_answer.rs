//! What a tool saved and the answer it got belong to the tool: a policy or plugin that holds its call keeps them.

use machine::decision::{DecisionAction, Payload, Resume};
use machine::id::Digest;
use machine::phase::{Action, AskKind, SuppliedResult, SuspendRequest};
use machine::status::CallStatus;
use machine::suspension::{ResumeMode, SuspensionKind};
use serde_json::{Value, json};

use crate::hooks::one;
use crate::story::{Story, pending, question, resume, unknown, valid};

use ResumeMode::{PassDecisionToTool, ReplayToolCall};

/// A transfer that was approved, ran, left its state and asks the user.
fn asking(mode: ResumeMode) -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    story.approves("A");
    story.returns("A", pending(mode));
    assert!(story.call("A").resume_state_seq.is_some());
    story
}

/// The events with the tool's state and with the answer that it gets when it runs again.
fn for_the_tool(story: &Story) -> (Option<u64>, Option<u64>) {
    (story.call("A").resume_state_seq, story.call("A").answer_seq)
}

fn kind(story: &Story) -> SuspensionKind {
    story.call("A").suspension().unwrap().held.kind()
}

fn pass(value: &Value) -> DecisionAction {
    let payload_arguments = Some(valid(value.clone()));
    let payload = Payload::Result(value.clone().into());
    DecisionAction::Resume(Resume { payload, payload_arguments, ..Resume::default() })
}

#[test]
fn an_approval_between_the_answer_and_the_replay_keeps_state_and_answer() {
    let mut story = asking(PassDecisionToTool);
    let state = story.call("A").resume_state_seq;
    let events = story.decides("A", pass(&json!({"to": "bob"})));
    assert_eq!(kind(&story), SuspensionKind::Approval);
    let answered = (state, Some(events[0].seq));
    assert_eq!(for_the_tool(&story), answered);
    story.approves("A");
    assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 2));
    assert_eq!(for_the_tool(&story), answered);
}

#[test]
fn a_tool_that_changed_while_it_asked_gets_its_state_and_its_answer_after_the_new_approval() {
    let mut story = asking(ReplayToolCall);
    let state = story.call("A").resume_state_seq;
    story.tools.get_mut("transfer").unwrap().definition = Digest::sha256(b"definition 2");
    let events = story.answers("A", json!("this one"));
    assert_eq!(kind(&story), SuspensionKind::Approval);
    story.approves("A");
    assert_eq!(for_the_tool(&story), (state, Some(events[0].seq)));
}

#[test]
fn the_answer_to_a_plugin_that_asks_at_the_replay_is_not_handed_to_the_tool() {
    let asks = SuspendRequest { resume_state: None, ..question(ReplayToolCall) };
    for asks in [
        Action::Suspend(asks.clone()),
        Action::Suspend(SuspendRequest { kind: AskKind::Approval, ..asks.clone() }),
        Action::SetResult(SuppliedResult::Pending(asks)),
    ] {
        let mut story = asking(ReplayToolCall);
        let state = story.call("A").resume_state_seq;
        story.gate_hooks.insert("A".into(), one("guard", asks));
        let events = story.answers("A", json!("this one"));
        assert_eq!(story.status("A"), CallStatus::Suspended);
        story.answers("A", json!(true));
        assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 2));
        assert_eq!(for_the_tool(&story), (state, Some(events[0].seq)));
    }
}

#[test]
fn a_tool_that_continues_without_an_answer_still_gets_its_resume_state() {
    let mut story = asking(ReplayToolCall);
    let state = story.call("A").resume_state_seq;
    let events = story.decides("A", resume());
    assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 2));
    assert_eq!(for_the_tool(&story), (state, Some(events[0].seq)));
}

#[test]
fn a_plugin_that_asks_before_the_tool_ever_ran_gives_it_nothing() {
    let mut story = Story::begin();
    let asks = SuspendRequest { resume_state: None, ..question(ReplayToolCall) };
    story.gate_hooks.insert("A".into(), one("guard", Action::Suspend(asks)));
    story.asks_for(&[("A", "echo")]);
    story.answers("A", json!("go on"));
    assert_eq!((story.status("A"), for_the_tool(&story)), (CallStatus::Running, (None, None)));
}

#[test]
fn a_pending_result_with_a_state_that_a_plugin_supplies_asks_in_the_tools_place() {
    let mut story = Story::begin();
    let asks = question(ReplayToolCall);
    story.gate_hooks.insert("A".into(), one("cache", Action::SetResult(SuppliedResult::Pending(asks))));
    story.asks_for(&[("A", "echo")]);
    let opened = story.call("A").suspension().unwrap().seq;
    let events = story.answers("A", json!("this one"));
    assert_eq!(for_the_tool(&story), (Some(opened), Some(events[0].seq)));
    assert_eq!(story.status("A"), CallStatus::Running);
}

#[test]
fn a_doubt_and_a_plugin_that_asks_about_its_repeat_keep_state_and_answer() {
    let mut story = asking(ReplayToolCall);
    story.answers("A", json!("this one"));
    let before = for_the_tool(&story);
    story.returns("A", unknown());
    let asks = SuspendRequest { resume_state: None, ..question(ReplayToolCall) };
    story.gate_hooks.insert("A".into(), one("guard", Action::Suspend(asks)));
    story.decides("A", resume());
    assert_eq!(kind(&story), SuspensionKind::Question);
    story.answers("A", json!("go on"));
    assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 3));
    assert_eq!(for_the_tool(&story), before);
}

#[test]
fn a_tool_that_asks_again_without_a_state_gets_none_back() {
    use machine::input::{Outcome, ToolAnswer};
    let mut story = asking(ReplayToolCall);
    story.answers("A", json!("first"));
    let asks = SuspendRequest { resume_state: None, ..question(ReplayToolCall) };
    story.returns("A", Outcome::Answered(ToolAnswer::Pending(asks)));
    assert_eq!(for_the_tool(&story), (None, None));
    let events = story.answers("A", json!("second"));
    assert_eq!(for_the_tool(&story), (None, Some(events[0].seq)));
}
