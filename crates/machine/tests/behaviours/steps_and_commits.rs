//! What a step writes, how its commits are called, and what a worker finds that takes the run over.

use machine::checkpoint::{Checkpoint, from_events};
use machine::control::Stage;
use machine::event::InterruptCause;
use machine::phase::{Action, HookAnswers, Phase};
use machine::policy::{OnBlock, Policy};
use machine::revision::Revision;
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::SuspensionKind;
use machine::{Control, Effect, Event, Input, Run};
use serde_json::json;

use crate::props::{hook, lines, payload, stored_json, subscribing};
use crate::story::{Story, names, resume};

fn ends_step_then_run(events: &[Event]) -> bool {
    names(events).ends_with(&["step.ended".to_owned(), "run.ended".to_owned()])
}

#[test]
fn c18_the_open_step_is_closed_by_a_cancel_a_block_and_a_request_to_end() {
    let mut cancelled = Story::begin();
    cancelled.asks_for(&[("A", "echo")]);
    let events = cancelled.ok(Input::Interrupt { cause: InterruptCause::Person("ana".into()) });
    assert!(ends_step_then_run(&events));
    assert_eq!(from_events(&events), Checkpoint::RunFinished);

    let mut blocked = Story::with_policy(Policy { on_block: OnBlock::EndRun, ..Policy::default() });
    let events = blocked.asks_for(&[("A", "forbidden")]);
    assert!(ends_step_then_run(&events));

    let mut ended = Story::begin_with(subscribing(&[Phase::AfterInference]));
    let mut answered = ended.answer("words", &[]);
    answered.hooks = hook(Action::End);
    let events = ended.ok(Input::ModelAnswered(answered));
    assert!(ends_step_then_run(&events));
}

#[test]
fn c19_events_of_one_tool_round_and_an_answer() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    story.says("done");
    assert_eq!(
        story.names(),
        [
            "run.queued",
            "run.started",
            "message.added",
            "step.started",
            "message.added",
            "tool.requested",
            "tool.execution_started",
            "tool.execution_succeeded",
            "message.added",
            "step.ended",
            "step.started",
            "message.added",
            "step.ended",
            "run.ended"
        ]
    );
    let numbers: Vec<u64> = story.log.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=14).collect::<Vec<_>>());
    let steps: Vec<Option<u32>> = story.log.iter().map(|event| event.step).collect();
    let (one, two) = (Some(1), Some(2));
    let none = None;
    assert_eq!(steps, [none, none, none, one, one, one, one, one, one, one, two, two, two, none]);
}

#[test]
fn c20_the_calls_of_a_step_are_gone_when_the_next_one_starts() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "post")]);
    story.succeeds("A");
    assert_eq!(story.run.control.calls.len(), 2);
    story.fails("B");
    assert_eq!(story.run.control.step, 2);
    assert!(story.run.control.calls.is_empty());
    assert!(story.run.control.recent.contains(1, &"A".into(), story.now));
}

#[test]
fn c39_each_round_is_committed_when_it_ends() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "echo")]);
    assert_eq!(
        from_events(&story.succeeds("A")),
        Checkpoint::ToolResults,
        "a result commits when it settles"
    );
    let events = story.succeeds("B");
    assert!(names(&events).contains(&"step.ended".to_owned()));
    assert_eq!(from_events(&events), Checkpoint::ToolResults);
    let events = story.says("bye");
    assert!(names(&events).contains(&"step.ended".to_owned()));
    assert_eq!(from_events(&events), Checkpoint::RunFinished);
}

#[test]
fn c39_every_commit_has_the_name_of_the_furthest_boundary_it_reaches() {
    let mut story = Story::queued_with(Revision::default(), crate::story::order(Policy::default()));
    assert_eq!(from_events(&story.log), Checkpoint::UserMessage);
    assert_eq!(from_events(&story.ok(Input::Start { after: None })), Checkpoint::UserMessage);
    let answered = story.answer("", &[("A", "transfer", json!({})), ("B", "echo", json!({}))]);
    assert_eq!(from_events(&story.model_answers(answered)), Checkpoint::AssistantTurn);
    story.pass_gates();
    assert_eq!(from_events(&story.succeeds("B")), Checkpoint::Waiting);
    let decision = story.decision("A", resume());
    assert_eq!(from_events(&story.ok(Input::Decide(decision))), Checkpoint::ReplayResults);
    story.pass_gates();
    assert_eq!(from_events(&story.succeeds("A")), Checkpoint::ToolResults);
    assert_eq!(from_events(&story.says("bye")), Checkpoint::RunFinished);
}

#[test]
fn c40_the_stored_state_has_the_run_its_held_calls_and_references_to_its_messages() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.succeeds("A");
    let stored = Control::decode(&story.run.control.encode().unwrap()).unwrap();
    assert_eq!(stored.status, RunStatus::Waiting(WaitingOn::Person));
    assert_eq!((stored.step, stored.message_count), (1, 2));
    let held = stored.call(&"B".into()).unwrap();
    let open = held.suspension().unwrap();
    let opened = story.log.iter().find(|event| event.seq == open.seq).unwrap();
    assert_eq!(stored_json(opened)["payload"]["suspension_id"], open.id.as_str());
    let pending = stored.pending();
    assert_eq!(pending.len(), 1);
    assert_eq!(pending.first().unwrap().kind, SuspensionKind::Approval);
    // Messages are only ever added: what the model read before is the beginning of what it reads later.
    let before = lines(&story);
    story.approves("B");
    story.succeeds("B");
    story.says("bye");
    let after = lines(&story);
    assert_eq!(before.first(), after.first());
    assert_eq!(after, ["user: hello", "assistant: [A B]", "A: ok", "B: ok", "assistant: bye[]"]);
    let stored = Control::decode(&story.run.control.encode().unwrap()).unwrap();
    assert_eq!(stored.ended().unwrap().done_reason(), "natural");
}

/// The run as another worker loads it.
fn taken_over(story: &mut Story) {
    let control = Control::decode(&story.run.control.encode().unwrap()).unwrap();
    story.run = Run::new(story.run.revision.clone(), control);
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at: story.now });
    story.ok(Input::InboxDrained);
}

#[test]
fn c41_a_run_continues_after_a_crash_and_finished_siblings_are_not_run_again() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "echo"), ("C", "transfer")]);
    story.succeeds("A");
    taken_over(&mut story);
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [Effect::Gate("B".into())]);
    story.pass_gates();
    let again = Effect::RunTool { call: "B".into(), attempt: 2, not_before: story.now };
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [again]);
    assert_eq!(story.status("A"), CallStatus::Succeeded);
    assert_eq!(story.status("C"), CallStatus::Suspended);
    story.succeeds("B");
    story.approves("C");
    story.succeeds("C");
    story.says("done");
    assert_eq!(
        lines(&story),
        ["user: hello", "assistant: [A B C]", "A: ok", "B: ok", "C: ok", "assistant: done[]"]
    );
}

#[test]
fn c41_a_suspended_run_continues_on_another_machine() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let before = story.log.len();
    taken_over(&mut story);
    assert_eq!(story.log.len(), before, "nothing was lost, so nothing is recorded");
    story.approves("A");
    story.succeeds("A");
    assert_eq!(story.run.control.step, 2);
}

#[test]
fn c44_the_commit_after_run_end_is_the_last() {
    let mut story = Story::begin_with(subscribing(&[Phase::RunEnd]));
    let events = story.says("bye");
    assert_eq!(names(&events), ["message.added", "step.ended", "run.ending"]);
    assert_ne!(from_events(&events), Checkpoint::RunFinished);
    assert!(matches!(story.run.control.stage, Stage::Ending(_)));
    let events = story.ok(Input::PhaseAnswered { phase: Phase::RunEnd, hooks: HookAnswers::default() });
    assert_eq!(names(&events), ["run.ended"]);
    assert_eq!(from_events(&events), Checkpoint::RunFinished);
    assert!(story.run.wanted().is_empty());
}

#[test]
fn c60_a_pass_that_ends_held_is_committed_as_waiting_with_the_suspend_signal_last() {
    let mut story = Story::begin();
    let answered = story.answer("", &[("A", "transfer", json!({}))]);
    let mut events = story.model_answers(answered);
    events.extend(story.pass_gates());
    assert_eq!(names(&events), ["message.added", "tool.requested", "tool.approval_requested", "run.waiting"]);
    assert_eq!(from_events(&events), Checkpoint::Waiting);
    let approval = payload(&events, "tool.approval_requested")["suspension_id"].clone();
    assert_eq!(
        payload(&events, "run.waiting"),
        json!({
            "on": "person",
            "pending": [{"call_id": "A", "tool": "transfer", "kind": "approval", "suspension_id": approval}]
        })
    );
    assert!(story.run.wanted().is_empty(), "waiting is a row, not a task");
    assert_eq!(story.run.next_deadline(), None);
}
