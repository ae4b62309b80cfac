//! A grant (standing approval) as a client sees it.

use engine::store::GrantView;
use machine::grant::{GrantCoverage, HoldReason};
use machine::policy::ApprovalScope;
use serde::Serialize;
use utoipa::ToSchema;

use super::time::Time;
use super::{is_false, via_text};

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Grant {
    pub id: String,
    pub thread_id: String,
    /// Absent if the grant is auto-approve of a thread, which covers every tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tool: Option<String>,
    /// Absent if the grant is auto-approve of a thread, which covers every agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub agent: Option<String>,
    /// The name of the key that gave it, or of the person for whom a key gave it.
    pub by: String,
    /// The key that acted for `by`. Absent if `by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
    pub since: Time,
    /// Later calls are not held for these reasons. Any other reason still holds them.
    pub covers: Vec<Covers>,
    /// True if the key that gave it may no longer approve, so that the grant has no effect. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub lapsed: bool,
    /// True if the reasons cannot be decoded. Then `covers` is empty and the grant has no effect. Absent otherwise.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    pub unreadable: bool,
}

/// A reason to hold a call, which a grant can cover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Covers {
    /// Every reason, except that the run's policy is stricter than its agent's.
    Any {},
    /// The tool's own `approval = "ask"`.
    Tool {},
    /// A rule of the agent, identified by the SHA-256 of its content.
    Rule { digest: String },
    /// The agent's `policy.approval`, at this value or a less strict one.
    AgentPolicy { approval: String },
    /// The policy of this run is stricter than its agent's.
    RunPolicy { run_id: String },
}

impl Grant {
    #[must_use]
    pub fn from_view(view: &GrantView, lapsed: bool) -> Self {
        let (tool, agent, covers) = match &view.grant.covers {
            GrantCoverage::Thread => (None, None, vec![Covers::Any {}]),
            GrantCoverage::Tool(granted) => {
                (Some(&granted.tool), granted.agent.as_ref(), granted.reasons.iter().map(covers).collect())
            }
        };
        Self {
            id: view.grant.id.to_string(),
            thread_id: view.thread.to_string(),
            tool: tool.map(ToString::to_string),
            agent: agent.map(ToString::to_string),
            by: view.grant.by.name().into(),
            via: via_text(&view.grant.by),
            since: view.since.into(),
            covers,
            lapsed,
            unreadable: view.is_unreadable,
        }
    }
}

fn covers(reason: &HoldReason) -> Covers {
    match reason {
        HoldReason::Tool => Covers::Tool {},
        HoldReason::Rule(digest) => Covers::Rule { digest: digest.to_string() },
        HoldReason::Agent(scope) => Covers::AgentPolicy { approval: scope_name(*scope).to_owned() },
        HoldReason::Run(run) => Covers::RunPolicy { run_id: run.to_string() },
    }
}

const fn scope_name(scope: ApprovalScope) -> &'static str {
    match scope {
        ApprovalScope::Never => "never",
        ApprovalScope::Policy => "policy",
        ApprovalScope::WriteTools => "write_tools",
        ApprovalScope::AllTools => "all_tools",
    }
}

/// The number of grants that a request revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RevokedGrants {
    pub revoked: u64,
}
