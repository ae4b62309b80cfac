//! What plugins answer: every action in every phase, failures, and answers that are not allowed in their phase.

use std::sync::{Arc, OnceLock};

use machine::id::PluginName;
use machine::phase::{
    Action, AskKind, HookAnswer, HookAnswers, HookOutcome, Phase, STATE_BYTES_MAX, Scope, SuppliedResult,
    SuspendRequest,
};
use machine::revision::Revision;
use machine::suspension::ResumeMode;
use machine::tool::OnExpiry;
use serde_json::{Value, json};

use crate::play::tape::Tape;
use crate::world::arguments;
use crate::world::live::TOOL_NAMES;

const PLUGINS: [&str; 2] = ["guard", "scribe"];
const ACTION_COUNT: usize = 13;

/// The answers of both plugins, if any subscribes to the phase. `percent` of them contain an action.
pub fn draw(tape: &mut Tape, phase: Phase, revision: &Revision, percent: usize) -> HookAnswers {
    if !revision.phases.has(phase) {
        return HookAnswers::default();
    }
    let answers = PLUGINS
        .into_iter()
        .map(|plugin| HookAnswer {
            plugin: PluginName::from(plugin),
            outcome: draw_outcome(tape, phase, percent),
        })
        .collect();
    let state_bytes_after = if tape.chance(1) { STATE_BYTES_MAX + 1 } else { 100 };
    HookAnswers { answers, state_bytes_after }
}

/// Both plugins hold the call for an approval.
#[must_use]
pub fn insistent() -> HookAnswers {
    let request = SuspendRequest {
        kind: AskKind::Approval,
        question: None,
        schema: None,
        mode: ResumeMode::ReplayToolCall,
        resume_state: None,
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    };
    let hold = |plugin| HookAnswer {
        plugin: PluginName::from(plugin),
        outcome: HookOutcome::Actions(vec![Action::Suspend(request.clone())]),
    };
    HookAnswers { answers: PLUGINS.map(hold).to_vec(), state_bytes_after: 0 }
}

/// Neither plugin answers with an action.
#[must_use]
pub fn silent() -> HookAnswers {
    HookAnswers::default()
}

/// Whether something in the answers is wrong. Judged from the answers only, by the design's table.
#[must_use]
pub fn is_faulty(hooks: &HookAnswers, phase: Phase) -> bool {
    hooks.state_bytes_after > STATE_BYTES_MAX
        || hooks.answers.iter().any(|answer| match &answer.outcome {
            HookOutcome::Failed(_) => true,
            HookOutcome::Actions(actions) => actions.iter().any(|action| !is_legal(phase, action)),
        })
}

/// The table of what each phase may answer.
fn is_legal(phase: Phase, action: &Action) -> bool {
    let allowed: &[&str] = match phase {
        Phase::RunStart => &["set_state", "end"],
        Phase::StepStart | Phase::BeforeInference => {
            &["add_instruction", "hide_tool", "set_param", "replace_message", "skip_inference", "set_state"]
        }
        Phase::AfterInference => &["drop_call", "set_arguments", "end", "set_state"],
        Phase::BeforeToolExecute => &["block", "suspend", "set_result", "set_state"],
        Phase::AfterToolExecute => &["add_note", "set_state"],
        Phase::StepEnd => &["end", "set_state"],
        Phase::RunEnd => &["set_state"],
    };
    allowed.contains(&action.name())
}

/// Whether nothing in the answers leaves a trace in the log.
#[must_use]
pub fn says_nothing(hooks: &HookAnswers) -> bool {
    hooks.answers.iter().all(|answer| match &answer.outcome {
        HookOutcome::Failed(_) => false,
        HookOutcome::Actions(actions) => actions.is_empty(),
    }) && hooks.state_bytes_after <= STATE_BYTES_MAX
}

fn draw_outcome(tape: &mut Tape, phase: Phase, percent: usize) -> HookOutcome {
    if !tape.chance(percent) {
        return HookOutcome::Actions(Vec::new());
    }
    match tape.pick(20) {
        19 => HookOutcome::Failed("panicked".into()),
        18 => {
            let ordinal = tape.pick(ACTION_COUNT);
            HookOutcome::Actions(vec![draw_action(tape, ordinal)])
        }
        other => {
            let legal = legal_ordinals(phase);
            let ordinal = legal[tape.pick(legal.len())];
            let mut actions = vec![draw_action(tape, ordinal)];
            if other == 0 {
                let ordinal = legal[tape.pick(legal.len())];
                actions.push(draw_action(tape, ordinal));
            }
            HookOutcome::Actions(actions)
        }
    }
}

/// The harmless ones are listed several times, so that runs live long enough to be interesting.
const fn legal_ordinals(phase: Phase) -> &'static [usize] {
    match phase {
        Phase::RunStart => &[0, 0, 0, 0, 1],
        Phase::StepStart | Phase::BeforeInference => &[2, 3, 4, 5, 0, 2, 3, 4, 5, 0, 6],
        Phase::AfterInference => &[7, 8, 0, 7, 8, 0, 1],
        Phase::BeforeToolExecute => &[10, 0, 11, 10, 9],
        Phase::AfterToolExecute => &[12, 0],
        Phase::StepEnd => &[0, 0, 0, 1],
        Phase::RunEnd => &[0],
    }
}

fn draw_action(tape: &mut Tape, ordinal: usize) -> Action {
    match ordinal {
        0 => Action::SetState {
            key: "count".into(),
            scope: tape.among([Scope::Run, Scope::Thread]),
            value: some_value(),
        },
        1 => Action::End,
        2 => Action::AddInstruction { text: "be brief".into() },
        3 => Action::HideTool { tool: TOOL_NAMES[tape.pick(TOOL_NAMES.len())].into() },
        4 => Action::SetParam { name: "temperature".into(), value: some_value() },
        5 => Action::ReplaceMessage { message: "msg_1".into(), text: "shorter".into() },
        6 => Action::SkipInference,
        7 => Action::DropCall { index: u16::try_from(tape.pick(3)).unwrap_or(0) },
        8 => Action::SetArguments {
            index: u16::try_from(tape.pick(3)).unwrap_or(0),
            arguments: arguments::draw(tape),
        },
        9 => Action::Block { reason: "not today".into() },
        10 => Action::Suspend(draw_request(tape)),
        11 => Action::SetResult(match tape.pick(4) {
            0 | 1 => SuppliedResult::Success { value: some_value(), warning: None },
            2 => SuppliedResult::Error { message: "from the cache: broken".into() },
            _ => SuppliedResult::Pending(draw_request(tape)),
        }),
        _ => Action::AddNote { text: "noted".into() },
    }
}

/// What a hook or a tool asks when it holds a call: all kinds, all modes, with and without an expiry.
pub fn draw_request(tape: &mut Tape) -> SuspendRequest {
    let kind = tape.among([AskKind::Question, AskKind::Approval, AskKind::ClientTool, AskKind::External]);
    SuspendRequest {
        kind,
        question: tape.chance(50).then(|| "which one?".into()),
        schema: None,
        mode: ResumeMode::ALL[tape.pick(ResumeMode::ALL.len())],
        resume_state: tape.chance(50).then(some_value),
        expires_in_ms: tape.among([None, None, Some(200), Some(3_000)]),
        on_expiry: tape.among([OnExpiry::Deny, OnExpiry::Deny, OnExpiry::EndRun]),
    }
}

pub fn some_value() -> Arc<Value> {
    static VALUE: OnceLock<Arc<Value>> = OnceLock::new();
    VALUE.get_or_init(|| Arc::new(json!({"cursor": 7}))).clone()
}
