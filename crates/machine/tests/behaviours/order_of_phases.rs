//! In which order a run asks its hooks, calls its model and runs its tools, and who may say what when.

use std::collections::VecDeque;
use std::sync::Arc;

use machine::call::Call;
use machine::checkpoint::{self, Checkpoint};
use machine::event::{CallErrorCode, Message};
use machine::id::{CallId, MessageId, PluginName, ToolName};
use machine::inbox::{self, Item};
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Phase, PhaseSet, Scope, SuppliedResult};
use machine::policy::{DecisionTiming, Policy, StepEnd};
use machine::status::{CallStatus, RunStatus};
use machine::suspension::ResumeMode;
use machine::termination::{ErrorCode, Termination};
use machine::{Effect, Event, Fact, Input, Rejection, Revision};
use serde_json::json;

use crate::story::{Story, names, question, resume, success, valid};

/// What one plugin answers.
pub(crate) fn by(plugin: &str, actions: Vec<Action>) -> HookAnswers {
    HookAnswers { answers: vec![answer(plugin, actions)], state_bytes_after: 0 }
}

fn answer(plugin: &str, actions: Vec<Action>) -> HookAnswer {
    HookAnswer { plugin: PluginName::from(plugin), outcome: HookOutcome::Actions(actions) }
}

/// Leaves a trace in the log and does nothing else.
pub(crate) fn mark(phase: Phase) -> Action {
    Action::SetState { key: phase.to_string(), scope: Scope::Run, value: Arc::new(json!(true)) }
}

/// A world that does whatever is wanted, remembers in which order, and whose hooks leave a mark in every phase.
pub(crate) struct Tour {
    pub(crate) story: Story,
    pub(crate) did: Vec<String>,
    /// Tools that the model asks for, one answer after the other; then it says "done".
    asks: VecDeque<Vec<(&'static str, &'static str)>>,
    /// In this phase the hooks answer this as well.
    also: Option<(Phase, Action)>,
}

impl Tour {
    pub(crate) fn all_phases(policy: Policy, asks: &[&[(&'static str, &'static str)]]) -> Self {
        let phases: PhaseSet = Phase::ALL.into_iter().collect();
        Self::of(Revision { policy, phases, ..Revision::default() }, asks)
    }

    pub(crate) fn of(revision: Revision, asks: &[&[(&'static str, &'static str)]]) -> Self {
        let asks = asks.iter().map(|calls| calls.to_vec()).collect();
        Self { story: Story::begin_with(revision), did: Vec::new(), asks, also: None }
    }

    pub(crate) fn answering(mut self, phase: Phase, action: Action) -> Self {
        self.also = Some((phase, action));
        self
    }

    /// Until nothing is wanted.
    pub(crate) fn at_rest(mut self) -> Self {
        while let Some(effect) = self.story.run.wanted().into_iter().next() {
            self.does(effect);
        }
        self
    }

    /// What the hooks of a phase say, if a plugin subscribes to it.
    fn hooks(&mut self, phase: Phase, about: &str) -> HookAnswers {
        if !self.story.run.revision.phases.has(phase) {
            return HookAnswers::default();
        }
        self.did.push(format!("{phase}{about}"));
        let also = self.also.iter().filter(|(when, _)| *when == phase).map(|(_, action)| action.clone());
        by("audit", also.chain([mark(phase)]).collect())
    }

    pub(crate) fn does(&mut self, effect: Effect) {
        match effect {
            Effect::RunPhase(phase) => {
                let hooks = self.hooks(phase, "");
                self.story.ok(Input::PhaseAnswered { phase, hooks });
            }
            Effect::CallModel { ask_first, .. } if !ask_first.is_empty() => {
                let hooks = self.hooks(ask_first[0], "");
                self.story.ok(Input::PhaseAnswered { phase: ask_first[0], hooks });
            }
            Effect::CallModel { .. } => {
                self.did.push("model".into());
                let calls = self.asks.pop_front().unwrap_or_default();
                let calls: Vec<_> = calls.iter().map(|(id, tool)| (*id, *tool, json!({"of": id}))).collect();
                let mut answered = self.story.answer(if calls.is_empty() { "done" } else { "" }, &calls);
                answered.hooks = self.hooks(Phase::AfterInference, "");
                self.story.model_answers(answered);
            }
            Effect::Gate(call) => {
                let mut gated = self.story.gated(call.as_str());
                gated.hooks = self.hooks(Phase::BeforeToolExecute, &format!(" {call}"));
                self.story.ok(Input::Gated(gated));
            }
            Effect::RunTool { call, attempt, .. } => {
                self.did.push(format!("tool {call}"));
                let step = self.story.call(call.as_str()).step;
                self.story.ok(Input::ToolReturned { step, call, attempt, outcome: success(json!("ok")) });
            }
            Effect::RunAfterToolHooks { call, status } => {
                let about = match status {
                    CallStatus::Succeeded => format!(" {call}"),
                    other => format!(" {call} {other}"),
                };
                let hooks = self.hooks(Phase::AfterToolExecute, &about);
                self.story.ok(Input::AfterTools { heard: vec![(call, hooks)] });
            }
        }
    }
}

/// The log as types, with the phase of an answer, the role of a message and without the state that marks leave.
pub(crate) fn labels(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .zip(names(events))
        .filter_map(|(event, name)| match &event.fact {
            Fact::StateChanged { .. } => None,
            Fact::PhaseAnswered { phase, .. } => Some(phase.to_string()),
            Fact::MessageAdded(Message::User { .. }) => Some("user".into()),
            Fact::MessageAdded(Message::Assistant { .. }) => Some("assistant".into()),
            Fact::MessageAdded(Message::Tool { .. }) => Some("tool".into()),
            _ => Some(name),
        })
        .collect()
}

const ONE_ROUND: &[&[(&str, &str)]] = &[&[("A", "echo")]];

fn after_inference() -> Policy {
    Policy { step_end: StepEnd::AfterInference, ..Policy::default() }
}

#[test]
fn a38_run_begins_with_its_start_and_the_users_message_and_ends_with_its_end() {
    let tour = Tour::all_phases(Policy::default(), &[]).at_rest();
    assert_eq!(
        labels(&tour.story.log),
        [
            "run.queued",
            "run.started",
            "user",
            "RunStart",
            "step.started",
            "StepStart",
            "BeforeInference",
            "AfterInference",
            "assistant",
            "StepEnd",
            "step.ended",
            "run.ending",
            "RunEnd",
            "run.ended"
        ]
    );
    // Its commits: the message with the start, what the hooks of RunStart said, the answer, and the end.
    let phases = [Phase::RunStart, Phase::RunEnd].into_iter().collect();
    let mut story = Story::begin_with(Revision { phases, ..Revision::default() });
    assert_eq!(checkpoint::from_events(&story.log), Checkpoint::UserMessage);
    let said = |phase| Input::PhaseAnswered { phase, hooks: by("audit", vec![mark(phase)]) };
    assert_eq!(checkpoint::from_events(&story.ok(said(Phase::RunStart))), Checkpoint::UserMessage);
    assert_eq!(checkpoint::from_events(&story.says("done")), Checkpoint::AssistantTurn);
    assert_eq!(checkpoint::from_events(&story.ok(said(Phase::RunEnd))), Checkpoint::RunFinished);
}

#[test]
fn a39_a40_with_step_end_after_inference_the_tool_round_follows_the_end_of_the_step() {
    let tour = Tour::all_phases(after_inference(), ONE_ROUND).at_rest();
    let iteration = ["StepStart", "BeforeInference", "model", "AfterInference", "StepEnd"];
    let round = ["BeforeToolExecute A", "tool A", "AfterToolExecute A"];
    let expected: Vec<&str> =
        [&["RunStart"], &iteration[..], &round[..], &iteration[..], &["RunEnd"]].concat();
    assert_eq!(tour.did, expected);
    assert_eq!(
        labels(&tour.story.log)[4..17],
        [
            "step.started",
            "StepStart",
            "BeforeInference",
            "AfterInference",
            "assistant",
            "tool.requested",
            "StepEnd",
            "step.ended",
            "BeforeToolExecute",
            "tool.execution_started",
            "tool.execution_succeeded",
            "AfterToolExecute",
            "tool"
        ]
    );
}

#[test]
fn a39_with_step_end_after_inference_no_call_meets_the_gate_before_the_step_has_ended() {
    let phases = [Phase::StepEnd].into_iter().collect();
    let mut story = Story::begin_with(Revision { policy: after_inference(), phases, ..Revision::default() });
    let asked = story.answer("", &[("A", "echo", json!({}))]);
    story.model_answers(asked);
    assert_eq!(story.run.wanted(), [Effect::RunPhase(Phase::StepEnd)].into());
    let too_early = Rejection::NotAtGate { call: CallId::from("A"), status: CallStatus::New };
    assert_eq!(story.refused(Input::Gated(story.gated("A"))), too_early);
    story.ok(Input::PhaseAnswered { phase: Phase::StepEnd, hooks: HookAnswers::default() });
    assert_eq!(story.run.wanted(), [Effect::Gate(CallId::from("A"))].into());
}

#[test]
fn a39_a40_by_default_the_step_ends_after_its_tool_round() {
    let tour = Tour::all_phases(Policy::default(), ONE_ROUND).at_rest();
    let inference = ["StepStart", "BeforeInference", "model", "AfterInference"];
    let round = ["BeforeToolExecute A", "tool A", "AfterToolExecute A"];
    let expected: Vec<&str> =
        [&["RunStart"], &inference[..], &round[..], &["StepEnd"], &inference[..], &["StepEnd", "RunEnd"]]
            .concat();
    assert_eq!(tour.did, expected);
    assert_eq!(
        labels(&tour.story.log)[8..18],
        [
            "assistant",
            "tool.requested",
            "BeforeToolExecute",
            "tool.execution_started",
            "tool.execution_succeeded",
            "AfterToolExecute",
            "tool",
            "StepEnd",
            "step.ended",
            "step.started"
        ]
    );
}

/// The run processes what its inbox lets through now.
fn process_inbox(story: &mut Story, rows: &mut Vec<Item>) {
    for index in inbox::drain(&story.run.control, &*rows, false) {
        let input = inbox::to_input(&story.run.control, &rows[index]).unwrap();
        story.ok(input);
        rows.remove(index);
    }
    story.pass_gates();
}

/// A is approved while B runs; both succeed; the model says "done".
fn approved_in_the_round(decisions: DecisionTiming) -> (Story, [CallStatus; 2]) {
    let mut story = Story::with_policy(Policy { decisions, ..Policy::default() });
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    let mut rows = vec![Item::Decision(story.decision("A", resume()))];
    process_inbox(&mut story, &mut rows);
    let while_b_runs = ["A", "B"].map(|id| story.status(id));
    story.succeeds("B");
    process_inbox(&mut story, &mut rows);
    assert_eq!(rows, []);
    story.succeeds("A");
    story.says("done");
    (story, while_b_runs)
}

#[test]
fn a39_a41_decisions_are_processed_before_the_next_step_and_streaming_only_processes_them_earlier() {
    let (at_once, while_b_runs) = approved_in_the_round(DecisionTiming::Immediate);
    assert_eq!(while_b_runs, [CallStatus::Running, CallStatus::Running]);
    let (blocking, while_b_runs) = approved_in_the_round(DecisionTiming::AtBoundary);
    assert_eq!(while_b_runs, [CallStatus::Suspended, CallStatus::Running]);
    let from_the_gate = |story: &Story| labels(&story.log)[6..].to_vec();
    let ending = [
        "tool.execution_succeeded",
        "tool",
        "tool",
        "step.ended",
        "step.started",
        "assistant",
        "step.ended",
        "run.ended",
    ];
    let processed_at_once = [
        "tool.requested",
        "tool.approval_requested",
        "tool.execution_started",
        "tool.approved",
        "tool.execution_started",
        "tool.execution_succeeded",
    ];
    assert_eq!(from_the_gate(&at_once), [&processed_at_once[..], &ending].concat());
    let processed_after_the_round = [
        "tool.requested",
        "tool.approval_requested",
        "tool.execution_started",
        "tool.execution_succeeded",
        "run.waiting",
        "tool.approved",
        "run.resumed",
        "tool.execution_started",
    ];
    assert_eq!(from_the_gate(&blocking), [&processed_after_the_round[..], &ending].concat());
    assert_eq!(at_once.transcript(), blocking.transcript());
}

#[test]
fn a41_phases_come_in_the_same_order_whenever_decisions_are_processed() {
    for step_end in [StepEnd::AfterTools, StepEnd::AfterInference] {
        let [streaming, blocking] =
            [DecisionTiming::Immediate, DecisionTiming::AtBoundary].map(|decisions| {
                let policy = Policy { decisions, step_end, ..Policy::default() };
                Tour::all_phases(policy, &[&[("A", "echo"), ("B", "echo")], &[("C", "echo")]]).at_rest()
            });
        assert_eq!(streaming.did, blocking.did);
        assert_eq!(labels(&streaming.story.log), labels(&blocking.story.log));
    }
}

#[test]
fn a42_a43_skipping_inference_goes_straight_to_the_end_of_the_run() {
    for (phase, asked) in [
        (Phase::StepStart, &["RunStart", "StepStart", "RunEnd"][..]),
        (Phase::BeforeInference, &["RunStart", "StepStart", "BeforeInference", "RunEnd"][..]),
    ] {
        for policy in [after_inference(), Policy::default()] {
            let tour = Tour::all_phases(policy, ONE_ROUND).answering(phase, Action::SkipInference).at_rest();
            assert_eq!(tour.did, asked);
            assert_eq!(tour.story.run_status(), &RunStatus::Done(Termination::BehaviorRequested));
            let labels = labels(&tour.story.log);
            assert_eq!(labels[labels.len() - 4..], ["step.ended", "run.ending", "RunEnd", "run.ended"]);
            assert!(!labels.contains(&"assistant".to_owned()));
        }
    }
}

fn every_action() -> Vec<(Action, &'static [Phase])> {
    use Phase::{
        AfterInference, AfterToolExecute, BeforeInference, BeforeToolExecute, RunStart, StepEnd, StepStart,
    };
    let text = || "t".to_owned();
    let prepares: &[Phase] = &[StepStart, BeforeInference];
    let supplied = SuppliedResult::Error { message: text() };
    vec![
        (mark(RunStart), &Phase::ALL),
        (Action::End, &[RunStart, AfterInference, StepEnd]),
        (Action::AddInstruction { text: text() }, prepares),
        (Action::HideTool { tool: ToolName::from("echo") }, prepares),
        (Action::SetParam { name: text(), value: Arc::new(json!(1)) }, prepares),
        (Action::ReplaceMessage { message: MessageId::from("msg_user"), text: text() }, prepares),
        (Action::SkipInference, prepares),
        (Action::DropCall { index: 0 }, &[AfterInference]),
        (Action::SetArguments { index: 0, arguments: valid(json!({})) }, &[AfterInference]),
        (Action::Block { reason: text() }, &[BeforeToolExecute]),
        (Action::Suspend(question(ResumeMode::ReplayToolCall)), &[BeforeToolExecute]),
        (Action::SetResult(supplied), &[BeforeToolExecute]),
        (Action::AddNote { text: text() }, &[AfterToolExecute]),
    ]
}

#[test]
fn a54_each_action_has_its_phases_and_is_a_fault_in_every_other() {
    for (action, phases) in every_action() {
        for phase in Phase::ALL {
            let name = action.name();
            let fault = format!("audit answered {name} in {phase}, where it has no meaning");
            let expected = (!phases.contains(&phase)).then_some(fault);
            assert_eq!(by("audit", vec![action.clone()]).fault(phase), expected);
        }
    }
}

#[test]
fn a54_action_outside_its_phase_takes_nothing_of_its_answer_into_the_state() {
    let block = || Action::Block { reason: "no".into() };
    for phase in [Phase::RunStart, Phase::StepStart, Phase::BeforeInference, Phase::AfterInference] {
        let tour = Tour::all_phases(Policy::default(), ONE_ROUND).answering(phase, block()).at_rest();
        let fault = format!("audit answered block in {phase}, where it has no meaning");
        let how = Termination::error(ErrorCode::Hook, &fault);
        assert_eq!(tour.story.run_status(), &RunStatus::Done(how));
        let kept = |fact: &Fact| matches!(fact, Fact::StateChanged { key, .. } if *key == phase.to_string());
        assert!(!tour.story.log.iter().any(|event| kept(&event.fact)));
        assert!(!tour.did.iter().any(|did| did.starts_with("tool")), "{:?}", tour.did);
    }
    let tour = Tour::all_phases(Policy::default(), ONE_ROUND)
        .answering(Phase::BeforeToolExecute, Action::End)
        .at_rest();
    assert!(!tour.did.contains(&"tool A".to_owned()));
    let failed = tour.story.log.iter().find_map(|event| match &event.fact {
        Fact::ExecutionFailed { error, .. } => Some(error.code),
        _ => None,
    });
    assert_eq!(failed, Some(CallErrorCode::GateFailed));
    assert_eq!(tour.story.run_status(), &RunStatus::Done(Termination::NaturalEnd));
}

#[test]
fn a54_plugins_are_asked_in_the_order_of_their_registration() {
    let mut story = Story::begin_with(Revision {
        phases: [Phase::BeforeToolExecute].into_iter().collect(),
        ..Revision::default()
    });
    let says = |plugin: &str| answer(plugin, vec![Action::Block { reason: format!("{plugin} says no") }]);
    let hooks = HookAnswers { answers: vec![says("zeta"), says("alpha")], state_bytes_after: 0 };
    story.gate_hooks.insert("A".into(), hooks);
    let events = story.asks_for(&[("A", "echo"), ("B", "echo")]);
    let answered: Vec<&str> = events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::PhaseAnswered { plugin, .. } => Some(plugin.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(answered, ["zeta", "alpha"]);
    assert_eq!(story.tool_text("A"), "Error: blocked by zeta: zeta says no");
    assert!(story.run.control.calls.iter().any(Call::settled));
}
