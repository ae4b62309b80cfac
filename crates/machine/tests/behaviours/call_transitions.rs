//! What a call and a run may become: the whole tables, as words and as facts that the fold takes or refuses.

use machine::event::{CallError, CallErrorCode, CancelReason, OpenedSuspension, ResultFrom};
use machine::id::{CallId, Principal, SuspensionId};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::{Held, ResumeMode};
use machine::termination::{Cancelled as By, ErrorCode, Termination};
use machine::tool::EffectClass;
use machine::{Event, Fact, Input};
use serde_json::json;

use crate::story::{Story, resume, valid};

use CallStatus::{Cancelled, Failed, New, Resuming, Running, Succeeded, Suspended};

const LEGAL: &str = "";

const CALLS: [(CallStatus, CallStatus, &str); 49] = [
    (New, New, "a call that is New cannot become New"),
    (New, Running, LEGAL),
    (New, Suspended, LEGAL),
    (New, Resuming, "a call that is New cannot become Resuming"),
    (New, Succeeded, LEGAL),
    (New, Failed, LEGAL),
    (New, Cancelled, LEGAL),
    (Running, New, "a call that is Running cannot become New"),
    (Running, Running, LEGAL),
    (Running, Suspended, LEGAL),
    (Running, Resuming, "a call that is Running cannot become Resuming"),
    (Running, Succeeded, LEGAL),
    (Running, Failed, LEGAL),
    (Running, Cancelled, LEGAL),
    (Suspended, New, "a call that is Suspended cannot become New"),
    (Suspended, Running, "a call that is Suspended cannot become Running"),
    (Suspended, Suspended, "a call that is Suspended cannot become Suspended"),
    (Suspended, Resuming, LEGAL),
    (Suspended, Succeeded, "a call that is Suspended cannot become Succeeded"),
    (Suspended, Failed, "a call that is Suspended cannot become Failed"),
    (Suspended, Cancelled, LEGAL),
    (Resuming, New, "a call that is Resuming cannot become New"),
    (Resuming, Running, LEGAL),
    (Resuming, Suspended, LEGAL),
    (Resuming, Resuming, "a call that is Resuming cannot become Resuming"),
    (Resuming, Succeeded, LEGAL),
    (Resuming, Failed, LEGAL),
    (Resuming, Cancelled, LEGAL),
    (Succeeded, New, "a call that is Succeeded cannot become New"),
    (Succeeded, Running, "a call that is Succeeded cannot become Running"),
    (Succeeded, Suspended, "a call that is Succeeded cannot become Suspended"),
    (Succeeded, Resuming, "a call that is Succeeded cannot become Resuming"),
    (Succeeded, Succeeded, "a call that is Succeeded cannot become Succeeded"),
    (Succeeded, Failed, "a call that is Succeeded cannot become Failed"),
    (Succeeded, Cancelled, "a call that is Succeeded cannot become Cancelled"),
    (Failed, New, "a call that is Failed cannot become New"),
    (Failed, Running, "a call that is Failed cannot become Running"),
    (Failed, Suspended, "a call that is Failed cannot become Suspended"),
    (Failed, Resuming, "a call that is Failed cannot become Resuming"),
    (Failed, Succeeded, "a call that is Failed cannot become Succeeded"),
    (Failed, Failed, "a call that is Failed cannot become Failed"),
    (Failed, Cancelled, "a call that is Failed cannot become Cancelled"),
    (Cancelled, New, "a call that is Cancelled cannot become New"),
    (Cancelled, Running, "a call that is Cancelled cannot become Running"),
    (Cancelled, Suspended, "a call that is Cancelled cannot become Suspended"),
    (Cancelled, Resuming, "a call that is Cancelled cannot become Resuming"),
    (Cancelled, Succeeded, "a call that is Cancelled cannot become Succeeded"),
    (Cancelled, Failed, "a call that is Cancelled cannot become Failed"),
    (Cancelled, Cancelled, "a call that is Cancelled cannot become Cancelled"),
];

#[test]
fn c4_c5_c6_c7_all_49_call_transitions_and_their_error_texts() {
    let pairs = CallStatus::ALL.iter().flat_map(|from| CallStatus::ALL.map(|to| (*from, to)));
    for ((from, to), row) in pairs.zip(CALLS) {
        assert_eq!((from, to), (row.0, row.1), "the table has every pair once, in order");
        match from.transition_to(to) {
            Ok(became) => assert_eq!((became, LEGAL), (to, row.2)),
            Err(illegal) => assert_eq!(illegal.to_string(), row.2),
        }
    }
    let terminal = CallStatus::ALL.map(CallStatus::terminal);
    assert_eq!(terminal, [false, false, false, false, true, true, true]);
}

/// A run with a call A in this state. B is held, so that the turn stays open.
fn story_with_call(status: CallStatus) -> Story {
    let mut story = Story::begin();
    let tool = if matches!(status, Suspended | Resuming | Cancelled) { "transfer" } else { "echo" };
    let calls = [("A", tool, json!({})), ("B", "transfer", json!({}))];
    let answered = story.answer("", &calls);
    story.model_answers(answered);
    story.pass_gate("B");
    if status == New {
        return story;
    }
    story.pass_gate("A");
    match status {
        New | Running | Suspended => {}
        Resuming => {
            let decision = story.decision("A", resume());
            story.ok(Input::Decide(decision));
        }
        Succeeded => {
            story.succeeds("A");
        }
        Failed => {
            story.fails("A");
        }
        Cancelled => {
            story.denies("A", None);
        }
    }
    assert_eq!(story.status("A"), status);
    story
}

/// The fact that makes A this.
fn fact(story: &Story, to: CallStatus) -> Fact {
    let call_id = CallId::from("A");
    match to {
        New => Fact::ToolRequested { call_id, tool: "echo".into(), arguments: valid(json!({})) },
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
        Suspended => Fact::ToolSuspended(OpenedSuspension {
            call_id,
            tool: "echo".into(),
            suspension_id: SuspensionId::from("apr_9"),
            held: Held::Question,
            mode: ResumeMode::ReplayToolCall,
            arguments: None,
            question: None,
            schema: None,
            resume_state: None,
            asked_by: Vec::new(),
            by_the_tool: false,
            expiry: None,
            rule: None,
            let_through_by: None,
        }),
        Resuming => Fact::ToolResumed {
            call_id,
            suspension_id: SuspensionId::from("apr_9"),
            mode: ResumeMode::ReplayToolCall,
            by: Principal::from("ana"),
            decision_id: None,
            late_attempt: None,
            answer: None,
            arguments: None,
        },
        Succeeded => {
            Fact::ExecutionSucceeded { call_id, result: json!(1).into(), warning: None, by: ResultFrom::Tool }
        }
        Failed => Fact::ExecutionFailed {
            call_id,
            error: CallError { code: CallErrorCode::ToolError, message: "boom".into() },
            outcome_unknown: false,
        },
        Cancelled => Fact::ToolCancelled {
            call_id,
            reason: CancelReason::Decided,
            text: None,
            by: Principal::from("ana"),
            decision_id: None,
            outcome_unknown: false,
            suspension_id: None,
        },
    }
}

#[test]
fn c4_c7_a_fact_that_makes_an_illegal_transition_stops_the_fold_and_names_both_states() {
    for (from, to, text) in CALLS {
        let mut story = story_with_call(from);
        let seq = story.run.control.seq + 1;
        let event = Event { seq, at: story.now, step: Some(1), fact: fact(&story, to) };
        let outcome = story.run.apply(&event).map_err(|impossible| impossible.to_string());
        let expected = match (to, text) {
            (New, _) => Err(format!("event {seq} is impossible: call id A is taken")),
            (_, LEGAL) => Ok(()),
            (_, text) => Err(format!("event {seq} is impossible: call A: {text}")),
        };
        assert_eq!(outcome, expected, "{from} to {to}");
        if expected.is_ok() {
            assert_eq!(story.status("A"), to, "from {from}");
        }
    }
}

/// Each status with what it may become: `x` under queued, running, waiting on a person, waiting on a tool,
/// interrupting, ended naturally, cancelled, failed, in this order.
const RUNS: [(&str, &str); 8] = [
    ("Queued", ".x..x.xx"),
    ("Running", "..xxxxxx"),
    ("Waiting on a person", ".x.xx.xx"),
    ("Waiting on a tool", ".xx.x.xx"),
    ("Interrupting", "......x."),
    ("Done(natural)", "........"),
    ("Done(cancelled)", "........"),
    ("Done(error)", "........"),
];

#[test]
fn c1_c3_all_run_transitions_and_their_error_texts() {
    let statuses = [
        RunStatus::Queued,
        RunStatus::Running,
        RunStatus::Waiting(WaitingOn::Person),
        RunStatus::Waiting(WaitingOn::Tool),
        RunStatus::Interrupting,
        RunStatus::Done(Termination::NaturalEnd),
        RunStatus::Done(Termination::Cancelled(By::Interrupted)),
        RunStatus::Done(Termination::error(ErrorCode::Model, "x")),
    ];
    for (from, (from_name, row)) in statuses.iter().zip(RUNS) {
        for ((to, (to_name, _)), legal) in statuses.iter().zip(RUNS).zip(row.chars()) {
            let expected = if legal == 'x' {
                Ok(to.clone())
            } else {
                Err(format!("a run that is {from_name} cannot become {to_name}"))
            };
            assert_eq!(from.transition_to(to.clone()).map_err(|illegal| illegal.to_string()), expected);
        }
    }
}

#[test]
fn c1_a_run_starts_running_and_nothing_follows_its_end() {
    let mut story = Story::begin();
    assert_eq!(story.run_status(), &RunStatus::Running);
    story.says("bye");
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::NaturalEnd));
    let last = story.run.control.seq;
    for fact in [
        Fact::RunResumed {},
        Fact::RunStarted { after: None },
        Fact::StepStarted { step: 2, message_id: "m".into() },
        Fact::RunEnded { termination: Termination::NaturalEnd, usage: Default::default(), output: None },
    ] {
        let event = Event { seq: last + 1, at: story.now, step: None, fact };
        let refused = story.run.apply(&event).unwrap_err().to_string();
        assert_eq!(refused, format!("event {} is impossible: the run has ended", last + 1));
    }
}

#[test]
fn c2_c3_a_run_waits_when_a_call_is_held_and_runs_again_when_it_is_decided() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    let decision = story.decision("A", resume());
    story.ok(Input::Decide(decision));
    assert_eq!(story.run_status(), &RunStatus::Running);
}

#[test]
fn c3_a_run_that_waits_can_be_cancelled() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let cause = machine::event::InterruptCause::Person(Principal::from("ana"));
    let events = story.ok(Input::Interrupt { cause });
    assert_eq!(
        crate::story::names(&events),
        ["run.interrupting", "tool.cancelled", "message.added", "step.ended", "run.ended"]
    );
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::Cancelled(By::Interrupted)));
}
