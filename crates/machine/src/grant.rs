//! Standing permissions. A grant lifts exactly what its giver was asked about, and nothing that is stricter.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::id::{AgentName, Digest, GrantId, Principal, RunId, ToolName};
use crate::policy::{ApprovalScope, ApprovalScopes};
use crate::revision::Revision;
use crate::rules::Asker;
use crate::tool::Tool;

/// Why the built-in gate holds a call, in words that stay the same when the configuration is written in another order.
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

/// A permission that an approver gave for later calls of one thread.
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
    /// Of the tool as the approver saw it.
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
    /// Whether permission despite `self` is permission despite `other`. A policy that asks about fewer calls is included.
    fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Agent(granted), Self::Agent(asks)) => granted >= asks,
            (Self::Tool | Self::Rule(_) | Self::Agent(_) | Self::Run(_), _) => self == other,
        }
    }

    /// The reason behind an asker; none where no grant can lift it.
    pub(crate) fn for_asker(
        asker: &Asker,
        scopes: ApprovalScopes,
        revision: &Revision,
        control: &Control,
    ) -> Option<Self> {
        match asker {
            // Before the two were told apart. The tool's own word is the narrower of them.
            Asker::Policy | Asker::Tool => Some(Self::Tool),
            Asker::Rule(index) => revision.rules.get(usize::from(*index))?.digest().map(Self::Rule),
            Asker::Agent => Some(Self::Agent(scopes.run.min(scopes.agent))),
            Asker::Run => Some(Self::Run(control.run.clone())),
            Asker::Plugin(_) => None,
        }
    }
}
