//! A frozen agent that runs are pinned to: the parts that the machine needs.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::id::ToolName;
use crate::phase::PhaseSet;
use crate::policy::Policy;
use crate::rules::Rule;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    /// The agent's own policy. The run's policy, which a request may have changed, is in the log.
    pub policy: Policy,
    pub rules: Vec<Rule>,
    /// In configured order: the first condition that fires wins.
    pub stop: Vec<StopCondition>,
    /// The phases that at least one plugin subscribes to. A phase without subscribers costs nothing.
    pub phases: PhaseSet,
    pub limits: Limits,
}

/// Checked at the end of each step, after the tools. A limit of zero never fires; a window of zero counts as two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StopCondition {
    MaxRounds {
        rounds: u32,
    },
    /// Counts only time not spent waiting.
    Timeout {
        seconds: u64,
    },
    TokenBudget {
        max_total: u64,
    },
    ConsecutiveErrors {
        max: u32,
    },
    StopOnTool {
        tool_name: ToolName,
    },
    /// A regular expression, compiled and executed by the shell.
    ContentMatch {
        pattern: String,
    },
    LoopDetection {
        /// Number of latest calls that are compared: less than 2 counts as 2, more than 64 as 64.
        window: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum model calls of one step, including the first.
    pub model_try_count_max: u32,
    /// Maximum attempts of a repeatable tool that end without an answer.
    pub tool_try_count_max: u32,
    pub backoff_ms: u64,
    pub model_backoff_ms_max: u64,
    pub tool_backoff_ms_max: u64,
    /// Maximum depth of delegation: a run without a parent has depth 0.
    pub depth_max: u16,
    /// Maximum number of child runs that one run has open at the same time.
    pub children_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            model_try_count_max: 3,
            tool_try_count_max: 3,
            backoff_ms: 500,
            model_backoff_ms_max: 30_000,
            tool_backoff_ms_max: 5_000,
            depth_max: 4,
            children_max: 16,
        }
    }
}

/// Maximum number of calls that one run has open at the same time.
pub const CALLS_OPEN_MAX: usize = 64;
/// Maximum attempts of one call, including those that were lost with their worker.
pub const ATTEMPT_COUNT_MAX: u32 = 100;
/// How often the gate may ask about one call.
pub const ASK_ROUNDS_MAX: u8 = 3;
/// How often a tool may answer "pending" for one call.
pub const PENDING_ROUNDS_MAX: u8 = 100;
/// Maximum state that a tool may store for itself until it is answered.
pub const RESUME_STATE_BYTES_MAX: usize = 16 * 1024;
pub const CALL_ID_BYTES_MAX: usize = 96;
pub const TOOL_NAME_BYTES_MAX: usize = 128;
