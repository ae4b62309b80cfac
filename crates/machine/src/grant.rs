//! Standing approvals. A grant lifts exactly the holds that its approver was asked about, and nothing stricter.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::id::{AgentName, Digest, GrantId, Principal, RunId, ToolName};
use crate::policy::{ApprovalScope, ApprovalScopes};
use crate::revision::Revision;
use crate::rules::Asker;
use crate::tool::Tool;

/// Why the built-in gate holds a call, in a form that does not change when the configuration is reordered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldReason {
    /// The tool's own `approval = "ask"`.
    Tool,
    /// A rule, by the digest of its content.
    Rule(Digest),
    /// The agent's own policy asks about every call of this scope.
    Agent(ApprovalScope),
    /// This run is stricter than its agent: its message, or the run that delegated to it, tightened the policy.
    Run(RunId),
}

/// A standing approval for later calls of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub id: GrantId,
    pub by: Principal,
    pub covers: GrantCoverage,
}

/// What a grant covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantCoverage {
    /// Auto-approve: every tool and every agent of the thread, but no run that is stricter than its agent.
    Thread,
    /// `apply_to_future` of one approval.
    Tool(ToolGrant),
}

/// What one approval with `apply_to_future` covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolGrant {
    pub tool: ToolName,
    /// None in a grant that was stored before grants named their agent.
    pub agent: Option<AgentName>,
    /// Digest of the tool as the approver saw it.
    pub definition: Digest,
    pub reasons: Vec<HoldReason>,
}

impl Grant {
    /// Whether this grant lifts `reason` for a call of this tool by this agent.
    #[must_use]
    pub fn lifts(&self, reason: &HoldReason, agent: &AgentName, name: &ToolName, tool: &Tool) -> bool {
        match &self.covers {
            GrantCoverage::Thread => match reason {
                HoldReason::Tool | HoldReason::Rule(_) | HoldReason::Agent(_) => true,
                HoldReason::Run(_) => false,
            },
            GrantCoverage::Tool(granted) => {
                granted.tool == *name
                    && granted.definition == tool.definition
                    && granted.agent.as_ref().is_none_or(|known| known == agent)
                    && granted.reasons.iter().any(|granted| granted.includes(reason))
            }
        }
    }
}

impl HoldReason {
    /// Whether a grant for `self` also covers `other`. A policy that asks about fewer calls is included.
    fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Agent(granted), Self::Agent(asks)) => granted >= asks,
            (Self::Tool | Self::Rule(_) | Self::Agent(_) | Self::Run(_), _) => self == other,
        }
    }

    /// The reason for which an asker holds a call. None if no grant can lift it.
    pub(crate) fn for_asker(
        asker: &Asker,
        scopes: ApprovalScopes,
        revision: &Revision,
        control: &Control,
    ) -> Option<Self> {
        match asker {
            // Older logs did not distinguish these two. The tool's own setting is the narrower one.
            Asker::Policy | Asker::Tool => Some(Self::Tool),
            Asker::Rule(index) => revision.rules.get(usize::from(*index))?.digest().map(Self::Rule),
            Asker::Agent => Some(Self::Agent(scopes.run.min(scopes.agent))),
            Asker::Run => Some(Self::Run(control.run.clone())),
            Asker::Plugin(_) => None,
        }
    }
}
