//! Commits and their names: what each holds, when there is none, and that together they are the whole run.

use machine::checkpoint::{Checkpoint, from_events};
use machine::event::{Event, Fact, Message};
use machine::phase::{Action, Phase};
use machine::policy::{Policy, StepEnd};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::ResumeMode;
use machine::transcript::Transcript;
use machine::{Control, Effect, Input, Rejection, Revision, Run, Timestamp, fold};
use serde_json::json;

use crate::order_of_phases::{by, mark};
use crate::run_status::interrupts;
use crate::story::{Story, names, order, pending, resume, success};

use Checkpoint::{AssistantTurn, ReplayResults, RunFinished, ToolResults, UserMessage};

/// Loses the worker: another one loads what was stored.
fn reload(story: &mut Story) {
    let stored = story.run.control.encode().unwrap();
    story.run = Run::new(story.run.revision.clone(), Control::decode(&stored).unwrap());
}

#[test]
fn a47_assistant_turn_is_committed_before_anything_follows_from_it() {
    let mut story = Story::begin();
    let asked = story.answer("", &[("A", "echo", json!({})), ("B", "transfer", json!({}))]);
    let events = story.model_answers(asked);
    assert_eq!(names(&events), ["message.added", "tool.requested", "tool.requested"]);
    assert_eq!(from_events(&events), AssistantTurn);
    assert_eq!((story.status("A"), story.status("B")), (CallStatus::New, CallStatus::New));
    let starts = |effect: &Effect| matches!(effect, Effect::RunTool { .. } | Effect::CallModel { .. });
    assert!(!story.run.wanted().iter().any(starts));
}

#[test]
fn a56_users_message_is_committed_with_the_start() {
    let story = Story::begin();
    assert_eq!(names(&story.log), ["run.queued", "run.started", "message.added", "step.started"]);
    assert_eq!(from_events(&story.log), UserMessage);
}

#[test]
fn a56_what_the_hooks_of_run_start_set_is_committed_as_part_of_the_start() {
    let phases = [Phase::RunStart].into_iter().collect();
    let mut story = Story::begin_with(Revision { phases, ..Revision::default() });
    assert_eq!(names(&story.log), ["run.queued", "run.started", "message.added"]);
    assert_eq!(story.run.wanted(), [Effect::RunPhase(Phase::RunStart)].into());
    let hooks = by("audit", vec![mark(Phase::RunStart)]);
    let events = story.ok(Input::PhaseAnswered { phase: Phase::RunStart, hooks });
    assert_eq!(names(&events), ["phase.answered", "state.changed", "step.started"]);
    assert_eq!(from_events(&events), UserMessage);
}

#[test]
fn a57_run_that_is_woken_and_receives_no_decision_commits_nothing() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let decision = story.decision("A", resume());
    reload(&mut story);
    let at = story.now;
    assert_eq!(story.ok(Input::LeaseAcquired { epoch: 2, doubt_at: at }), []);
    assert_eq!(story.ok(Input::InboxDrained), []);
    let events = story.ok(Input::Decide(decision));
    assert_eq!(
        (names(&events), from_events(&events)),
        (vec!["tool.approved".into(), "run.resumed".into()], ReplayResults)
    );
}

#[test]
fn a58_each_answer_of_the_model_is_one_assistant_turn() {
    let mut story = Story::begin();
    let failure =
        machine::input::ModelFailure { message: "cut".into(), retryable: true, retry_after_ms: None };
    let events = story.ok(Input::ModelFailed { step: 1, attempt: 1, failure });
    assert_eq!(names(&events), ["model.retrying"], "a failed try has no turn");
    let first = story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    let second = story.asks_for(&[("B", "echo")]);
    story.succeeds("B");
    story.says("done");
    assert_eq!((from_events(&first), from_events(&second)), (AssistantTurn, AssistantTurn));
    let turns = story.log.iter().filter_map(|event| match &event.fact {
        Fact::MessageAdded(Message::Assistant { id, .. }) => Some(id.as_str()),
        _ => None,
    });
    assert_eq!(turns.collect::<Vec<_>>(), ["msg_run_1_1", "msg_run_1_2", "msg_run_1_3"]);
}

#[test]
fn a58_assistant_turn_holds_after_inference_the_message_and_an_early_end_of_its_step() {
    let policy = Policy { step_end: StepEnd::AfterInference, ..Policy::default() };
    let phases = [Phase::AfterInference].into_iter().collect();
    let mut story = Story::begin_with(Revision { policy, phases, ..Revision::default() });
    let mut asked = story.answer("", &[("A", "echo", json!({}))]);
    asked.hooks = by("audit", vec![mark(Phase::AfterInference)]);
    let events = story.model_answers(asked);
    assert_eq!(
        names(&events),
        ["phase.answered", "state.changed", "message.added", "tool.requested", "step.ended"]
    );
    assert_eq!(from_events(&events), AssistantTurn);
}

#[test]
fn a59_result_commits_when_it_settles_and_the_last_one_brings_the_messages_of_the_round() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "echo"), ("C", "echo")]);
    let first = story.succeeds("B");
    assert_eq!((names(&first), from_events(&first)), (vec!["tool.execution_succeeded".into()], ToolResults));
    let mut together = story.fails("C");
    together.extend(story.succeeds("A"));
    assert_eq!(
        names(&together),
        [
            "tool.execution_failed",
            "tool.execution_succeeded",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "step.started"
        ]
    );
    assert_eq!(from_events(&together), ToolResults);
    let answered = together.iter().filter_map(|event| match &event.fact {
        Fact::MessageAdded(Message::Tool { call_id, .. }) => Some(call_id.as_str()),
        _ => None,
    });
    assert_eq!(answered.collect::<Vec<_>>(), ["A", "B", "C"]);
}

#[test]
fn a60_decision_that_resolves_a_call_commits_its_replay() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "pick_file")]);
    let events = story.approves("A");
    assert_eq!(names(&events), ["tool.approved", "run.resumed", "tool.execution_started"]);
    assert_eq!(from_events(&events), ReplayResults);
    let stays_held = story.denies("B", None);
    assert_eq!((names(&stays_held), from_events(&stays_held)), (vec!["tool.denied".into()], ReplayResults));
    let events = story.succeeds("A");
    assert_eq!(names(&events), ["tool.execution_succeeded", "run.waiting"]);
    assert_eq!(from_events(&events), Checkpoint::Waiting);
    let events = story.answers("C", json!("a.txt"));
    assert_eq!(
        names(&events),
        [
            "tool.resumed",
            "run.resumed",
            "tool.execution_succeeded",
            "message.added",
            "message.added",
            "message.added",
            "step.ended",
            "step.started"
        ]
    );
    assert_eq!(from_events(&events), ReplayResults);
}

#[test]
fn a60_a62_decision_that_matches_nothing_commits_nothing() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    let mut stray = story.decision("A", resume());
    stray.call = "X".into();
    assert_eq!(story.refused(Input::Decide(stray)), Rejection::UnknownCall("X".into()));
}

#[test]
fn a62_what_changes_nothing_is_no_commit_and_the_last_commit_is_written_whatever_it_holds() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "echo")]);
    story.succeeds("A");
    assert_eq!(story.succeeds("A"), [], "a duplicate");
    let mut idle = Story::begin();
    idle.asks_for(&[("A", "transfer")]);
    let at = idle.now;
    assert_eq!(idle.ok(Input::LeaseAcquired { epoch: 2, doubt_at: at }), [], "nothing was lost");
    assert_eq!(idle.refused(Input::DeadlineReached), Rejection::NothingDue);

    let mut queued = Story::queued_with(Revision::default(), order(Policy::default()));
    let events = interrupts(&mut queued);
    assert_eq!(names(&events), ["run.interrupting", "run.ended"]);
    assert_eq!(from_events(&events), RunFinished);
}

/// The checkpoints of a story, one commit per input.
fn commits(revision: Revision, tell: impl Fn(&mut Story) -> Vec<Vec<Event>>) -> Vec<Checkpoint> {
    let mut story = Story::begin_with(revision);
    let start = from_events(&story.log);
    let mut names = vec![start];
    names.extend(tell(&mut story).iter().map(|events| from_events(events)));
    names
}

fn run_end_answered(story: &mut Story) -> Vec<Event> {
    story.ok(Input::PhaseAnswered { phase: Phase::RunEnd, hooks: by("audit", vec![]) })
}

#[test]
fn a63_commits_of_a_plain_answer_of_a_tool_round_and_of_a_resume() {
    let plain = |story: &mut Story| vec![story.says("done")];
    assert_eq!(commits(Revision::default(), plain), [UserMessage, RunFinished]);
    let round =
        |story: &mut Story| vec![story.asks_for(&[("A", "echo")]), story.succeeds("A"), story.says("done")];
    assert_eq!(commits(Revision::default(), round), [UserMessage, AssistantTurn, ToolResults, RunFinished]);
    let resumed = |story: &mut Story| {
        let waits = story.asks_for(&[("A", "transfer")]);
        reload(story);
        vec![waits, story.approves("A"), story.succeeds("A"), story.says("done")]
    };
    assert_eq!(
        commits(Revision::default(), resumed),
        [UserMessage, Checkpoint::Waiting, ReplayResults, ToolResults, RunFinished]
    );
}

#[test]
fn a63_with_hooks_at_the_end_the_last_answer_has_a_commit_of_its_own() {
    let with_run_end_hooks =
        || Revision { phases: [Phase::RunEnd].into_iter().collect(), ..Revision::default() };
    let plain = |story: &mut Story| vec![story.says("done"), run_end_answered(story)];
    assert_eq!(commits(with_run_end_hooks(), plain), [UserMessage, AssistantTurn, RunFinished]);
    let round = |story: &mut Story| {
        vec![
            story.asks_for(&[("A", "echo")]),
            story.succeeds("A"),
            story.says("done"),
            run_end_answered(story),
        ]
    };
    assert_eq!(
        commits(with_run_end_hooks(), round),
        [UserMessage, AssistantTurn, ToolResults, AssistantTurn, RunFinished]
    );
}

#[test]
fn a64_commits_are_disjoint_and_each_begins_where_the_one_before_ended() {
    let mut story = Story::begin();
    let before = story.run.clone();
    let commits = [story.asks_for(&[("A", "transfer")]), story.approves("A"), story.succeeds("A")];
    let mut version = before.control.seq;
    for events in &commits {
        let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
        let expected: Vec<u64> = (version + 1..=version + events.len() as u64).collect();
        assert_eq!(numbers, expected);
        version += events.len() as u64;
    }
    assert_eq!(version, story.run.control.seq);

    let mut skipping = before;
    let refused = |run: &mut Run, event: &Event| run.apply(event).unwrap_err().to_string();
    let gap = |seq| format!("event {seq} is impossible: the numbers have a gap");
    assert_eq!(refused(&mut skipping, &commits[1][0]), gap(commits[1][0].seq), "a commit is missing");
    commits[0].iter().for_each(|event| skipping.apply(event).unwrap());
    assert_eq!(refused(&mut skipping, &commits[0][0]), gap(commits[0][0].seq), "a commit comes twice");
}

#[test]
fn a64_state_that_is_committed_names_its_run_and_its_parent() {
    let parent = machine::event::Parent {
        run_id: "run_0".into(),
        call_id: "P".into(),
        depth: 1,
        grant_tokens: Some(500),
        grant_descendants: None,
    };
    let mut wishes = order(Policy::default());
    wishes.parent = Some(parent.clone());
    let mut story = Story::queued_with(Revision::default(), wishes);
    story.ok(Input::Start { after: None });
    reload(&mut story);
    assert_eq!((story.run.control.run.as_str(), story.run.control.parent), ("run_1", Some(parent)));
}

#[test]
fn a65_commit_that_fails_leaves_no_trace_and_the_reloaded_run_decides_the_same() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    let input = Input::ToolReturned { step: 1, call: "A".into(), attempt: 1, outcome: success(json!("ok")) };
    let before = story.run.clone();
    let lost = story.run.decide(&input, story.now).unwrap();
    assert_eq!(story.run, before, "deciding changes nothing");
    reload(&mut story);
    assert_eq!(story.run.decide(&input, story.now).unwrap(), lost);
    assert_eq!(story.ok(input), lost.events);
    story.says("done");
    assert_eq!(story.names().last().unwrap(), "run.ended");
}

/// A run with every kind of commit in it, one entry per commit.
fn whole_run() -> (Story, Vec<Vec<Event>>) {
    let phases = [Phase::StepStart].into_iter().collect();
    let mut story = Story::begin_with(Revision { phases, ..Revision::default() });
    let mut commits = vec![story.log.clone()];
    let instruct = Action::AddInstruction { text: "be brief".into() };
    let hooks = by("audit", vec![instruct, mark(Phase::StepStart)]);
    commits.push(story.ok(Input::PhaseAnswered { phase: Phase::StepStart, hooks }));
    commits.push(story.asks_for(&[("A", "transfer"), ("B", "post"), ("C", "transfer"), ("D", "nowhere")]));
    story.later(5);
    commits.push(story.returns("B", pending(ResumeMode::PassDecisionToTool)));
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    story.later(1_000);
    commits.push(story.approves("A"));
    commits.push(story.denies("C", None));
    commits.push(story.answers("B", json!(true)));
    commits.push(story.ok(Input::LeaseAcquired { epoch: 2, doubt_at: Timestamp(0) }));
    commits.push(story.ok(Input::InboxDrained));
    commits.push(story.answers("A", json!("it happened")));
    commits.push(story.approves("B"));
    commits.push(story.succeeds("B"));
    commits.push(story.says("done"));
    assert_eq!(story.names().last().unwrap(), "run.ended");
    (story, commits)
}

#[test]
fn a68_commits_one_after_the_other_rebuild_state_and_transcript() {
    let (story, commits) = whole_run();
    assert_eq!(commits.concat(), story.log);
    let mut stored = fold(&commits[0]).unwrap().encode().unwrap();
    let mut transcript = Transcript::default();
    commits[0].iter().for_each(|event| transcript.push(event));
    for events in &commits[1..] {
        let mut control = Control::decode(&stored).unwrap();
        for event in events {
            machine::apply::apply(&mut control, event).unwrap();
            transcript.push(event);
        }
        stored = control.encode().unwrap();
    }
    assert_eq!(Control::decode(&stored).unwrap(), story.run.control);
    assert_eq!(transcript.model_input(), story.transcript().into_iter().collect());
    let texts = ["A", "B", "C", "D"].map(|id| story.tool_text(id));
    assert_eq!(
        texts,
        ["it happened", "ok", "Denied by ana: no", "Error: there is no such tool"].map(str::to_owned)
    );
}
