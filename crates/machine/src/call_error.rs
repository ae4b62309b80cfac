//! Why a call failed, by the tool or before it could run.

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
    /// The tool, or whoever answered for it, says that it failed.
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
    /// The arguments about to be sent are not the ones that were decided on.
    ArgumentsChanged,
    GateFailed,
    AskedTooOften,
    /// Something that would have to be kept is larger than it may be.
    StateFull,
    /// Nothing was sent.
    NotSent,
    /// A repeatable tool gave no answer in all its attempts.
    NoAnswer,
    TooDeep,
    TooManyChildren,
    /// The tree of runs that the call belongs to has as many runs as it may.
    TooManyDescendants,
    /// Nothing is left that a child run could be granted.
    BudgetSpent,
    ChildFailed,
}

impl CallErrorCode {
    /// The call did not get an answer of its tool: it was refused, or nothing came back.
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
