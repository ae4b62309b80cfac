//! The states of a call, each reached by a story, and what the record of a call keeps.

use std::sync::Arc;

use machine::decision::{DecisionAction, Payload, Resume};
use machine::event::{CallErrorCode, CancelReason, ResultFrom};
use machine::id::{CallId, DecisionId, Principal};
use machine::input::{Outcome, ToolAnswer};
use machine::json::Json;
use machine::status::CallStatus;
use machine::suspension::{Held, ResumeMode, SuspensionKind};
use machine::tool::EffectClass;
use machine::{Event, Fact, Input, Rejection};
use serde_json::{Value, json};

use crate::run_status::interrupts;
use crate::story::{Story, invalid, names, pending, resume, success, unknown};

use CallStatus::{Cancelled, Failed, New, Resuming, Running, Succeeded, Suspended};

/// The model asked for A and for a sibling that keeps the step open. A has not met the gate.
fn asked(tool: &str) -> Story {
    let mut story = Story::begin();
    let asked = story.answer("", &[("A", tool, json!({"to": "bob"})), ("S", "echo", json!({}))]);
    story.model_answers(asked);
    story.pass_gate("S");
    assert_eq!(story.status("A"), New);
    story
}

/// A runs.
fn running(tool: &str) -> Story {
    let mut story = asked(tool);
    story.pass_gate("A");
    assert_eq!(story.status("A"), Running);
    story
}

/// A is held for an approval.
fn held() -> Story {
    let mut story = asked("transfer");
    story.pass_gate("A");
    assert_eq!(story.status("A"), Suspended);
    story
}

/// The run has processed A's approval; the gate has not checked A again.
fn resuming() -> Story {
    let mut story = held();
    let decision = story.decision("A", resume());
    story.ok(Input::Decide(decision));
    assert_eq!(story.status("A"), Resuming);
    story
}

fn answered(answer: ToolAnswer) -> Outcome {
    Outcome::Answered(answer)
}

fn error() -> Outcome {
    answered(ToolAnswer::Error { message: "boom".into() })
}

#[test]
fn a17_new_call_may_run_or_be_held() {
    let mut story = asked("echo");
    assert_eq!(names(&story.pass_gate("A")), ["tool.execution_started"]);
    assert_eq!((story.status("A"), story.call("A").attempts), (Running, 1));

    let mut story = asked("transfer");
    assert_eq!(names(&story.pass_gate("A")), ["tool.approval_requested"]);
    assert_eq!((story.status("A"), story.call("A").attempts), (Suspended, 0));
}

#[test]
fn a18_running_call_is_held_succeeds_fails_or_is_cancelled_with_its_run() {
    let cases = [
        (pending(ResumeMode::ReplayToolCall), "tool.suspended", Suspended),
        (success(json!(1)), "tool.execution_succeeded", Succeeded),
        (
            answered(ToolAnswer::Success { value: Arc::new(json!(1)), warning: Some("old".into()) }),
            "tool.execution_succeeded",
            Succeeded,
        ),
        (error(), "tool.execution_failed", Failed),
    ];
    for (outcome, event, status) in cases {
        let mut story = running("echo");
        assert_eq!(names(&story.returns("A", outcome)), [event]);
        assert_eq!(story.status("A"), status);
    }
    let mut story = running("echo");
    let events = interrupts(&mut story);
    assert_eq!(names(&events)[..3], ["run.interrupting", "tool.cancelled", "tool.cancelled"]);
    assert_eq!(story.tool_text("A"), "Cancelled: interrupted");
}

#[test]
fn a19_held_call_resumes_or_is_cancelled_by_a_decision_or_with_its_run() {
    let mut story = held();
    let decision = story.decision("A", resume());
    assert_eq!(names(&story.ok(Input::Decide(decision))), ["tool.approved"]);
    assert_eq!(story.status("A"), Resuming);

    let mut story = held();
    assert_eq!(names(&story.denies("A", None)), ["tool.denied"]);
    assert_eq!(story.status("A"), Cancelled);

    let mut story = held();
    let suspension_id = story.call("A").suspension().map(|open| open.id.clone());
    let events = interrupts(&mut story);
    let cancelled = Fact::ToolCancelled {
        call_id: CallId::from("A"),
        reason: CancelReason::Interrupted,
        text: None,
        by: Principal::system(),
        decision_id: None,
        outcome_unknown: false,
        suspension_id,
    };
    assert!(events.iter().any(|event| event.fact == cancelled), "{events:?}");
}

#[test]
fn a20_resuming_call_runs_is_held_again_or_ends_in_each_way() {
    let mut replayed = resuming();
    assert_eq!(names(&replayed.pass_gates()), ["tool.execution_started"]);
    assert_eq!(replayed.status("A"), Running);

    let mut asked_again = resuming();
    asked_again.tools.get_mut("transfer").unwrap().definition = machine::id::Digest::sha256(b"definition 2");
    assert_eq!(names(&asked_again.pass_gates()), ["tool.approval_voided", "tool.approval_requested"]);
    assert_eq!(asked_again.status("A"), Suspended);

    let mut supplied = running("echo");
    supplied.returns("A", pending(ResumeMode::UseDecisionAsToolResult));
    assert_eq!(names(&supplied.answers("A", json!(7))), ["tool.resumed", "tool.execution_succeeded"]);
    assert_eq!((supplied.status("A"), supplied.call("A").attempts), (Succeeded, 1));

    let mut removed = resuming();
    removed.tools.remove("transfer");
    assert_eq!(names(&removed.pass_gates()), ["tool.execution_failed"]);
    assert_eq!(removed.status("A"), Failed);

    let mut abandoned = resuming();
    interrupts(&mut abandoned);
    assert_eq!(abandoned.tool_text("A"), "Cancelled: interrupted");
}

/// A fact that would move A there, whatever the story says.
fn fact_to(status: CallStatus, story: &Story) -> Fact {
    let call_id = CallId::from("A");
    match status {
        New => {
            Fact::ToolRequested { call_id, tool: "echo".into(), arguments: crate::story::valid(json!({})) }
        }
        Running => Fact::ExecutionStarted {
            call_id,
            tool: "echo".into(),
            attempt: story.call("A").attempts + 1,
            class: EffectClass::Read,
            not_before: story.now,
            rule: None,
            let_through_by: None,
            expires: None,
        },
        Resuming => Fact::ToolResumed {
            call_id,
            suspension_id: "apr_1".into(),
            mode: ResumeMode::ReplayToolCall,
            by: Principal::system(),
            decision_id: None,
            late_attempt: None,
            answer: None,
            arguments: None,
        },
        Succeeded => Fact::ExecutionSucceeded {
            call_id,
            result: Json::from(&json!(1)),
            warning: None,
            by: ResultFrom::Tool,
        },
        Failed => Fact::ExecutionFailed {
            call_id,
            error: machine::event::CallError { code: CallErrorCode::ToolError, message: "boom".into() },
            outcome_unknown: false,
        },
        Suspended | Cancelled => panic!("no illegal arrow of the first edition leads to {status}"),
    }
}

/// What the fold says to a log in which A moves there next.
fn illegal(story: &Story, to: CallStatus) -> String {
    let (seq, at) = (story.run.control.seq + 1, story.now);
    let event = Event { seq, at, step: Some(1), fact: fact_to(to, story) };
    let mut run = story.run.clone();
    let why = run.apply(&event).unwrap_err().to_string();
    assert_eq!(run, story.run, "a fact that cannot be changes nothing");
    why.strip_prefix(&format!("event {seq} is impossible: ")).unwrap().to_owned()
}

#[test]
fn a21_a23_illegal_transition_is_an_error_that_names_the_call_and_both_states() {
    let succeeded = {
        let mut story = running("echo");
        story.succeeds("A");
        story
    };
    let failed = {
        let mut story = running("echo");
        story.fails("A");
        story
    };
    let cancelled = {
        let mut story = held();
        story.denies("A", None);
        story
    };
    for (story, from) in [(&succeeded, Succeeded), (&failed, Failed), (&cancelled, Cancelled)] {
        for to in [Running, Resuming, Succeeded, Failed] {
            let expected = format!("call A: a call that is {from} cannot become {to}");
            assert_eq!(illegal(story, to), expected);
        }
    }
    for to in [Running, Succeeded, Failed] {
        let expected = format!("call A: a call that is Suspended cannot become {to}");
        assert_eq!(illegal(&held(), to), expected);
    }
    let expected = "call A: a call that is Running cannot become Resuming";
    assert_eq!(illegal(&running("echo"), Resuming), expected);
    assert_eq!(illegal(&running("echo"), New), "call id A is taken");
    assert_eq!(illegal(&asked("echo"), Resuming), "call A: a call that is New cannot become Resuming");
}

#[test]
fn a22_call_that_may_not_run_fails_before_it_ever_runs() {
    let cases: [(&str, CallErrorCode, &str); 3] = [
        ("forbidden", CallErrorCode::BlockedByPolicy, "Error: blocked by policy"),
        ("nowhere", CallErrorCode::UnknownTool, "Error: there is no such tool"),
        ("echo", CallErrorCode::BadArguments, "Error: `to` is missing"),
    ];
    for (tool, code, text) in cases {
        let mut story = asked(tool);
        if code == CallErrorCode::BadArguments {
            story.arguments.insert(CallId::from("A"), invalid("`to` is missing"));
        }
        let events = story.pass_gate("A");
        assert_eq!(names(&events), ["tool.execution_failed"]);
        let Fact::ExecutionFailed { error, .. } = &events[0].fact else { panic!() };
        assert_eq!((error.code, story.status("A"), story.call("A").attempts), (code, Failed, 0));
        assert_eq!(story.tool_text("A"), text);
    }
}

#[test]
fn a24_decision_on_a_call_that_has_ended_changes_nothing() {
    let mut story = held();
    let again = story.decision("A", resume());
    story.denies("A", None);
    let wanted = story.run.wanted();
    let rejection = story.refused(Input::Decide(again));
    assert_eq!(rejection, Rejection::NotSuspended { call: CallId::from("A"), status: Cancelled });
    assert_eq!(rejection.to_string(), "call A is Cancelled, not Suspended: there is nothing to decide");
    assert_eq!((story.status("A"), story.run.wanted()), (Cancelled, wanted));
}

fn event_at(story: &Story, seq: u64) -> &Fact {
    &story.log.iter().find(|event| event.seq == seq).unwrap().fact
}

#[test]
fn a16_a25_state_keeps_each_call_by_id_and_refers_to_what_was_shown() {
    let mut story = held();
    let call = story.call("A");
    let open = call.suspension().unwrap().clone();
    assert_eq!((call.id.as_str(), call.tool.as_str(), call.step), ("A", "transfer", 1));
    let Fact::ToolRequested { arguments, .. } = event_at(&story, call.arguments_seq) else { panic!() };
    assert_eq!((arguments, arguments.digest()), (&crate::story::valid(json!({"to": "bob"})), call.arguments));
    let Fact::ApprovalRequested(shown) = event_at(&story, open.seq) else { panic!() };
    assert_eq!((&shown.suspension_id, shown.arguments.as_ref()), (&open.id, Some(arguments)));
    let stored = String::from_utf8_lossy(&story.run.control.encode().unwrap()).into_owned();
    assert!(!stored.contains("bob"), "the state keeps the digest, not the arguments");

    story.later(10);
    let mut decision = story.decision("A", resume());
    decision.id = Some(DecisionId::from("dec_1"));
    let DecisionAction::Resume(ref mut yes) = decision.action else { panic!() };
    yes.note = Some("small".into());
    let events = story.ok(Input::Decide(decision));
    assert_eq!(
        (events[0].at, &events[0].fact),
        (
            story.now,
            &Fact::ToolApproved {
                call_id: CallId::from("A"),
                approval_id: open.id,
                by: Principal::from("ana"),
                decision_id: Some(DecisionId::from("dec_1")),
                note: Some("small".into()),
                arguments: None,
                apply_to_future: false,
                covers: Vec::new(),
            }
        )
    );
}

#[test]
fn a25_statuses_are_stored_in_snake_case() {
    let stored: Vec<Value> =
        CallStatus::ALL.iter().map(|status| serde_json::to_value(status).unwrap()).collect();
    assert_eq!(stored, ["new", "running", "suspended", "resuming", "succeeded", "failed", "cancelled"]);
}

/// Which events hold the answer that the tool will get and the `resume_state` it left.
fn payload(story: &Story) -> (Option<u64>, Option<u64>) {
    (story.call("A").answer_seq, story.call("A").resume_state_seq)
}

#[test]
fn a26_answer_is_kept_while_the_call_runs_again_and_cleared_when_it_is_held_again() {
    let mut story = asked("upsert");
    story.pass_gate("A");
    assert_eq!(payload(&story), (None, None), "a first attempt resumes nothing");

    story.returns("A", pending(ResumeMode::ReplayToolCall));
    let first = story.call("A").suspension().unwrap().clone();
    assert_eq!(payload(&story), (None, Some(first.seq)));
    let resumed = story.decides("A", crate::story::resume_with(json!("the red one")))[0].seq;
    assert_eq!((story.status("A"), payload(&story)), (Running, (Some(resumed), Some(first.seq))));
    story.returns("A", unknown());
    assert_eq!((story.status("A"), story.call("A").attempts), (Running, 3));
    assert_eq!(payload(&story), (Some(resumed), Some(first.seq)), "a repeat is the same request");

    story.returns("A", pending(ResumeMode::ReplayToolCall));
    let second = story.call("A").suspension().unwrap().clone();
    assert_ne!(second.id, first.id);
    assert_eq!(payload(&story), (None, Some(second.seq)));
    let late = machine::decision::Decision { suspension: first.id, ..story.decision("A", resume()) };
    let rejection = Rejection::WrongSuspension { call: CallId::from("A"), open: second.id };
    assert_eq!(story.refused(Input::Decide(late)), rejection);
}

#[test]
fn a26_repeat_of_a_call_in_doubt_has_the_answer_that_the_lost_attempt_had() {
    let mut story = running("post");
    story.returns("A", pending(ResumeMode::ReplayToolCall));
    story.decides("A", crate::story::resume_with(json!("the red one")));
    let sent = payload(&story);
    story.returns("A", unknown());
    assert_eq!(story.call("A").suspension().unwrap().held.kind(), SuspensionKind::InDoubt);
    story.decides("A", resume());
    assert_eq!((story.status("A"), story.call("A").attempts), (Running, 3));
    assert_eq!(payload(&story), sent);
}

#[test]
fn a26_approval_stays_bound_to_the_definition_that_was_shown() {
    let mut story = resuming();
    let approved = story.call("A").approved.clone();
    assert!(approved.is_some());
    story.pass_gates();
    assert_eq!(story.call("A").approved, approved, "a repeat is compared with it too");
}

#[test]
fn a27_a28_warning_counts_as_success_and_its_text_reaches_the_model() {
    let mut story = running("echo");
    let warned = ToolAnswer::Success { value: Arc::new(json!({"rows": 3})), warning: Some("stale".into()) };
    let events = story.returns("A", answered(warned));
    assert_eq!(
        events[0].fact,
        Fact::ExecutionSucceeded {
            call_id: CallId::from("A"),
            result: Json::from(&json!({"rows": 3})),
            warning: Some("stale".into()),
            by: ResultFrom::Tool,
        }
    );
    assert_eq!(story.status("A"), Succeeded);
    story.succeeds("S");
    assert_eq!(story.tool_text("A"), "{\"rows\":3}\nWarning: stale");
}

#[test]
fn a19_client_tool_that_is_given_up_is_cancelled_without_having_run() {
    let mut story = asked("pick_file");
    story.pass_gate("A");
    assert_eq!(story.call("A").suspension().unwrap().held, Held::ClientTool);
    assert_eq!(names(&story.decides("A", crate::story::cancel())), ["tool.cancelled"]);
    assert_eq!((story.status("A"), story.call("A").attempts), (Cancelled, 0));
}

#[test]
fn a20_the_performer_of_a_held_call_may_report_that_it_failed() {
    let mut story = asked("webhook");
    story.pass_gate("A");
    let failed = Resume { payload: Payload::Error("no route".into()), ..Resume::default() };
    let events = story.decides("A", DecisionAction::Resume(failed));
    assert_eq!(names(&events), ["tool.resumed", "tool.execution_failed"]);
    assert_eq!((story.status("A"), story.tool_text("A")), (Failed, "Error: no route".to_owned()));
}
