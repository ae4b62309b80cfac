//! The ways out of a run: which end wins, what it waits for, and that the hooks of RunEnd are asked.

use std::sync::Arc;

use machine::control::Stage;
use machine::delivery::{self, Delivery};
use machine::event::{InterruptCause, Parent, Usage};
use machine::id::{CallId, Principal, RunId};
use machine::inbox::Item;
use machine::input::{ChildEnd, ChildEnded, ModelFailure};
use machine::phase::{Action, Phase};
use machine::policy::{OnBlock, OnReject, Policy};
use machine::revision::{Limits, StopCondition};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::termination::{Cancelled, ErrorCode, StopCode, Termination};
use machine::{Effect, Fact, Input, Rejection, Revision};
use serde_json::json;

use crate::order_of_phases::{Tour, by, labels, mark};
use crate::run_status::{fails_permanently, interrupts};
use crate::story::{Story, names, order, success};

const WAITING: RunStatus = RunStatus::Waiting(WaitingOn::Person);

fn with_run_end_hooks() -> Revision {
    Revision { phases: [Phase::RunEnd].into_iter().collect(), ..Revision::default() }
}

fn stops_on(tool: &str) -> Revision {
    Revision { stop: vec![StopCondition::StopOnTool { tool_name: tool.into() }], ..Revision::default() }
}

fn ended(story: &Story) -> &Termination {
    story.run.control.ended().unwrap_or_else(|| panic!("{:?}", story.run_status()))
}

#[test]
fn a15_end_and_its_reason_are_recorded_before_the_hooks_of_run_end_are_asked() {
    let mut story = Story::begin_with(with_run_end_hooks());
    let events = story.says("done");
    assert_eq!(names(&events), ["message.added", "step.ended", "run.ending"]);
    assert_eq!(story.run.control.stage, Stage::Ending(Termination::NaturalEnd));
    assert_eq!(story.run.wanted(), [Effect::RunPhase(Phase::RunEnd)].into());
    let hooks = by("audit", vec![mark(Phase::RunEnd)]);
    let events = story.ok(Input::PhaseAnswered { phase: Phase::RunEnd, hooks });
    assert_eq!(names(&events), ["phase.answered", "state.changed", "run.ended"]);
    assert_eq!(ended(&story), &Termination::NaturalEnd);
}

#[test]
fn a44_early_end_hands_out_the_last_text_of_the_run() {
    for said in ["let me look", ""] {
        let mut order = order(Policy::default());
        let (run_id, call_id) = (RunId::from("run_0"), CallId::from("P"));
        order.parent = Some(Parent {
            run_id: run_id.clone(),
            call_id: call_id.clone(),
            depth: 1,
            grant_tokens: None,
            grant_descendants: None,
        });
        let phases = [Phase::BeforeInference].into_iter().collect();
        let mut story = Story::queued_with(Revision { phases, ..Revision::default() }, order);
        story.ok(Input::Start { after: None });
        let asked = story.answer(said, &[("A", "echo", json!({}))]);
        story.model_answers(asked);
        story.pass_gates();
        story.succeeds("A");
        let before = story.run.control.clone();
        let hooks = by("guard", vec![Action::SkipInference]);
        let events = story.ok(Input::PhaseAnswered { phase: Phase::BeforeInference, hooks });
        assert_eq!(names(&events), ["phase.answered", "step.ended", "run.ended"]);
        assert_eq!(ended(&story), &Termination::BehaviorRequested);
        let end = ChildEnd::Completed { answer: Arc::new(json!(said)) };
        let usage = Usage { input_tokens: 10, output_tokens: 5 };
        let item = Item::ChildEnded(ChildEnded {
            call: call_id,
            run: RunId::from("run_1"),
            end,
            usage,
            descendants: 0,
        });
        let handed_out = delivery::deliveries(Some(&before), &events, said).unwrap();
        assert_eq!(handed_out, [Delivery { to: run_id, item }]);
    }
}

#[test]
fn a45_model_error_ends_the_run_in_error_after_its_tries() {
    let mut story = Story::begin();
    let failure = |retryable| ModelFailure { message: "overloaded".into(), retryable, retry_after_ms: None };
    for attempt in [1, 2] {
        let events = story.ok(Input::ModelFailed { step: 1, attempt, failure: failure(true) });
        assert_eq!(names(&events), ["model.retrying"]);
        assert_eq!(story.model_attempt(), attempt + 1);
    }
    let events = story.ok(Input::ModelFailed { step: 1, attempt: 3, failure: failure(true) });
    assert_eq!(names(&events), ["step.ended", "run.ended"]);
    assert_eq!(ended(&story), &Termination::error(ErrorCode::Model, "overloaded"));

    let mut story = Story::begin();
    let events = story.ok(Input::ModelFailed { step: 1, attempt: 1, failure: failure(false) });
    assert_eq!(names(&events), ["step.ended", "run.ended"]);
}

#[test]
fn a45_interrupt_during_the_model_call_ends_the_run_cancelled() {
    let mut story = Story::begin();
    let late = story.answer("too late", &[]);
    assert_eq!(
        names(&interrupts(&mut story)),
        ["run.interrupting", "message.added", "step.ended", "run.ended"]
    );
    assert_eq!(
        (ended(&story), story.run.wanted().len()),
        (&Termination::Cancelled(Cancelled::Interrupted), 0)
    );
    let over = Rejection::RunEnded(Termination::Cancelled(Cancelled::Interrupted));
    assert_eq!(story.refused(Input::ModelAnswered(late)), over);
    assert_eq!(story.transcript().len(), 2, "the user's message, and the note that it has no answer");
}

#[test]
fn a45_successful_model_call_is_processed_with_the_hooks_of_after_inference() {
    let mut tour = Tour::all_phases(Policy::default(), &[]);
    while !tour.did.contains(&"model".to_owned()) {
        let next = tour.story.run.wanted().into_iter().next().unwrap();
        tour.does(next);
    }
    assert_eq!(tour.did[tour.did.len() - 2..], ["model", "AfterInference"]);
    let labels = labels(&tour.story.log);
    assert_eq!(labels[labels.len() - 2..], ["AfterInference", "assistant"]);
}

#[test]
fn a46_model_error_closes_its_step_and_run_end_receives_the_message() {
    let phases = [Phase::AfterInference, Phase::StepEnd, Phase::RunEnd].into_iter().collect();
    let mut story = Story::begin_with(Revision { phases, ..Revision::default() });
    let events = fails_permanently(&mut story, "no such model");
    assert_eq!(names(&events), ["step.ended", "run.ending"]);
    assert_eq!(story.run.wanted(), [Effect::RunPhase(Phase::RunEnd)].into());
    let error = Termination::error(ErrorCode::Model, "no such model");
    assert_eq!(events[1].fact, Fact::RunEnding { termination: error.clone() });
    let hooks = by("audit", vec![mark(Phase::RunEnd)]);
    let events = story.ok(Input::PhaseAnswered { phase: Phase::RunEnd, hooks });
    assert_eq!(names(&events), ["phase.answered", "state.changed", "run.ended"]);
    assert_eq!(ended(&story), &error);
}

#[test]
fn a48_answer_without_tool_calls_is_the_natural_end() {
    let mut story = Story::begin();
    assert_eq!(names(&story.says("done")), ["message.added", "step.ended", "run.ended"]);
    assert_eq!(ended(&story), &Termination::NaturalEnd);
}

#[test]
fn a48_answer_with_tool_calls_leads_to_their_gates() {
    let mut story = Story::begin();
    let asked = story.answer("", &[("A", "echo", json!({})), ("B", "transfer", json!({}))]);
    assert_eq!(names(&story.model_answers(asked)), ["message.added", "tool.requested", "tool.requested"]);
    let gates = ["A", "B"].map(|id| Effect::Gate(CallId::from(id)));
    assert_eq!(story.run.wanted(), gates.into());
}

#[test]
fn a48_a49_plugin_that_asks_for_the_end_after_inference_ends_the_run_before_any_tool() {
    let mut story = Story::begin();
    let mut asked = story.answer("", &[("A", "echo", json!({})), ("B", "transfer", json!({}))]);
    asked.hooks = by("guard", vec![Action::End]);
    let events = story.model_answers(asked);
    assert_eq!(
        names(&events),
        [
            "phase.answered",
            "message.added",
            "tool.requested",
            "tool.requested",
            "tool.cancelled",
            "tool.cancelled",
            "message.added",
            "message.added",
            "step.ended",
            "run.ended"
        ]
    );
    assert_eq!(ended(&story), &Termination::BehaviorRequested);
    assert_eq!((story.tool_text("A"), story.tool_text("B")), (cancelled(), cancelled()));
}

fn cancelled() -> String {
    "Cancelled: run_ended".into()
}

#[test]
fn a49_stop_condition_is_deferred_until_the_tools_of_the_round_have_finished() {
    let mut story = Story::begin_with(stops_on("echo"));
    let events = story.asks_for(&[("A", "echo"), ("B", "post")]);
    assert_eq!(names(&events)[3..], ["tool.execution_started", "tool.execution_started"]);
    story.succeeds("A");
    assert_eq!(story.run_status(), &RunStatus::Running, "B still runs");
    let events = story.succeeds("B");
    assert_eq!(
        names(&events),
        ["tool.execution_succeeded", "message.added", "message.added", "step.ended", "run.ended"]
    );
    assert_eq!(ended(&story), &Termination::stopped(StopCode::StopOnTool, "echo was called".to_owned()));
}

#[test]
fn a50_held_calls_win_over_a_deferred_stop() {
    let mut story = Story::begin_with(stops_on("transfer"));
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    assert_eq!(story.run_status(), &WAITING);
    story.denies("A", None);
    assert_eq!(story.run_status(), &WAITING);
    story.approves("B");
    story.succeeds("B");
    assert_eq!(ended(&story), &Termination::stopped(StopCode::StopOnTool, "transfer was called".to_owned()));
    assert_eq!((story.tool_text("A").as_str(), story.tool_text("B").as_str()), ("Denied by ana: no", "ok"));
}

#[test]
fn a51_tool_round_that_commits_continues_and_one_that_is_cancelled_does_not() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "post")]);
    story.succeeds("A");
    let events = interrupts(&mut story);
    assert_eq!(
        names(&events),
        ["run.interrupting", "tool.cancelled", "message.added", "message.added", "step.ended", "run.ended"]
    );
    assert_eq!(ended(&story), &Termination::Cancelled(Cancelled::Interrupted));
    assert_eq!(story.tool_text("A"), "ok", "what had settled stays");
    assert_eq!(story.tool_text("B"), "Cancelled; it may have taken effect");

    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "nowhere")]);
    let events = story.fails("A");
    assert_eq!(
        names(&events)[1..],
        ["message.added", "message.added", "step.ended", "step.started"],
        "errors of tools are results"
    );
}

#[test]
fn a51_tool_round_that_a_block_ends_does_not_continue() {
    let mut story = Story::with_policy(Policy { on_block: OnBlock::EndRun, ..Policy::default() });
    story.asks_for(&[("A", "echo"), ("B", "forbidden"), ("C", "echo")]);
    assert_eq!(
        (story.status("A"), story.status("B"), story.status("C")),
        (CallStatus::Running, CallStatus::Failed, CallStatus::Cancelled)
    );
    let events = story.succeeds("A");
    assert_eq!(
        names(&events)[1..],
        ["message.added", "message.added", "message.added", "step.ended", "run.ended"]
    );
    assert_eq!(ended(&story), &Termination::blocked("blocked by policy"));
}

/// A run at each of its ends but interrupts, where RunEnd has been asked and has not answered.
fn at_the_end() -> Vec<(Story, Termination)> {
    let mut natural = Story::begin_with(with_run_end_hooks());
    natural.says("done");

    let phases = [Phase::StepStart, Phase::RunEnd].into_iter().collect();
    let mut requested = Story::begin_with(Revision { phases, ..Revision::default() });
    let hooks = by("guard", vec![Action::SkipInference]);
    requested.ok(Input::PhaseAnswered { phase: Phase::StepStart, hooks });

    let mut stopped = Story::begin_with(Revision { phases: with_run_end_hooks().phases, ..stops_on("echo") });
    stopped.asks_for(&[("A", "echo")]);
    stopped.succeeds("A");

    let policy = Policy { on_block: OnBlock::EndRun, ..Policy::default() };
    let mut blocked = Story::begin_with(Revision { policy, ..with_run_end_hooks() });
    blocked.asks_for(&[("A", "forbidden")]);

    let mut failed = Story::begin_with(with_run_end_hooks());
    fails_permanently(&mut failed, "bad key");

    vec![
        (natural, Termination::NaturalEnd),
        (requested, Termination::BehaviorRequested),
        (stopped, Termination::stopped(StopCode::StopOnTool, "echo was called".to_owned())),
        (blocked, Termination::blocked("blocked by policy")),
        (failed, Termination::error(ErrorCode::Model, "bad key")),
    ]
}

#[test]
fn a52_a61_every_end_passes_through_run_end_and_closes_with_the_run_finished_commit() {
    use machine::checkpoint::{Checkpoint, from_events};
    for (mut story, termination) in at_the_end() {
        assert_eq!(story.run.wanted(), [Effect::RunPhase(Phase::RunEnd)].into(), "{termination:?}");
        assert_eq!(story.run_status(), &RunStatus::Running);
        let hooks = by("audit", vec![mark(Phase::RunEnd)]);
        let events = story.ok(Input::PhaseAnswered { phase: Phase::RunEnd, hooks });
        assert_eq!(names(&events), ["phase.answered", "state.changed", "run.ended"]);
        assert_eq!((from_events(&events), ended(&story)), (Checkpoint::RunFinished, &termination));
    }
}

#[test]
fn a52_a61_interrupt_does_not_wait_for_run_end_and_still_writes_the_run_finished_commit() {
    use machine::checkpoint::{Checkpoint, from_events};
    let mut story = Story::begin_with(with_run_end_hooks());
    let events = interrupts(&mut story);
    assert_eq!(names(&events), ["run.interrupting", "message.added", "step.ended", "run.ended"]);
    assert_eq!(from_events(&events), Checkpoint::RunFinished);
}

#[test]
fn a52_a61_run_that_only_waits_has_no_run_end_and_no_run_finished_commit() {
    use machine::checkpoint::{Checkpoint, from_events};
    let mut story = Story::begin_with(with_run_end_hooks());
    let events = story.asks_for(&[("A", "transfer")]);
    assert_eq!((from_events(&events), story.run.wanted().len()), (Checkpoint::Waiting, 0));
    story.approves("A");
    story.succeeds("A");
    story.says("done");
    let asked = story.names().iter().filter(|name| *name == "run.ending").count();
    assert_eq!((asked, story.run.wanted()), (1, [Effect::RunPhase(Phase::RunEnd)].into()));
}

#[test]
fn a53_interrupt_between_two_steps_keeps_the_model_from_being_called_again() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    assert_eq!(story.run.control.step, 2);
    assert_eq!(
        names(&interrupts(&mut story)),
        ["run.interrupting", "message.added", "step.ended", "run.ended"]
    );
    assert_eq!(
        (ended(&story), story.run.wanted().len()),
        (&Termination::Cancelled(Cancelled::Interrupted), 0)
    );
}

#[test]
fn a53_interrupt_after_an_answer_without_tools_wins_over_the_natural_end() {
    let mut story = Story::begin_with(with_run_end_hooks());
    story.says("done");
    let cause = InterruptCause::Person(Principal::from("ana"));
    let events = story.ok(Input::Interrupt { cause });
    assert_eq!(names(&events), ["run.interrupting", "run.ended"]);
    assert_eq!(ended(&story), &Termination::Cancelled(Cancelled::Interrupted));
}

#[test]
fn a53_interrupt_before_the_start_ends_a_run_that_never_ran() {
    let mut story = Story::queued_with(Revision::default(), order(Policy::default()));
    assert_eq!(names(&interrupts(&mut story)), ["run.interrupting", "run.ended"]);
    assert_eq!(ended(&story), &Termination::Cancelled(Cancelled::Interrupted));
    assert_eq!(story.transcript(), [], "its message never joined the thread");
}

#[test]
fn a51_hook_that_fails_after_a_tool_does_not_end_the_round() {
    use machine::phase::{HookAnswer, HookAnswers, HookOutcome};
    let phases = [Phase::AfterToolExecute].into_iter().collect();
    let mut story = Story::begin_with(Revision { phases, ..Revision::default() });
    story.asks_for(&[("A", "echo")]);
    story.returns("A", success(json!("ok")));
    let outcome = HookOutcome::Failed("panicked".into());
    let hooks =
        HookAnswers { answers: vec![HookAnswer { plugin: "audit".into(), outcome }], state_bytes_after: 0 };
    let events = story.ok(Input::AfterTools { heard: vec![(CallId::from("A"), hooks)] });
    assert_eq!(names(&events), ["phase.answered", "message.added", "step.ended", "step.started"]);
    let Fact::PhaseAnswered { failed, .. } = &events[0].fact else { panic!() };
    assert_eq!(failed.as_deref(), Some("audit failed in AfterToolExecute: panicked"));
}

#[test]
fn the_pause_before_a_model_call_doubles_with_each_failure_up_to_its_bound() {
    let limits =
        Limits { model_try_count_max: 5, backoff_ms: 100, model_backoff_ms_max: 350, ..Limits::default() };
    let mut story = Story::begin_with(Revision { limits, ..Revision::default() });
    let mut pause = |attempt, retry_after_ms| {
        let failure = ModelFailure { message: "overloaded".into(), retryable: true, retry_after_ms };
        match &story.ok(Input::ModelFailed { step: 1, attempt, failure })[0].fact {
            Fact::ModelRetrying { at, .. } => at.ms_since(story.now),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([pause(1, None), pause(2, None), pause(3, None)], [100, 200, 350]);
    assert_eq!(pause(4, Some(1_000)), 350, "a provider may not make it longer than the bound");
    let mut story = Story::begin_with(Revision { limits, ..Revision::default() });
    let failure = ModelFailure { message: "overloaded".into(), retryable: true, retry_after_ms: Some(300) };
    let events = story.ok(Input::ModelFailed { step: 1, attempt: 1, failure });
    assert!(matches!(&events[0].fact, Fact::ModelRetrying { at, .. } if at.ms_since(story.now) == 300));
}

#[test]
fn the_hooks_of_run_end_are_not_accepted_before_the_end_is_decided_and_every_call_is_settled() {
    let mut story = Story::begin_with(with_run_end_hooks());
    let answered = || Input::PhaseAnswered { phase: Phase::RunEnd, hooks: Default::default() };
    let not_asked = Rejection::NotAsked(Phase::RunEnd);
    assert_eq!(story.refused(answered()), not_asked, "the run has no call, and no end");
    story.asks_for(&[("A", "transfer"), ("C", "echo")]);
    story.denies("A", Some(OnReject::EndRun));
    assert_eq!(story.refused(answered()), not_asked, "C still executes");
    story.succeeds("C");
    story.ok(answered());
    assert_eq!(ended(&story).done_reason(), "stopped:rejected");
}
