//! The results of a run's tasks.

use machine::Input;
use machine::id::CallId;
use machine::input::Outcome;
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

/// An attempt of which nothing was sent.
#[derive(Clone)]
pub(crate) struct UnsentAttempt {
    pub(crate) step: u32,
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
}

impl UnsentAttempt {
    /// The result of an attempt whose call cannot pass the gate now.
    pub(crate) fn to_input(&self) -> Input {
        let Self { step, call, attempt } = self.clone();
        let why = "the tool changed before the call was sent".into();
        Input::ToolReturned { step, call, attempt, outcome: Outcome::NotSent { why, retry_after_ms: None } }
    }
}

#[derive(Clone)]
pub(crate) enum TaskResult {
    Input(Box<Input>),
    /// Nothing of the attempt was sent, because the tool is not what the gate saw.
    ToolChanged(UnsentAttempt),
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
