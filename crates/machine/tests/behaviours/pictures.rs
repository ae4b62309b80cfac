//! The pictures of the two state machines in README.md show exactly the legal transitions.

use std::collections::BTreeSet;

use machine::status::RunStatus::{Done, Interrupting, Queued, Running, Waiting};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::termination::{Cancelled, ErrorCode, RunError, StopCode, Stopped, Termination};

const README: &str = include_str!("../../../../README.md");

/// An arrow of a picture: from, to, label.
type Arrow = (String, String, String);

fn arrow(from: &str, to: &str, label: &str) -> Arrow {
    (from.to_owned(), to.to_owned(), label.to_owned())
}

/// The arrows of the state diagram that begins in the given state.
fn picture(first: &str) -> BTreeSet<Arrow> {
    let begins = format!("[*] --> {first}\n");
    let diagrams = README.split("```mermaid\nstateDiagram-v2\n").skip(1);
    let diagram = diagrams.filter_map(|rest| rest.split("```").next()).find(|text| text.contains(&begins));
    let arrows = diagram.expect("README.md has the diagram").lines().filter_map(|line| {
        let (from, rest) = line.trim().split_once(" --> ")?;
        let (to, label) = rest.split_once(" : ").unwrap_or((rest, ""));
        Some(arrow(from, to, label))
    });
    arrows.collect()
}

#[test]
fn the_picture_of_a_call_shows_exactly_the_legal_transitions() {
    let mut legal = BTreeSet::from([arrow("[*]", "New", "")]);
    for from in CallStatus::ALL {
        if from.terminal() {
            legal.insert(arrow(&from.to_string(), "[*]", ""));
        }
        for to in CallStatus::ALL.into_iter().filter(|to| from.transition_to(*to).is_ok()) {
            legal.insert(arrow(&from.to_string(), &to.to_string(), ""));
        }
    }
    assert_eq!(picture("New"), legal);
}

fn endings() -> [Termination; 6] {
    [
        Termination::NaturalEnd,
        Termination::BehaviorRequested,
        Termination::Stopped(Stopped { code: StopCode::Timeout, detail: None }),
        Termination::Cancelled(Cancelled::Interrupted),
        Termination::Blocked("blocked".to_owned()),
        Termination::Error(RunError { code: ErrorCode::Model, text: "failed".to_owned() }),
    ]
}

/// How the picture names a state: it does not show what a run waits for, or how it ended.
fn state_name(status: &RunStatus) -> &'static str {
    match status {
        Queued => "Queued",
        Running => "Running",
        Waiting(_) => "Waiting",
        Interrupting => "Interrupting",
        Done(_) => "Done",
    }
}

/// How the picture names the ends that a run can have from a state.
fn ending_label(from: &RunStatus) -> Option<&'static str> {
    let is_legal: Vec<bool> =
        endings().into_iter().map(|ending| from.transition_to(Done(ending)).is_ok()).collect();
    match is_legal[..] {
        [true, true, true, true, true, true] => Some("any end"),
        [false, false, false, true, false, true] => Some("cancelled or error"),
        [false, false, false, true, false, false] => Some("cancelled"),
        [false, false, false, false, false, false] => None,
        _ => panic!("the picture has no label for the ends of a run that is {from}: {is_legal:?}"),
    }
}

#[test]
fn the_picture_of_a_run_shows_exactly_the_legal_transitions() {
    let unended = [Queued, Running, Waiting(WaitingOn::Person), Waiting(WaitingOn::Tool), Interrupting];
    let mut legal = BTreeSet::from([arrow("[*]", "Queued", ""), arrow("Done", "[*]", "")]);
    for from in &unended {
        for to in unended.iter().filter(|to| from.transition_to((*to).clone()).is_ok()) {
            let both_wait = matches!((from, to), (Waiting(_), Waiting(_)));
            let label = if both_wait { "for something else" } else { "" };
            legal.insert(arrow(state_name(from), state_name(to), label));
        }
        if let Some(label) = ending_label(from) {
            legal.insert(arrow(state_name(from), "Done", label));
        }
    }
    for ending in endings() {
        assert_eq!(ending_label(&Done(ending)), None, "an ended run stays ended");
    }
    assert_eq!(picture("Queued"), legal);
}
