//! The setup of a world: agents with their policies, rules and stop conditions, and how much trouble there is.

use std::sync::Arc;

use machine::id::{AgentName, Digest};
use machine::phase::{Phase, PhaseSet};
use machine::policy::{
    ApprovalScope, Continuation, DESCENDANTS_DEFAULT, DecisionTiming, Execution, OnBlock, OnBusy, OnReject,
    Policy, PolicyRequest, RESULT_CHARS_DEFAULT, StepEnd, WhileWaiting,
};
use machine::revision::{Limits, Revision, StopCondition};
use machine::rules::{ArgumentTest, Condition, Rule, RuleAction};
use serde_json::json;

use crate::play::tape::Tape;
use crate::world::live::{LiveTools, TOOL_NAMES};

/// The agent that answers people, and the one that it delegates to.
pub const DESK: usize = 0;
pub const CLERK: usize = 1;
pub const CLERK_NAME: &str = "clerk";
/// The text that the stop condition on content looks for.
pub const FINAL_WORD: &str = "FINAL";

#[derive(Clone, Debug)]
pub struct Agent {
    pub name: AgentName,
    pub revision: Arc<Revision>,
    pub digest: Digest,
}

#[derive(Clone, Debug)]
pub struct WorldSetup {
    pub agents: Vec<Agent>,
    pub live: LiveTools,
    pub temper: WorldTrouble,
}

/// How often each kind of trouble comes, as relative weights. Many worlds leave some kinds out, which lets the others
/// go deeper.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorldTrouble {
    pub rounds: usize,
    pub people: usize,
    pub clock: usize,
    pub messages: usize,
    pub interrupts: usize,
    pub crashes: usize,
    pub late_answers: usize,
    pub configuration: usize,
    pub tampering: usize,
    /// Percentage of appends before or after which the worker is lost.
    pub append_loss: usize,
    /// Percentage of passes in which the machine gets a wrong input.
    pub noise: usize,
    /// Percentage of passes during which something is submitted between loading and appending.
    pub overlap: usize,
    /// Percentage of tool outcomes that are not a plain success.
    pub tool_trouble: usize,
    pub model_trouble: usize,
    /// Percentage of hooks that answer with something.
    pub hooks: usize,
    /// Whether every plugin holds every call for an approval.
    pub stubborn: bool,
}

impl WorldSetup {
    pub fn draw(tape: &mut Tape) -> Self {
        let mut temper = WorldTrouble::draw(tape);
        let live = LiveTools::draw(tape);
        let hooked = tape.chance(45);
        let stubborn = tape.chance(4);
        temper.stubborn = stubborn;
        let agents = [("desk", DESK), (CLERK_NAME, CLERK)]
            .into_iter()
            .map(|(name, ordinal)| Agent {
                name: AgentName::from(name),
                revision: Arc::new(if stubborn {
                    stubborn_revision(tape)
                } else {
                    draw_revision(tape, hooked)
                }),
                digest: Digest([u8::try_from(ordinal).unwrap_or(0); 32]),
            })
            .collect();
        Self { agents, live, temper }
    }
}

impl WorldTrouble {
    fn draw(tape: &mut Tape) -> Self {
        let sometimes = |tape: &mut Tape, weight: usize| if tape.chance(60) { weight } else { 0 };
        Self {
            rounds: 15 + tape.pick(150),
            people: 10 + tape.pick(20),
            clock: 4 + tape.pick(10),
            messages: sometimes(tape, 5),
            interrupts: sometimes(tape, 2),
            crashes: sometimes(tape, 6),
            late_answers: sometimes(tape, 6),
            configuration: sometimes(tape, 4),
            tampering: sometimes(tape, 2),
            append_loss: sometimes(tape, 6),
            noise: sometimes(tape, 25),
            overlap: sometimes(tape, 12),
            tool_trouble: tape.among([10, 35, 60]),
            model_trouble: tape.among([5, 12, 30]),
            hooks: tape.among([10, 25, 50]),
            stubborn: false,
        }
    }
}

fn draw_revision(tape: &mut Tape, hooked: bool) -> Revision {
    let policy = draw_policy(tape);
    let rules = (0..tape.pick(4)).map(|_| draw_rule(tape)).collect();
    let stop = (0..tape.pick(4)).map(|_| draw_stop(tape)).collect();
    let phases: PhaseSet = Phase::ALL.into_iter().filter(|_| hooked && tape.chance(45)).collect();
    let limits = Limits {
        model_try_count_max: tape.among([3, 2, 1]),
        tool_try_count_max: tape.among([3, 2, 1]),
        backoff_ms: tape.among([500, 0, 40]),
        model_backoff_ms_max: tape.among([30_000, 100]),
        tool_backoff_ms_max: tape.among([5_000, 60]),
        depth_max: tape.among([2, 1, 3, 0]),
        children_max: tape.among([3, 1, 2]),
    };
    Revision { policy, rules, stop, phases, limits }
}

/// An agent whose gate asks for approval of every call, and again for edited arguments.
fn stubborn_revision(tape: &mut Tape) -> Revision {
    let mut revision = draw_revision(tape, false);
    revision.phases = [Phase::BeforeToolExecute].into_iter().collect();
    revision.rules = TOOL_NAMES
        .into_iter()
        .flat_map(|tool| [ArgumentTest::Lt(3.0), ArgumentTest::Gte(3.0)].map(|test| (tool, test)))
        .map(|(tool, test)| Rule {
            tool: tool.into(),
            when: vec![Condition { path: vec!["amount".into()], test }],
            then: RuleAction::Ask,
        })
        .collect();
    revision
}

pub fn draw_policy(tape: &mut Tape) -> Policy {
    let policy = Policy {
        continuation: tape.among([Continuation::AllSettled, Continuation::AllSettled, Continuation::Eager]),
        on_reject: tape.among([None, Some(OnReject::Continue), Some(OnReject::EndRun)]),
        on_block: tape.among([OnBlock::FailCall, OnBlock::FailCall, OnBlock::EndRun]),
        step_end: tape.among([StepEnd::AfterTools, StepEnd::AfterTools, StepEnd::AfterInference]),
        decisions: tape.among([DecisionTiming::Immediate, DecisionTiming::AtBoundary]),
        execution: tape.among([Execution::Parallel, Execution::Parallel, Execution::Sequential]),
        approval: draw_scope(tape),
        while_waiting: tape.among([WhileWaiting::Reject, WhileWaiting::Supersede, WhileWaiting::Enqueue]),
        on_busy: tape.among([OnBusy::Reject, OnBusy::Enqueue, OnBusy::Interrupt]),
        max_result_chars: RESULT_CHARS_DEFAULT,
        descendants_max: DESCENDANTS_DEFAULT,
    };
    Policy { descendants_max: descendants_of(&policy), ..policy }
}

/// Derived from values that are drawn anyway, so that stored tapes still give the same worlds.
fn descendants_of(policy: &Policy) -> u32 {
    match (policy.while_waiting, policy.on_busy) {
        (WhileWaiting::Enqueue, OnBusy::Enqueue) => 1,
        (WhileWaiting::Enqueue, OnBusy::Interrupt) => 2,
        (WhileWaiting::Enqueue, OnBusy::Reject) | (WhileWaiting::Reject | WhileWaiting::Supersede, _) => {
            DESCENDANTS_DEFAULT
        }
    }
}

fn draw_scope(tape: &mut Tape) -> ApprovalScope {
    tape.among([
        ApprovalScope::Policy,
        ApprovalScope::Policy,
        ApprovalScope::Never,
        ApprovalScope::WriteTools,
        ApprovalScope::AllTools,
    ])
}

/// How a message overrides the agent's policy: usually not at all.
pub fn draw_request(tape: &mut Tape) -> PolicyRequest {
    if !tape.chance(35) {
        return PolicyRequest::default();
    }
    let other = draw_policy(tape);
    PolicyRequest {
        continuation: tape.chance(30).then_some(other.continuation),
        on_reject: if tape.chance(30) { other.on_reject } else { None },
        on_block: tape.chance(30).then_some(other.on_block),
        step_end: tape.chance(30).then_some(other.step_end),
        decisions: tape.chance(30).then_some(other.decisions),
        execution: tape.chance(30).then_some(other.execution),
        approval: tape.chance(60).then_some(other.approval),
        while_waiting: tape.chance(30).then_some(other.while_waiting),
        on_busy: tape.chance(30).then_some(other.on_busy),
        max_result_chars: None,
        descendants_max: None,
    }
}

fn draw_rule(tape: &mut Tape) -> Rule {
    let tool = TOOL_NAMES[tape.pick(TOOL_NAMES.len())].into();
    let when = (0..tape.pick(3)).map(|_| draw_condition(tape)).collect();
    Rule {
        tool,
        when,
        then: tape.among([RuleAction::Allow, RuleAction::Ask, RuleAction::Ask, RuleAction::Deny]),
    }
}

fn draw_condition(tape: &mut Tape) -> Condition {
    let limit = tape.among([2.0, 0.0, 4.0]);
    let (path, test) = match tape.pick(10) {
        0 => ("amount", ArgumentTest::Lte(limit)),
        1 => ("amount", ArgumentTest::Lt(limit)),
        2 => ("amount", ArgumentTest::Gt(limit)),
        3 => ("amount", ArgumentTest::Gte(limit)),
        4 => ("amount", ArgumentTest::Eq(json!(limit))),
        5 => ("amount", ArgumentTest::Ne(json!(limit))),
        6 => ("amount", ArgumentTest::In(vec![json!(1), json!(3)])),
        7 => ("to", ArgumentTest::Matches("^x".into())),
        8 => ("to", ArgumentTest::Eq(json!("bank"))),
        _ if limit == 0.0 => ("to", ArgumentTest::Absent),
        _ if limit == 4.0 => ("to", ArgumentTest::Present),
        _ => ("absent", ArgumentTest::Ne(json!(0))),
    };
    Condition { path: vec![path.into()], test }
}

fn draw_stop(tape: &mut Tape) -> StopCondition {
    match tape.pick(7) {
        0 => StopCondition::MaxRounds { rounds: tape.among([4, 0, 1, 2, 3]) },
        1 => StopCondition::Timeout { seconds: tape.among([20, 0, 1, 4]) },
        2 => StopCondition::TokenBudget { max_total: tape.among([100, 0, 30, 60]) },
        3 => StopCondition::ConsecutiveErrors { max: tape.among([3, 0, 1, 2]) },
        4 => StopCondition::StopOnTool { tool_name: TOOL_NAMES[tape.pick(TOOL_NAMES.len())].into() },
        5 => StopCondition::ContentMatch { pattern: FINAL_WORD.into() },
        _ => StopCondition::LoopDetection { window: tape.among([4, 2, 8]) },
    }
}
