//! What people object to by themselves, before anybody reads what is stored.

use kill::judge::Rule;
use kill::people::People;
use kill::stories;
use kill::wire::{Command, Shown, ShownCall, ShownRun, Wish, Word};
use machine::event::Pending;
use machine::id::{CallId, MessageId, RunId, SuspensionId, ToolName};
use machine::status::CallStatus;
use machine::suspension::SuspensionKind;

fn people() -> People {
    let stories = stories::all();
    People::of(stories.iter().find(|story| story.name == "write-retried").expect("the story exists"))
}

fn held(suspension: &str) -> Pending {
    Pending {
        call_id: CallId::from("a"),
        tool: ToolName::from("transfer"),
        kind: SuspensionKind::Approval,
        suspension_id: SuspensionId::from(suspension),
        expires_at: None,
    }
}

fn showing(pending: Vec<Pending>, calls: Vec<ShownCall>) -> Shown {
    let run = ShownRun {
        run: RunId::from("run_1"),
        message: Some(MessageId::from("said-1")),
        seq: 1,
        ended: false,
        waiting: true,
        calls,
        pending,
    };
    Shown { runs: vec![run], held_count: 0 }
}

fn shown_call(status: CallStatus, attempts: u32) -> ShownCall {
    ShownCall { call: CallId::from("a"), tool: ToolName::from("transfer"), step: 1, status, attempts }
}

/// The one thing that they say, as a decision.
fn the_decision(commands: &[Command]) -> u64 {
    let [Command { number, wish: Wish::Decide(_) }] = commands else { panic!("they say {commands:?}") };
    *number
}

fn rules(people: &People) -> Vec<Rule> {
    people.objections.iter().map(|objection| objection.rule).collect()
}

#[test]
fn a_message_without_an_answer_is_said_again_to_the_next_process() {
    let mut people = people();
    people.see(Shown::default());
    assert_eq!(people.speak().len(), 1);
    assert_eq!(people.speak(), [], "once to every process");
    people.begin_again();
    people.see(Shown::default());
    assert_eq!(people.speak().len(), 1);
    assert_eq!(rules(&people), []);
}

#[test]
fn a_message_that_was_accepted_and_is_gone_is_objected_to() {
    let mut people = people();
    people.see(Shown::default());
    let number = people.speak()[0].number;
    people.hear(number, Word::Posted { run: RunId::from("run_1") });
    people.begin_again();
    people.see(Shown::default());
    assert_eq!(rules(&people), [Rule::AcceptedIsKept]);
}

#[test]
fn a_decision_that_was_accepted_must_be_known_to_the_next_process() {
    let mut people = people();
    people.see(showing(vec![held("apr_1")], Vec::new()));
    let number = the_decision(&people.speak());
    people.hear(number, Word::Accepted);
    people.begin_again();
    people.see(showing(vec![held("apr_1")], Vec::new()));
    let number = the_decision(&people.speak());
    let mut forgotten = people.clone();
    people.hear(number, Word::AlreadyApplied);
    assert_eq!(rules(&people), []);
    forgotten.hear(number, Word::Accepted);
    assert_eq!(rules(&forgotten), [Rule::AcceptedIsKept]);
}

#[test]
fn a_decision_that_was_said_once_is_no_repeat() {
    let mut people = people();
    people.see(showing(vec![held("apr_1")], Vec::new()));
    let number = the_decision(&people.speak());
    people.hear(number, Word::AlreadyApplied);
    assert_eq!(rules(&people), [Rule::NothingIsMadeUp]);
}

#[test]
fn an_approval_that_shows_something_else_later_is_objected_to() {
    let mut people = people();
    people.see(showing(vec![held("apr_1")], Vec::new()));
    people.begin_again();
    people.see(showing(vec![Pending { call_id: CallId::from("b"), ..held("apr_1") }], Vec::new()));
    assert_eq!(rules(&people), [Rule::ApprovalsStay]);
}

#[test]
fn a_call_that_had_settled_and_runs_again_is_objected_to() {
    let mut people = people();
    people.see(showing(Vec::new(), vec![shown_call(CallStatus::Succeeded, 1)]));
    people.begin_again();
    people.see(showing(Vec::new(), vec![shown_call(CallStatus::Running, 2)]));
    assert_eq!(rules(&people), [Rule::SettledStays]);
}

#[test]
fn nobody_is_done_before_every_earlier_decision_was_repeated() {
    let mut people = people();
    people.see(showing(vec![held("apr_1")], Vec::new()));
    let number = the_decision(&people.speak());
    people.hear(number, Word::Accepted);
    people.begin_again();
    let mut ended = showing(Vec::new(), Vec::new());
    ended.runs[0].ended = true;
    people.see(ended);
    assert!(!people.is_over(), "the decision is not repeated yet");
    let number = the_decision(&people.speak());
    assert!(!people.is_over(), "nobody has answered yet");
    people.hear(number, Word::AlreadyApplied);
    assert!(people.is_over());
}

#[test]
fn what_a_slower_neighbour_showed_before_is_passed_over_also_when_everything_is_looked_at_again() {
    let mut people = people();
    let with_seq = |seq: u64, status: CallStatus| {
        let mut shown = showing(Vec::new(), vec![shown_call(status, 1)]);
        shown.runs[0].seq = seq;
        shown
    };
    people.see_newer(with_seq(9, CallStatus::Succeeded));
    people.look_again();
    people.see_newer(with_seq(8, CallStatus::Running));
    assert_eq!(people.shown, None);
    assert_eq!(rules(&people), []);
    people.see_newer(with_seq(9, CallStatus::Running));
    assert_eq!(rules(&people), [Rule::SettledStays]);
}
