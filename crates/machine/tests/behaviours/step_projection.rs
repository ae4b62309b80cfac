//! What the states of its calls make of a step, against a second opinion written from the words of the rules.

use machine::policy::{Execution, Policy};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::step_projection::{StepProjection, project_calls, project_run, project_step};
use serde_json::json;

use crate::story::Story;

use CallStatus::{Cancelled, Failed, New, Resuming, Running, Succeeded, Suspended};

/// Any call Running or Resuming, or New and next in line: executing. Else any Suspended: waiting. Else settled.
/// Parallel: every New call is next in line. Sequential: only the first unsettled one.
fn expected_projection(statuses: &[CallStatus], execution: Execution) -> StepProjection {
    let first_unsettled =
        statuses.iter().position(|status| !matches!(status, Succeeded | Failed | Cancelled));
    let next_in_line = |place: usize| match execution {
        Execution::Parallel => true,
        Execution::Sequential => Some(place) == first_unsettled,
    };
    let executes = statuses.iter().enumerate().any(|(place, status)| {
        matches!(status, Running | Resuming) || (*status == New && next_in_line(place))
    });
    if executes {
        StepProjection::Executing
    } else if statuses.contains(&Suspended) {
        StepProjection::Waiting
    } else {
        StepProjection::Settled
    }
}

/// Every sequence of statuses up to this length.
fn sequences(length: usize) -> Vec<Vec<CallStatus>> {
    let mut all = vec![Vec::new()];
    let mut longest = all.clone();
    for _ in 0..length {
        longest = longest
            .iter()
            .flat_map(|shorter| {
                CallStatus::ALL.map(|status| shorter.iter().copied().chain([status]).collect::<Vec<_>>())
            })
            .collect();
        all.extend(longest.iter().cloned());
    }
    all
}

#[test]
fn c45_c46_c47_c51_projection_of_every_sequence_up_to_four_calls_in_both_modes() {
    let sequences = sequences(4);
    assert_eq!(sequences.len(), 1 + 7 + 49 + 343 + 2_401);
    for execution in [Execution::Parallel, Execution::Sequential] {
        for statuses in &sequences {
            assert_eq!(
                project_calls(statuses.iter().copied(), execution),
                expected_projection(statuses, execution),
                "{statuses:?} {execution:?}"
            );
        }
    }
}

#[test]
fn c45_any_running_or_resuming_call_keeps_the_step_executing() {
    for busy in [Running, Resuming] {
        for other in CallStatus::ALL {
            for execution in [Execution::Parallel, Execution::Sequential] {
                assert_eq!(project_calls([other, busy], execution), StepProjection::Executing);
                assert_eq!(project_calls([busy, other], execution), StepProjection::Executing);
            }
        }
    }
}

#[test]
fn c51_new_calls_count_as_executing() {
    assert_eq!(project_calls([New, New, New], Execution::Parallel), StepProjection::Executing);
    assert_eq!(project_calls([Suspended, New], Execution::Parallel), StepProjection::Executing);
    assert_eq!(project_calls([Succeeded, New], Execution::Sequential), StepProjection::Executing);
    assert_eq!(project_calls([Suspended, New], Execution::Sequential), StepProjection::Waiting);
}

#[test]
fn c52_a_step_without_calls_is_settled() {
    assert_eq!(project_calls([], Execution::Parallel), StepProjection::Settled);
    assert_eq!(project_calls([], Execution::Sequential), StepProjection::Settled);
}

#[test]
fn c53_the_order_of_the_calls_does_not_matter_in_parallel_mode() {
    for statuses in sequences(4) {
        let mut sorted = statuses.clone();
        sorted.sort();
        let mut reversed = statuses.clone();
        reversed.reverse();
        let expected = project_calls(statuses, Execution::Parallel);
        assert_eq!(project_calls(sorted, Execution::Parallel), expected);
        assert_eq!(project_calls(reversed, Execution::Parallel), expected);
    }
}

#[test]
fn c48_the_status_is_derived_again_at_every_transition_of_a_call() {
    let mut story = Story::begin();
    let calls = [("A", "transfer", json!({})), ("B", "echo", json!({}))];
    let answered = story.answer("", &calls);
    story.model_answers(answered);
    let mut seen = vec![(project_step(&story.run.control), story.run_status().clone())];
    let mut note = |story: &Story| {
        assert_eq!(project_step(&story.run.control), project_run(&story.run.control));
        seen.push((project_step(&story.run.control), story.run_status().clone()));
    };
    story.pass_gate("A");
    note(&story);
    story.pass_gate("B");
    note(&story);
    story.succeeds("B");
    note(&story);
    let decision = story.decision("A", crate::story::resume());
    story.ok(machine::Input::Decide(decision));
    note(&story);
    story.pass_gate("A");
    note(&story);
    let executing = (StepProjection::Executing, RunStatus::Running);
    let waiting = (StepProjection::Waiting, RunStatus::Waiting(WaitingOn::Person));
    assert_eq!(
        seen,
        [executing.clone(), executing.clone(), executing.clone(), waiting, executing.clone(), executing]
    );
    story.succeeds("A");
    assert_eq!((story.run.control.step, story.run_status()), (2, &RunStatus::Running));
}

#[test]
fn c47_a_settled_step_is_followed_by_the_next_one_and_never_ends_the_run() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    assert_eq!(story.run_status(), &RunStatus::Running);
    assert_eq!(story.run.control.step, 2);
}

#[test]
fn a_call_that_a_sequential_step_has_not_reached_does_not_keep_the_run_running() {
    let mut story = Story::with_policy(Policy { execution: Execution::Sequential, ..Policy::default() });
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    assert_eq!((story.status("A"), story.status("B")), (Suspended, New));
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
}
