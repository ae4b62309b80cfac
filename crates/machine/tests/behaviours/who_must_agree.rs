//! Nothing runs on an agreement that was given to something else: another mode, other arguments, another tool.

use machine::decision::{DecisionAction, Payload, Resume};
use machine::event::{CallErrorCode, Fact};
use machine::grant::HoldReason;
use machine::id::{Digest, Principal};
use machine::input::{Outcome, ToolAnswer};
use machine::phase::{Action, AskKind, SuppliedResult, SuspendRequest};
use machine::policy::{ApprovalScope, Policy, for_child};
use machine::revision::Revision;
use machine::rules::{ArgumentTest, Asker, Condition, Rule, RuleAction};
use machine::status::CallStatus;
use machine::suspension::{Held, ResumeMode, SuspensionKind};
use machine::tool::Approval;
use machine::{Event, Input};
use serde_json::{Value, json};

use crate::hooks::one;
use crate::story::{Story, names, order, pending, question, resume, unknown, valid};

use ResumeMode::{PassDecisionToTool, ReplayToolCall, UseDecisionAsToolResult};

fn running(tool: &str) -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", tool)]);
    if story.status("A") == CallStatus::Suspended {
        story.approves("A");
    }
    assert_eq!(story.status("A"), CallStatus::Running);
    story
}

/// An answer that wants the call to continue in another way than the question said.
fn instead(mode: ResumeMode, payload: Payload, arguments: Option<Value>) -> DecisionAction {
    let payload_arguments = arguments.map(valid);
    DecisionAction::Resume(Resume { mode: Some(mode), payload, payload_arguments, ..Resume::default() })
}

fn kind(story: &Story) -> SuspensionKind {
    story.call("A").suspension().unwrap().held.kind()
}

/// Who asked each time that the call was held for an approval.
fn askers(events: &[Event]) -> Vec<Vec<Asker>> {
    events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::ApprovalRequested(opened) => Some(opened.asked_by.clone()),
            _ => None,
        })
        .collect()
}

fn failure(events: &[Event]) -> Option<(CallErrorCode, String)> {
    events.iter().find_map(|event| match &event.fact {
        Fact::ExecutionFailed { error, .. } => Some((error.code, error.message.clone())),
        _ => None,
    })
}

#[test]
fn a_call_that_was_not_to_run_again_runs_only_after_an_approval_of_that() {
    // The transfer was approved once and has been accepted elsewhere; "replay" would send it a second time.
    let replay = || instead(ReplayToolCall, Payload::Absent, None);
    let to = json!({"to": "bob"});
    let pass = || instead(PassDecisionToTool, Payload::Result(to.clone().into()), Some(to.clone()));
    for tool in ["transfer", "post", "echo"] {
        for action in [replay(), pass()] {
            let mut story = running(tool);
            story.returns("A", pending(UseDecisionAsToolResult));
            let events = story.decides("A", action);
            assert_eq!(names(&events)[..3], ["tool.resumed", "run.resumed", "tool.approval_requested"]);
            assert_eq!((kind(&story), story.call("A").attempts), (SuspensionKind::Approval, 1));
            story.approves("A");
            assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 2));
        }
    }
}

#[test]
fn auto_approve_does_not_replace_the_approval_of_another_run() {
    let mut story = running("transfer");
    story.returns("A", pending(UseDecisionAsToolResult));
    story.grants = vec![crate::story::auto_approval()];
    story.decides("A", instead(ReplayToolCall, Payload::Absent, None));
    assert_eq!(kind(&story), SuspensionKind::Approval);
}

#[test]
fn an_answer_in_the_mode_that_was_asked_for_or_in_place_of_the_call_needs_no_approval() {
    let mut asked = running("post");
    asked.returns("A", pending(ReplayToolCall));
    asked.decides("A", instead(ReplayToolCall, Payload::Absent, None));
    assert_eq!((asked.status("A"), asked.call("A").attempts), (CallStatus::Running, 2));
    let mut supplied = running("post");
    supplied.returns("A", pending(ReplayToolCall));
    supplied.decides("A", instead(UseDecisionAsToolResult, Payload::Result(json!("it").into()), None));
    assert_eq!(supplied.tool_text("A"), "it");
}

#[test]
fn a_changed_tool_that_a_plugin_asks_about_first_is_still_approved_before_it_runs() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let tool = story.tools.get_mut("transfer").unwrap();
    tool.definition = Digest::sha256(b"definition 2");
    tool.approval = Approval::Never;
    let supplied = Action::SetResult(SuppliedResult::Pending(question(ReplayToolCall)));
    story.gate_hooks.insert("A".into(), one("guard", supplied));
    // The approval is void; the plugin's question comes first and is answered by a person who may only answer.
    story.approves("A");
    assert_eq!(kind(&story), SuspensionKind::Question);
    story.answers("A", json!("go on"));
    assert_eq!((kind(&story), story.call("A").attempts), (SuspensionKind::Approval, 0));
    story.approves("A");
    assert_eq!(story.status("A"), CallStatus::Running);
}

#[test]
fn a_changed_tool_is_approved_even_after_a_doubt_in_between() {
    // The repeat under another definition must be approved, and the gate fails before it can ask for that.
    let mut story = running("transfer");
    story.returns("A", unknown());
    let decision = story.decision("A", resume());
    story.ok(Input::Decide(decision));
    story.tools.get_mut("transfer").unwrap().definition = Digest::sha256(b"definition 2");
    story.pass_gates();
    assert_eq!(kind(&story), SuspensionKind::Approval);
    story.tools.get_mut("transfer").unwrap().definition = Digest::sha256(b"definition 3");
    let decision = story.decision("A", resume());
    story.ok(Input::Decide(decision));
    story.gate_hooks.insert("A".into(), crate::props::hook_failed("guard"));
    story.pass_gates();
    assert_eq!(kind(&story), SuspensionKind::InDoubt);
    story.gate_hooks.clear();
    story.decides("A", resume());
    assert_eq!((kind(&story), story.call("A").attempts), (SuspensionKind::Approval, 1));
}

#[test]
fn a_hook_cannot_ask_for_an_approval_that_would_not_run_the_call() {
    for mode in [UseDecisionAsToolResult, PassDecisionToTool] {
        let asks = SuspendRequest { kind: AskKind::Approval, ..question(mode) };
        let mut story = Story::begin();
        story.gate_hooks.insert("A".into(), one("guard", Action::Suspend(asks)));
        let events = story.asks_for(&[("A", "echo")]);
        let why = "a hook asked for an approval that would not run the call; ask a question instead";
        assert_eq!(failure(&events), Some((CallErrorCode::GateFailed, why.into())));
        assert!(!story.names().contains(&"tool.execution_started".into()));
    }
}

#[test]
fn a_pending_result_asks_a_question_and_only_the_gate_asks_for_an_approval() {
    let why = "only the gate asks for an approval; a pending result asks a question";
    let asks = SuspendRequest { kind: AskKind::Approval, ..question(ReplayToolCall) };
    let mut by_the_tool = running("echo");
    let events = by_the_tool.returns("A", Outcome::Answered(ToolAnswer::Pending(asks.clone())));
    assert_eq!(failure(&events), Some((CallErrorCode::ToolError, why.into())));
    let mut by_a_hook = Story::begin();
    let supplied = Action::SetResult(SuppliedResult::Pending(asks));
    by_a_hook.gate_hooks.insert("A".into(), one("guard", supplied));
    let events = by_a_hook.asks_for(&[("A", "echo")]);
    assert_eq!(failure(&events), Some((CallErrorCode::ToolError, why.into())));
}

/// Rule 0 asks about every transfer; a plugin asks after it.
fn asked_by_a_rule_then_by_a_plugin(asks: SuspendRequest) -> Story {
    let condition = Condition { path: vec!["amount".into()], test: ArgumentTest::Gte(100.0) };
    let rules = vec![Rule { tool: "post".into(), when: vec![condition], then: RuleAction::Ask }];
    let mut story = Story::begin_with(Revision { rules, ..Revision::default() });
    story.gate_hooks.insert("A".into(), one("four_eyes", Action::Suspend(asks)));
    let answered = story.answer("", &[("A", "post", json!({"amount": 200}))]);
    story.model_answers(answered);
    assert_eq!(askers(&story.pass_gates()), [[Asker::Rule(0)]]);
    story
}

#[test]
fn a_rule_that_was_answered_judges_arguments_again_that_a_later_approver_sets() {
    let asks = SuspendRequest { kind: AskKind::Approval, ..question(ReplayToolCall) };
    let mut story = asked_by_a_rule_then_by_a_plugin(asks);
    assert_eq!(askers(&story.approves("A")), [[Asker::Plugin("four_eyes".into())]]);
    let arguments = Some(valid(json!({"amount": 200_000})));
    let edit = DecisionAction::Resume(Resume { arguments, ..Resume::default() });
    // The plugin was just answered and stays silent; the rule has not seen this amount.
    assert_eq!(askers(&story.decides("A", edit)), [[Asker::Rule(0)]]);
    assert_eq!(story.call("A").attempts, 0);
}

#[test]
fn the_approver_who_set_the_arguments_is_not_asked_about_them_again() {
    let asks = SuspendRequest { kind: AskKind::Approval, ..question(ReplayToolCall) };
    let mut story = asked_by_a_rule_then_by_a_plugin(asks);
    let arguments = Some(valid(json!({"amount": 200_000})));
    let edit = DecisionAction::Resume(Resume { arguments, ..Resume::default() });
    assert_eq!(askers(&story.decides("A", edit)), [[Asker::Plugin("four_eyes".into())]]);
    story.approves("A");
    assert_eq!(story.status("A"), CallStatus::Running);
}

#[test]
fn arguments_that_answer_a_plugins_question_are_judged_again_by_all_but_that_plugin() {
    let mut story = asked_by_a_rule_then_by_a_plugin(question(PassDecisionToTool));
    story.approves("A");
    assert_eq!(kind(&story), SuspensionKind::Question);
    let amount = json!({"amount": 5_000});
    let payload_arguments = Some(valid(amount.clone()));
    let payload = Payload::Result(amount.into());
    let answer = DecisionAction::Resume(Resume { payload, payload_arguments, ..Resume::default() });
    assert_eq!(askers(&story.decides("A", answer)), [[Asker::Rule(0)]]);
    story.approves("A");
    assert_eq!(story.status("A"), CallStatus::Running);
}

#[test]
fn a_grant_for_a_tool_is_for_the_definition_that_was_approved() {
    let grant = |definition| vec![crate::story::tool_grant("transfer", definition, &[HoldReason::Tool])];
    let mut story = Story::begin();
    story.grants = grant(story.tools["transfer"].definition);
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    assert_eq!(story.status("A"), CallStatus::Running);
    let mut story = Story::begin();
    story.grants = grant(story.tools["transfer"].definition);
    story.tools.get_mut("transfer").unwrap().definition = Digest::sha256(b"definition 2");
    story.asks_for(&[("A", "transfer")]);
    let definition = Digest::sha256(b"definition 2");
    assert_eq!(story.call("A").suspension().unwrap().held, Held::Approval { definition });
}

#[test]
fn a_policy_without_the_name_of_who_loosened_it_counts_as_the_agents_own() {
    let own = Policy { approval: ApprovalScope::AllTools, ..Policy::default() };
    let held = |approval, loosened_by: Option<&str>| {
        let mut order = order(Policy { approval, ..own });
        order.loosened_by = loosened_by.map(Principal::from);
        let mut story = Story::queued_with(Revision { policy: own, ..Revision::default() }, order);
        story.ok(Input::Start { after: None });
        story.asks_for(&[("A", "echo")]);
        story.status("A") == CallStatus::Suspended
    };
    assert!(held(ApprovalScope::Policy, None));
    assert!(!held(ApprovalScope::Policy, Some("bo")));
    // A policy that is stricter than the agent's own needs no name.
    assert!(held(ApprovalScope::AllTools, None));
}

#[test]
fn a_child_asks_about_at_least_as_many_calls_as_its_parent_does() {
    use ApprovalScope::{AllTools, Never, WriteTools};
    let with = |approval| Policy { approval, ..Policy::default() };
    for (parent, own, wanted) in
        [(AllTools, Never, AllTools), (Never, WriteTools, WriteTools), (WriteTools, AllTools, AllTools)]
    {
        assert_eq!(for_child(&with(parent), &with(own)), with(wanted));
    }
    // Nothing else of the parent's policy is the child's.
    let parent = Policy { on_reject: Some(machine::policy::OnReject::EndRun), ..with(Never) };
    assert_eq!(for_child(&parent, &Policy::default()), Policy::default());
}

#[test]
fn a_plugin_that_supplies_a_pending_result_counts_against_the_rounds_of_asking_too() {
    let mut story = Story::begin();
    let supplies = |plugin| one(plugin, Action::SetResult(SuppliedResult::Pending(question(ReplayToolCall))));
    story.gate_hooks.insert("A".into(), supplies("first"));
    story.asks_for(&[("A", "echo")]);
    for next in ["second", "third", "fourth"] {
        assert_eq!(story.status("A"), CallStatus::Suspended, "before {next}");
        story.gate_hooks.insert("A".into(), supplies(next));
        story.answers("A", json!("go on"));
    }
    assert_eq!(
        failure(&story.log),
        Some((CallErrorCode::AskedTooOften, "the gate asked 3 times and asks again".into()))
    );
}
