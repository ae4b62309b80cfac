//! The policy of a run: where the sources of this design disagree, one field settles it per run.

use core::fmt;
use serde::{Deserialize, Serialize};

use crate::id::Principal;

/// When the model is called again after a step with tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Continuation {
    /// When every call of the step has settled.
    #[default]
    AllSettled,
    /// As soon as one has settled and none executes; a held call gets a placeholder that stays, and its
    /// real result follows as a note.
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

/// Where a step ends, and with it the hooks of StepEnd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEnd {
    #[default]
    AfterTools,
    AfterInference,
}

/// When an accepted decision is heard.
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

/// Which calls wait for a person. Ordered by how many: a later value never lets more calls through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    Never,
    /// Those whose tool or a rule says so.
    #[default]
    Policy,
    WriteTools,
    AllTools,
}

/// The two policies that say which calls of a run wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalScopes {
    pub agent: ApprovalScope,
    /// Stricter than the agent's where a message or a parent run tightened it; looser where an approver allowed that.
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

/// What the model reads of one tool result, unless the policy says otherwise.
pub const RESULT_CHARS_DEFAULT: u32 = 100_000;

/// Runs that a run may start, directly and through the runs it starts, unless the policy says otherwise.
pub const DESCENDANTS_DEFAULT: u32 = 100;

// Stored with every run: a field that an older log does not have takes its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    pub continuation: Continuation,
    /// `None`: nobody set it, and the door through which a rejection comes has its own default.
    pub on_reject: Option<OnReject>,
    pub on_block: OnBlock,
    pub step_end: StepEnd,
    pub decisions: DecisionTiming,
    pub execution: Execution,
    pub approval: ApprovalScope,
    pub while_waiting: WhileWaiting,
    pub on_busy: OnBusy,
    /// Characters of one tool result that the model reads. The log keeps all of it.
    pub max_result_chars: u32,
    /// Runs that this one may start in all, directly and through the runs it starts.
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
    /// What a denial does to the run: as the decision says, else as the policy says, else nothing.
    #[must_use]
    pub fn after_denial(&self, then: Option<OnReject>) -> OnReject {
        then.or(self.on_reject).unwrap_or_default()
    }
}

/// What one message asks to be different. Absent fields keep the agent's value.
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

/// A field of the policy that has a stricter and a looser side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrictField {
    Approval,
    OnReject,
    OnBlock,
}

impl StrictField {
    /// As it is called in a request.
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

/// The policy a run gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPolicy {
    pub policy: Policy,
    /// The approver who made a field of it looser than in the agent's own policy.
    pub loosened_by: Option<Principal>,
}

/// A request may tighten, never loosen, unless its sender may approve.
pub fn resolve(
    agent: &Policy,
    request: &PolicyRequest,
    by: &Principal,
    may_approve: bool,
) -> Result<ResolvedPolicy, LooseningRefused> {
    // Every field is named: a new one has to say whether it has a stricter side.
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
        // Where the agent leaves it open, a rejection ends the run unless the approver says otherwise.
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
        // These say when something happens, and let nothing happen that would not happen otherwise.
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

/// A request may lower a limit of the agent. A larger value has no effect, whoever sends it: limits are the operator's.
fn lowered(limit: u32, asked: Option<u32>) -> u32 {
    asked.map_or(limit, |asked| asked.min(limit))
}

/// The policy of a child run: its agent's own, and it asks about at least as many calls as its parent does. A run that
/// was tightened cannot get around it by delegating.
#[must_use]
pub fn for_child(parent: &Policy, own: &Policy) -> Policy {
    Policy { approval: own.approval.max(parent.approval), ..*own }
}
