//! What holds a call, and how it goes on once somebody has answered.

use core::fmt;
use serde::{Deserialize, Serialize};

use crate::id::{Digest, RunId, SuspensionId};
use crate::time::Timestamp;
use crate::tool::OnExpiry;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspensionKind {
    /// A policy, a rule or a hook wants a person's yes.
    Approval,
    /// The front end runs the call.
    ClientTool,
    /// Someone will post the result.
    External,
    /// The tool asks the user.
    Question,
    /// An attempt may or may not have taken effect.
    InDoubt,
    /// A child run works on it; nobody outside can answer.
    ChildRun,
}

impl SuspensionKind {
    pub const ALL: [Self; 6] =
        [Self::Approval, Self::ClientTool, Self::External, Self::Question, Self::InDoubt, Self::ChildRun];

    /// A person must answer it, so it stands in the list of approvals.
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

/// The kind with what only that kind has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// What was shown is bound to this definition of the tool.
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

    /// Of the tool that an approval was asked for; none where it is no approval.
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
    /// The arguments as approved, through the full pipeline.
    ReplayToolCall,
    /// The answer is the result; the body never runs.
    UseDecisionAsToolResult,
    /// The answer becomes the arguments; a bare `true` means the original ones.
    PassDecisionToTool,
}

impl ResumeMode {
    pub const ALL: [Self; 3] =
        [Self::ReplayToolCall, Self::UseDecisionAsToolResult, Self::PassDecisionToTool];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expiry {
    pub at: Timestamp,
    pub then: OnExpiry,
}

/// An open suspension. Question, schema and `resume_state` stand in the event that opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    pub id: SuspensionId,
    pub held: Held,
    pub mode: ResumeMode,
    pub expiry: Option<Expiry>,
    /// How many of the call's askers, the latest, opened it; none where the tool itself did.
    pub asker_count: u8,
    /// The tool opened it, or a hook in its place: the answer is for the tool.
    pub by_the_tool: bool,
    /// The event that opened it.
    pub seq: u64,
}
