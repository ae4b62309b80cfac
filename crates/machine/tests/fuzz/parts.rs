//! What inputs are made of: right and wrong ids, odd texts, numbers at their limits, actions of hooks.

use std::sync::Arc;

use machine::event::{Origin, Sealed, Usage};
use machine::id::{Digest, MessageId, PluginName, ToolName};
use machine::input::{Outcome, ToolAnswer};
use machine::json_value::VALUE_DEPTH_MAX;
use machine::output::OutputFit;
use machine::phase::{
    Action, AskKind, HookAnswer, HookAnswers, HookOutcome, Phase, Scope, SuppliedResult, SuspendRequest,
};
use machine::suspension::ResumeMode;
use machine::tool::{Arguments, OnExpiry};
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::world::{PLUGINS, TOOLS};

pub(crate) fn text(chance: &mut Chance) -> String {
    match chance.below(8) {
        0 => String::new(),
        1 => "ä\u{1f980}\0\n\"".into(),
        2 if chance.one_in(4) => "long ".repeat(2_000),
        _ => format!("text {}", chance.small()),
    }
}

pub(crate) fn fit(chance: &mut Chance) -> OutputFit {
    if chance.one_in(2) { OutputFit::Fits } else { OutputFit::Unfit { why: text(chance) } }
}

pub(crate) fn value(chance: &mut Chance) -> Value {
    match chance.below(9) {
        0 if chance.one_in(20) => nested(chance),
        0 => Value::Null,
        1 => Value::Bool(chance.one_in(2)),
        2 => json!(chance.next()),
        3 => json!(chance.next().cast_signed()),
        4 => json!(f64::from_bits(chance.next())),
        5 => Value::String(text(chance)),
        6 => Value::Array(chance.some(2, value)),
        _ => json!({"amount": chance.below(200), "to": "bob", "more": chance.maybe(value)}),
    }
}

/// About as deep as a value may be, and deeper than a parser takes.
fn nested(chance: &mut Chance) -> Value {
    let depth = *chance.pick(&[VALUE_DEPTH_MAX - 1, VALUE_DEPTH_MAX, VALUE_DEPTH_MAX + 1, 130]);
    (1..depth).fold(json!(chance.small()), |inner, _| Value::Array(vec![inner]))
}

pub(crate) fn arguments(chance: &mut Chance) -> Arguments {
    if chance.one_in(12) {
        return Arguments::Invalid { raw: text(chance), why: text(chance) };
    }
    let value = value(chance);
    let digest = Digest::sha256(value.to_string().as_bytes());
    Arguments::Valid { value: Arc::new(value), digest }
}

pub(crate) fn tool_name(chance: &mut Chance) -> ToolName {
    match chance.below(12) {
        0 => ToolName::from(""),
        1 => ToolName::from("t".repeat(300)),
        2 => ToolName::from("t".repeat(128)),
        3 => ToolName::from("nobody_knows"),
        _ => ToolName::from(*chance.pick(&TOOLS)),
    }
}

/// As a model may give it.
pub(crate) fn asked_id(chance: &mut Chance) -> String {
    match chance.below(12) {
        0 => String::new(),
        1 => "i".repeat(5_000),
        2 => "i".repeat(96),
        3 => "call_1~2".into(),
        4 => "ä\u{1f980}\0".into(),
        5 => format!("call_{}_{}", chance.small(), chance.small()),
        _ => format!("call_{}", chance.below(6)),
    }
}

pub(crate) fn usage(chance: &mut Chance) -> Usage {
    let tokens = |chance: &mut Chance| if chance.one_in(50) { u64::MAX } else { chance.below(50) };
    Usage { input_tokens: tokens(chance), output_tokens: tokens(chance) }
}

pub(crate) fn origin(chance: &mut Chance) -> Origin {
    let sealed = |chance: &mut Chance| Sealed { by: text(chance), content: text(chance).into() };
    Origin { model: chance.maybe(text), sealed: chance.maybe(sealed) }
}

pub(crate) fn outcome(chance: &mut Chance) -> Outcome {
    let retry_after_ms = chance.one_in(4).then(|| *chance.pick(&[0, 1_000, u64::MAX]));
    match chance.below(10) {
        0 => Outcome::NotSent { why: text(chance), retry_after_ms },
        1 | 2 => Outcome::Unknown { why: text(chance), retry_after_ms },
        3 => Outcome::Answered(ToolAnswer::Error { message: text(chance) }),
        4 | 5 => Outcome::Answered(ToolAnswer::Pending(suspend_request(chance))),
        _ => Outcome::Answered(ToolAnswer::Success {
            value: Arc::new(value(chance)),
            warning: chance.maybe(text),
        }),
    }
}

pub(crate) fn suspend_request(chance: &mut Chance) -> SuspendRequest {
    SuspendRequest {
        kind: *chance.pick(&[AskKind::Approval, AskKind::ClientTool, AskKind::External, AskKind::Question]),
        question: chance.maybe(text),
        schema: chance.maybe(|chance| Arc::new(value(chance))),
        mode: mode(chance),
        resume_state: chance.maybe(|chance| Arc::new(value(chance))),
        expires_in_ms: chance.one_in(3).then(|| *chance.pick(&[0, 1_000, u64::MAX])),
        on_expiry: *chance.pick(&[OnExpiry::Deny, OnExpiry::EndRun]),
    }
}

pub(crate) fn mode(chance: &mut Chance) -> ResumeMode {
    *chance.pick(&ResumeMode::ALL)
}

/// Mostly what may be answered in the phase, sometimes anything.
pub(crate) fn hooks(chance: &mut Chance, phase: Phase) -> HookAnswers {
    if chance.one_in(2) {
        return HookAnswers::default();
    }
    let anything = chance.one_in(30);
    let mut answers = Vec::new();
    for plugin in PLUGINS {
        if chance.one_in(2) {
            continue;
        }
        let outcome = if chance.one_in(60) {
            HookOutcome::Failed(text(chance))
        } else {
            let mut actions = chance.some(3, action);
            actions.retain(|action| anything || action.belongs_to(phase));
            HookOutcome::Actions(actions)
        };
        answers.push(HookAnswer { plugin: PluginName::from(plugin), outcome });
    }
    let state_bytes_after = if chance.one_in(100) { u32::MAX } else { 100 };
    HookAnswers { answers, state_bytes_after }
}

fn action(chance: &mut Chance) -> Action {
    let index = u16::try_from(chance.small()).unwrap();
    match chance.below(16) {
        // Three that would end nearly every run are rare.
        0 if chance.one_in(4) => Action::End,
        1 if chance.one_in(4) => Action::SkipInference,
        2 if chance.one_in(4) => Action::Block { reason: text(chance) },
        0..=3 => Action::SetState {
            key: text(chance),
            scope: *chance.pick(&[Scope::Run, Scope::Thread]),
            value: Arc::new(value(chance)),
        },
        4 => Action::AddInstruction { text: text(chance) },
        5 => Action::HideTool { tool: tool_name(chance) },
        6 => Action::SetParam { name: text(chance), value: Arc::new(value(chance)) },
        7 => Action::ReplaceMessage { message: MessageId::from("msg_user"), text: text(chance) },
        8 => Action::DropCall { index },
        9 => Action::SetArguments { index, arguments: arguments(chance) },
        10 | 11 => Action::Suspend(suspend_request(chance)),
        12 => Action::SetResult(SuppliedResult::Success {
            value: Arc::new(value(chance)),
            warning: chance.maybe(text),
        }),
        13 => Action::SetResult(SuppliedResult::Error { message: text(chance) }),
        14 => Action::SetResult(SuppliedResult::Pending(suspend_request(chance))),
        _ => Action::AddNote { text: text(chance) },
    }
}
