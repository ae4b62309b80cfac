//! What holds a call, and how the call continues once the suspension is answered.

use core::fmt;
use serde::{Deserialize, Serialize};

use crate::id::{Digest, RunId, SuspensionId};
use crate::time::Timestamp;
use crate::tool::OnExpiry;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspensionKind {
    /// A policy, a rule or a hook requires a person's approval.
    Approval,
    /// The client's front end runs the call.
    ClientTool,
    /// An external service will post the result.
    External,
    /// The tool asks the user.
    Question,
    /// An attempt may or may not have taken effect.
    InDoubt,
    /// A child run works on the call; it cannot be answered from outside.
    ChildRun,
}

impl SuspensionKind {
    pub const ALL: [Self; 6] =
        [Self::Approval, Self::ClientTool, Self::External, Self::Question, Self::InDoubt, Self::ChildRun];

    /// A person must answer it, so it is in the list of approvals.
    #[must_use]
    pub const fn needs_person(self) -> bool {
        match self {
            Self::Approval | Self::Question | Self::InDoubt => true,
            Self::ClientTool | Self::External | Self::ChildRun => false,
        }
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::ClientTool => "client_tool",
            Self::External => "external",
            Self::Question => "question",
            Self::InDoubt => "in_doubt",
            Self::ChildRun => "child_run",
        }
    }
}

impl fmt::Display for SuspensionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The suspension kind, with the data that only that kind has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// The approval is bound to the definition of the tool that was shown.
    Approval {
        definition: Digest,
    },
    ClientTool,
    External,
    Question,
    InDoubt {
        attempt: u32,
    },
    ChildRun {
        run: RunId,
        grant_tokens: Option<u64>,
        #[serde(default)]
        grant_descendants: u32,
    },
}

impl Held {
    #[must_use]
    pub const fn kind(&self) -> SuspensionKind {
        match self {
            Self::Approval { .. } => SuspensionKind::Approval,
            Self::ClientTool => SuspensionKind::ClientTool,
            Self::External => SuspensionKind::External,
            Self::Question => SuspensionKind::Question,
            Self::InDoubt { .. } => SuspensionKind::InDoubt,
            Self::ChildRun { .. } => SuspensionKind::ChildRun,
        }
    }

    /// Definition of the tool that an approval was asked for. None if this is not an approval.
    #[must_use]
    pub const fn definition(&self) -> Option<Digest> {
        match self {
            Self::Approval { definition } => Some(*definition),
            Self::ClientTool
            | Self::External
            | Self::Question
            | Self::InDoubt { .. }
            | Self::ChildRun { .. } => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeMode {
    /// The call runs with the approved arguments, through the full pipeline.
    ReplayToolCall,
    /// The answer is the result; the tool's code never runs.
    UseDecisionAsToolResult,
    /// The answer becomes the arguments; a bare `true` keeps the original ones.
    PassDecisionToTool,
}

impl ResumeMode {
    pub const ALL: [Self; 3] =
        [Self::ReplayToolCall, Self::UseDecisionAsToolResult, Self::PassDecisionToTool];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReplayToolCall => "replay_tool_call",
            Self::UseDecisionAsToolResult => "use_decision_as_tool_result",
            Self::PassDecisionToTool => "pass_decision_to_tool",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expiry {
    pub at: Timestamp,
    pub then: OnExpiry,
}

/// An open suspension. Question, schema and `resume_state` are in the event that opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    pub id: SuspensionId,
    pub held: Held,
    pub mode: ResumeMode,
    pub expiry: Option<Expiry>,
    /// Number of the call's most recent askers that opened it. Zero if the tool itself did.
    pub asker_count: u8,
    /// The tool opened it, or a hook in its place: the answer is for the tool.
    pub by_the_tool: bool,
    /// The event that opened it.
    pub seq: u64,
}
