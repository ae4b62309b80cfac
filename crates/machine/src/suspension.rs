//! What holds a call, and how the call continues once the suspension is answered.

use core::fmt;
use serde::{Deserialize, Serialize};

use crate::id::{Digest, RunId, SuspensionId};
use crate::named_enum::named_enum;
use crate::time::Timestamp;
use crate::tool::OnExpiry;

named_enum! {
    pub enum SuspensionKind {
        /// A policy, a rule or a hook requires a person's approval.
        Approval = "approval",
        /// The client's front end runs the call.
        ClientTool = "client_tool",
        /// An external service will post the result.
        External = "external",
        /// The tool asks the user.
        Question = "question",
        /// An attempt may or may not have taken effect.
        InDoubt = "in_doubt",
        /// A child run works on the call; it cannot be answered from outside.
        ChildRun = "child_run",
    }
}

impl SuspensionKind {
    /// A person must answer it, so it is in the list of approvals.
    #[must_use]
    pub const fn needs_person(self) -> bool {
        match self {
            Self::Approval | Self::Question | Self::InDoubt => true,
            Self::ClientTool | Self::External | Self::ChildRun => false,
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
        if let Self::Approval { definition } = self { Some(*definition) } else { None }
    }

    /// The attempt that may or may not have taken effect. None if the call is not in doubt.
    #[must_use]
    pub const fn doubted_attempt(&self) -> Option<u32> {
        if let Self::InDoubt { attempt } = self { Some(*attempt) } else { None }
    }

    /// The run that works on the call. None if this is not a child run.
    #[must_use]
    pub const fn child_run(&self) -> Option<&RunId> {
        if let Self::ChildRun { run, .. } = self { Some(run) } else { None }
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
