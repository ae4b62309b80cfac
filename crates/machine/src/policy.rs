//! The policy of a run. Where this design's sources disagree, a policy field decides for each run.

use core::fmt;
use serde::{Deserialize, Serialize};

use crate::id::Principal;

/// When the model is called again after a step with tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Continuation {
    /// Once every call of the step has settled.
    #[default]
    AllSettled,
    /// As soon as one call has settled and none executes. A held call gets a permanent placeholder, and its real result
    /// follows as a note.
    Eager,
}

/// Ordered from lenient to strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnReject {
    #[default]
    Continue,
    EndRun,
}

/// Ordered from lenient to strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBlock {
    #[default]
    FailCall,
    EndRun,
}

/// Where a step ends, and when the hooks of StepEnd are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEnd {
    #[default]
    AfterTools,
    AfterInference,
}

/// When the run processes an accepted decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionTiming {
    #[default]
    Immediate,
    /// Only while no call of the run executes.
    AtBoundary,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    #[default]
    Parallel,
    Sequential,
}

/// Which calls wait for a person. Ordered by strictness: a later value never lets more calls run without approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    Never,
    /// Calls for which the tool or a rule requires approval.
    #[default]
    Policy,
    WriteTools,
    AllTools,
}

/// The two policies that determine which calls of a run wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalScopes {
    pub agent: ApprovalScope,
    /// Stricter than the agent's if a message or a parent run tightened it; looser if an approver allowed that.
    pub run: ApprovalScope,
}

/// What a new user message does to a run that only waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhileWaiting {
    #[default]
    Reject,
    Supersede,
    Enqueue,
}

/// What a new user message does to a run that executes or is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    #[default]
    Reject,
    Enqueue,
    Interrupt,
}

/// Default for the characters of one tool result that the model reads.
pub const RESULT_CHARS_DEFAULT: u32 = 100_000;

/// Default for the number of runs that a run may start, directly and through the runs it starts.
pub const DESCENDANTS_DEFAULT: u32 = 100;

// Stored with every run. A field that is missing in an older log takes its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    pub continuation: Continuation,
    /// `None`: not configured. Each source of rejections then has its own default.
    pub on_reject: Option<OnReject>,
    pub on_block: OnBlock,
    pub step_end: StepEnd,
    pub decisions: DecisionTiming,
    pub execution: Execution,
    pub approval: ApprovalScope,
    pub while_waiting: WhileWaiting,
    pub on_busy: OnBusy,
    /// Maximum characters of one tool result that the model reads. The log keeps the whole result.
    pub max_result_chars: u32,
    /// Maximum number of runs that this one may start, directly and through the runs it starts.
    pub descendants_max: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            continuation: Continuation::default(),
            on_reject: None,
            on_block: OnBlock::default(),
            step_end: StepEnd::default(),
            decisions: DecisionTiming::default(),
            execution: Execution::default(),
            approval: ApprovalScope::default(),
            while_waiting: WhileWaiting::default(),
            on_busy: OnBusy::default(),
            max_result_chars: RESULT_CHARS_DEFAULT,
            descendants_max: DESCENDANTS_DEFAULT,
        }
    }
}

impl Policy {
    /// What a denial does to the run: what the decision says, otherwise what the policy says, otherwise nothing.
    #[must_use]
    pub fn after_denial(&self, then: Option<OnReject>) -> OnReject {
        then.or(self.on_reject).unwrap_or_default()
    }
}

/// The policy changes that one message requests. Absent fields keep the agent's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyRequest {
    pub continuation: Option<Continuation>,
    pub on_reject: Option<OnReject>,
    pub on_block: Option<OnBlock>,
    pub step_end: Option<StepEnd>,
    pub decisions: Option<DecisionTiming>,
    pub execution: Option<Execution>,
    pub approval: Option<ApprovalScope>,
    pub while_waiting: Option<WhileWaiting>,
    pub on_busy: Option<OnBusy>,
    pub max_result_chars: Option<u32>,
    pub descendants_max: Option<u32>,
}

/// A policy field whose values can be ordered by strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrictField {
    Approval,
    OnReject,
    OnBlock,
}

impl StrictField {
    /// The field's name in a request.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::OnReject => "on_reject",
            Self::OnBlock => "on_block",
        }
    }
}

impl fmt::Display for StrictField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The request would make this field looser than the agent's own policy, and its sender may not approve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LooseningRefused {
    pub field: StrictField,
}

/// The policy of a new run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPolicy {
    pub policy: Policy,
    /// The approver who made a field looser than in the agent's own policy.
    pub loosened_by: Option<Principal>,
}

/// A request may tighten the policy. It may loosen it only if its sender may approve.
pub fn resolve(
    agent: &Policy,
    request: &PolicyRequest,
    by: &Principal,
    may_approve: bool,
) -> Result<ResolvedPolicy, LooseningRefused> {
    // Every field is named, so that a new one forces a choice of whether it has a stricter side.
    let PolicyRequest {
        continuation,
        on_reject,
        on_block,
        step_end,
        decisions,
        execution,
        approval,
        while_waiting,
        on_busy,
        max_result_chars,
        descendants_max,
    } = *request;
    let loosened = [
        (StrictField::Approval, approval.is_some_and(|wanted| wanted < agent.approval)),
        // If the agent does not set it, a rejection ends the run unless the approver says otherwise.
        (
            StrictField::OnReject,
            on_reject.is_some_and(|wanted| wanted < agent.on_reject.unwrap_or(OnReject::EndRun)),
        ),
        (StrictField::OnBlock, on_block.is_some_and(|wanted| wanted < agent.on_block)),
    ];
    let loosened = loosened.into_iter().find_map(|(field, is_looser)| is_looser.then_some(field));
    if let Some(field) = loosened
        && !may_approve
    {
        return Err(LooseningRefused { field });
    }
    let policy = Policy {
        on_reject: on_reject.or(agent.on_reject),
        on_block: on_block.unwrap_or(agent.on_block),
        approval: approval.unwrap_or(agent.approval),
        // These fields only control timing. They allow nothing that would not happen otherwise.
        continuation: continuation.unwrap_or(agent.continuation),
        step_end: step_end.unwrap_or(agent.step_end),
        decisions: decisions.unwrap_or(agent.decisions),
        execution: execution.unwrap_or(agent.execution),
        while_waiting: while_waiting.unwrap_or(agent.while_waiting),
        on_busy: on_busy.unwrap_or(agent.on_busy),
        max_result_chars: lowered(agent.max_result_chars, max_result_chars),
        descendants_max: lowered(agent.descendants_max, descendants_max),
    };
    Ok(ResolvedPolicy { policy, loosened_by: loosened.map(|_| by.clone()) })
}

/// A request may lower a limit of the agent. A larger value has no effect for any sender: the operator sets the limits.
fn lowered(limit: u32, asked: Option<u32>) -> u32 {
    asked.map_or(limit, |asked| asked.min(limit))
}

/// The policy of a child run: its agent's own, but it asks about at least as many calls as its parent does. A tightened
/// run cannot get around its policy by delegating.
#[must_use]
pub fn for_child(parent: &Policy, own: &Policy) -> Policy {
    Policy { approval: own.approval.max(parent.approval), ..*own }
}
