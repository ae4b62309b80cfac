//! What the tasks of a run come back with.

use machine::Input;
use machine::id::CallId;
use machine::phase::HookAnswers;
use machine::status::CallStatus;

use super::floor::Turn;

/// What a task comes back with.
pub(crate) struct News {
    pub(crate) task: u64,
    pub(crate) brought: Brought,
}

/// Together with the floor, where plugins were asked.
pub(crate) struct Brought {
    pub(crate) body: NewsBody,
    pub(crate) turn: Option<Turn>,
}

impl From<NewsBody> for Brought {
    fn from(body: NewsBody) -> Self {
        Self { body, turn: None }
    }
}

#[derive(Clone)]
pub(crate) enum NewsBody {
    Said(Box<Input>),
    /// The hooks of BeforeToolExecute.
    Gate {
        call: CallId,
        hooks: HookAnswers,
    },
    /// The hooks of AfterToolExecute.
    After {
        call: CallId,
        status: CallStatus,
        hooks: HookAnswers,
    },
}

/// Answers of AfterToolExecute that are not recorded yet.
pub(crate) struct HeardAfter {
    pub(crate) call: CallId,
    pub(crate) status: CallStatus,
    pub(crate) hooks: HookAnswers,
    pub(crate) fresh: bool,
}
