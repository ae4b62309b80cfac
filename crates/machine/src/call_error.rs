//! Why a call failed, in the tool or before it could run.

use alloc::string::String;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    pub code: CallErrorCode,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CallErrorCode {
    /// The tool, or an answer given in its place, reports a failure.
    ToolError,
    /// A plugin supplied an error in place of the call.
    PluginError,
    BlockedByPlugin,
    BlockedByPolicy,
    DeniedByRule,
    UnknownTool,
    OutOfScope,
    ToolRemoved,
    BadArguments,
    /// The arguments about to be sent are not the ones that were approved.
    ArgumentsChanged,
    GateFailed,
    AskedTooOften,
    /// Something that would have to be stored exceeds its size limit.
    StateFull,
    /// Nothing was sent.
    NotSent,
    /// A repeatable tool gave no answer in all its attempts.
    NoAnswer,
    TooDeep,
    TooManyChildren,
    /// The tree of runs that the call belongs to has reached its maximum number of runs.
    TooManyDescendants,
    /// No tokens are left to grant to a child run.
    BudgetSpent,
    ChildFailed,
}

impl CallErrorCode {
    /// The tool did not answer the call: the call was refused, or nothing came back.
    #[must_use]
    pub const fn is_without_tool_answer(self) -> bool {
        match self {
            Self::ToolError | Self::ChildFailed => false,
            Self::PluginError
            | Self::BlockedByPlugin
            | Self::BlockedByPolicy
            | Self::DeniedByRule
            | Self::UnknownTool
            | Self::OutOfScope
            | Self::ToolRemoved
            | Self::BadArguments
            | Self::ArgumentsChanged
            | Self::GateFailed
            | Self::AskedTooOften
            | Self::StateFull
            | Self::NotSent
            | Self::NoAnswer
            | Self::TooDeep
            | Self::TooManyChildren
            | Self::TooManyDescendants
            | Self::BudgetSpent => true,
        }
    }
}
