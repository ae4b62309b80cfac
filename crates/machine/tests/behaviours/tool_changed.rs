//! The tool is not the one that was asked for any more: changed or removed while its call was held.

use machine::decision::{DecisionAction, Resume};
use machine::event::{CallErrorCode, Fact, VoidReason};
use machine::id::{Digest, Principal};
use machine::input::GateInput;
use machine::policy::{OnReject, Policy};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::{Held, ResumeMode};
use machine::termination::{StopCode, Termination};
use machine::tool::{Approval, Tool};
use machine::{Input, InputOutcome, Rejection};
use serde_json::json;

use crate::story::{Story, invalid, names, pending, resume, unknown, valid};

fn holding(tool: &str) -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", tool)]);
    story
}

/// Another description, other parameters or another effect: all of them are in the definition.
fn redefine(story: &mut Story, name: &str) {
    let before = story.tools[name].clone();
    story.tools.insert(name.into(), Tool { definition: Digest::sha256(b"definition 2"), ..before });
}

#[test]
fn b5_a_changed_tool_voids_the_approval_when_it_is_decided() {
    let mut story = holding("transfer");
    let first = story.call("A").suspension().unwrap().id.clone();
    redefine(&mut story, "transfer");
    let decision = story.decision("A", resume());
    let events = story.ok(Input::Decide(decision));
    assert_eq!(names(&events), ["tool.approval_voided", "run.resumed"]);
    assert_eq!(story.last_outcome, Some(InputOutcome::ToolChanged { voided: first.clone() }));
    assert!(matches!(
        &events[0].fact,
        Fact::ApprovalVoided { approval_id, reason: VoidReason::ToolChanged, .. } if *approval_id == first
    ));
    // Held again, for what the tool is now.
    assert_eq!(names(&story.pass_gates()), ["tool.approval_requested", "run.waiting"]);
    let open = story.call("A").suspension().unwrap();
    assert_ne!(open.id, first);
    assert_eq!(open.held, Held::Approval { definition: Digest::sha256(b"definition 2") });
    assert!(!story.names().contains(&"tool.approved".into()));
    story.approves("A");
    assert_eq!(story.status("A"), CallStatus::Running);
}

#[test]
fn b5_a_tool_that_changes_between_decision_and_dispatch_voids_the_approval_too() {
    let mut story = holding("transfer");
    let decision = story.decision("A", resume());
    story.ok(Input::Decide(decision));
    redefine(&mut story, "transfer");
    assert_eq!(
        names(&story.pass_gates()),
        ["tool.approval_voided", "tool.approval_requested", "run.waiting"]
    );
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    assert!(!story.names().contains(&"tool.execution_started".into()));
}

#[test]
fn b5_a_tool_that_changes_before_an_attempt_is_sent_voids_the_approval_too() {
    let mut story = holding("transfer");
    story.approves("A");
    redefine(&mut story, "transfer");
    let unsent = |story: &Story, attempt| {
        Input::Gated(GateInput { unsent_attempt: Some(attempt), ..story.gated("A") })
    };
    let other = unsent(&story, 2);
    assert!(matches!(story.refused(other), Rejection::NotAtGate { .. }), "this attempt is not under way");
    let changed = unsent(&story, 1);
    let events = story.ok(changed);
    assert_eq!(names(&events), ["tool.approval_voided", "tool.approval_requested", "run.waiting"]);
    story.approves("A");
    assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 2));
}

/// Nothing of the first attempt was sent. But the log cannot show that, and no person decided on a second one.
#[test]
fn b5_a_write_that_needs_no_approval_is_not_tried_again_when_its_tool_changes() {
    let mut story = Story::begin();
    story.tools.get_mut("transfer").unwrap().approval = Approval::Never;
    story.asks_for(&[("A", "transfer")]);
    assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 1));
    redefine(&mut story, "transfer");
    let unsent = GateInput { unsent_attempt: Some(1), ..story.gated("A") };
    let events = story.ok(Input::Gated(unsent));
    assert!(
        matches!(&events[0].fact, Fact::ExecutionFailed { error, .. } if error.code == CallErrorCode::NotSent)
    );
    assert_eq!(story.names().iter().filter(|name| **name == "tool.execution_started").count(), 1);
}

#[test]
fn b5_edited_arguments_of_a_void_approval_are_not_taken_over() {
    let mut story = holding("transfer");
    let asked = story.call("A").arguments;
    redefine(&mut story, "transfer");
    let arguments = Some(valid(json!({"of": "more"})));
    story.decides("A", DecisionAction::Resume(Resume { arguments, ..Resume::default() }));
    assert_eq!((story.status("A"), story.call("A").arguments), (CallStatus::Suspended, asked));
}

#[test]
fn b5_an_edit_that_does_not_fit_the_changed_tool_voids_the_approval_and_never_runs() {
    let edit = || {
        let arguments = Some(invalid("`to` is missing"));
        DecisionAction::Resume(Resume { arguments, ..Resume::default() })
    };
    let mut story = holding("transfer");
    let asked = story.call("A").arguments;
    let first = story.call("A").suspension().unwrap().id.clone();
    let decision = story.decision("A", edit());
    let refused = story.refused(Input::Decide(decision));
    assert!(matches!(refused, Rejection::Invalid { .. }), "{refused:?}");
    redefine(&mut story, "transfer");
    let events = story.decides("A", edit());
    assert_eq!(names(&events)[0], "tool.approval_voided");
    assert_eq!((story.status("A"), story.call("A").arguments), (CallStatus::Suspended, asked));
    assert_ne!(story.call("A").suspension().unwrap().id, first);
}

#[test]
fn b5_a_changed_tool_is_held_even_without_another_asker() {
    // A grant for the thread, or a tool that needs no approval now, was not what the person was shown.
    let mut story = holding("transfer");
    redefine(&mut story, "transfer");
    let now = Tool { approval: Approval::Never, ..story.tools["transfer"].clone() };
    story.tools.insert("transfer".into(), now);
    story.grants = vec![crate::story::auto_approval()];
    story.approves("A");
    assert_eq!(story.status("A"), CallStatus::Suspended);
    story.approves("A");
    assert_eq!(story.status("A"), CallStatus::Running);
}

#[test]
fn b5_a_tool_that_is_gone_fails_the_call_it_was_approved_for() {
    let mut story = holding("transfer");
    story.tools.remove("transfer");
    let events = story.approves("A");
    assert_eq!(names(&events)[..3], ["tool.approved", "run.resumed", "tool.execution_failed"]);
    assert!(matches!(
        &events[2].fact,
        Fact::ExecutionFailed { error, .. } if error.code == CallErrorCode::ToolRemoved
    ));
    assert_eq!(story.tool_text("A"), "Error: the tool was removed while the call waited");
}

#[test]
fn b5_a_tool_that_changed_and_is_then_gone_was_removed_and_not_unknown() {
    let mut story = holding("transfer");
    redefine(&mut story, "transfer");
    let decision = story.decision("A", resume());
    story.ok(Input::Decide(decision));
    story.tools.remove("transfer");
    story.pass_gates();
    assert_eq!(story.tool_text("A"), "Error: the tool was removed while the call waited");
}

#[test]
fn b5_a_call_in_doubt_is_not_retried_with_a_tool_that_changed() {
    let mut story = holding("transfer");
    story.approves("A");
    story.returns("A", unknown());
    redefine(&mut story, "transfer");
    // The approval was for another definition, and so was the wish to try that one again.
    story.decides("A", resume());
    assert_eq!(story.status("A"), CallStatus::Suspended);
    assert_eq!(story.call("A").attempts, 1);
    story.approves("A");
    assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 2));
}

#[test]
fn b5_a_tool_that_changed_while_it_asked_the_user_is_approved_again_before_it_continues() {
    let mut story = holding("transfer");
    story.approves("A");
    story.returns("A", pending(ResumeMode::ReplayToolCall));
    redefine(&mut story, "transfer");
    story.answers("A", json!("this one"));
    assert_eq!(story.status("A"), CallStatus::Suspended);
    assert_eq!(story.call("A").attempts, 1);
}

#[test]
fn b5_a_void_approval_says_who_gave_it_and_one_that_the_gate_voids_had_been_given_before() {
    let voided = |story: &Story| {
        story.log.iter().find_map(|event| match &event.fact {
            Fact::ApprovalVoided { by, decision_id, .. } => Some((by.clone(), decision_id.clone())),
            _ => None,
        })
    };
    let mut decided = holding("transfer");
    redefine(&mut decided, "transfer");
    let mut decision = decided.decision("A", resume());
    decision.id = Some("dec_1".into());
    decided.ok(Input::Decide(decision));
    assert_eq!(voided(&decided), Some((Some(Principal::from("ana")), Some("dec_1".into()))));
    let mut dispatched = holding("transfer");
    let decision = dispatched.decision("A", resume());
    dispatched.ok(Input::Decide(decision));
    redefine(&mut dispatched, "transfer");
    dispatched.pass_gates();
    assert_eq!(voided(&dispatched), Some((None, None)));
}

#[test]
fn an_approval_that_expires_while_an_attempt_is_in_doubt_ends_the_run_like_a_denial_and_says_so() {
    let mut story = Story::with_policy(Policy { on_reject: Some(OnReject::EndRun), ..Policy::default() });
    story.tools.get_mut("transfer").unwrap().expires_in_ms = Some(60_000);
    story.asks_for(&[("A", "transfer")]);
    story.approves("A");
    story.returns("A", unknown());
    story.tools.get_mut("transfer").unwrap().definition = Digest::sha256(b"definition 2");
    story.decides("A", resume());
    assert!(matches!(story.call("A").suspension().unwrap().held, Held::Approval { .. }));
    story.later(60_000);
    let events = story.ok(Input::DeadlineReached);
    assert_eq!(names(&events), ["tool.cancelled", "run.resumed", "message.added", "step.ended", "run.ended"]);
    assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect");
    let rejected = Termination::stopped(StopCode::Rejected, None);
    assert_eq!(story.run_status(), &RunStatus::Done(rejected));
}
