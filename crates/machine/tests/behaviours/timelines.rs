//! The timelines that the source documents print, step by step.

use machine::status::{CallStatus, RunStatus, WaitingOn};

use crate::story::{self, Story, names};

use CallStatus::{New, Resuming, Running, Succeeded, Suspended};

/// A and B need approval, C does not.
fn three_calls() -> Story {
    let mut story = Story::begin();
    let calls = [("A", "transfer"), ("B", "transfer"), ("C", "echo")]
        .map(|(id, tool)| (id, tool, serde_json::json!({"of": id})));
    let answered = story.answer("", &calls);
    story.model_answers(answered);
    story
}

#[track_caller]
fn assert_statuses(story: &Story, a: CallStatus, b: CallStatus, c: CallStatus, run: &RunStatus) {
    assert_eq!((story.status("A"), story.status("B"), story.status("C")), (a, b, c));
    assert_eq!(story.run_status(), run);
}

#[test]
fn c50_serial_timeline_t0_to_t7() {
    let waiting = RunStatus::Waiting(WaitingOn::Person);
    let mut story = three_calls();
    assert_statuses(&story, New, New, New, &RunStatus::Running); // t0
    story.pass_gate("A");
    story.pass_gate("C");
    assert_statuses(&story, Suspended, New, Running, &RunStatus::Running); // t1
    story.pass_gate("B");
    assert_statuses(&story, Suspended, Suspended, Running, &RunStatus::Running); // t2
    story.succeeds("C");
    assert_statuses(&story, Suspended, Suspended, Succeeded, &waiting); // t3
    let decision = story.decision("A", story::resume());
    let events = story.ok(machine::Input::Decide(decision));
    assert_eq!(names(&events), ["tool.approved", "run.resumed"]);
    assert_statuses(&story, Resuming, Suspended, Succeeded, &RunStatus::Running); // t4
    story.pass_gates();
    story.succeeds("A");
    assert_statuses(&story, Succeeded, Suspended, Succeeded, &waiting); // t5
    let decision = story.decision("B", story::resume());
    story.ok(machine::Input::Decide(decision));
    assert_statuses(&story, Succeeded, Resuming, Succeeded, &RunStatus::Running); // t6
    story.pass_gates();
    let events = story.succeeds("B"); // t7: all terminal, the next step follows
    assert_eq!(
        names(&events),
        [
            "tool.execution_succeeded",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "step.started"
        ]
    );
    assert_eq!(story.run.control.step, 2);
}

#[test]
fn c86_concurrent_timeline_t0_to_t5_with_a_replayed_while_c_runs() {
    let waiting = RunStatus::Waiting(WaitingOn::Person);
    let mut story = three_calls();
    story.pass_gates();
    assert_statuses(&story, Suspended, Suspended, Running, &RunStatus::Running); // t0: C starts
    let decision = story.decision("A", story::resume());
    let events = story.ok(machine::Input::Decide(decision));
    // The run never waited, so it does not resume.
    assert_eq!(names(&events), ["tool.approved"]);
    assert_statuses(&story, Resuming, Suspended, Running, &RunStatus::Running); // t1: A is decided while C runs
    assert_eq!(names(&story.pass_gates()), ["tool.execution_started"]);
    assert_statuses(&story, Running, Suspended, Running, &RunStatus::Running);
    assert_eq!(names(&story.succeeds("A")), ["tool.execution_succeeded"]);
    assert_statuses(&story, Succeeded, Suspended, Running, &RunStatus::Running); // t2: A is done, C still runs
    assert_eq!(names(&story.succeeds("C")), ["tool.execution_succeeded", "run.waiting"]);
    assert_statuses(&story, Succeeded, Suspended, Succeeded, &waiting); // t3: C is done, B is held
    let decision = story.decision("B", story::resume());
    let events = story.ok(machine::Input::Decide(decision));
    assert_eq!(names(&events), ["tool.approved", "run.resumed"]);
    assert_statuses(&story, Succeeded, Resuming, Succeeded, &RunStatus::Running); // t4: B is decided
    assert_eq!(names(&story.pass_gates()), ["tool.execution_started"]);
    let events = story.succeeds("B"); // t5: all terminal, the next step follows
    assert_eq!(
        names(&events),
        [
            "tool.execution_succeeded",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "step.started"
        ]
    );
    let results: Vec<_> = story.transcript().into_iter().skip(2).collect();
    let ok = |call: &str| machine::transcript::ModelMessage::Tool { call: call.into(), text: "ok".into() };
    assert_eq!(results, [ok("A"), ok("B"), ok("C")], "in the model's order, not in the order of arrival");
}
