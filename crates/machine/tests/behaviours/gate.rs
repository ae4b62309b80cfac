//! The gate before every call: in which order it judges, and what the hooks of BeforeToolExecute may say.

use std::sync::Arc;

use machine::event::{CallErrorCode, Fact, ResultFrom};
use machine::grant::HoldReason;
use machine::id::{CallId, Principal};
use machine::input::GateInput;
use machine::phase::{Action, AskKind, HookAnswers, STATE_BYTES_MAX, SuppliedResult};
use machine::policy::{ApprovalScope, OnBlock, Policy};
use machine::revision::Revision;
use machine::rules::{ArgumentTest, Asker, Condition, Rule, RuleAction};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::{Held, ResumeMode, SuspensionKind};
use machine::termination::Termination;
use machine::tool::{Approval, EffectClass, ToolLookup};
use machine::{Effect, Event, Input, Rejection};
use serde_json::{Value, json};

use crate::hooks::{block, fails, one, says, set_state, together};
use crate::story::{Story, auto_approval, invalid, names, question, tool, tool_grant};

/// The model has asked for one call of this tool; the gate has not been asked yet.
fn at_the_gate(revision: Revision, tool: &str) -> Story {
    let mut story = Story::begin_with(revision);
    let answered = story.answer("", &[("A", tool, json!({"amount": 5}))]);
    story.model_answers(answered);
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [Effect::Gate(CallId::from("A"))]);
    story
}

fn supply(value: Value) -> Action {
    Action::SetResult(SuppliedResult::Success { value: Arc::new(value), warning: None })
}

fn suspend() -> Action {
    Action::Suspend(question(ResumeMode::ReplayToolCall))
}

/// What the gate made of the call: the status it has now, or the code it failed with.
fn verdict(events: &[Event]) -> Result<&'static str, CallErrorCode> {
    for event in events {
        match &event.fact {
            Fact::ExecutionFailed { error, .. } => return Err(error.code),
            Fact::ExecutionSucceeded { by: ResultFrom::Hook, .. } => return Ok("supplied"),
            Fact::ExecutionStarted { .. } => return Ok("executes"),
            Fact::ApprovalRequested(_) => return Ok("asks"),
            Fact::ToolSuspended(_) => return Ok("suspends"),
            _ => {}
        }
    }
    panic!("the gate said nothing: {:?}", names(events))
}

/// Tool, what is wrong with the call, what the hooks say, what the gate makes of it.
type Case = (&'static str, fn(GateInput) -> GateInput, HookAnswers, Result<&'static str, CallErrorCode>);

fn unknown_and_bad(gated: GateInput) -> GateInput {
    GateInput { tool: ToolLookup::Unknown, ..bad(gated) }
}

fn bad(gated: GateInput) -> GateInput {
    GateInput { arguments: invalid("no object"), ..gated }
}

fn good(gated: GateInput) -> GateInput {
    gated
}

/// Everything that can be wrong at once; taking one reason away shows the next in line.
#[test]
fn a93_a97_block_then_supplied_then_unknown_then_bad_arguments_then_suspend_then_execute() {
    let blocked = [says("asker", &[suspend()]), says("guard", &[block("no"), supply(json!(1))])];
    let supplied = || one("cache", supply(json!("cached")));
    let asking = || one("asker", suspend());
    let cases: [Case; 7] = [
        ("transfer", unknown_and_bad, together(&blocked), Err(CallErrorCode::BlockedByPlugin)),
        ("transfer", unknown_and_bad, supplied(), Ok("supplied")),
        ("transfer", unknown_and_bad, asking(), Err(CallErrorCode::UnknownTool)),
        ("transfer", bad, asking(), Err(CallErrorCode::BadArguments)),
        ("transfer", good, asking(), Ok("asks")),
        ("echo", good, asking(), Ok("suspends")),
        ("echo", good, HookAnswers::default(), Ok("executes")),
    ];
    for (tool, change, hooks, wanted) in cases {
        let mut story = at_the_gate(Revision::default(), tool);
        let gated = change(GateInput { hooks, ..story.gated("A") });
        let events = story.ok(Input::Gated(gated));
        assert_eq!(verdict(&events), wanted);
    }
}

#[test]
fn a97_bad_arguments_never_create_an_approval() {
    let mut story = at_the_gate(Revision::default(), "transfer");
    let gated = GateInput { arguments: invalid("`amount` is missing"), ..story.gated("A") };
    let events = story.ok(Input::Gated(gated));
    assert_eq!(names(&events), ["tool.execution_failed", "message.added", "step.ended", "step.started"]);
    assert_eq!(story.tool_text("A"), "Error: `amount` is missing");
    assert_eq!(story.run.control.suspension_count, 0);
}

#[test]
fn a93_b18_unknown_and_out_of_scope_tools_fail_without_a_start() {
    for (now, code, text) in [
        (ToolLookup::Unknown, CallErrorCode::UnknownTool, "Error: there is no such tool"),
        (ToolLookup::OutOfScope, CallErrorCode::OutOfScope, "Error: this agent may not use the tool"),
    ] {
        let mut story = at_the_gate(Revision::default(), "echo");
        let gated = GateInput { tool: now, ..story.gated("A") };
        let events = story.ok(Input::Gated(gated));
        assert_eq!(verdict(&events), Err(code));
        assert_eq!(names(&events), ["tool.execution_failed", "message.added", "step.ended", "step.started"]);
        assert_eq!(story.tool_text("A"), text);
    }
}

#[test]
fn a96_a104_a_blocked_call_fails_visibly_and_the_run_continues() {
    let mut story = at_the_gate(Revision::default(), "echo");
    let gated = GateInput { hooks: one("guard", block("not on Sundays")), ..story.gated("A") };
    let events = story.ok(Input::Gated(gated));
    assert_eq!(
        names(&events),
        ["phase.answered", "tool.execution_failed", "message.added", "step.ended", "step.started"]
    );
    assert_eq!(story.tool_text("A"), "Error: blocked by guard: not on Sundays");
    assert_eq!(story.run_status(), &RunStatus::Running);
}

#[test]
fn a96_with_end_run_a_block_ends_the_run_as_blocked() {
    let policy = Policy { on_block: OnBlock::EndRun, ..Policy::default() };
    let mut story = at_the_gate(Revision { policy, ..Revision::default() }, "forbidden");
    let events = story.pass_gate("A");
    assert_eq!(names(&events), ["tool.execution_failed", "message.added", "step.ended", "run.ended"]);
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::Blocked("blocked by policy".into())));
}

#[test]
fn a93_the_tools_own_block_and_a_denying_rule_beat_a_supplied_result() {
    let rule = Rule { tool: "echo".into(), when: Vec::new(), then: RuleAction::Deny };
    for (name, code, text) in [
        ("forbidden", CallErrorCode::BlockedByPolicy, "Error: blocked by policy"),
        ("echo", CallErrorCode::DeniedByRule, "Error: denied by rule 0"),
    ] {
        let mut story = at_the_gate(Revision { rules: vec![rule.clone()], ..Revision::default() }, name);
        let gated = GateInput { hooks: one("cache", supply(json!("cached"))), ..story.gated("A") };
        let events = story.ok(Input::Gated(gated));
        assert_eq!(verdict(&events), Err(code));
        assert_eq!(story.tool_text("A"), text);
    }
}

#[test]
fn a98_a_supplied_result_decides_the_outcome_and_the_body_never_runs() {
    let supplied = |result| one("cache", Action::SetResult(result));
    let warning = Some("stale".into());
    let cases = [
        (
            SuppliedResult::Success { value: Arc::new(json!({"n": 1})), warning },
            "tool.execution_succeeded",
            "{\"n\":1}\nWarning: stale",
        ),
        (SuppliedResult::Error { message: "cold".into() }, "tool.execution_failed", "Error: cold"),
    ];
    for (result, event, text) in cases {
        let mut story = at_the_gate(Revision::default(), "transfer");
        let gated = GateInput { hooks: supplied(result), ..story.gated("A") };
        let events = story.ok(Input::Gated(gated));
        assert_eq!(names(&events), ["phase.answered", event, "message.added", "step.ended", "step.started"]);
        assert_eq!(story.tool_text("A"), text);
    }
    let mut story = at_the_gate(Revision::default(), "transfer");
    let pending = SuppliedResult::Pending(question(ResumeMode::UseDecisionAsToolResult));
    let gated = GateInput { hooks: supplied(pending), ..story.gated("A") };
    let events = story.ok(Input::Gated(gated));
    assert_eq!(names(&events), ["phase.answered", "tool.suspended", "run.waiting"]);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    assert_eq!(story.run.control.pending()[0].kind, SuspensionKind::Question);
}

#[test]
fn a101_b1_only_a_call_whose_body_starts_is_ever_running() {
    let mut story = at_the_gate(Revision::default(), "echo");
    assert_eq!(story.status("A"), CallStatus::New);
    let events = story.pass_gate("A");
    assert_eq!(names(&events), ["tool.execution_started"]);
    assert_eq!(story.status("A"), CallStatus::Running);
    // The start is recorded before anything is wanted of the tool.
    let running = Effect::RunTool { call: CallId::from("A"), attempt: 1, not_before: story.now };
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [running]);
}

#[test]
fn b19_b20_a_gate_that_fails_is_closed() {
    let too_much = HookAnswers { answers: Vec::new(), state_bytes_after: STATE_BYTES_MAX + 1 };
    let cases = [
        (together(&[fails("guard", "panicked")]), "guard failed in BeforeToolExecute: panicked"),
        (
            together(&[says("cache", &[supply(json!(1))]), fails("guard", "late")]),
            "guard failed in BeforeToolExecute: late",
        ),
        (one("guard", Action::End), "guard answered end in BeforeToolExecute, where it has no meaning"),
        (too_much, "plugin state would take 65537 bytes; at most 65536"),
    ];
    for (hooks, why) in cases {
        let mut story = at_the_gate(Revision::default(), "echo");
        let gated = GateInput { hooks, ..story.gated("A") };
        let events = story.ok(Input::Gated(gated));
        assert_eq!(verdict(&events), Err(CallErrorCode::GateFailed));
        assert!(!names(&story.log).contains(&"tool.execution_started".into()));
        assert_eq!(story.tool_text("A"), format!("Error: {why}"));
        assert_eq!(story.run_status(), &RunStatus::Running);
    }
}

#[test]
fn a93_of_several_answers_block_beats_suspend_beats_set_result_and_the_first_of_equals_stays() {
    let cases = [
        (vec![says("a", &[supply(json!(1))]), says("b", &[suspend()])], Ok("suspends"), None),
        (
            vec![says("a", &[suspend()]), says("b", &[block("one")]), says("c", &[block("two")])],
            Err(CallErrorCode::BlockedByPlugin),
            Some("Error: blocked by b: one"),
        ),
        (vec![says("a", &[supply(json!("x"))]), says("b", &[supply(json!("y"))])], Ok("supplied"), Some("x")),
    ];
    for (answers, wanted, text) in cases {
        let mut story = at_the_gate(Revision::default(), "echo");
        let gated = GateInput { hooks: together(&answers), ..story.gated("A") };
        let events = story.ok(Input::Gated(gated));
        assert_eq!(verdict(&events), wanted);
        if let Some(text) = text {
            assert_eq!(story.tool_text("A"), text);
        }
    }
}

#[test]
fn a77_what_a_hook_sets_is_announced_and_a_silent_hook_leaves_no_trace() {
    let mut story = at_the_gate(Revision::default(), "echo");
    let answers = [says("quiet", &[]), says("counter", &[set_state("calls", json!(1))])];
    let gated = GateInput { hooks: together(&answers), ..story.gated("A") };
    let events = story.ok(Input::Gated(gated));
    assert_eq!(names(&events), ["phase.answered", "state.changed", "tool.execution_started"]);
    assert!(matches!(
        &events[1].fact,
        Fact::StateChanged { plugin, key, value, .. }
            if plugin.as_str() == "counter" && key == "calls" && **value == json!(1)
    ));
    let mut story = at_the_gate(Revision::default(), "echo");
    let gated = GateInput { hooks: together(&[says("quiet", &[])]), ..story.gated("A") };
    assert_eq!(names(&story.ok(Input::Gated(gated))), ["tool.execution_started"]);
}

#[test]
fn each_plugin_keeps_what_it_keeps_under_its_own_name() {
    let mut story = Story::begin();
    let calls = ["A", "B"].map(|id| (id, "echo", json!({"of": id})));
    let answered = story.answer("", &calls);
    story.model_answers(answered);
    for (call, plugin) in [("A", "left"), ("B", "right")] {
        story.gate_hooks.insert(call.into(), one(plugin, set_state("seen", json!(call))));
    }
    story.pass_gates();
    let states: Vec<(String, String, Value)> = story
        .log
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::StateChanged { plugin, key, value, .. } => {
                Some((plugin.to_string(), key.clone(), (**value).clone()))
            }
            _ => None,
        })
        .collect();
    let wanted = [("left", "seen", json!("A")), ("right", "seen", json!("B"))]
        .map(|(plugin, key, value)| (plugin.to_owned(), key.to_owned(), value));
    assert_eq!(states, wanted);
    assert_eq!((story.status("A"), story.status("B")), (CallStatus::Running, CallStatus::Running));
}

#[test]
fn b4_a_held_call_shows_what_will_run_and_who_asks() {
    let under_100 = Condition { path: vec!["amount".into()], test: ArgumentTest::Lte(100.0) };
    let rule = Rule { tool: "echo".into(), when: vec![under_100], then: RuleAction::Ask };
    let mut story = at_the_gate(Revision { rules: vec![rule], ..Revision::default() }, "echo");
    story.tools.insert("echo".into(), tool(EffectClass::Write, Approval::Never));
    let events = story.pass_gate("A");
    assert_eq!(names(&events), ["tool.approval_requested", "run.waiting"]);
    let Fact::ApprovalRequested(opened) = &events[0].fact else { panic!("not an approval") };
    assert_eq!(opened.arguments.as_ref(), story.arguments.get(&CallId::from("A")));
    assert_eq!(opened.asked_by, [Asker::Rule(0)]);
    assert_eq!(opened.held, Held::Approval { definition: story.tools["echo"].definition });
    assert!(opened.suspension_id.as_str().starts_with("apr_"));
    assert!(story.run.wanted().is_empty());
}

#[test]
fn b4_the_call_names_who_lifted_its_hold() {
    let let_through = |story: &Story| {
        story.log.iter().find_map(|event| match &event.fact {
            Fact::ExecutionStarted { let_through_by, .. } => let_through_by.clone(),
            _ => None,
        })
    };
    let mut story = at_the_gate(Revision::default(), "transfer");
    let definition = story.tools["transfer"].definition;
    story.grants = vec![tool_grant("transfer", definition, &[HoldReason::Tool])];
    assert_eq!(names(&story.pass_gate("A")), ["tool.execution_started"]);
    assert_eq!(let_through(&story), Some(Principal::from("ana")));
    // A call that no rule would have held names no approver.
    let mut story = at_the_gate(Revision::default(), "echo");
    story.grants = vec![auto_approval()];
    story.pass_gate("A");
    assert_eq!(let_through(&story), None);
    // The request was looser than the agent's own policy.
    let strict = Policy { approval: ApprovalScope::AllTools, ..Policy::default() };
    let loose = Policy::default();
    let mut order = crate::story::order(loose);
    order.loosened_by = Some(Principal::from("bo"));
    let mut story = Story::queued_with(Revision { policy: strict, ..Revision::default() }, order);
    story.ok(Input::Start { after: None });
    story.asks_for(&[("A", "echo")]);
    assert_eq!(let_through(&story), Some(Principal::from("bo")));
}

#[test]
fn b4_a_call_that_a_front_end_performs_names_who_let_it_through_too() {
    let mut story = at_the_gate(Revision::default(), "pick_file");
    let held = story.tools["pick_file"].clone();
    story.tools.insert("pick_file".into(), machine::tool::Tool { approval: Approval::Ask, ..held });
    story.grants = vec![auto_approval()];
    let events = story.pass_gate("A");
    let log: String = events.iter().map(|event| machine::event_codec::encode(event).unwrap()).collect();
    assert_eq!(names(&events), ["tool.suspended", "run.waiting"]);
    assert!(log.contains("\"ana\""), "the log does not name the person who let the call through: {log}");
}

#[test]
fn a93_a_call_that_is_not_at_the_gate_cannot_pass_it() {
    let mut story = at_the_gate(Revision::default(), "echo");
    let gated = story.gated("A");
    story.pass_gate("A");
    let refused = story.refused(Input::Gated(gated.clone()));
    let call = CallId::from("A");
    assert_eq!(refused, Rejection::NotAtGate { call: call.clone(), status: CallStatus::Running });
    let missing = GateInput { call: CallId::from("missing"), ..gated };
    assert_eq!(story.refused(Input::Gated(missing)), Rejection::UnknownCall(CallId::from("missing")));
}

#[test]
fn a93_what_a_hook_holds_is_shown_as_the_hook_wants_it() {
    for (kind, held, on) in [
        (AskKind::ClientTool, SuspensionKind::ClientTool, WaitingOn::Tool),
        (AskKind::External, SuspensionKind::External, WaitingOn::Tool),
        (AskKind::Question, SuspensionKind::Question, WaitingOn::Person),
        (AskKind::Approval, SuspensionKind::Approval, WaitingOn::Person),
    ] {
        let mut story = at_the_gate(Revision::default(), "echo");
        let request = machine::phase::SuspendRequest { kind, ..question(ResumeMode::ReplayToolCall) };
        let gated = GateInput { hooks: one("asker", Action::Suspend(request)), ..story.gated("A") };
        let events = story.ok(Input::Gated(gated));
        let opens = if kind == AskKind::Approval { "tool.approval_requested" } else { "tool.suspended" };
        assert_eq!(names(&events), ["phase.answered", opens, "run.waiting"]);
        assert_eq!(story.run.control.pending()[0].kind, held);
        assert_eq!(story.run_status(), &RunStatus::Waiting(on));
        let (Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened)) = &events[1].fact else {
            panic!("nothing opened")
        };
        assert_eq!(opened.question.as_deref(), Some("which one?"));
        assert_eq!(opened.asked_by, [Asker::Plugin("asker".into())]);
    }
}

#[test]
fn approvals_that_open_at_one_moment_are_in_the_order_of_their_calls() {
    let mut story = Story::begin();
    let ids: Vec<String> = (10..30).map(|index| format!("call_{index}")).collect();
    let calls: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "transfer")).collect();
    story.asks_for(&calls);
    let mut pending = story.run.control.pending();
    pending.sort_by_key(|held| held.suspension_id.to_string());
    let listed: Vec<&str> = pending.iter().map(|held| held.call_id.as_str()).collect();
    assert_eq!(listed, ids);
}
