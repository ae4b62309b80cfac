//! What is said to a fuzzed run: mostly something that fits its state, often something that does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use machine::call::Call;
use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::event::InterruptCause;
use machine::grant::{Grant, GrantCoverage, HoldReason, ToolGrant};
use machine::id::{
    AgentName, CallId, DecisionId, Digest, GrantId, MessageId, Principal, RunId, SuspensionId, ToolName,
};
use machine::input::{ChildEnd, ChildEnded, GateInput, ModelAnswered, ModelFailure, RequestedCall};
use machine::phase::{HookAnswers, Phase};
use machine::policy::{ApprovalScope, OnReject};
use machine::rules::PatternHit;
use machine::suspension::Held;
use machine::tool::ToolLookup;
use machine::{Effect, Input, Timestamp};

use crate::chance::Chance;
use crate::invariants::Fuzzed;
use crate::parts;
use crate::world::{self, TOOLS};

pub(crate) fn input(chance: &mut Chance, run: &Fuzzed) -> Input {
    let fitting = match chance.below(20) {
        0..=10 => answer_to_wanted(chance, run),
        11..=15 => about_held(chance, run),
        16 => Some(Input::InboxDrained),
        _ => None,
    };
    fitting.unwrap_or_else(|| anything(chance, run))
}

/// The world does what the run wants of it.
fn answer_to_wanted(chance: &mut Chance, run: &Fuzzed) -> Option<Input> {
    let wanted: Vec<Effect> = run.run.wanted().into_iter().collect();
    if wanted.is_empty() {
        return (run.run.control.seq == 1).then_some(Input::Start { after: None });
    }
    Some(match chance.pick(&wanted).clone() {
        Effect::RunPhase(phase) => Input::PhaseAnswered { phase, hooks: parts::hooks(chance, phase) },
        Effect::CallModel { ask_first, .. } if !ask_first.is_empty() && chance.one_in(2) => {
            let phase = *chance.pick(&ask_first);
            Input::PhaseAnswered { phase, hooks: parts::hooks(chance, phase) }
        }
        Effect::CallModel { step, attempt, .. } => model(chance, run, step, attempt),
        Effect::Gate(call) => Input::Gated(gated(chance, run, call)),
        Effect::RunTool { call, attempt, .. } => {
            let step = run.run.control.call(&call).map_or(0, |call| call.step);
            Input::ToolReturned { step, call, attempt, outcome: parts::outcome(chance) }
        }
        Effect::RunAfterToolHooks { .. } => {
            let answers = wanted.iter().filter_map(|effect| match effect {
                Effect::RunAfterToolHooks { call, .. } if !chance.one_in(4) => {
                    Some((call.clone(), parts::hooks(chance, Phase::AfterToolExecute)))
                }
                Effect::RunAfterToolHooks { .. }
                | Effect::RunPhase(_)
                | Effect::CallModel { .. }
                | Effect::Gate(_)
                | Effect::RunTool { .. } => None,
            });
            Input::AfterTools { heard: answers.collect() }
        }
    })
}

/// A person answers a question that is open, or the child run that a call waits for ends.
fn about_held(chance: &mut Chance, run: &Fuzzed) -> Option<Input> {
    let held: Vec<&Call> = run.run.control.calls.iter().filter(|call| call.suspension().is_some()).collect();
    if held.is_empty() {
        return None;
    }
    let call = *chance.pick(&held);
    let open = call.suspension()?;
    if let Held::ChildRun { run, .. } = &open.held {
        return Some(Input::ChildEnded(child_ended(chance, call.id.clone(), run.clone())));
    }
    let definition = open.held.definition();
    let definition_now = if chance.one_in(10) { digest(chance) } else { definition };
    Some(Input::Decide(Decision {
        id: chance.maybe(|_| DecisionId::from("dec_1")),
        call: call.id.clone(),
        suspension: open.id.clone(),
        by: Principal::from("ana"),
        accepted_at: run.now,
        definition_now,
        action: action(chance, Some(call.arguments)),
    }))
}

/// Any input in any state.
fn anything(chance: &mut Chance, run: &Fuzzed) -> Input {
    let (step, attempt) = (number(chance, run.run.control.step), number(chance, 1));
    match chance.below(14) {
        0 => Input::Start { after: chance.maybe(|_| MessageId::from("msg_0")) },
        1 => Input::LeaseAcquired { epoch: chance.below(5), doubt_at: time(chance, run) },
        2 => Input::InboxDrained,
        3 => {
            let phase = *chance.pick(&Phase::ALL);
            let about = *chance.pick(&Phase::ALL);
            Input::PhaseAnswered { phase, hooks: parts::hooks(chance, about) }
        }
        4 | 5 => model(chance, run, step, attempt),
        6 => {
            let call = call_id(chance, run);
            Input::Gated(gated(chance, run, call))
        }
        7 | 8 => {
            let call = call_id(chance, run);
            Input::ToolReturned { step, call, attempt, outcome: parts::outcome(chance) }
        }
        9 => {
            let answer =
                |chance: &mut Chance| (call_id(chance, run), parts::hooks(chance, Phase::AfterToolExecute));
            Input::AfterTools { heard: chance.some(3, answer) }
        }
        10 => Input::Decide(Decision {
            id: chance.maybe(|_| DecisionId::from("dec_1")),
            call: call_id(chance, run),
            suspension: suspension_id(chance, run),
            by: Principal::from("eve"),
            accepted_at: time(chance, run),
            definition_now: digest(chance),
            action: action(chance, None),
        }),
        11 => {
            let call = call_id(chance, run);
            Input::ChildEnded(child_ended(chance, call, RunId::from("run_nobody")))
        }
        12 if chance.one_in(6) => Input::Interrupt { cause: cause(chance) },
        _ => Input::DeadlineReached,
    }
}

fn model(chance: &mut Chance, run: &Fuzzed, step: u32, attempt: u32) -> Input {
    if chance.one_in(12) {
        let retry_after_ms = chance.maybe(|chance| *chance.pick(&[0, 1_000, u64::MAX]));
        let failure =
            ModelFailure { message: parts::text(chance), retryable: !chance.one_in(4), retry_after_ms };
        return Input::ModelFailed { step, attempt, failure };
    }
    let call_count = match chance.below(40) {
        0 => 64,
        1 => 65,
        2 => 300,
        3 | 4 => 30,
        _ => chance.below(5),
    };
    // One impossible name spoils the whole answer, so most answers have none.
    let odd = chance.one_in(8);
    let asked = |_| RequestedCall {
        id: parts::asked_id(chance),
        tool: if odd { parts::tool_name(chance) } else { ToolName::from(*chance.pick(&TOOLS)) },
        arguments: parts::arguments(chance),
    };
    let calls = (0..call_count).map(asked).collect();
    let foreign = chance.some(3, |chance| CallId::from(parts::asked_id(chance)));
    let taken: BTreeSet<CallId> = run.arguments.keys().cloned().chain(foreign).collect();
    Input::ModelAnswered(ModelAnswered {
        step,
        attempt,
        text: parts::text(chance),
        reasoning: chance.maybe(parts::text),
        calls,
        usage: parts::usage(chance),
        origin: chance.maybe(parts::origin).unwrap_or_default(),
        matched: chance.some(1, |chance| u16::try_from(chance.small()).unwrap()),
        output: chance.maybe(parts::fit),
        taken,
        hooks: if chance.one_in(3) {
            parts::hooks(chance, Phase::AfterInference)
        } else {
            HookAnswers::default()
        },
    })
}

fn gated(chance: &mut Chance, run: &Fuzzed, call: CallId) -> GateInput {
    let name = run.run.control.call(&call).map(|call| call.tool.clone());
    let configured = name.and_then(|name| run.tools.get(&name)).cloned();
    let tool = match (chance.below(20), configured) {
        (0, _) => ToolLookup::Unknown,
        (1, _) => ToolLookup::OutOfScope,
        (2, _) | (_, None) => ToolLookup::Known(world::tool(chance)),
        (_, Some(tool)) => ToolLookup::Known(tool),
    };
    let right = run.arguments.get(&call).filter(|_| !chance.one_in(20)).cloned();
    GateInput {
        tool,
        arguments: right.unwrap_or_else(|| parts::arguments(chance)),
        hits: chance
            .some(1, |chance| PatternHit { rule: u16::try_from(chance.small()).unwrap(), condition: 0 }),
        grants: chance.some(1, grant),
        loosening_ended: chance.one_in(10),
        unsent_attempt: None,
        hooks: parts::hooks(chance, Phase::BeforeToolExecute),
        call,
    }
}

fn grant(chance: &mut Chance) -> Grant {
    let covers = if chance.one_in(4) {
        GrantCoverage::Thread
    } else {
        GrantCoverage::Tool(ToolGrant {
            tool: ToolName::from(*chance.pick(&TOOLS)),
            agent: chance.maybe(|_| AgentName::from("assistant")),
            definition: Digest::sha256(&[u8::from(chance.one_in(4))]),
            reasons: vec![HoldReason::Tool, HoldReason::Agent(ApprovalScope::AllTools)],
        })
    };
    Grant { id: GrantId::from("grt_1"), by: Principal::from("ops"), covers }
}

fn action(chance: &mut Chance, seen: Option<Digest>) -> DecisionAction {
    if chance.one_in(4) {
        let then = *chance.pick(&[None, None, Some(OnReject::Continue), Some(OnReject::EndRun)]);
        return DecisionAction::Cancel { reason: chance.maybe(parts::text), then };
    }
    DecisionAction::Resume(Resume {
        payload: match chance.below(5) {
            0 => Payload::Result(Arc::new(parts::value(chance))),
            1 => Payload::Result(Arc::new(true.into())),
            2 if chance.one_in(2) => Payload::Error(parts::text(chance)),
            _ => Payload::Absent,
        },
        has_schema: chance.one_in(3),
        payload_fault: chance.one_in(10).then(|| parts::text(chance)),
        expect_digest: if chance.one_in(8) { digest(chance) } else { seen.filter(|_| chance.one_in(2)) },
        arguments: chance.one_in(6).then(|| parts::arguments(chance)),
        payload_arguments: chance.one_in(6).then(|| parts::arguments(chance)),
        mode: chance.one_in(6).then(|| parts::mode(chance)),
        note: chance.maybe(parts::text),
        apply_to_future: chance.one_in(4),
    })
}

fn child_ended(chance: &mut Chance, call: CallId, run: RunId) -> ChildEnded {
    let end = match chance.below(4) {
        0 => ChildEnd::Interrupted,
        1 => ChildEnd::Failed { message: parts::text(chance) },
        _ => ChildEnd::Completed { answer: Arc::new(parts::value(chance)) },
    };
    ChildEnded { call, run, end, usage: parts::usage(chance), descendants: 0 }
}

fn cause(chance: &mut Chance) -> InterruptCause {
    match chance.below(3) {
        0 => InterruptCause::Person(Principal::from("ana")),
        1 => InterruptCause::Superseded(RunId::from("run_2")),
        _ => InterruptCause::Parent(RunId::from("run_0")),
    }
}

/// One that is open, one that was, or one that never was.
fn call_id(chance: &mut Chance, run: &Fuzzed) -> CallId {
    let open = &run.run.control.calls;
    let past: Vec<&CallId> = run.arguments.keys().collect();
    match chance.below(8) {
        0 => CallId::from(parts::asked_id(chance)),
        1 => CallId::from("missing"),
        2 | 3 if !past.is_empty() => (*chance.pick(&past)).clone(),
        _ if !open.is_empty() => chance.pick(open).id.clone(),
        _ => CallId::from(""),
    }
}

fn suspension_id(chance: &mut Chance, run: &Fuzzed) -> SuspensionId {
    if run.suspensions.is_empty() || chance.one_in(4) {
        return SuspensionId::from("apr_nobody");
    }
    chance.pick(&run.suspensions).clone()
}

fn number(chance: &mut Chance, right: u32) -> u32 {
    match chance.below(6) {
        0 => chance.small(),
        1 => *chance.pick(&[0, u32::MAX, right.wrapping_sub(1), right.wrapping_add(1)]),
        _ => right,
    }
}

fn time(chance: &mut Chance, run: &Fuzzed) -> Timestamp {
    *chance.pick(&[run.now, run.now, Timestamp::ZERO, run.now.plus_ms(1_000), Timestamp(u64::MAX)])
}

fn digest(chance: &mut Chance) -> Option<Digest> {
    chance.maybe(|chance| Digest::sha256(&[u8::from(chance.one_in(2))]))
}
