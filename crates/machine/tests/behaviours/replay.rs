//! A held call continues: decisions, resume modes, edited arguments, and asking again.

use std::sync::Arc;

use machine::decision::{DecisionAction, Payload, Resume};
use machine::event::{CallErrorCode, Fact};
use machine::id::{CallId, DecisionId};
use machine::phase::{Action, SuppliedResult};
use machine::revision::{ASK_ROUNDS_MAX, PENDING_ROUNDS_MAX, Revision};
use machine::rules::{ArgumentTest, Condition, Rule, RuleAction};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::ResumeMode;
use machine::transcript::ModelMessage;
use machine::{Effect, Input, Rejection};
use serde_json::json;

use crate::hooks::{one, says, together};
use crate::story::{Story, cancel, names, pending, question, resume, resume_with, success, valid};

use ResumeMode::{PassDecisionToTool, ReplayToolCall, UseDecisionAsToolResult};

fn holding(tool: &str) -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", tool)]);
    story
}

/// The tool ran and asked the user something.
fn asking(mode: ResumeMode) -> Story {
    let mut story = holding("echo");
    let events = story.returns("A", pending(mode));
    assert_eq!(names(&events), ["tool.suspended", "run.waiting"]);
    story
}

fn edited(value: serde_json::Value) -> DecisionAction {
    DecisionAction::Resume(Resume { arguments: Some(valid(value)), ..Resume::default() })
}

#[test]
fn a71_a73_a74_a_decision_is_stored_before_its_replay_starts() {
    let mut story = holding("transfer");
    let open = story.call("A").suspension().unwrap().id.clone();
    let mut decision = story.decision("A", resume());
    decision.id = Some(DecisionId::from("d1"));
    let events = story.ok(Input::Decide(decision));
    assert_eq!(names(&events), ["tool.approved", "run.resumed"]);
    // Nothing runs yet: the decision is one commit, with all that is known of it in one event.
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [Effect::Gate(CallId::from("A"))]);
    assert!(matches!(
        &events[0].fact,
        Fact::ToolApproved { approval_id, by, decision_id: Some(id), .. }
            if *approval_id == open && by.as_str() == "ana" && id.as_str() == "d1"
    ));
    // And one place in the control state, bound to the definition that was shown.
    let approved = story.call("A").approved.clone().unwrap();
    assert_eq!(approved.approval, open);
    assert_eq!(approved.definition, story.tools["transfer"].definition);
    assert_eq!(names(&story.pass_gates()), ["tool.execution_started"]);
    // Single use: nothing is wanted but the one attempt that it allowed.
    assert_eq!(names(&story.pass_gates()), Vec::<String>::new());
    assert_eq!(
        names(&story.succeeds("A")),
        ["tool.execution_succeeded", "message.added", "step.ended", "step.started"]
    );
}

#[test]
fn a72_a_decision_that_matches_nothing_leaves_no_trace() {
    let mut story = holding("transfer");
    let log = story.log.clone();
    let mut unknown = story.decision("A", resume());
    unknown.call = CallId::from("B");
    story.refused(Input::Decide(unknown));
    let mut earlier = story.decision("A", resume());
    earlier.suspension = "apr_of_another_time".into();
    story.refused(Input::Decide(earlier));
    assert_eq!(story.log, log);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
}

#[test]
fn a75_a84_b31_a_denied_call_gets_one_message_and_the_model_continues() {
    let mut story = holding("transfer");
    let events = story.denies("A", None);
    assert_eq!(names(&events), ["tool.denied", "run.resumed", "message.added", "step.ended", "step.started"]);
    assert_eq!(story.tool_text("A"), "Denied by ana: no");
    assert!(matches!(story.run.wanted().first(), Some(Effect::CallModel { step: 2, .. })));
    let mut story = holding("transfer");
    story.decides("A", cancel());
    assert_eq!(story.tool_text("A"), "Denied by ana");
}

#[test]
fn a75_cancelling_what_is_not_an_approval_cancels_the_call() {
    for tool in ["pick_file", "webhook"] {
        let mut story = holding(tool);
        let events = story.denies("A", None);
        assert_eq!(
            names(&events),
            ["tool.cancelled", "run.resumed", "message.added", "step.ended", "step.started"]
        );
        assert_eq!(story.tool_text("A"), "Cancelled: no");
    }
    let mut story = asking(UseDecisionAsToolResult);
    story.decides("A", cancel());
    assert_eq!(story.tool_text("A"), "Cancelled");
}

#[test]
fn a76_a92_a_tool_that_asks_again_opens_a_new_question_and_closes_the_old_one() {
    let mut story = asking(ReplayToolCall);
    let first = story.call("A").suspension().unwrap().id.clone();
    let stale = story.decision("A", resume_with(json!("two")));
    let mut events = story.answers("A", json!("one"));
    events.extend(story.returns("A", pending(ReplayToolCall)));
    assert_eq!(
        names(&events),
        ["tool.resumed", "run.resumed", "tool.execution_started", "tool.suspended", "run.waiting"]
    );
    let second = story.call("A").suspension().unwrap().id.clone();
    assert_ne!(first, second);
    // The decision on the first question does not spill over.
    let refused = story.refused(Input::Decide(stale));
    assert_eq!(refused, Rejection::WrongSuspension { call: CallId::from("A"), open: second });
    story.answers("A", json!("two"));
    story.succeeds("A");
    assert_eq!(story.tool_text("A"), "ok");
    assert_eq!(story.run.control.suspension_count, 2);
}

#[test]
fn a90_a_replay_that_asks_again_waits_before_any_model_call() {
    let mut story = asking(ReplayToolCall);
    story.answers("A", json!("one"));
    story.returns("A", pending(ReplayToolCall));
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    assert!(story.run.wanted().is_empty());
    assert_eq!(story.run.control.step, 1);
}

#[test]
fn a100_a_tool_that_answers_pending_suspends_itself_and_gets_its_state_back() {
    let mut story = asking(ReplayToolCall);
    let opened_at = story.call("A").suspension().unwrap().seq;
    let Fact::ToolSuspended(opened) = &story.log[opened_at as usize - 1].fact else {
        panic!("the suspension's event opens it")
    };
    assert_eq!(opened.question.as_deref(), Some("which one?"));
    assert_eq!(opened.resume_state.as_deref(), Some(&json!({"cursor": 7})));
    assert_eq!(opened.mode, ReplayToolCall);
    assert_eq!((opened.call_id.as_str(), opened.tool.as_str()), ("A", "echo"));
    let events = story.answers("A", json!("this one"));
    assert!(matches!(
        &events[0].fact,
        Fact::ToolResumed { answer: Some(answer), mode: ReplayToolCall, .. } if **answer == json!("this one")
    ));
    assert_eq!(story.call("A").answer_seq, Some(events[0].seq));
    assert_eq!(story.call("A").resume_state_seq, Some(opened_at));
    assert_eq!(story.call("A").attempts, 2);
}

#[test]
fn a83_null_and_false_never_run_anything() {
    for value in [json!(null), json!(false)] {
        for mut story in [holding("transfer"), asking(ReplayToolCall), asking(PassDecisionToTool)] {
            let decision = story.decision("A", resume_with(value.clone()));
            let refused = story.refused(Input::Decide(decision));
            assert!(matches!(refused, Rejection::Invalid { .. }), "{refused}");
            assert_eq!(story.status("A"), CallStatus::Suspended);
            assert!(story.run.wanted().is_empty());
        }
    }
    // As a result null is as good as any value, and nothing runs for it.
    let mut story = asking(UseDecisionAsToolResult);
    let events = story.answers("A", json!(null));
    assert_eq!(names(&events)[..3], ["tool.resumed", "run.resumed", "tool.execution_succeeded"]);
    assert_eq!(story.tool_text("A"), "null");
}

#[test]
fn a86_use_decision_as_tool_result_never_runs_the_body() {
    for tool in ["pick_file", "webhook"] {
        let mut story = holding(tool);
        let events = story.answers("A", json!({"path": "/a"}));
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
        assert_eq!(story.tool_text("A"), "{\"path\":\"/a\"}");
        assert!(!story.names().contains(&"tool.execution_started".into()));
    }
    let mut story = holding("pick_file");
    let failed = Resume { payload: Payload::Error("no such file".into()), ..Resume::default() };
    let events = story.decides("A", DecisionAction::Resume(failed));
    assert_eq!(names(&events)[..3], ["tool.resumed", "run.resumed", "tool.execution_failed"]);
    assert_eq!(story.tool_text("A"), "Error: no such file");
}

#[test]
fn a86_pass_decision_to_tool_makes_the_payload_the_arguments_and_true_keeps_them() {
    let mut story = asking(PassDecisionToTool);
    let asked = story.call("A").arguments;
    let answer = Resume {
        payload: Payload::Result(Arc::new(json!({"of": "B"}))),
        payload_arguments: Some(valid(json!({"of": "B"}))),
        ..Resume::default()
    };
    let events = story.decides("A", DecisionAction::Resume(answer));
    assert_eq!(names(&events), ["tool.resumed", "run.resumed", "tool.execution_started"]);
    assert_eq!(story.call("A").arguments, valid(json!({"of": "B"})).digest());
    assert_eq!(story.call("A").arguments_seq, events[0].seq);
    assert_ne!(story.call("A").arguments, asked);
    let mut story = asking(PassDecisionToTool);
    story.answers("A", json!(true));
    assert_eq!((story.status("A"), story.call("A").arguments), (CallStatus::Running, asked));
}

#[test]
fn a86_arguments_that_an_answer_brings_need_an_approval_of_their_own() {
    let mut story = holding("transfer");
    story.approves("A");
    story.returns("A", pending(PassDecisionToTool));
    let answer = Resume {
        payload: Payload::Result(Arc::new(json!({"of": "everything"}))),
        payload_arguments: Some(valid(json!({"of": "everything"}))),
        ..Resume::default()
    };
    let events = story.decides("A", DecisionAction::Resume(answer));
    assert_eq!(names(&events), ["tool.resumed", "run.resumed", "tool.approval_requested", "run.waiting"]);
    assert_eq!(story.call("A").attempts, 1);
    story.approves("A");
    assert_eq!((story.status("A"), story.call("A").attempts), (CallStatus::Running, 2));
}

#[test]
fn a86_edited_arguments_are_what_was_approved_and_what_the_model_reads() {
    let mut story = holding("transfer");
    let events = story.decides("A", edited(json!({"of": "less"})));
    assert_eq!(names(&events), ["tool.approved", "run.resumed", "tool.execution_started"]);
    assert_eq!(story.call("A").arguments, valid(json!({"of": "less"})).digest());
    story.succeeds("A");
    assert_eq!(story.tool_text("A"), "Arguments were changed by the approver to: {\"of\":\"less\"}\nok");
    // The assistant message keeps the model's own.
    let own = story.transcript().into_iter().find_map(|message| match message {
        ModelMessage::Assistant { calls, .. } => calls.first().map(|call| call.arguments.clone()),
        _ => None,
    });
    assert_eq!(own, Some(valid(json!({"of": "A"}))));
}

#[test]
fn a86_what_is_dispatched_is_compared_with_what_was_approved() {
    let mut story = holding("transfer");
    let decision = story.decision("A", resume());
    story.ok(Input::Decide(decision));
    story.arguments.insert(CallId::from("A"), valid(json!({"of": "another call"})));
    let events = story.pass_gates();
    assert_eq!(names(&events)[0], "tool.execution_failed");
    assert!(matches!(
        &events[0].fact,
        Fact::ExecutionFailed { error, .. } if error.code == CallErrorCode::ArgumentsChanged
    ));
    assert!(!story.names().contains(&"tool.execution_started".into()));
}

#[test]
fn a86_a_decision_with_an_expected_digest_is_refused_for_other_arguments() {
    let mut story = holding("transfer");
    let saw = |digest| DecisionAction::Resume(Resume { expect_digest: Some(digest), ..Resume::default() });
    let other = story.decision("A", saw(valid(json!({"of": "B"})).digest()));
    let held = story.call("A").arguments;
    let refused = story.refused(Input::Decide(other));
    assert_eq!(refused, Rejection::DigestMismatch { call: CallId::from("A"), held });
    story.decides("A", saw(held));
    assert_eq!(story.status("A"), CallStatus::Running);
}

#[test]
fn a85_a_replay_runs_the_hooks_again_and_an_asker_does_not_ask_again() {
    let mut story = Story::begin();
    let ask = Action::Suspend(question(ReplayToolCall));
    story.gate_hooks.insert("A".into(), one("first", ask.clone()));
    story.asks_for(&[("A", "transfer")]);
    // The policy asks, then the plugin, once each; both are checked at every replay.
    assert_eq!(
        names(&story.approves("A")),
        ["tool.approved", "run.resumed", "phase.answered", "tool.suspended", "run.waiting"]
    );
    let events = story.answers("A", json!("yes"));
    assert_eq!(names(&events), ["tool.resumed", "run.resumed", "phase.answered", "tool.execution_started"]);
    // A hook that did not ask before may still say no to the replay.
    let mut story = holding("transfer");
    story.gate_hooks.insert("A".into(), one("guard", crate::hooks::block("too late")));
    let events = story.approves("A");
    assert_eq!(names(&events)[2..4], ["phase.answered", "tool.execution_failed"]);
    assert_eq!(story.tool_text("A"), "Error: blocked by guard: too late");
}

#[test]
fn a85_rules_judge_edited_arguments_again() {
    let over_100 = Condition { path: vec!["amount".into()], test: ArgumentTest::Gt(100.0) };
    let rule = Rule { tool: "transfer".into(), when: vec![over_100], then: RuleAction::Deny };
    let mut story = Story::begin_with(Revision { rules: vec![rule], ..Revision::default() });
    let answered = story.answer("", &[("A", "transfer", json!({"amount": 5}))]);
    story.model_answers(answered);
    story.pass_gates();
    assert_eq!(story.status("A"), CallStatus::Suspended);
    story.decides("A", edited(json!({"amount": 5_000})));
    assert_eq!(
        story.tool_text("A"),
        "Arguments were changed by the approver to: {\"amount\":5000}\nError: denied by rule 0"
    );
}

#[test]
fn a85_after_three_rounds_of_asking_the_call_fails() {
    let mut story = Story::begin();
    let ask = Action::Suspend(question(ReplayToolCall));
    let askers = ["one", "two", "three"].map(|plugin| says(plugin, std::slice::from_ref(&ask)));
    story.gate_hooks.insert("A".into(), together(&askers));
    story.asks_for(&[("A", "transfer")]);
    story.approves("A");
    for round in 2..=ASK_ROUNDS_MAX {
        assert_eq!(story.call("A").ask_rounds, round);
        story.answers("A", json!("go on"));
    }
    assert_eq!(story.tool_text("A"), "Error: the gate asked 3 times and asks again");
    assert!(!story.names().contains(&"tool.execution_started".into()));
}

#[test]
fn a85_a_plugin_that_always_supplies_pending_fails_the_call_after_the_limit() {
    let mut story = Story::begin();
    let supplied = SuppliedResult::Pending(question(ReplayToolCall));
    story.gate_hooks.insert("A".into(), one("asker", Action::SetResult(supplied)));
    story.asks_for(&[("A", "echo")]);
    let mut rounds = 0;
    while story.run.control.step == 1 && story.status("A") == CallStatus::Suspended {
        rounds += 1;
        assert!(rounds <= ASK_ROUNDS_MAX, "asked {rounds} times and still asking");
        story.answers("A", json!("go on"));
    }
}

#[test]
fn a76_a_tool_that_answers_pending_too_often_fails() {
    let mut story = asking(ReplayToolCall);
    for _ in 1..PENDING_ROUNDS_MAX {
        story.answers("A", json!("again"));
        story.returns("A", pending(ReplayToolCall));
    }
    assert_eq!(story.status("A"), CallStatus::Suspended);
    story.answers("A", json!("again"));
    story.returns("A", pending(ReplayToolCall));
    assert_eq!(story.tool_text("A"), "Error: the tool answered pending 100 times");
}

#[test]
fn a82_b32_of_two_decisions_on_one_call_the_first_wins() {
    let mut story = holding("transfer");
    let yes = story.decision("A", resume());
    let no = story.decision("A", cancel());
    story.ok(Input::Decide(yes.clone()));
    let status = CallStatus::Resuming;
    let refused = story.refused(Input::Decide(no));
    assert_eq!(refused, Rejection::NotSuspended { call: CallId::from("A"), status });
    story.pass_gates();
    story.refused(Input::Decide(yes.clone()));
    story.succeeds("A");
    // After the turn is closed the call is unknown.
    assert_eq!(story.refused(Input::Decide(yes)), Rejection::UnknownCall(CallId::from("A")));
    let starts = story.names().iter().filter(|name| *name == "tool.execution_started").count();
    assert_eq!(starts, 1);
}

#[test]
fn a78_a_decision_means_the_same_wherever_the_run_is() {
    // While a sibling runs, while the run waits, and after the run was loaded again.
    let held_beside_running = || {
        let mut story = Story::begin();
        story.asks_for(&[("A", "transfer"), ("C", "echo")]);
        story
    };
    let mut beside = held_beside_running();
    let mut waiting = held_beside_running();
    waiting.succeeds("C");
    let mut reloaded = held_beside_running();
    reloaded.succeeds("C");
    reloaded.run.control = machine::fold(&reloaded.log).unwrap();
    let approve = |story: &mut Story| -> Vec<String> {
        let events = story.approves("A");
        names(&events).into_iter().filter(|name| name != "run.resumed").collect()
    };
    for story in [&mut beside, &mut waiting, &mut reloaded] {
        assert_eq!(approve(story), ["tool.approved", "tool.execution_started"]);
        assert_eq!(story.call("A").attempts, 1);
    }
}

#[test]
fn a87_a_decided_call_does_not_wait_for_the_other_held_ones() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    story.approves("A");
    assert_eq!((story.status("A"), story.status("B")), (CallStatus::Running, CallStatus::Suspended));
}

#[test]
fn a80_a_decision_names_the_call_and_the_very_question_it_answers() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    let listed = story.run.control.pending();
    let ids = |index: usize| (listed[index].call_id.clone(), listed[index].suspension_id.clone());
    let mut crossed = story.decision("A", resume());
    crossed.suspension = ids(1).1;
    let refused = story.refused(Input::Decide(crossed));
    assert_eq!(refused, Rejection::WrongSuspension { call: ids(0).0, open: ids(0).1 });
    let mut right = story.decision("A", resume());
    (right.call, right.suspension) = ids(0);
    assert_eq!(names(&story.ok(Input::Decide(right))), ["tool.approved", "run.resumed"]);
}

#[test]
fn a113_the_pending_answer_of_an_attempt_that_was_resolved_meanwhile_opens_nothing() {
    let mut story = asking(ReplayToolCall);
    story.answers("A", json!("one"));
    let late = Input::ToolReturned {
        step: 1,
        call: CallId::from("A"),
        attempt: 1,
        outcome: pending(ReplayToolCall),
    };
    let status = CallStatus::Running;
    let stale = Rejection::StaleAttempt { call: CallId::from("A"), attempt: 1, current: 2, status };
    assert_eq!(story.refused(late.clone()), stale);
    story.returns("A", success(json!("done")));
    assert_eq!(story.ok(late), []);
    assert_eq!(story.last_outcome, Some(machine::InputOutcome::Duplicate));
    let opened = story.names().iter().filter(|name| *name == "tool.suspended").count();
    assert_eq!(opened, 1);
}

#[test]
fn a91_a_run_without_an_answer_waits_and_costs_nothing() {
    let mut story = holding("transfer");
    story.later(365 * 24 * 3_600 * 1_000);
    assert!(story.run.wanted().is_empty());
    assert_eq!(story.run.next_deadline(), None);
    assert_eq!(story.refused(Input::DeadlineReached), Rejection::NothingDue);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    story.approves("A");
    assert_eq!(story.status("A"), CallStatus::Running);
}

#[test]
fn b32_a_decision_counts_by_when_it_was_accepted_and_not_by_when_it_is_processed() {
    let expiring = || {
        let mut story = Story::begin();
        let tool = story.tools["transfer"].clone();
        story.tools.insert("transfer".into(), machine::tool::Tool { expires_in_ms: Some(1_000), ..tool });
        story.asks_for(&[("A", "transfer")]);
        story
    };
    let mut story = expiring();
    let at = story.now.plus_ms(1_000);
    story.later(999);
    let in_time = story.decision("A", resume());
    story.later(60_000);
    assert_eq!(names(&story.ok(Input::Decide(in_time)))[0], "tool.approved");
    let mut story = expiring();
    story.later(1_000);
    let too_late = story.decision("A", resume());
    assert_eq!(story.refused(Input::Decide(too_late)), Rejection::Expired { call: CallId::from("A"), at });
    assert_eq!(story.status("A"), CallStatus::Suspended);
}
