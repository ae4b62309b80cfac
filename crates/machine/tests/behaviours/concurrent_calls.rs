//! Held calls beside running ones: each goes its own way, one barrier waits for all, and clients see every wait.

use machine::decision::Decision;
use machine::event::{Fact, InterruptCause};
use machine::inbox::{RunLifecycle, SuspensionRow, Verdict, judge_decision};
use machine::policy::{OnBusy, Policy, PolicyRequest};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::{Held, ResumeMode};
use machine::termination::{Cancelled as By, Termination};
use machine::thread::{Admission, Busy, FrontState, IfBusy, ThreadState, admit};
use machine::{Effect, Input, InputOutcome, Rejection, Revision};
use serde_json::json;

use crate::props::{lines, payloads, termination};
use crate::story::{Story, names, order, pending, resume, success};

use CallStatus::{Cancelled, Running, Succeeded, Suspended};

fn person() -> InterruptCause {
    InterruptCause::Person("ana".into())
}

/// A and B wait for approval, C and D run.
fn mixed() -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "echo"), ("D", "echo")]);
    story
}

fn statuses(story: &Story) -> [CallStatus; 4] {
    ["A", "B", "C", "D"].map(|id| story.status(id))
}

#[test]
fn c83_allowed_tools_and_held_calls_go_side_by_side_until_all_are_terminal() {
    let mut story = mixed();
    assert_eq!(statuses(&story), [Suspended, Suspended, Running, Running]);
    story.succeeds("D");
    story.approves("B");
    assert_eq!(statuses(&story), [Suspended, Running, Running, Succeeded]);
    story.fails("B");
    story.succeeds("C");
    assert_eq!(story.run.control.step, 1, "the barrier holds while A is held");
    let events = story.denies("A", None);
    assert_eq!(
        names(&events),
        [
            "tool.denied",
            "run.resumed",
            "message.added",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "step.started"
        ]
    );
    let expected =
        ["user: hello", "assistant: [A B C D]", "A: Denied by ana: no", "B: Error: boom", "C: ok", "D: ok"];
    assert_eq!(lines(&story), expected);
}

#[test]
fn c84_a_batch_is_split_by_call_and_a_decision_that_answers_nothing_is_dropped() {
    let mut story = mixed();
    let for_a = story.decision("A", resume());
    let for_b = story.decision("B", crate::story::cancel());
    let for_c = Decision { call: "C".into(), ..for_a.clone() };
    let before = story.log.len();
    assert!(story.say(Input::Decide(for_c)).is_err());
    assert_eq!(story.log.len(), before);
    story.ok(Input::Decide(for_b));
    story.ok(Input::Decide(for_a));
    assert_eq!(statuses(&story), [CallStatus::Resuming, Cancelled, Running, Running]);
}

#[test]
fn c85_a_decision_starts_its_call_at_once_beside_the_running_ones() {
    let mut story = mixed();
    let now = story.now;
    story.later(7);
    story.approves("A");
    let run = |call: &str, not_before| Effect::RunTool { call: call.into(), attempt: 1, not_before };
    let wanted: Vec<Effect> = story.run.wanted().into_iter().collect();
    assert_eq!(wanted, [run("A", story.now), run("C", now), run("D", now)]);
}

#[test]
fn c87_a_second_decision_for_the_same_call_has_no_effect() {
    let mut story = mixed();
    let yes = story.decision("A", resume());
    let no = story.decision("A", crate::story::cancel());
    story.ok(Input::Decide(yes.clone()));
    story.pass_gates();
    for again in [yes, no] {
        let refused = story.refused(Input::Decide(again));
        assert_eq!(refused, Rejection::NotSuspended { call: "A".into(), status: Running });
    }
    let starts = payloads(&story.log, "tool.execution_started");
    assert_eq!(starts.iter().filter(|start| start["call_id"] == "A").count(), 1);
}

#[test]
fn c87_the_second_decision_is_refused_as_already_answered() {
    use machine::inbox::Refusal;
    let story = mixed();
    let decision = story.decision("A", resume());
    let mut row = SuspensionRow {
        id: decision.suspension.clone(),
        kind: machine::suspension::SuspensionKind::Approval,
        mode: ResumeMode::ReplayToolCall,
        arguments: story.call("A").arguments,
        definition: decision.definition_now,
        expires_at: None,
        answered: false,
        doubted_attempt: None,
        is_grantable: true,
    };
    assert_eq!(judge_decision(&decision, RunLifecycle::Open, Some(&row), None), Verdict::Accepted);
    row.answered = true;
    let second = judge_decision(&decision, RunLifecycle::Open, Some(&row), None);
    assert_eq!(second, Verdict::Refused(Refusal::Answered));
}

#[test]
fn c88_each_new_question_of_a_tool_has_its_own_suspension_and_its_own_answer() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    let mut openings = Vec::new();
    for round in 1..=3 {
        story.returns("A", pending(ResumeMode::ReplayToolCall));
        openings.push(story.call("A").suspension().unwrap().id.clone());
        let events = story.answers("A", json!(round));
        assert_eq!(names(&events), ["tool.resumed", "run.resumed", "tool.execution_started"]);
        assert_eq!(story.call("A").attempts, round + 1);
    }
    openings.dedup();
    assert_eq!(openings.len(), 3);
    story.succeeds("A");
    assert_eq!(story.tool_text("A"), "ok");
}

#[test]
fn c89_cancelling_releases_the_barrier_without_decisions_while_tools_hang() {
    let mut story = mixed();
    let events = story.ok(Input::Interrupt { cause: person() });
    assert_eq!(
        names(&events),
        [
            "run.interrupting",
            "tool.cancelled",
            "tool.cancelled",
            "tool.cancelled",
            "tool.cancelled",
            "message.added",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "run.ended"
        ]
    );
    assert!(story.run.wanted().is_empty());
    assert_eq!(termination(&story), Termination::Cancelled(By::Interrupted));
}

#[test]
fn c94_while_suspended_nothing_is_wanted_and_nothing_is_emitted() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    story.succeeds("B");
    assert!(story.run.wanted().is_empty());
    let before = story.log.len();
    // What comes late, twice or without a reason leaves no event.
    let late = Input::ToolReturned { step: 1, call: "B".into(), attempt: 1, outcome: success(json!(2)) };
    assert_eq!(story.ok(late), []);
    assert_eq!(story.last_outcome, Some(InputOutcome::Duplicate));
    story.refused(Input::DeadlineReached);
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at: story.now });
    story.ok(Input::InboxDrained);
    assert_eq!(story.log.len(), before);
}

#[test]
fn c95_after_a_resume_the_same_run_says_that_it_resumed_and_starts_only_once() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let decision = story.decision("A", resume());
    let events = story.ok(Input::Decide(decision));
    let first =
        events.iter().find(|event| matches!(event.fact, Fact::RunResumed {} | Fact::RunStarted { .. }));
    assert!(matches!(first.unwrap().fact, Fact::RunResumed {}));
    story.pass_gates();
    story.succeeds("A");
    story.says("bye");
    assert_eq!(story.names().iter().filter(|name| *name == "run.started").count(), 1);
    assert_eq!(story.run.control.run.as_str(), "run_1");
}

#[test]
fn c100_every_return_to_waiting_is_recorded_again() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "transfer")]);
    for id in ["A", "B", "C"] {
        assert_eq!(names(&story.log.clone()).last().unwrap(), "run.waiting");
        story.approves(id);
        story.succeeds(id);
    }
    let waits: Vec<Vec<String>> = payloads(&story.log, "run.waiting")
        .iter()
        .map(|waiting| {
            let pending = waiting["pending"].as_array().unwrap();
            pending.iter().map(|open| open["call_id"].as_str().unwrap().to_owned()).collect()
        })
        .collect();
    assert_eq!(waits, [vec!["A", "B", "C"], vec!["B", "C"], vec!["C"]]);
    assert_eq!(payloads(&story.log, "run.resumed").len(), 3);
}

#[test]
fn c100_waiting_on_something_else_is_a_new_wait() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "pick_file")]);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    story.denies("A", None);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Tool));
    let on: Vec<_> =
        payloads(&story.log, "run.waiting").iter().map(|waiting| waiting["on"].clone()).collect();
    assert_eq!(on, [json!("person"), json!("tool")]);
}

#[test]
fn c101_a_decision_never_starts_a_run() {
    let mut held = mixed();
    let decision = held.decision("A", resume());
    let mut queued = Story::queued_with(Revision::default(), order(Policy::default()));
    assert_eq!(queued.refused(Input::Decide(decision.clone())), Rejection::NotStarted);
    assert_eq!(queued.run_status(), &RunStatus::Queued);
    held.ok(Input::Interrupt { cause: person() });
    let refused = held.refused(Input::Decide(decision));
    assert_eq!(refused, Rejection::RunEnded(Termination::Cancelled(By::Interrupted)));
    assert_eq!(refused.to_string(), "the run has ended (cancelled)");
    let mut idle = Story::begin();
    idle.says("bye");
    assert_eq!(idle.refused(Input::Start { after: None }), Rejection::RunEnded(Termination::NaturalEnd));
}

#[test]
fn c102_one_run_holds_a_thread_and_every_other_is_refused_queued_or_takes_its_place() {
    let busy = |front_is| ThreadState::Busy { front: "run_1".into(), front_is, in_doubt: false, queued: 0 };
    let request = PolicyRequest::default();
    let agent = Policy::default();
    assert_eq!(admit(&ThreadState::Free, IfBusy::resolve(None, &request, &agent)), Admission::Hold);
    for front in [FrontState::Executing, FrontState::Queued, FrontState::Waiting] {
        for asked in [None, Some(OnBusy::Reject), Some(OnBusy::Enqueue), Some(OnBusy::Interrupt)] {
            let admission = admit(&busy(front), IfBusy::resolve(asked, &request, &agent));
            assert_ne!(admission, Admission::Hold, "{front:?} {asked:?}");
        }
        let refused = Admission::Refuse(Busy::ActiveRun("run_1".into()));
        assert_eq!(admit(&busy(front), IfBusy::resolve(None, &request, &agent)), refused);
    }
}

#[test]
fn a_child_run_is_answered_only_by_its_own_end() {
    let mut story = Story::begin();
    let events = story.asks_for(&[("A", "researcher")]);
    assert_eq!(
        names(&events),
        [
            "message.added",
            "tool.requested",
            "tool.execution_started",
            "child.started",
            "tool.suspended",
            "run.waiting"
        ]
    );
    let open = story.call("A").suspension().unwrap().clone();
    let Held::ChildRun { run, .. } = open.held else { panic!("held as {:?}", open.held) };
    let decision = story.decision("A", resume());
    let why = "a child run works on this call; decide the calls that it holds".to_owned();
    assert_eq!(story.refused(Input::Decide(decision)), Rejection::Invalid { call: "A".into(), why });
    let end = machine::input::ChildEnd::Completed { answer: json!("found it").into() };
    let ended =
        machine::input::ChildEnded { call: "A".into(), run, end, usage: Default::default(), descendants: 0 };
    story.ok(Input::ChildEnded(ended));
    assert_eq!(story.tool_text("A"), "found it");
}
