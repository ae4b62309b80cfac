//! What the gate makes of each call: hold, block, supply or let through, and what follows for the others.

use std::sync::Arc;

use machine::event::Pending;
use machine::phase::{Action, AskKind, HookAnswers, Phase, SuppliedResult, SuspendRequest};
use machine::policy::{Execution, OnBlock, Policy};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::{ResumeMode, SuspensionKind};
use machine::termination::Termination;
use machine::tool::{OnExpiry, ToolLookup};
use machine::{Effect, Event, Input};
use serde_json::json;

use crate::props::{hook, hooks, lines, payload, payloads, termination};
use crate::story::{Story, invalid, names, question};

use CallStatus::{Cancelled, Failed, New, Running, Succeeded, Suspended};

fn block(reason: &str) -> Action {
    Action::Block { reason: reason.into() }
}

fn supply(value: &str) -> Action {
    Action::SetResult(SuppliedResult::Success { value: json!(value).into(), warning: None })
}

fn suspend(text: &str) -> Action {
    let request = question(ResumeMode::UseDecisionAsToolResult);
    Action::Suspend(SuspendRequest { question: Some(text.into()), ..request })
}

fn statuses(story: &Story, ids: &[&str]) -> Vec<CallStatus> {
    ids.iter().map(|id| story.status(id)).collect()
}

#[test]
fn c54_c58_each_call_passes_the_gate_separately_and_only_the_allowed_ones_start() {
    let mut story = Story::begin();
    let calls = [("A", "transfer", json!({})), ("B", "forbidden", json!({})), ("C", "echo", json!({}))];
    let answered = story.answer("", &calls);
    story.model_answers(answered);
    let gates: Vec<Effect> = ["A", "B", "C"].map(|id| Effect::Gate(id.into())).into();
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), gates);
    assert_eq!(names(&story.pass_gate("A")), ["tool.approval_requested"]);
    assert_eq!(names(&story.pass_gate("B")), ["tool.execution_failed"]);
    assert_eq!(names(&story.pass_gate("C")), ["tool.execution_started"]);
    assert_eq!(statuses(&story, &["A", "B", "C"]), [Suspended, Failed, Running]);
    let run = Effect::RunTool { call: "C".into(), attempt: 1, not_before: story.now };
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [run]);
}

#[test]
fn c55_a_held_call_does_not_stop_the_gate_for_the_next_one() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "echo")]);
    assert_eq!(statuses(&story, &["A", "B", "C"]), [Suspended, Suspended, Running]);
    let held: Vec<Pending> = story.run.control.pending();
    assert_eq!(held.iter().map(|open| open.call_id.as_str()).collect::<Vec<_>>(), ["A", "B"]);
    assert_eq!(story.run_status(), &RunStatus::Running);
}

#[test]
fn c56_a_block_fails_the_call_and_by_default_only_the_call() {
    let mut story = Story::begin();
    story.gate_hooks.insert("A".into(), hook(block("not today")));
    let events = story.asks_for(&[("A", "echo"), ("B", "echo")]);
    assert_eq!(
        payload(&events, "tool.execution_failed"),
        json!({"call_id": "A", "error": {"code": "BLOCKED_BY_PLUGIN", "message": "blocked by guard: not today"}})
    );
    assert_eq!(statuses(&story, &["A", "B"]), [Failed, Running]);
}

#[test]
fn c56_c63_a_block_that_ends_the_run_starts_nothing_and_leaves_nothing_dangling() {
    let mut story = Story::with_policy(Policy { on_block: OnBlock::EndRun, ..Policy::default() });
    story.gate_hooks.insert("B".into(), hook(block("not today")));
    let calls = [("A", "transfer", json!({})), ("B", "echo", json!({})), ("C", "echo", json!({}))];
    let answered = story.answer("", &calls);
    story.model_answers(answered);
    story.pass_gate("A");
    let events = story.pass_gate("B");
    assert_eq!(
        names(&events),
        [
            "phase.answered",
            "tool.execution_failed",
            "tool.cancelled",
            "tool.cancelled",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "run.ended"
        ]
    );
    assert_eq!(termination(&story), Termination::Blocked("blocked by guard: not today".into()));
    assert_eq!(
        lines(&story),
        [
            "user: hello",
            "assistant: [A B C]",
            "A: Cancelled: run_ended",
            "B: Error: blocked by guard: not today",
            "C: Cancelled: run_ended"
        ]
    );
    assert!(!story.names().contains(&"tool.execution_started".to_owned()));
}

#[test]
fn c57_a_supplied_result_settles_the_call_without_running_it() {
    let mut story = Story::begin();
    story.gate_hooks.insert("A".into(), hook(supply("cached")));
    let events = story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    assert_eq!(
        payload(&events, "tool.execution_succeeded"),
        json!({"call_id": "A", "result": "cached", "by": "hook"})
    );
    assert_eq!(payload(&events, "tool.execution_started")["call_id"], "B");
    assert_eq!(statuses(&story, &["A", "B"]), [Succeeded, Running]);
    assert_eq!(story.call("A").attempts, 0);
}

#[test]
fn c57_a_supplied_error_fails_the_call() {
    let mut story = Story::begin();
    let error = SuppliedResult::Error { message: "out of stock".into() };
    story.gate_hooks.insert("A".into(), hook(Action::SetResult(error)));
    story.asks_for(&[("A", "echo")]);
    assert_eq!(story.tool_text("A"), "Error: out of stock");
}

#[test]
fn c59_parallel_starts_all_and_sequential_stops_at_the_first_held_call() {
    let calls = [("A", "echo"), ("B", "transfer"), ("C", "echo")];
    let mut parallel = Story::begin();
    parallel.asks_for(&calls);
    assert_eq!(statuses(&parallel, &["A", "B", "C"]), [Running, Suspended, Running]);

    let policy = Policy { execution: Execution::Sequential, ..Policy::default() };
    let mut sequential = Story::with_policy(policy);
    sequential.asks_for(&calls);
    assert_eq!(statuses(&sequential, &["A", "B", "C"]), [Running, New, New]);
    sequential.succeeds("A");
    assert_eq!(statuses(&sequential, &["A", "B", "C"]), [Succeeded, Suspended, New]);
    assert_eq!(sequential.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    sequential.denies("B", None);
    assert_eq!(statuses(&sequential, &["A", "B", "C"]), [Succeeded, Cancelled, Running]);
    sequential.succeeds("C");
    assert_eq!(
        lines(&sequential),
        ["user: hello", "assistant: [A B C]", "A: ok", "B: Denied by ana: no", "C: ok"]
    );
}

/// The one outcome of two plugins that answer for one call.
fn outcome(first: Action, second: Action) -> Vec<String> {
    let mut story = Story::begin();
    story.gate_hooks.insert("A".into(), hooks(&[("one", vec![first]), ("two", vec![second])]));
    let events = story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    let both = payloads(&events, "phase.answered").len();
    assert_eq!(both, 2, "what lost is in the log too");
    let of_a = |event: &&Event| {
        let stored = crate::props::stored_json(event);
        stored["payload"]["call_id"] == "A" && stored["type"].as_str().unwrap().starts_with("tool.")
    };
    let recorded: Vec<Event> = events.iter().filter(of_a).skip(1).cloned().collect();
    let text = match story.status("A") {
        Suspended => payload(&recorded, "tool.suspended")["question"].as_str().unwrap().to_owned(),
        Failed => {
            payload(&recorded, "tool.execution_failed")["error"]["message"].as_str().unwrap().to_owned()
        }
        _ => payload(&recorded, "tool.execution_succeeded")["result"].as_str().unwrap().to_owned(),
    };
    vec![names(&recorded).join(" "), text]
}

#[test]
fn c61_block_beats_suspend_beats_set_result_and_among_equals_the_first_stays() {
    let (failed, suspended, supplied) =
        ("tool.execution_failed", "tool.suspended", "tool.execution_succeeded");
    let table = [
        (block("1"), block("2"), failed, "blocked by one: 1"),
        (block("1"), suspend("2"), failed, "blocked by one: 1"),
        (block("1"), supply("2"), failed, "blocked by one: 1"),
        (suspend("1"), block("2"), failed, "blocked by two: 2"),
        (suspend("1"), suspend("2"), suspended, "1"),
        (suspend("1"), supply("2"), suspended, "1"),
        (supply("1"), block("2"), failed, "blocked by two: 2"),
        (supply("1"), suspend("2"), suspended, "2"),
        (supply("1"), supply("2"), supplied, "1"),
    ];
    for (first, second, event, text) in table {
        let context = format!("{first:?} {second:?}");
        assert_eq!(outcome(first, second), [event, text], "{context}");
    }
}

#[test]
fn c62_a_supplied_result_that_is_pending_holds_the_call() {
    let mut story = Story::begin();
    let pending = SuppliedResult::Pending(SuspendRequest {
        kind: AskKind::External,
        ..question(ResumeMode::UseDecisionAsToolResult)
    });
    story.gate_hooks.insert("A".into(), hook(Action::SetResult(pending)));
    let events = story.asks_for(&[("A", "echo")]);
    assert_eq!(
        names(&events),
        ["message.added", "tool.requested", "phase.answered", "tool.suspended", "run.waiting"]
    );
    let open = story.call("A").suspension().unwrap();
    assert_eq!(open.held.kind(), SuspensionKind::External);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Tool));
    story.answers("A", json!("here"));
    assert_eq!(story.tool_text("A"), "here");
}

#[test]
fn c64_a_held_call_is_announced_with_all_that_a_person_needs_to_see() {
    let mut story = Story::begin();
    story.tools.get_mut("transfer").unwrap().expires_in_ms = Some(5_000);
    let answered = story.answer("", &[("A", "transfer", json!({"to": "bob", "amount": 5}))]);
    let mut events = story.model_answers(answered);
    events.extend(story.pass_gates());
    let digest = story.call("A").arguments.to_string();
    let definition = story.tools["transfer"].definition.to_string();
    assert_eq!(
        payload(&events, "tool.approval_requested"),
        json!({
            "call_id": "A",
            "tool": "transfer",
            "suspension_id": story.call("A").suspension().unwrap().id.as_str(),
            "held": {"approval": {"definition": definition}},
            "mode": "replay_tool_call",
            "arguments": {"valid": {"value": {"to": "bob", "amount": 5}, "digest": digest}},
            "asked_by": ["tool"],
            "expiry": {"at": 6_000, "then": "deny"}
        })
    );
    assert_eq!(story.tool_text("A"), "Not executed yet: awaiting approval");
}

/// What the gate says of a call for which everything comes together that `says` puts into the gate's knowledge.
fn code(says: impl FnOnce(&mut machine::input::GateInput)) -> String {
    let mut story = Story::begin();
    let answered = story.answer("", &[("A", "transfer", json!({})), ("B", "transfer", json!({}))]);
    story.model_answers(answered);
    let mut gated = story.gated("A");
    says(&mut gated);
    let events = story.ok(Input::Gated(gated));
    let failed = payloads(&events, "tool.execution_failed");
    failed.first().map_or_else(
        || names(&events).last().unwrap().clone(),
        |failed| failed["error"]["code"].as_str().unwrap().to_owned(),
    )
}

#[test]
fn the_gate_asks_in_its_order_and_bad_arguments_never_create_an_approval() {
    let all = |action: Option<Action>, known: bool, good: bool| {
        code(move |gated| {
            if let Some(action) = action {
                gated.hooks = hook(action);
            }
            if !known {
                gated.tool = ToolLookup::Unknown;
            }
            if !good {
                gated.arguments = invalid("not an object");
            }
        })
    };
    assert_eq!(all(Some(block("x")), false, false), "BLOCKED_BY_PLUGIN");
    assert_eq!(all(Some(supply("x")), false, false), "tool.execution_succeeded");
    assert_eq!(all(Some(suspend("x")), false, false), "UNKNOWN_TOOL");
    assert_eq!(all(Some(suspend("x")), true, false), "BAD_ARGUMENTS");
    assert_eq!(all(None, true, false), "BAD_ARGUMENTS");
    assert_eq!(all(None, true, true), "tool.approval_requested");
    assert_eq!(code(|gated| gated.tool = ToolLookup::OutOfScope), "OUT_OF_SCOPE");
}

#[test]
fn an_action_outside_its_phase_fails_the_gate() {
    let failed = code(|gated| gated.hooks = hook(Action::SkipInference));
    assert_eq!(failed, "GATE_FAILED");
    let allowed: Vec<(Phase, usize)> = Phase::ALL
        .into_iter()
        .map(|phase| (phase, actions().iter().filter(|action| action.belongs_to(phase)).count()))
        .collect();
    let counts = [2, 6, 6, 4, 4, 2, 2, 1];
    assert_eq!(allowed, Phase::ALL.into_iter().zip(counts).collect::<Vec<_>>());
}

/// One of each.
fn actions() -> Vec<Action> {
    vec![
        crate::props::set_state("k"),
        Action::End,
        Action::AddInstruction { text: "x".into() },
        Action::HideTool { tool: "echo".into() },
        Action::SetParam { name: "n".into(), value: json!(1).into() },
        Action::ReplaceMessage { message: "m".into(), text: "x".into() },
        Action::SkipInference,
        Action::DropCall { index: 0 },
        Action::SetArguments { index: 0, arguments: crate::story::valid(json!({})) },
        block("x"),
        suspend("x"),
        supply("x"),
        Action::AddNote { text: "x".into() },
    ]
}

#[test]
fn state_of_plugins_has_a_limit_and_beyond_it_the_gate_fails() {
    let limit = machine::phase::STATE_BYTES_MAX;
    let with = |bytes| {
        code(move |gated| {
            gated.hooks = HookAnswers { state_bytes_after: bytes, ..hook(crate::props::set_state("k")) };
        })
    };
    assert_eq!(with(limit), "tool.approval_requested");
    assert_eq!(with(limit + 1), "GATE_FAILED");
}

#[test]
fn a_request_to_hold_a_call_is_built_from_its_kind_and_what_is_set_on_it() {
    let bare = |kind, mode| SuspendRequest {
        kind,
        question: Some("sure?".into()),
        schema: None,
        mode,
        resume_state: None,
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    };
    let result = ResumeMode::UseDecisionAsToolResult;
    assert_eq!(SuspendRequest::approval("sure?"), bare(AskKind::Approval, ResumeMode::ReplayToolCall));
    assert_eq!(SuspendRequest::question("sure?"), bare(AskKind::Question, result));
    assert_eq!(SuspendRequest::external("sure?"), bare(AskKind::External, result));
    let set = SuspendRequest::question("sure?")
        .schema(json!({"type": "string"}))
        .mode(ResumeMode::PassDecisionToTool)
        .resume_state(json!(7))
        .expires_in_ms(500, OnExpiry::EndRun);
    let expected = SuspendRequest {
        schema: Some(Arc::new(json!({"type": "string"}))),
        resume_state: Some(Arc::new(json!(7))),
        expires_in_ms: Some(500),
        on_expiry: OnExpiry::EndRun,
        ..bare(AskKind::Question, ResumeMode::PassDecisionToTool)
    };
    assert_eq!(set, expected);
}
