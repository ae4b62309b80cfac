//! The results of a run's tasks.

use machine::Input;
use machine::id::CallId;
use machine::phase::HookAnswers;
use machine::status::CallStatus;

use super::plugin_lock::PluginLockGuard;

pub(crate) struct FinishedTask {
    pub(crate) task: u64,
    pub(crate) output: TaskOutput,
}

/// With the plugin lock, if plugins were asked.
pub(crate) struct TaskOutput {
    pub(crate) body: TaskResult,
    pub(crate) guard: Option<PluginLockGuard>,
}

impl From<TaskResult> for TaskOutput {
    fn from(body: TaskResult) -> Self {
        Self { body, guard: None }
    }
}

#[derive(Clone)]
pub(crate) enum TaskResult {
    Input(Box<Input>),
    /// The answers of BeforeToolExecute hooks.
    Gate {
        call: CallId,
        hooks: HookAnswers,
    },
    /// The answers of AfterToolExecute hooks.
    AfterTool {
        call: CallId,
        status: CallStatus,
        hooks: HookAnswers,
    },
}
