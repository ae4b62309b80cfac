//! Accepted and not processed yet: nothing overtakes an answer, and an interrupt ends the run before anything else.

use machine::decision::DecisionAction;
use machine::event::{Event, Fact, InterruptCause};
use machine::id::Principal;
use machine::inbox::{Item, Ticket, drain, overrides_accepted_answer, to_input};
use machine::policy::{DecisionTiming, OnReject, Policy};
use machine::projection_rows::{InboxPosition, ProjectionRows};
use machine::revision::{Revision, StopCondition};
use machine::status::{CallStatus, RunStatus};
use machine::termination::{Cancelled, StopCode, Termination};
use machine::tool::ToolLookup;
use machine::{Effect, Input};
use serde_json::json;

use crate::story::{Story, cancel, names, resume, success, unknown};

fn interrupt() -> Item {
    Item::Interrupt { cause: InterruptCause::Person(Principal::from("ana")) }
}

fn is_interrupted(story: &Story) -> bool {
    *story.run_status() == RunStatus::Done(Termination::Cancelled(Cancelled::Interrupted))
}

/// Processes these rows as a worker does.
fn process_inbox(story: &mut Story, inbox: &[Item]) -> Vec<Event> {
    let interrupted = inbox.iter().any(Item::interrupts);
    let mut events = Vec::new();
    for index in drain(&story.run.control, inbox, false) {
        let item = &inbox[index];
        let Some(input) = to_input(&story.run.control, item) else { continue };
        events.extend(if interrupted && !item.interrupts() {
            story.say_before_interrupt(input).unwrap()
        } else {
            story.ok(input)
        });
    }
    events
}

fn begins(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event.fact, Fact::ExecutionStarted { .. } | Fact::StepStarted { .. }))
}

#[test]
fn an_accepted_interrupt_ends_the_run_whatever_was_accepted_before_it() {
    let end = || Some(OnReject::EndRun);
    let policies = [
        Policy::default(),
        Policy { decisions: DecisionTiming::AtBoundary, ..Policy::default() },
        Policy { on_reject: end(), ..Policy::default() },
    ];
    for policy in policies {
        for action in [resume(), cancel()] {
            // The run would go on with the next step, or end by itself.
            let revision = Revision {
                policy,
                stop: vec![StopCondition::MaxRounds { rounds: 1 }],
                ..Revision::default()
            };
            let mut story = Story::begin_with(revision);
            story.asks_for(&[("A", "transfer")]);
            let decision = Item::Decision(story.decision("A", action.clone()));
            let events = process_inbox(&mut story, &[decision, interrupt()]);
            assert!(is_interrupted(&story), "{policy:?} {action:?}: {:?}", story.run_status());
            assert!(!begins(&events), "{:?}", names(&events));
            // The decision is in the log all the same.
            let decided = if action == resume() { "tool.approved" } else { "tool.denied" };
            assert_eq!(names(&events)[0], decided);
        }
    }
}

#[test]
fn a_result_before_an_accepted_interrupt_is_recorded_and_nothing_follows_from_it() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "post")]);
    let attempt = story.call("A").attempts;
    let outcome = success(json!("sent"));
    let late = Item::LateAnswer { step: 1, call: "A".into(), attempt, outcome };
    let events = process_inbox(&mut story, &[interrupt(), late]);
    assert!(is_interrupted(&story) && !begins(&events), "{:?}", names(&events));
    assert_eq!(names(&events)[..2], ["tool.execution_succeeded", "run.interrupting"]);
}

#[test]
fn an_attempt_without_an_answer_is_not_repeated_before_an_interrupt() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    let (step, attempt) = (story.call("A").step, story.call("A").attempts);
    let returned = |outcome| Input::ToolReturned { step, call: "A".into(), attempt, outcome };
    assert!(begins(&story.run.decide(&returned(unknown()), story.now).unwrap().events), "else it is");
    let events = story.say_before_interrupt(returned(unknown())).unwrap();
    assert!(!begins(&events), "{:?}", names(&events));
    assert_eq!(story.status("A"), CallStatus::Failed);
    process_inbox(&mut story, &[interrupt()]);
    assert!(is_interrupted(&story));
}

/// What one input closes, when the inbox was processed up to `position`.
fn closed(story: &mut Story, input: Input, position: InboxPosition) -> ProjectionRows {
    let before = story.run.control.clone();
    let events = story.ok(input);
    let mut rows = ProjectionRows::default();
    rows.add_events(Some(&before), &events, position);
    rows
}

#[test]
fn a_commit_overrides_an_accepted_answer_whose_question_it_closes_unprocessed() {
    let held = || {
        let mut story = Story::begin();
        story.asks_for(&[("A", "transfer"), ("C", "echo")]);
        story
    };
    let story = held();
    let before = &story.run.control;
    let decision = story.decision("A", resume());
    let digest = story.call("A").arguments;
    let late = Item::LateAnswer { step: 1, call: "A".into(), attempt: 1, outcome: success(json!(1)) };
    let elsewhere =
        Item::Decision(machine::decision::Decision { suspension: "apr_earlier".into(), ..decision.clone() });
    let other_arguments =
        Item::Early { decision: decision.clone(), digest: machine::id::Digest::sha256(b"others") };
    let table = [
        (Item::Decision(decision.clone()), true),
        (Item::Early { decision, digest }, true),
        (other_arguments, false),
        (elsewhere, false),
        (late, false),
        (interrupt(), false),
    ];
    let Item::Interrupt { cause } = interrupt() else { panic!("it interrupts") };
    let rows = closed(&mut held(), Input::Interrupt { cause }, InboxPosition::default());
    for (item, expected) in table {
        let inbox: [(Ticket, Item); 1] = [(7, item)];
        assert_eq!(
            overrides_accepted_answer(before, &inbox, &rows.closed, &[]),
            expected,
            "{:?}",
            inbox[0].1
        );
        // An answer that was processed before the suspension closed is not overridden.
        let closed_at = |count, ticket| {
            rows.closed
                .iter()
                .map(|row| machine::projection_rows::ClosedRow {
                    inbox_position: InboxPosition { count, ticket },
                    ..row.clone()
                })
                .collect::<Vec<_>>()
        };
        assert!(!overrides_accepted_answer(before, &inbox, &closed_at(1, Some(8)), &[7, 8]));
        assert_eq!(overrides_accepted_answer(before, &inbox, &closed_at(1, Some(8)), &[8, 7]), expected);
    }
}

#[test]
fn a_late_answer_is_overridden_where_its_attempt_is_in_doubt() {
    let in_doubt = || {
        let mut story = Story::begin();
        story.asks_for(&[("A", "post"), ("C", "echo")]);
        story.returns("A", unknown());
        story
    };
    let story = in_doubt();
    let decision = story.decision("A", cancel());
    let rows = closed(&mut in_doubt(), Input::Decide(decision), InboxPosition::default());
    for (attempt, expected) in [(1, true), (2, false)] {
        let outcome = success(json!("sent"));
        let inbox = [(7, Item::LateAnswer { step: 1, call: "A".into(), attempt, outcome })];
        assert_eq!(overrides_accepted_answer(&story.run.control, &inbox, &rows.closed, &[]), expected);
    }
}

/// Which events follow once the call that was approved has passed the gate.
fn after_the_gate(story: &mut Story, call: &str) -> Vec<String> {
    assert!(story.run.wanted().contains(&Effect::Gate(call.into())), "{:?}", story.run.wanted());
    names(&story.pass_gate(call))
}

#[test]
fn a_call_that_was_approved_before_a_rejection_that_ends_the_run_runs_and_is_awaited() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "transfer")]);
    let end = DecisionAction::Cancel { reason: None, then: Some(OnReject::EndRun) };
    let inbox = [Item::Decision(story.decision("A", resume())), Item::Decision(story.decision("B", end))];
    let events = process_inbox(&mut story, &inbox);
    assert_eq!(story.status("A"), CallStatus::Resuming);
    assert_eq!(names(&events).last().map(String::as_str), Some("run.ending"));
    assert_eq!((story.status("B"), story.status("C")), (CallStatus::Cancelled, CallStatus::Cancelled));
    assert_eq!(after_the_gate(&mut story, "A"), ["tool.execution_started"]);
    assert!(!matches!(story.run_status(), RunStatus::Done(_)), "it is awaited");
    story.succeeds("A");
    let RunStatus::Done(Termination::Stopped(stopped)) = story.run_status() else {
        panic!("{:?}", story.run_status());
    };
    assert_eq!(stopped.code, StopCode::Rejected);
}

#[test]
fn a_call_that_was_approved_before_the_end_and_would_be_held_again_is_cancelled() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    let end = DecisionAction::Cancel { reason: None, then: Some(OnReject::EndRun) };
    for (call, action) in [("A", resume()), ("B", end)] {
        let decision = story.decision(call, action);
        story.ok(Input::Decide(decision));
    }
    // The tool is another one by now: the approval is void, and no person is asked again.
    let mut gated = story.gated("A");
    if let ToolLookup::Known(tool) = &mut gated.tool {
        tool.definition = machine::id::Digest::sha256(b"definition 2");
    }
    let events = names(&story.ok(Input::Gated(gated)));
    assert_eq!(events[..2], ["tool.approval_voided", "tool.cancelled"]);
    assert!(
        matches!(story.run_status(), RunStatus::Done(Termination::Stopped(_))),
        "{:?}",
        story.run_status()
    );
}
