//! A run that has to end with JSON that fits a schema: whether it fits, the one correction, and the end after it.

use machine::control::Stage;
use machine::event::{Event, Fact, Message};
use machine::input::ModelAnswered;
use machine::output::{JudgedOutput, OutputFit, parse_output, stored_output};
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Phase};
use machine::policy::{Continuation, Policy};
use machine::revision::{Revision, StopCondition};
use machine::termination::{ErrorCode, StopCode, Stopped, Termination};
use machine::{Effect, Input};
use serde_json::{Value, json};

use crate::props::lines;
use crate::story::{Story, names};

const WHY: &str = "\"total\" is a required property";

fn unfit() -> OutputFit {
    OutputFit::Unfit { why: WHY.into() }
}

/// The model answers without a call, and the shell has judged its answer so.
fn words(story: &mut Story, text: &str, fit: OutputFit) -> ModelAnswered {
    ModelAnswered { output: Some(fit), ..story.answer(text, &[]) }
}

#[track_caller]
fn says(story: &mut Story, text: &str, fit: OutputFit) -> Vec<Event> {
    let answered = words(story, text, fit);
    story.ok(Input::ModelAnswered(answered))
}

fn end(story: &Story) -> (Termination, Option<u64>) {
    match &story.log.last().unwrap().fact {
        Fact::RunEnded { termination, output, .. } => (termination.clone(), *output),
        other => panic!("the run has not ended: {}", other.name()),
    }
}

fn hooked(phases: &[Phase]) -> Revision {
    Revision { phases: phases.iter().copied().collect(), ..Revision::default() }
}

fn actions(actions: Vec<Action>) -> HookAnswers {
    HookAnswers {
        answers: vec![HookAnswer { plugin: "guard".into(), outcome: HookOutcome::Actions(actions) }],
        ..HookAnswers::default()
    }
}

#[test]
fn an_answer_that_fits_ends_the_run_and_is_its_output() {
    let mut story = Story::begin();
    let events = says(&mut story, "{\"total\": 3}", OutputFit::Fits);
    assert_eq!(names(&events), ["message.added", "step.ended", "run.ended"]);
    let seq = events[0].seq;
    assert_eq!(end(&story), (Termination::NaturalEnd, Some(seq)));
    assert_eq!(story.run.control.output, Some(JudgedOutput::Fits { seq }));
}

#[test]
fn an_answer_that_does_not_fit_is_corrected_in_the_same_commit_and_the_model_answers_again() {
    let mut story = Story::begin();
    let events = says(&mut story, "Three.", unfit());
    assert_eq!(names(&events), ["message.added", "step.ended", "message.added", "step.started"]);
    let Fact::MessageAdded(Message::Correction { id, why }) = &events[2].fact else {
        panic!("no correction: {:?}", events[2])
    };
    assert_eq!((id.as_str(), why.as_str(), events[2].step), ("msg_run_1_1_correction", WHY, None));
    assert!(matches!(story.run.wanted().first(), Some(Effect::CallModel { step: 2, attempt: 1, .. })));
    assert_eq!(
        lines(&story),
        [
            "user: hello",
            "assistant: Three.[]",
            "notice: Your last answer is not the output that is wanted: \"total\" is a required property. Answer \
             again, with nothing but JSON that fits the schema.",
        ]
    );

    let events = says(&mut story, "{\"total\": 3}", OutputFit::Fits);
    assert_eq!(end(&story), (Termination::NaturalEnd, Some(events[0].seq)));
}

#[test]
fn a_second_answer_that_does_not_fit_ends_the_run_as_failed_and_says_why() {
    let mut story = Story::begin();
    says(&mut story, "Three.", OutputFit::Unfit { why: "it is not JSON".into() });
    says(&mut story, "{}", unfit());
    assert_eq!(end(&story), (Termination::error(ErrorCode::Output, WHY), None));
    assert_eq!(story.run.control.output, None);
}

#[test]
fn the_one_correction_is_for_the_whole_run_whatever_comes_between() {
    let mut story = Story::begin();
    says(&mut story, "Three.", unfit());
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    assert_eq!(story.run.control.step, 3);
    says(&mut story, "Still three.", unfit());
    assert_eq!(end(&story).0, Termination::error(ErrorCode::Output, WHY));
}

#[test]
fn an_answer_that_asks_for_calls_is_not_the_last_one_and_is_not_judged() {
    let mut story = Story::begin();
    let asks = story.answer("Let me look.", &[("A", "echo", json!({}))]);
    let events = story.model_answers(ModelAnswered { output: Some(unfit()), ..asks });
    let Fact::MessageAdded(Message::Assistant { output, .. }) = &events[0].fact else { panic!("no answer") };
    assert_eq!(*output, None);
    story.pass_gates();
    story.succeeds("A");
    says(&mut story, "{\"total\": 3}", OutputFit::Fits);
    assert_eq!(end(&story).0, Termination::NaturalEnd);
}

#[test]
fn an_answer_whose_calls_were_all_dropped_is_the_last_one_and_is_judged() {
    let mut story = Story::begin_with(hooked(&[Phase::AfterInference]));
    let asks = story.answer("Let me look.", &[("A", "echo", json!({}))]);
    let hooks = actions(vec![Action::DropCall { index: 0 }]);
    let events = story.model_answers(ModelAnswered { output: Some(unfit()), hooks, ..asks });
    assert!(names(&events).ends_with(&["message.added".into(), "step.started".into()]), "{events:?}");
    assert!(story.run.control.output_corrected);
}

#[test]
fn a_take_over_after_the_correction_asks_the_model_again_and_does_not_correct_again() {
    let mut story = Story::begin();
    says(&mut story, "Three.", unfit());
    let doubt_at = story.now;
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at });
    story.ok(Input::InboxDrained);
    let corrections = || {
        let is_one = |event: &&Event| matches!(event.fact, Fact::MessageAdded(Message::Correction { .. }));
        story.log.iter().filter(is_one).count()
    };
    assert_eq!(corrections(), 1);
    assert!(matches!(story.run.wanted().first(), Some(Effect::CallModel { step: 2, attempt: 2, .. })));
    says(&mut story, "{\"total\": 3}", OutputFit::Fits);
    assert_eq!(end(&story).0, Termination::NaturalEnd);
}

#[test]
fn a_verdict_outlives_the_hooks_of_the_steps_end_and_of_the_runs_end() {
    let mut story = Story::begin_with(hooked(&[Phase::StepEnd, Phase::RunEnd]));
    says(&mut story, "Three.", unfit());
    assert_eq!(story.run.control.stage, Stage::StepEnding);
    let silent = |phase| Input::PhaseAnswered { phase, hooks: HookAnswers::default() };
    let events = story.ok(silent(Phase::StepEnd));
    assert_eq!(names(&events), ["step.ended", "message.added", "step.started"]);

    let seq = says(&mut story, "{\"total\": 3}", OutputFit::Fits)[0].seq;
    story.ok(silent(Phase::StepEnd));
    assert!(matches!(story.run.control.stage, Stage::Ending(_)));
    story.ok(silent(Phase::RunEnd));
    assert_eq!(end(&story), (Termination::NaturalEnd, Some(seq)));
}

#[test]
fn a_run_that_did_not_end_by_itself_has_no_output() {
    let mut ended = Story::begin_with(hooked(&[Phase::AfterInference]));
    let answered = words(&mut ended, "{\"total\": 3}", OutputFit::Fits);
    ended.ok(Input::ModelAnswered(ModelAnswered { hooks: actions(vec![Action::End]), ..answered }));
    assert_eq!(end(&ended), (Termination::BehaviorRequested, None));

    let pattern = "total".into();
    let stop = vec![StopCondition::ContentMatch { pattern }];
    let mut stopped = Story::begin_with(Revision { stop, ..Revision::default() });
    let answered = words(&mut stopped, "{\"total\": 3}", OutputFit::Fits);
    stopped.ok(Input::ModelAnswered(ModelAnswered { matched: vec![0], ..answered }));
    let (how, output) = end(&stopped);
    assert!(matches!(how, Termination::Stopped(Stopped { code: StopCode::ContentMatch, .. })), "{how:?}");
    assert_eq!((output, &stopped.run.control.output), (None, &None));
}

#[test]
fn a_correction_needs_a_round_that_the_limits_leave() {
    let stop = vec![StopCondition::MaxRounds { rounds: 1 }];
    let mut story = Story::begin_with(Revision { stop: stop.clone(), ..Revision::default() });
    says(&mut story, "Three.", unfit());
    let detail = Some("1 of 1 rounds".into());
    let stopped = Termination::Stopped(Stopped { code: StopCode::MaxRounds, detail });
    assert_eq!(end(&story), (stopped, None));

    // An answer that fits needs none.
    let mut story = Story::begin_with(Revision { stop, ..Revision::default() });
    says(&mut story, "{\"total\": 3}", OutputFit::Fits);
    assert_eq!(end(&story).0, Termination::NaturalEnd);
}

#[test]
fn while_calls_are_open_no_answer_is_the_last_one() {
    let policy = Policy { continuation: Continuation::Eager, ..Policy::default() };
    let mut story = Story::with_policy(policy);
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    story.succeeds("B");
    let events = says(&mut story, "B is done.", unfit());
    assert_eq!(names(&events), ["message.added", "step.ended", "run.waiting"]);
    story.approves("A");
    story.succeeds("A");
    assert!(!story.run.control.output_corrected, "the model read the late result instead");
    says(&mut story, "{\"total\": 3}", OutputFit::Fits);
    assert_eq!(end(&story).0, Termination::NaturalEnd);
}

#[test]
fn what_does_not_fit_is_cut_so_that_the_control_stays_small() {
    let mut story = Story::begin();
    let why = "x".repeat(100_000);
    says(&mut story, "Three.", OutputFit::Unfit { why: why.clone() });
    says(&mut story, "Three.", OutputFit::Unfit { why });
    let (Termination::Error(error), _) = end(&story) else { panic!("it did not fail") };
    assert_eq!(error.text.len(), 500);
}

#[test]
fn json_is_taken_with_a_fence_around_it_and_with_nothing_else() {
    let object = json!({"total": 3});
    for text in [
        "{\"total\": 3}",
        "  \n{\"total\": 3}\n",
        "```json\n{\"total\": 3}\n```",
        "```\n{\"total\": 3}\n```\n",
        "```JSON\r\n{\"total\": 3}\r\n```",
    ] {
        assert_eq!(parse_output(text).as_ref(), Ok(&object), "{text:?}");
    }
    assert_eq!(parse_output("[1]"), Ok(json!([1])));
    assert_eq!(parse_output("null"), Ok(Value::Null));
    for text in [
        "",
        "```",
        "``````",
        "Here it is: {\"total\": 3}",
        "{\"total\": 3} and more",
        "```json\n{\"total\": 3}",
        "```yaml\n{\"total\": 3}\n```",
        "{\"total\": 3}{}",
    ] {
        assert!(parse_output(text).is_err(), "{text:?}");
    }
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let why = parse_output(&deep).expect_err("too deep");
    assert!(why.starts_with("it cannot be used: nested too deeply"), "{why}");
}

#[test]
fn the_output_of_a_stored_answer_is_read_from_its_text_with_or_without_a_fence() {
    for text in
        ["{\"total\": 3}", " {\"total\": 3}\n", "```json\n{\"total\": 3}\n```", "```\n{\"total\": 3}```"]
    {
        assert_eq!(stored_output(text), Some(json!({"total": 3})), "{text}");
    }
    assert_eq!(stored_output("Three."), None);
}
