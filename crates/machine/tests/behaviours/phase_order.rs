//! The eight phases: when each is asked, what its answers change, and what a step leaves behind.

use std::collections::BTreeSet;

use machine::event::{Origin, Sealed};
use machine::input::ModelAnswered;
use machine::phase::{Action, HookAnswers, Phase, PhaseSet, SuppliedResult};
use machine::policy::{OnBlock, Policy};
use machine::revision::{Revision, StopCondition};
use machine::status::{CallStatus, RunStatus};
use machine::termination::{ErrorCode, Termination};
use machine::transcript::ModelMessage;
use machine::{Effect, Event, Input};
use serde_json::json;

use crate::props::{hook, hook_failed, lines, payload, payloads, set_state, subscribing, termination};
use crate::story::{Story, names, valid};

/// What every plugin is asked for, in the order in which it is wanted, while a run goes its way by itself: the
/// model asks for `first` in step 1 and answers in words in step 2. Every hook sets one key.
fn run_to_end(revision: Revision, first: &[(&str, &str)]) -> (Story, Vec<String>) {
    let mut story = Story::begin_with(revision);
    let mut asked = Vec::new();
    for _ in 0..100 {
        let Some(effect) = story.run.wanted().into_iter().next() else { break };
        let events = follow(&mut story, &effect, first);
        asked.extend(
            payloads(&events, "phase.answered").iter().map(|p| p["phase"].as_str().unwrap().to_owned()),
        );
    }
    (story, asked)
}

fn follow(story: &mut Story, effect: &Effect, first: &[(&str, &str)]) -> Vec<Event> {
    match effect {
        Effect::RunPhase(phase) => {
            story.ok(Input::PhaseAnswered { phase: *phase, hooks: hook(set_state("k")) })
        }
        Effect::CallModel { ask_first, .. } if !ask_first.is_empty() => {
            let phase = *ask_first.first().unwrap();
            story.ok(Input::PhaseAnswered { phase, hooks: hook(set_state("k")) })
        }
        Effect::CallModel { step, .. } => {
            let calls: Vec<_> = first.iter().map(|(id, tool)| (*id, *tool, json!({}))).collect();
            let mut answered = if *step == 1 { story.answer("", &calls) } else { story.answer("done", &[]) };
            if story.run.revision.phases.has(Phase::AfterInference) {
                answered.hooks = hook(set_state("k"));
            }
            story.model_answers(answered)
        }
        Effect::Gate(call) => {
            story.gate_hooks.insert(call.to_string(), hook(set_state("k")));
            story.pass_gate(call.as_str())
        }
        Effect::RunTool { call, .. } => {
            let outcome = crate::story::success(json!("ok"));
            let (step, attempt) = (story.call(call.as_str()).step, story.call(call.as_str()).attempts);
            story.ok(Input::ToolReturned { step, call: call.clone(), attempt, outcome })
        }
        Effect::RunAfterToolHooks { call, .. } => {
            story.ok(Input::AfterTools { heard: vec![(call.clone(), hook(set_state("k")))] })
        }
    }
}

#[test]
fn c10_c11_c12_c15_eight_phases_in_order_the_gate_once_per_call() {
    let (story, asked) = run_to_end(subscribing(&Phase::ALL), &[("A", "echo")]);
    assert_eq!(
        asked,
        [
            "run_start",
            "step_start",
            "before_inference",
            "after_inference",
            "before_tool_execute",
            "after_tool_execute",
            "step_end",
            "step_start",
            "before_inference",
            "after_inference",
            "step_end",
            "run_end"
        ]
    );
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::NaturalEnd));

    let gate_only = subscribing(&[Phase::BeforeToolExecute, Phase::AfterToolExecute]);
    let (_, asked) = run_to_end(gate_only, &[("A", "echo"), ("B", "echo")]);
    assert_eq!(
        asked,
        ["before_tool_execute", "before_tool_execute", "after_tool_execute", "after_tool_execute"]
    );
}

#[test]
fn c10_the_phases_come_in_the_order_of_their_declaration() {
    let texts = Phase::ALL.map(|phase| phase.to_string());
    assert_eq!(
        texts,
        [
            "RunStart",
            "StepStart",
            "BeforeInference",
            "AfterInference",
            "BeforeToolExecute",
            "AfterToolExecute",
            "StepEnd",
            "RunEnd"
        ]
    );
}

/// How often RunEnd is asked until the run is over, and how the run ended.
fn run_ends(mut story: Story) -> (usize, Termination) {
    let mut times = 0;
    while story.run.wanted().contains(&Effect::RunPhase(Phase::RunEnd)) {
        times += 1;
        let events = story.ok(Input::PhaseAnswered { phase: Phase::RunEnd, hooks: HookAnswers::default() });
        assert_eq!(names(&events), ["run.ended"], "the terminal event comes after the hooks");
    }
    (times, termination(&story))
}

#[test]
fn c11_run_end_comes_once_whatever_the_reason_and_never_at_waiting() {
    let revision = subscribing(&[Phase::RunEnd]);
    let mut natural = Story::begin_with(revision.clone());
    natural.says("bye");
    assert_eq!(run_ends(natural), (1, Termination::NaturalEnd));

    let mut held = Story::begin_with(revision.clone());
    held.asks_for(&[("A", "transfer")]);
    assert!(held.run.wanted().is_empty(), "a run that waits asks no hook");
    held.denies("A", Some(machine::policy::OnReject::EndRun));
    let (times, how) = run_ends(held);
    assert_eq!((times, how.done_reason().as_str()), (1, "stopped:rejected"));

    let mut failed = Story::begin_with(revision.clone());
    let failure =
        machine::input::ModelFailure { message: "x".into(), retryable: false, retry_after_ms: None };
    failed.ok(Input::ModelFailed { step: 1, attempt: 1, failure });
    assert_eq!(run_ends(failed), (1, Termination::error(ErrorCode::Model, "x")));

    let stop = vec![StopCondition::MaxRounds { rounds: 1 }];
    let mut stopped = Story::begin_with(Revision { stop, ..revision.clone() });
    stopped.asks_for(&[("A", "echo")]);
    stopped.succeeds("A");
    assert_eq!(run_ends(stopped).0, 1);

    let policy = Policy { on_block: OnBlock::EndRun, ..Policy::default() };
    let mut blocked = Story::begin_with(Revision { policy, ..revision });
    blocked.asks_for(&[("A", "forbidden")]);
    assert_eq!(run_ends(blocked), (1, Termination::Blocked("blocked by policy".into())));
}

#[test]
fn c11_an_interrupt_does_not_wait_for_run_end() {
    let mut story = Story::begin_with(subscribing(&[Phase::RunEnd]));
    let cause = machine::event::InterruptCause::Person("ana".into());
    let events = story.ok(Input::Interrupt { cause });
    assert_eq!(names(&events), ["run.interrupting", "message.added", "step.ended", "run.ended"]);
}

#[test]
fn c12_the_step_counts_up_where_it_starts() {
    let mut story = Story::begin();
    assert_eq!(story.run.control.step, 1);
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    assert_eq!(story.run.control.step, 2);
    assert_eq!(
        payloads(&story.log, "step.started"),
        [json!({"step": 1, "message_id": "msg_run_1_1"}), json!({"step": 2, "message_id": "msg_run_1_2"})]
    );
}

#[test]
fn c13_before_inference_shapes_the_request_and_may_skip_it() {
    let mut story = Story::begin_with(subscribing(&[Phase::BeforeInference]));
    let actions = vec![
        Action::AddInstruction { text: "be brief".into() },
        Action::HideTool { tool: "transfer".into() },
        Action::SetParam { name: "temperature".into(), value: json!(0).into() },
    ];
    let hooks = crate::props::hooks(&[("shaper", actions)]);
    let events = story.ok(Input::PhaseAnswered { phase: Phase::BeforeInference, hooks });
    let seq = events.first().unwrap().seq;
    let wanted = Effect::CallModel {
        step: 1,
        attempt: 1,
        not_before: story.now,
        ask_first: Vec::new(),
        adjusted_by: vec![seq],
        message_count: 1,
    };
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [wanted]);

    let mut skipped = Story::begin_with(subscribing(&[Phase::BeforeInference]));
    let hooks = hook(Action::SkipInference);
    let events = skipped.ok(Input::PhaseAnswered { phase: Phase::BeforeInference, hooks });
    assert_eq!(names(&events), ["phase.answered", "step.ended", "run.ended"]);
    assert_eq!(termination(&skipped), Termination::BehaviorRequested);
}

#[test]
fn c14_after_inference_drops_calls_sets_arguments_and_may_end() {
    let mut story = Story::begin_with(subscribing(&[Phase::AfterInference]));
    let calls =
        [("A", "echo", json!({"n": 1})), ("B", "echo", json!({"n": 2})), ("C", "echo", json!({"n": 3}))];
    let mut answered = story.answer("", &calls);
    let set = Action::SetArguments { index: 2, arguments: valid(json!({"n": 30})) };
    answered.hooks = crate::props::hooks(&[("editor", vec![Action::DropCall { index: 1 }, set])]);
    let events = story.model_answers(answered);
    assert_eq!(names(&events), ["phase.answered", "message.added", "tool.requested", "tool.requested"]);
    let requested: Vec<_> = payloads(&events, "tool.requested")
        .iter()
        .map(|call| (call["call_id"].clone(), call["arguments"]["valid"]["value"].clone()))
        .collect();
    assert_eq!(requested, [(json!("A"), json!({"n": 1})), (json!("C"), json!({"n": 30}))]);
    let own = payload(&events, "message.added")["calls"][1]["own_arguments"]["valid"]["value"].clone();
    assert_eq!(own, json!({"n": 3}), "the assistant message keeps the model's own");

    let mut ended = Story::begin_with(subscribing(&[Phase::AfterInference]));
    let mut answered = ended.answer("", &[("A", "echo", json!({}))]);
    answered.hooks = hook(Action::End);
    ended.model_answers(answered);
    assert_eq!(termination(&ended), Termination::BehaviorRequested);
    assert_eq!(lines(&ended), ["user: hello", "assistant: [A]", "A: Cancelled: run_ended"]);
}

#[test]
fn what_a_provider_sealed_goes_back_to_it_with_the_whole_answer_or_not_at_all() {
    let sealed = Sealed { by: "provider".into(), content: "c2VhbGVk".into() };
    let origin = Origin { model: Some("backup".into()), sealed: Some(sealed.clone()) };
    let given_back = |story: &Story| {
        let messages = story.transcript();
        messages.iter().find_map(|message| match message {
            ModelMessage::Assistant { sealed, .. } => Some(sealed.clone()),
            ModelMessage::User { .. }
            | ModelMessage::Tool { .. }
            | ModelMessage::Note { .. }
            | ModelMessage::Notice { .. } => None,
        })
    };
    let calls = [("A", "echo", json!({"n": 1})), ("B", "echo", json!({"n": 2}))];
    let mut whole = Story::begin();
    let answered = ModelAnswered { origin: origin.clone(), ..whole.answer("", &calls) };
    let events = whole.model_answers(answered);
    assert_eq!(payload(&events, "message.added")["origin"]["model"], "backup");
    assert_eq!(given_back(&whole), Some(Some(sealed)));

    let mut part = Story::begin_with(subscribing(&[Phase::AfterInference]));
    let answered = ModelAnswered { origin, ..part.answer("", &calls) };
    let events = part.model_answers(ModelAnswered { hooks: hook(Action::DropCall { index: 1 }), ..answered });
    assert_eq!(payload(&events, "message.added")["origin"], json!({"model": "backup"}));
    assert_eq!(given_back(&part), Some(None));
}

#[test]
fn c15_before_tool_execute_blocks_suspends_supplies_or_lets_through() {
    let mut story = Story::begin();
    let request = crate::story::question(machine::suspension::ResumeMode::UseDecisionAsToolResult);
    let supplied = SuppliedResult::Success { value: json!("cached").into(), warning: None };
    story.gate_hooks.insert("A".into(), hook(Action::Block { reason: "no".into() }));
    story.gate_hooks.insert("B".into(), hook(Action::Suspend(request)));
    story.gate_hooks.insert("C".into(), hook(Action::SetResult(supplied)));
    story.asks_for(&[("A", "echo"), ("B", "echo"), ("C", "echo"), ("D", "echo")]);
    let statuses = ["A", "B", "C", "D"].map(|id| story.status(id));
    assert_eq!(
        statuses,
        [CallStatus::Failed, CallStatus::Suspended, CallStatus::Succeeded, CallStatus::Running]
    );
    assert_eq!(payload(&story.log, "tool.execution_started")["call_id"], "D");
}

#[test]
fn c15_a_gate_that_fails_lets_nothing_through() {
    let mut story = Story::begin();
    story.gate_hooks.insert("A".into(), hook_failed("guard"));
    let events = story.asks_for(&[("A", "echo")]);
    let failed = payload(&events, "tool.execution_failed");
    assert_eq!(failed["error"]["code"], "GATE_FAILED");
    assert!(!names(&events).contains(&"tool.execution_started".to_owned()));
}

#[test]
fn c16_after_tool_execute_sees_each_result_and_may_note_it() {
    let mut story = Story::begin_with(subscribing(&[Phase::AfterToolExecute]));
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    let hooks_wanted = Effect::RunAfterToolHooks { call: "A".into(), status: CallStatus::Succeeded };
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [hooks_wanted]);
    let answers = vec![("A".into(), hook(Action::AddNote { text: "checked".into() }))];
    let events = story.ok(Input::AfterTools { heard: answers });
    assert_eq!(
        names(&events),
        ["phase.answered", "message.added", "message.added", "step.ended", "step.started"]
    );
    assert_eq!(lines(&story), ["user: hello", "assistant: [A]", "A: ok", "note A: checked"]);
}

#[test]
fn c17_c21_step_end_closes_every_round_with_and_without_tools() {
    let mut story = Story::begin_with(subscribing(&[Phase::StepEnd]));
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    let asked = Effect::RunPhase(Phase::StepEnd);
    assert_eq!(story.run.wanted(), BTreeSet::from([asked.clone()]));
    let answer = |story: &mut Story| {
        names(&story.ok(Input::PhaseAnswered { phase: Phase::StepEnd, hooks: HookAnswers::default() }))
    };
    assert_eq!(answer(&mut story), ["step.ended", "step.started"]);
    story.says("bye");
    assert_eq!(story.run.wanted().into_iter().collect::<Vec<_>>(), [asked]);
    assert_eq!(answer(&mut story), ["step.ended", "run.ended"]);
}

#[test]
fn c17_stop_conditions_are_judged_after_the_hooks_of_step_end() {
    let stop = vec![StopCondition::MaxRounds { rounds: 1 }];
    let mut story = Story::begin_with(Revision { stop, ..subscribing(&[Phase::StepEnd]) });
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    assert!(story.run.control.ended().is_none());
    story.ok(Input::PhaseAnswered { phase: Phase::StepEnd, hooks: HookAnswers::default() });
    assert_eq!(termination(&story).done_reason(), "stopped:max_rounds");
}

#[test]
fn c21_step_start_runs_even_when_inference_is_skipped() {
    let mut story = Story::begin_with(subscribing(&[Phase::StepStart, Phase::BeforeInference]));
    let asked = |story: &Story| {
        story.run.wanted().into_iter().find_map(|effect| match effect {
            Effect::CallModel { ask_first, .. } => Some(ask_first),
            _ => None,
        })
    };
    assert_eq!(asked(&story), Some(vec![Phase::StepStart, Phase::BeforeInference]));
    story.ok(Input::PhaseAnswered { phase: Phase::StepStart, hooks: hook(set_state("k")) });
    assert_eq!(
        asked(&story),
        Some(vec![Phase::BeforeInference]),
        "an answer that is stored is not asked again"
    );
    story.ok(Input::PhaseAnswered { phase: Phase::BeforeInference, hooks: hook(Action::SkipInference) });
    assert_eq!(termination(&story), Termination::BehaviorRequested);
}

#[test]
fn c18_a_step_that_is_cut_short_is_closed_without_asking_the_hooks_of_step_end() {
    let mut story = Story::begin_with(subscribing(&[Phase::AfterInference, Phase::StepEnd]));
    let mut answered = story.answer("enough", &[]);
    answered.hooks = hook(Action::End);
    let events = story.model_answers(answered);
    assert_eq!(names(&events), ["phase.answered", "message.added", "step.ended", "run.ended"]);
}

#[test]
fn a_model_call_stays_the_same_task_when_its_hooks_are_recorded_and_a_further_attempt_is_another() {
    let call = |attempt, ask_first, adjusted_by| Effect::CallModel {
        step: 1,
        attempt,
        not_before: machine::Timestamp(0),
        ask_first,
        adjusted_by,
        message_count: 1,
    };
    let asked = call(1, vec![Phase::BeforeInference], Vec::new());
    assert!(asked.same_task(&call(1, Vec::new(), vec![5])));
    assert!(!asked.same_task(&call(2, vec![Phase::BeforeInference], Vec::new())));
    let gate = |id: &str| Effect::Gate(id.into());
    assert!(
        gate("A").same_task(&gate("A")) && !gate("A").same_task(&gate("B")) && !gate("A").same_task(&asked)
    );
}

#[test]
fn a_phase_that_two_plugins_subscribe_to_is_asked() {
    let subscribed: PhaseSet = [Phase::StepEnd, Phase::StepEnd].into_iter().collect();
    assert!(subscribed.has(Phase::StepEnd) && !subscribed.has(Phase::RunEnd));
}
