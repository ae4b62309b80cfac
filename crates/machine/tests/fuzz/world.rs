//! The agent, the order and the tools that a fuzzed run begins with.

use std::sync::Arc;

use machine::event::{Parent, RunRequest, UserMessage};
use machine::id::{Digest, ToolName};
use machine::phase::{Phase, PhaseSet};
use machine::policy::{
    ApprovalScope, Continuation, DecisionTiming, Execution, OnBlock, OnBusy, OnReject, Policy, StepEnd,
    WhileWaiting,
};
use machine::revision::{Limits, Revision, StopCondition};
use machine::rules::{ArgumentTest, Condition, Rule, RuleAction};
use machine::tool::{Approval, EffectClass, OnExpiry, Performer, Tool};

use crate::chance::Chance;
use crate::parts;

pub(crate) const TOOLS: [&str; 5] = ["echo", "transfer", "post", "pick_file", "researcher"];
pub(crate) const PLUGINS: [&str; 3] = ["audit", "cache", "four_eyes"];

pub(crate) fn revision(chance: &mut Chance) -> Revision {
    let phases: PhaseSet = Phase::ALL.into_iter().filter(|_| chance.one_in(3)).collect();
    Revision {
        policy: policy(chance),
        rules: chance.some(2, rule),
        stop: chance.some(2, stop_condition),
        phases,
        limits: if chance.one_in(4) { odd_limits(chance) } else { Limits::default() },
    }
}

pub(crate) fn policy(chance: &mut Chance) -> Policy {
    let on_reject = [None, Some(OnReject::Continue), Some(OnReject::EndRun)];
    Policy {
        continuation: *chance.pick(&[Continuation::AllSettled, Continuation::Eager]),
        on_reject: *chance.pick(&on_reject),
        on_block: if chance.one_in(4) { OnBlock::EndRun } else { OnBlock::FailCall },
        step_end: *chance.pick(&[StepEnd::AfterTools, StepEnd::AfterInference]),
        decisions: *chance.pick(&[DecisionTiming::Immediate, DecisionTiming::AtBoundary]),
        execution: *chance.pick(&[Execution::Parallel, Execution::Sequential]),
        approval: *chance.pick(&[
            ApprovalScope::Never,
            ApprovalScope::Policy,
            ApprovalScope::Policy,
            ApprovalScope::WriteTools,
            ApprovalScope::AllTools,
        ]),
        while_waiting: *chance.pick(&[WhileWaiting::Reject, WhileWaiting::Supersede, WhileWaiting::Enqueue]),
        on_busy: *chance.pick(&[OnBusy::Reject, OnBusy::Enqueue, OnBusy::Interrupt]),
        max_result_chars: *chance.pick(&[0, 1, 7, 100_000, u32::MAX]),
        descendants_max: *chance.pick(&[0, 1, 2, 100, u32::MAX]),
    }
}

fn rule(chance: &mut Chance) -> Rule {
    let test = |chance: &mut Chance| match chance.below(10) {
        0 => ArgumentTest::Eq(parts::value(chance)),
        1 => ArgumentTest::Ne(parts::value(chance)),
        2 => ArgumentTest::Lt(100.0),
        3 => ArgumentTest::Lte(f64::NAN),
        4 => ArgumentTest::Gt(-1.0),
        5 => ArgumentTest::Gte(f64::INFINITY),
        6 => ArgumentTest::In(chance.some(2, parts::value)),
        7 => ArgumentTest::Present,
        8 => ArgumentTest::Absent,
        _ => ArgumentTest::Matches("^a+$".into()),
    };
    Rule {
        tool: ToolName::from(*chance.pick(&TOOLS)),
        when: chance.some(1, |chance| Condition { path: vec!["amount".into()], test: test(chance) }),
        then: *chance.pick(&[RuleAction::Allow, RuleAction::Ask, RuleAction::Ask, RuleAction::Deny]),
    }
}

fn stop_condition(chance: &mut Chance) -> StopCondition {
    match chance.below(7) {
        0 => StopCondition::MaxRounds { rounds: chance.small() * 2 },
        1 => StopCondition::Timeout { seconds: *chance.pick(&[0, 60, u64::MAX]) },
        2 => StopCondition::TokenBudget { max_total: *chance.pick(&[0, 500, u64::MAX]) },
        3 => StopCondition::ConsecutiveErrors { max: chance.small() },
        4 => StopCondition::StopOnTool { tool_name: ToolName::from(*chance.pick(&TOOLS)) },
        5 => StopCondition::ContentMatch { pattern: "done".into() },
        _ => StopCondition::LoopDetection { window: *chance.pick(&[0, 1, 4, u16::MAX]) },
    }
}

fn odd_limits(chance: &mut Chance) -> Limits {
    Limits {
        model_try_count_max: *chance.pick(&[0, 1, u32::MAX]),
        tool_try_count_max: *chance.pick(&[0, 1, u32::MAX]),
        backoff_ms: *chance.pick(&[0, 1, u64::MAX]),
        model_backoff_ms_max: *chance.pick(&[0, u64::MAX]),
        tool_backoff_ms_max: *chance.pick(&[0, u64::MAX]),
        depth_max: *chance.pick(&[0, 1, 4]),
        children_max: *chance.pick(&[0, 1, 16]),
    }
}

pub(crate) fn order(chance: &mut Chance, revision: &Revision) -> RunRequest {
    let policy = if chance.one_in(3) { policy(chance) } else { revision.policy };
    RunRequest {
        run_id: "run_1".into(),
        thread_id: "thr_1".into(),
        agent: "assistant".into(),
        revision: Digest::sha256(b"revision"),
        policy,
        loosened_by: chance.maybe(|_| "ops".into()),
        // How deep a message may be is checked at the door, before a run is queued.
        message: chance.maybe(|chance| UserMessage {
            id: "msg_user".into(),
            content: Arc::new(parts::text(chance).into()),
            by: chance.maybe(|_| "ana".into()),
        }),
        parent: chance.one_in(4).then(|| Parent {
            run_id: "run_0".into(),
            call_id: "call_0".into(),
            depth: u16::try_from(chance.small()).unwrap(),
            grant_tokens: chance.maybe(|chance| chance.below(1_000)),
            grant_descendants: chance.maybe(|_| 3),
        }),
    }
}

pub(crate) fn tool(chance: &mut Chance) -> Tool {
    let agent = |chance: &mut Chance| Performer::Agent {
        agent: "research".into(),
        budget_tokens_max: chance.maybe(|chance| chance.below(1_000)),
    };
    Tool {
        definition: Digest::sha256(&[u8::from(chance.one_in(8))]),
        class: *chance.pick(&[EffectClass::Read, EffectClass::Idempotent, EffectClass::Write]),
        approval: match chance.below(12) {
            0 => Approval::Block,
            1..=6 => Approval::Ask,
            _ => Approval::Never,
        },
        performer: match chance.below(8) {
            0 => Performer::Client,
            1 => Performer::External,
            2 => agent(chance),
            _ => Performer::Server,
        },
        expires_in_ms: chance.one_in(3).then(|| *chance.pick(&[0, 1_000, u64::MAX])),
        on_expiry: *chance.pick(&[OnExpiry::Deny, OnExpiry::EndRun]),
    }
}
