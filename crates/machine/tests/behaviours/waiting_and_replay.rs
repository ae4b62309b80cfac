//! From a held call to its replay: who may answer, what the answer makes of the call, and what stays held.

use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::event::InterruptCause;
use machine::inbox::{Item, RunLifecycle, drain, judge_decision, to_input};
use machine::phase::Action;
use machine::policy::{DecisionTiming, Policy};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::ResumeMode;
use machine::tool::{Approval, EffectClass};
use machine::{Control, Effect, Fact, Input, Rejection};
use serde_json::{Value, json};

use crate::props::{hook, lines, payload, payloads, termination};
use crate::story::{Story, cancel, names, pending, question, resume, resume_with, tool, valid};

use CallStatus::{Cancelled, Resuming, Running, Succeeded, Suspended};

fn waiting() -> RunStatus {
    RunStatus::Waiting(WaitingOn::Person)
}

/// A and B wait for approval.
fn two_held() -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    story
}

/// The tool of A asks the user, to be answered in this mode.
fn asking(mode: ResumeMode) -> Story {
    let mut story = Story::begin();
    let answered = story.answer("", &[("A", "echo", json!({"path": "a.txt"}))]);
    story.model_answers(answered);
    story.pass_gates();
    story.returns("A", pending(mode));
    story
}

#[test]
fn c49_one_decision_does_not_end_the_wait_while_another_call_is_held() {
    let mut story = two_held();
    story.approves("A");
    let events = story.succeeds("A");
    assert_eq!(names(&events), ["tool.execution_succeeded", "run.waiting"]);
    assert_eq!(story.run_status(), &waiting());
    assert_eq!((story.run.control.step, story.status("B")), (1, Suspended));
    assert!(story.run.wanted().is_empty());
}

#[test]
fn c65_c66_c68_decision_replay_wait_again_and_on_once_nothing_is_held() {
    let mut story = two_held();
    let decision = story.decision("A", resume());
    assert_eq!(names(&story.ok(Input::Decide(decision))), ["tool.approved", "run.resumed"]);
    assert_eq!((story.status("A"), story.status("B")), (Resuming, Suspended));
    assert_eq!(names(&story.pass_gates()), ["tool.execution_started"]);
    assert_eq!(names(&story.succeeds("A")), ["tool.execution_succeeded", "run.waiting"]);
    assert_eq!(names(&story.approves("B")), ["tool.approved", "run.resumed", "tool.execution_started"]);
    assert_eq!(
        names(&story.succeeds("B")),
        ["tool.execution_succeeded", "message.added", "message.added", "step.ended", "step.started"]
    );
    assert_eq!(lines(&story), ["user: hello", "assistant: [A B]", "A: ok", "B: ok"]);
}

/// What the model reads after these calls were decided in these groups and every started tool succeeded.
fn decided_in(groups: &[&[&str]]) -> (Vec<String>, u32) {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "transfer")]);
    for group in groups {
        let inbox: Vec<Item> = group.iter().map(|id| Item::Decision(story.decision(id, resume()))).collect();
        for index in drain(&story.run.control, &inbox, false) {
            let input = to_input(&story.run.control, inbox.get(index).unwrap()).unwrap();
            story.ok(input);
        }
        story.pass_gates();
        group.iter().for_each(|id| drop(story.succeeds(id)));
    }
    (lines(&story), story.run.control.step)
}

#[test]
fn c67_c103_decisions_come_one_by_one_or_in_batches_with_the_same_result() {
    let single = decided_in(&[&["A"], &["B"], &["C"]]);
    assert_eq!(single.0, ["user: hello", "assistant: [A B C]", "A: ok", "B: ok", "C: ok"]);
    assert_eq!(single.1, 2);
    assert_eq!(decided_in(&[&["A", "B", "C"]]), single);
    assert_eq!(decided_in(&[&["C"], &["B", "A"]]), single);
}

#[test]
fn c69_only_resuming_calls_are_replayed_and_settled_ones_are_skipped() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "echo"), ("D", "transfer")]);
    story.succeeds("C");
    story.denies("D", None);
    let decision = story.decision("B", resume());
    story.ok(Input::Decide(decision));
    let statuses = ["A", "B", "C", "D"].map(|id| story.status(id));
    assert_eq!(statuses, [Suspended, Resuming, Succeeded, Cancelled]);
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [Effect::Gate("B".into())]);
}

#[test]
fn c70_replay_runs_the_original_arguments_in_full() {
    let mut story = Story::begin();
    let answered = story.answer("", &[("A", "transfer", json!({"amount": 5}))]);
    story.model_answers(answered);
    story.pass_gates();
    let asked = story.call("A").arguments;
    story.approves("A");
    assert_eq!(story.status("A"), Running);
    assert_eq!(story.call("A").arguments, asked);
    assert_eq!(valid(json!({"amount": 5})).digest(), asked);
    assert_eq!(story.call("A").attempts, 1, "the body runs, and for the first time");
}

#[test]
fn c71_a_decision_used_as_the_result_never_runs_the_body() {
    let mut story = asking(ResumeMode::UseDecisionAsToolResult);
    let events = story.answers("A", json!({"picked": 2}));
    assert_eq!(
        names(&events),
        [
            "tool.resumed",
            "run.resumed",
            "tool.execution_succeeded",
            "message.added",
            "step.ended",
            "step.started"
        ]
    );
    assert_eq!(payload(&events, "tool.execution_succeeded")["by"], "decision");
    assert_eq!(story.tool_text("A"), r#"{"picked":2}"#);
}

#[test]
fn c72_a_decision_passed_to_the_tool_becomes_its_arguments() {
    let mut story = asking(ResumeMode::PassDecisionToTool);
    let value = json!({"path": "b.txt"});
    let action = DecisionAction::Resume(Resume {
        payload: Payload::Result(value.clone().into()),
        payload_arguments: Some(valid(value.clone())),
        ..Resume::default()
    });
    let events = story.decides("A", action);
    assert_eq!(names(&events), ["tool.resumed", "run.resumed", "tool.execution_started"]);
    assert_eq!(story.call("A").arguments, valid(value).digest());
    assert_eq!(story.call("A").attempts, 2);
}

#[test]
fn c73_the_mode_belongs_to_the_suspension_and_a_decision_may_name_another() {
    let mut held = two_held();
    assert_eq!(held.call("A").suspension().unwrap().mode, ResumeMode::ReplayToolCall);
    held.approves("A");
    assert_eq!(held.status("A"), Running);

    for mode in ResumeMode::ALL {
        let story = asking(mode);
        assert_eq!(story.call("A").suspension().unwrap().mode, mode);
        assert_eq!(payload(&story.log, "tool.suspended")["mode"], json!(mode));
    }
    let mut story = asking(ResumeMode::ReplayToolCall);
    let action = DecisionAction::Resume(Resume {
        payload: Payload::Result(json!("as is").into()),
        mode: Some(ResumeMode::UseDecisionAsToolResult),
        ..Resume::default()
    });
    let events = story.decides("A", action);
    assert_eq!(payload(&events, "tool.resumed")["mode"], "use_decision_as_tool_result");
    assert_eq!(story.tool_text("A"), "as is");
}

#[test]
fn c74_a_bare_true_means_the_original_arguments_and_false_or_null_run_nothing() {
    let mut story = asking(ResumeMode::PassDecisionToTool);
    let before = story.call("A").arguments;
    for no in [json!(false), Value::Null] {
        let decision = story.decision("A", resume_with(no));
        let why = "false and null never run a tool; cancel the call instead".to_owned();
        assert_eq!(story.refused(Input::Decide(decision)), Rejection::Invalid { call: "A".into(), why });
        assert_eq!(story.status("A"), Suspended);
    }
    story.answers("A", json!(true));
    assert_eq!((story.status("A"), story.call("A").arguments), (Running, before));

    for value in [json!(true), json!(false), Value::Null] {
        let mut story = asking(ResumeMode::UseDecisionAsToolResult);
        story.answers("A", value.clone());
        assert_eq!(story.tool_text("A"), value.to_string(), "any value is the result");
    }
}

#[test]
fn c75_a_cancel_decision_cancels_writes_the_message_and_runs_nothing() {
    let mut story = asking(ResumeMode::ReplayToolCall);
    let events = story.decides("A", cancel());
    assert_eq!(
        names(&events),
        ["tool.cancelled", "run.resumed", "message.added", "step.ended", "step.started"]
    );
    assert_eq!(story.tool_text("A"), "Cancelled");
    let mut story = two_held();
    let events = story.denies("A", None);
    assert_eq!(names(&events), ["tool.denied"]);
    assert_eq!(story.status("A"), Cancelled);
    assert_eq!(story.tool_text("A"), "Denied by ana: no");
}

#[test]
fn c76_c88_a_replay_passes_the_full_gate_and_may_be_held_again_with_a_new_question() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let first = story.decision("A", resume());
    story.gate_hooks.insert("A".into(), hook(Action::Suspend(question(ResumeMode::ReplayToolCall))));
    let events = story.decides("A", resume());
    assert_eq!(
        names(&events),
        ["tool.approved", "run.resumed", "phase.answered", "tool.suspended", "run.waiting"]
    );
    assert_eq!((story.status("A"), story.call("A").attempts), (Suspended, 0));
    let open = story.call("A").suspension().unwrap().id.clone();
    assert_ne!(open, first.suspension);
    let refused = story.refused(Input::Decide(first));
    assert_eq!(refused, Rejection::WrongSuspension { call: "A".into(), open });
    // The plugin that asked does not ask again: the next decision is not lost, and the call runs.
    story.answers("A", json!("go"));
    assert_eq!(story.status("A"), Running);
}

#[test]
fn c76_a_replayed_call_can_be_blocked_or_supplied_by_the_gate() {
    let mut story = two_held();
    story.gate_hooks.insert("A".into(), hook(Action::Block { reason: "frozen".into() }));
    story.approves("A");
    assert_eq!(story.status("A"), CallStatus::Failed);
    assert_eq!(story.tool_text("A"), "Error: blocked by guard: frozen");
}

#[test]
fn after_three_rounds_of_asking_the_call_fails() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    for plugin in ["p1", "p2", "p3"] {
        let ask = Action::Suspend(question(ResumeMode::ReplayToolCall));
        story.gate_hooks.insert("A".into(), crate::props::hooks(&[(plugin, vec![ask])]));
        let action = if plugin == "p1" { resume() } else { resume_with(json!("yes")) };
        story.decides("A", action);
    }
    let failed = payload(&story.log, "tool.execution_failed");
    assert_eq!(failed["error"]["code"], "ASKED_TOO_OFTEN");
    assert_eq!(story.names().iter().filter(|name| *name == "tool.execution_started").count(), 0);
}

#[test]
fn c77_an_accepted_decision_is_processed_before_a_later_cancel() {
    let mut story = two_held();
    let cause = InterruptCause::Person("ana".into());
    let inbox = [Item::Decision(story.decision("A", resume())), Item::Interrupt { cause: cause.clone() }];
    let order = drain(&story.run.control, &inbox, false);
    assert_eq!(order, [0, 1]);
    for index in order {
        let input = to_input(&story.run.control, inbox.get(index).unwrap()).unwrap();
        story.ok(input);
    }
    let recorded: Vec<String> =
        story.names().into_iter().skip_while(|name| name != "tool.approved").collect();
    assert_eq!(
        recorded,
        [
            "tool.approved",
            "run.resumed",
            "run.interrupting",
            "tool.cancelled",
            "tool.cancelled",
            "message.added",
            "message.added",
            "step.ended",
            "run.ended"
        ]
    );
    assert_eq!(termination(&story).done_reason(), "cancelled");
}

#[test]
fn c77_a_decision_after_the_cancel_is_refused() {
    use machine::inbox::{Refusal, Verdict};
    let story = two_held();
    let decision = story.decision("A", resume());
    for row in [RunLifecycle::Ending, RunLifecycle::Ended] {
        assert_eq!(judge_decision(&decision, row, None, None), Verdict::Refused(Refusal::RunOver));
    }
}

#[test]
fn c78_without_a_decision_the_run_stays_waiting_as_a_stored_row() {
    let story = two_held();
    let stored = Control::decode(&story.run.control.encode().unwrap()).unwrap();
    assert_eq!(stored.status, waiting());
    assert!(story.run.wanted().is_empty());
    assert_eq!(story.run.next_deadline(), None, "no timer either");
}

#[test]
fn c79_an_empty_batch_changes_nothing() {
    let story = two_held();
    assert_eq!(drain(&story.run.control, &[], false), Vec::<usize>::new());
    assert_eq!(drain(&story.run.control, &[], true), Vec::<usize>::new());
}

#[test]
fn c80_a_decision_for_a_call_that_is_not_held_or_not_known_is_refused() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "echo")]);
    let held = story.decision("A", resume());
    let running = Decision { call: "C".into(), ..held.clone() };
    let refused = story.refused(Input::Decide(running));
    assert_eq!(refused, Rejection::NotSuspended { call: "C".into(), status: Running });
    assert_eq!(refused.to_string(), "call C is Running, not Suspended: there is nothing to decide");
    let unknown = Decision { call: "X".into(), ..held };
    let refused = story.refused(Input::Decide(unknown));
    assert_eq!(refused, Rejection::UnknownCall("X".into()));
    assert_eq!(refused.to_string(), "this run has no open call X");
    assert_eq!(["A", "B"].map(|id| story.status(id)), [Suspended, Suspended]);
}

#[test]
fn c81_one_bad_decision_in_a_batch_does_not_discard_the_good_ones() {
    let mut story = two_held();
    let bad = Decision { call: "X".into(), ..story.decision("A", resume()) };
    let null = story.decision("A", resume_with(Value::Null));
    let good = story.decision("B", resume());
    let outcomes: Vec<bool> =
        [bad, null, good].into_iter().map(|decision| story.say(Input::Decide(decision)).is_ok()).collect();
    assert_eq!(outcomes, [false, false, true]);
    assert_eq!((story.status("A"), story.status("B")), (Suspended, Resuming));
    assert_eq!(payloads(&story.log, "tool.approved").len(), 1);
}

#[test]
fn c82_at_the_boundary_a_decision_waits_for_the_tools_and_immediately_it_does_not() {
    for (decisions, count) in [(DecisionTiming::AtBoundary, 0), (DecisionTiming::Immediate, 1)] {
        let mut story = Story::with_policy(Policy { decisions, ..Policy::default() });
        story.asks_for(&[("A", "transfer"), ("C", "echo")]);
        let inbox = [Item::Decision(story.decision("A", resume()))];
        assert_eq!(drain(&story.run.control, &inbox, false).len(), count);
        story.succeeds("C");
        assert_eq!(drain(&story.run.control, &inbox, false), [0]);
    }
}

#[test]
fn edited_arguments_are_judged_again_by_rules_and_an_asker_does_not_ask_again() {
    use machine::rules::{ArgumentTest, Condition, Rule, RuleAction};
    let rule = Rule {
        tool: "transfer".into(),
        when: vec![Condition { path: vec!["amount".into()], test: ArgumentTest::Gt(100.0) }],
        then: RuleAction::Ask,
    };
    let revision = machine::Revision { rules: vec![rule], ..machine::Revision::default() };
    let mut story = Story::begin_with(revision);
    story.tools.insert("transfer".into(), tool(EffectClass::Write, Approval::Ask));
    let answered = story.answer("", &[("A", "transfer", json!({"amount": 5}))]);
    story.model_answers(answered);
    story.pass_gates();
    let edited = DecisionAction::Resume(Resume {
        arguments: Some(valid(json!({"amount": 500}))),
        ..Resume::default()
    });
    let events = story.decides("A", edited);
    assert_eq!(names(&events), ["tool.approved", "run.resumed", "tool.approval_requested", "run.waiting"]);
    let asked = payload(&events, "tool.approval_requested");
    assert_eq!(asked["asked_by"], json!([{"rule": 0}]));
    assert_eq!(asked["arguments"]["valid"]["value"], json!({"amount": 500}));
    let events = story.approves("A");
    assert_eq!(names(&events), ["tool.approved", "run.resumed", "tool.execution_started"]);
}

#[test]
fn an_answer_that_becomes_the_arguments_needs_an_approval_of_its_own() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    story.approves("A");
    story.returns("A", pending(ResumeMode::PassDecisionToTool));
    let value = json!({"to": "mallory"});
    let action = DecisionAction::Resume(Resume {
        payload: Payload::Result(value.clone().into()),
        payload_arguments: Some(valid(value.clone())),
        ..Resume::default()
    });
    let events = story.decides("A", action);
    assert_eq!(names(&events), ["tool.resumed", "run.resumed", "tool.approval_requested", "run.waiting"]);
    let shown = payload(&events, "tool.approval_requested");
    assert_eq!(shown["arguments"]["valid"]["value"], value, "what was approved before was something else");
    story.approves("A");
    assert_eq!((story.status("A"), story.call("A").attempts), (Running, 2));
}

#[test]
fn a_run_that_waits_says_until_when_each_question_can_be_answered() {
    let mut story = Story::begin();
    story.tools.get_mut("transfer").unwrap().expires_in_ms = Some(60_000);
    story.asks_for(&[("A", "transfer"), ("B", "pick_file")]);
    let expiries: Vec<_> = story.run.control.pending().iter().map(|pending| pending.expires_at).collect();
    assert_eq!(expiries, [Some(story.now.plus_ms(60_000)), None]);
    let Some(Fact::RunWaiting { pending, .. }) = story.log.last().map(|event| &event.fact) else {
        panic!("it does not wait");
    };
    assert_eq!(pending, &story.run.control.pending());
}
