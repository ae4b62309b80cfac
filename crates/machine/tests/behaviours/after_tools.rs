//! The hooks of AfterToolExecute: which results they see, what they may answer, and what their failures do.

use machine::event::Fact;
use machine::id::CallId;
use machine::phase::{Action, HookAnswers, Phase};
use machine::policy::{Policy, StepEnd};
use machine::revision::Revision;
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::termination::Termination;
use machine::transcript::ModelMessage;
use machine::{Effect, Input, Rejection};
use serde_json::json;

use crate::hooks::{fails, hooked, note, one, says, set_state, together};
use crate::story::{Story, names};

fn after_tools_input(call: &str, hooks: HookAnswers) -> Input {
    Input::AfterTools { heard: vec![(CallId::from(call), hooks)] }
}

fn with_after_tool_hooks(calls: &[(&str, &str)]) -> Story {
    let mut story = Story::begin_with(hooked(&[Phase::AfterToolExecute]));
    story.asks_for(calls);
    story
}

/// What the hooks are to be asked about now.
fn asked_about(story: &Story) -> Vec<(String, CallStatus)> {
    story
        .run
        .wanted()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::RunAfterToolHooks { call, status } => Some((call.to_string(), status)),
            _ => None,
        })
        .collect()
}

fn notes(story: &Story) -> Vec<String> {
    story
        .transcript()
        .into_iter()
        .filter_map(|message| match message {
            ModelMessage::Note { text, .. } => Some(text),
            _ => None,
        })
        .collect()
}

#[test]
fn a94_the_hooks_are_asked_about_every_result_even_of_a_call_that_never_ran() {
    let mut story =
        with_after_tool_hooks(&[("A", "echo"), ("B", "echo"), ("C", "forbidden"), ("D", "transfer")]);
    story.succeeds("A");
    story.fails("B");
    let settled = |id: &str, status| (id.to_owned(), status);
    let before = [
        settled("A", CallStatus::Succeeded),
        settled("B", CallStatus::Failed),
        settled("C", CallStatus::Failed),
    ];
    assert_eq!(asked_about(&story), before);
    // The hooks see a held call once it has a result: a denial is one.
    story.denies("D", None);
    let mut all = before.to_vec();
    all.push(settled("D", CallStatus::Cancelled));
    assert_eq!(asked_about(&story), all);
    // The run does not continue until they have answered.
    assert!(!story.run.wanted().iter().any(|effect| matches!(effect, Effect::CallModel { .. })));
}

#[test]
fn a94_with_the_step_end_before_the_tools_the_hooks_are_asked_about_a_held_call_too() {
    let policy = Policy { step_end: StepEnd::AfterInference, ..Policy::default() };
    let revision = Revision { policy, ..hooked(&[Phase::AfterToolExecute]) };
    let mut story = Story::begin_with(revision);
    story.asks_for(&[("A", "transfer")]);
    assert_eq!(asked_about(&story), [("A".to_owned(), CallStatus::Suspended)]);
    assert_eq!(story.run_status(), &RunStatus::Running);
    assert_eq!(names(&story.ok(after_tools_input("A", HookAnswers::default()))), ["run.waiting"]);
    assert!(asked_about(&story).is_empty());
    // And again when there is a result.
    story.approves("A");
    story.succeeds("A");
    assert_eq!(asked_about(&story), [("A".to_owned(), CallStatus::Succeeded)]);
}

#[test]
fn a94_the_run_waits_only_after_the_hooks_answered() {
    let mut story = with_after_tool_hooks(&[("A", "echo"), ("B", "transfer")]);
    assert_eq!(names(&story.succeeds("A")), ["tool.execution_succeeded"]);
    assert_eq!(story.run_status(), &RunStatus::Running);
    assert_eq!(names(&story.ok(after_tools_input("A", HookAnswers::default()))), ["run.waiting"]);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    // A recorded wait means that the hooks have answered: they are not asked about A again.
    story.approves("B");
    story.succeeds("B");
    assert_eq!(asked_about(&story), [("B".to_owned(), CallStatus::Succeeded)]);
}

#[test]
fn b42_notes_of_all_plugins_follow_the_results_in_registration_order() {
    let mut story = with_after_tool_hooks(&[("A", "echo"), ("B", "echo")]);
    story.succeeds("B");
    story.succeeds("A");
    let on_a = together(&[says("first", &[note("one"), note("two")]), says("second", &[note("three")])]);
    let both = vec![(CallId::from("B"), one("first", note("four"))), (CallId::from("A"), on_a)];
    let events = story.ok(Input::AfterTools { heard: both });
    assert_eq!(names(&events)[..3], ["phase.answered", "phase.answered", "phase.answered"]);
    assert_eq!(notes(&story), ["one\ntwo", "three", "four"]);
    // Both results come before the first note: a result comes directly after its call.
    let shape: Vec<bool> =
        story.transcript().iter().map(|m| matches!(m, ModelMessage::Note { .. })).collect();
    assert_eq!(shape, [false, false, false, false, true, true, true]);
}

#[test]
fn b42_b17_a_plugin_that_fails_is_recorded_and_the_others_count() {
    let mut story = with_after_tool_hooks(&[("A", "echo")]);
    story.succeeds("A");
    let hooks = together(&[
        says("before", &[note("from before")]),
        fails("broken", "panicked"),
        says("after", &[note("from after"), set_state("seen", json!(true))]),
    ]);
    let events = story.ok(after_tools_input("A", hooks));
    let failed: Vec<&str> = events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::PhaseAnswered { plugin, failed: Some(_), .. } => Some(plugin.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(failed, ["broken"]);
    assert_eq!(story.run.control.step, 2);
    assert_eq!(story.tool_text("A"), "ok");
    assert_eq!(notes(&story), ["from before", "from after"]);
    assert!(names(&events).contains(&"state.changed".into()));
}

#[test]
fn b17_an_observer_that_fails_stops_neither_the_step_nor_the_end() {
    let mut story = Story::begin_with(hooked(&[Phase::AfterToolExecute, Phase::StepEnd, Phase::RunEnd]));
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    story.ok(after_tools_input("A", together(&[fails("broken", "late")])));
    let broken = |phase| Input::PhaseAnswered { phase, hooks: together(&[fails("broken", "late")]) };
    assert_eq!(names(&story.ok(broken(Phase::StepEnd))), ["phase.answered", "step.ended", "step.started"]);
    story.says("done");
    story.ok(broken(Phase::StepEnd));
    assert_eq!(names(&story.ok(broken(Phase::RunEnd))), ["phase.answered", "run.ended"]);
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::NaturalEnd));
}

#[test]
fn b42_at_the_steps_end_the_others_count_beside_one_that_fails() {
    let mut story = Story::begin_with(hooked(&[Phase::StepEnd]));
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    let hooks = together(&[fails("broken", "late"), says("budget", &[Action::End])]);
    story.ok(Input::PhaseAnswered { phase: Phase::StepEnd, hooks });
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::BehaviorRequested));
}

#[test]
fn b42_an_action_that_does_not_belong_here_is_a_failure_of_its_plugin() {
    let mut story = with_after_tool_hooks(&[("A", "echo")]);
    story.succeeds("A");
    let events = story.ok(after_tools_input("A", one("confused", Action::SkipInference)));
    assert!(matches!(
        &events[0].fact,
        Fact::PhaseAnswered { plugin, failed: Some(why), actions, .. }
            if plugin.as_str() == "confused"
                && actions.is_empty()
                && why == "confused answered skip_inference in AfterToolExecute, where it has no meaning"
    ));
    assert_eq!(story.run.control.step, 2);
}

#[test]
fn a94_an_answer_is_recorded_once_and_unrequested_answers_are_ignored() {
    let mut story = with_after_tool_hooks(&[("A", "echo"), ("B", "echo")]);
    story.succeeds("A");
    assert_eq!(names(&story.ok(after_tools_input("A", one("p", note("once"))))), ["phase.answered"]);
    // The worker reports all it has again with the rest: what is recorded is not recorded twice.
    assert_eq!(story.ok(after_tools_input("A", one("p", note("twice")))), []);
    // An answer about a call without a result, or about an unknown call, changes nothing.
    assert_eq!(story.ok(after_tools_input("B", one("p", note("early")))), []);
    assert_eq!(story.ok(after_tools_input("missing", one("p", note("who")))), []);
    story.succeeds("B");
    let both = ["A", "B"].map(|id| (CallId::from(id), HookAnswers::default())).to_vec();
    story.ok(Input::AfterTools { heard: both });
    assert_eq!(notes(&story), ["once"]);
    let mut silent = Story::begin();
    silent.asks_for(&[("A", "echo")]);
    let refused = silent.refused(after_tools_input("A", HookAnswers::default()));
    assert_eq!(refused, Rejection::NotAsked(Phase::AfterToolExecute));
}

#[test]
fn a94_the_state_that_a_hook_set_is_announced_with_its_answer() {
    let mut story = with_after_tool_hooks(&[("A", "echo")]);
    story.succeeds("A");
    let events = story.ok(after_tools_input("A", one("counter", set_state("results", json!(1)))));
    assert_eq!(
        names(&events),
        ["phase.answered", "state.changed", "message.added", "step.ended", "step.started"]
    );
}
