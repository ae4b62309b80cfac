//! Violations that the simulated people report from the responses they get, before the store is read.

use kill::judge::Rule;
use kill::people::People;
use kill::stories;
use kill::wire::{CallSnapshot, Command, Request, Response, RunSnapshot, RunsSnapshot};
use machine::event::Pending;
use machine::id::{CallId, MessageId, RunId, SuspensionId, ToolName};
use machine::status::CallStatus;
use machine::suspension::SuspensionKind;

fn people() -> People {
    let stories = stories::all();
    People::for_story(stories.iter().find(|story| story.name == "write-retried").expect("the story exists"))
}

fn held(suspension: &str) -> Pending {
    Pending {
        call_id: CallId::from("a"),
        tool: ToolName::from("transfer"),
        kind: SuspensionKind::Approval,
        suspension_id: SuspensionId::from(suspension),
        child_run: None,
        expires_at: None,
    }
}

fn showing(pending: Vec<Pending>, calls: Vec<CallSnapshot>) -> RunsSnapshot {
    let run = RunSnapshot {
        run: RunId::from("run_1"),
        message: Some(MessageId::from("said-1")),
        seq: 1,
        ended: false,
        waiting: true,
        calls,
        pending,
    };
    RunsSnapshot { runs: vec![run], held_count: 0 }
}

fn call_snapshot(status: CallStatus, attempts: u32) -> CallSnapshot {
    CallSnapshot { call: CallId::from("a"), tool: ToolName::from("transfer"), step: 1, status, attempts }
}

/// The number of the only command, which has to be a decision.
fn the_decision(commands: &[Command]) -> u64 {
    let [Command { number, request: Request::Decide(_) }] = commands else {
        panic!("expected one decision: {commands:?}")
    };
    *number
}

fn rules(people: &People) -> Vec<Rule> {
    people.objections.iter().map(|objection| objection.rule).collect()
}

#[test]
fn a_message_without_an_answer_is_said_again_to_the_next_process() {
    let mut people = people();
    people.observe(RunsSnapshot::default());
    assert_eq!(people.next_commands().len(), 1);
    assert_eq!(people.next_commands(), [], "once to every process");
    people.begin_again();
    people.observe(RunsSnapshot::default());
    assert_eq!(people.next_commands().len(), 1);
    assert_eq!(rules(&people), []);
}

#[test]
fn a_message_that_was_accepted_and_is_gone_is_objected_to() {
    let mut people = people();
    people.observe(RunsSnapshot::default());
    let number = people.next_commands()[0].number;
    people.process_response(number, Response::Posted { run: RunId::from("run_1") });
    people.begin_again();
    people.observe(RunsSnapshot::default());
    assert_eq!(rules(&people), [Rule::AcceptedIsKept]);
}

#[test]
fn a_decision_that_was_accepted_must_be_known_to_the_next_process() {
    let mut people = people();
    people.observe(showing(vec![held("apr_1")], Vec::new()));
    let number = the_decision(&people.next_commands());
    people.process_response(number, Response::Accepted);
    people.begin_again();
    people.observe(showing(vec![held("apr_1")], Vec::new()));
    let number = the_decision(&people.next_commands());
    let mut forgotten = people.clone();
    people.process_response(number, Response::AlreadyApplied);
    assert_eq!(rules(&people), []);
    forgotten.process_response(number, Response::Accepted);
    assert_eq!(rules(&forgotten), [Rule::AcceptedIsKept]);
}

#[test]
fn a_decision_that_was_said_once_is_no_repeat() {
    let mut people = people();
    people.observe(showing(vec![held("apr_1")], Vec::new()));
    let number = the_decision(&people.next_commands());
    people.process_response(number, Response::AlreadyApplied);
    assert_eq!(rules(&people), [Rule::NothingIsMadeUp]);
}

#[test]
fn an_approval_that_shows_something_else_later_is_objected_to() {
    let mut people = people();
    people.observe(showing(vec![held("apr_1")], Vec::new()));
    people.begin_again();
    people.observe(showing(vec![Pending { call_id: CallId::from("b"), ..held("apr_1") }], Vec::new()));
    assert_eq!(rules(&people), [Rule::ApprovalsStay]);
}

#[test]
fn a_call_that_had_settled_and_runs_again_is_objected_to() {
    let mut people = people();
    people.observe(showing(Vec::new(), vec![call_snapshot(CallStatus::Succeeded, 1)]));
    people.begin_again();
    people.observe(showing(Vec::new(), vec![call_snapshot(CallStatus::Running, 2)]));
    assert_eq!(rules(&people), [Rule::SettledStays]);
}

#[test]
fn nobody_is_done_before_every_earlier_decision_was_repeated() {
    let mut people = people();
    people.observe(showing(vec![held("apr_1")], Vec::new()));
    let number = the_decision(&people.next_commands());
    people.process_response(number, Response::Accepted);
    people.begin_again();
    let mut ended = showing(Vec::new(), Vec::new());
    ended.runs[0].ended = true;
    people.observe(ended);
    assert!(!people.is_over(), "the decision is not repeated yet");
    let number = the_decision(&people.next_commands());
    assert!(!people.is_over(), "the node has not answered yet");
    people.process_response(number, Response::AlreadyApplied);
    assert!(people.is_over());
}

#[test]
fn what_a_slower_neighbour_showed_before_is_passed_over_also_when_everything_is_looked_at_again() {
    let mut people = people();
    let with_seq = |seq: u64, status: CallStatus| {
        let mut snapshot = showing(Vec::new(), vec![call_snapshot(status, 1)]);
        snapshot.runs[0].seq = seq;
        snapshot
    };
    people.observe_newer(with_seq(9, CallStatus::Succeeded));
    people.forget_snapshot();
    people.observe_newer(with_seq(8, CallStatus::Running));
    assert_eq!(people.snapshot, None);
    assert_eq!(rules(&people), []);
    people.observe_newer(with_seq(9, CallStatus::Running));
    assert_eq!(rules(&people), [Rule::SettledStays]);
}
