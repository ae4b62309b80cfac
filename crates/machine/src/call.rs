//! One tool call in the control state.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, Digest, SuspensionId, ToolName};
use crate::rules::Asker;
use crate::status::CallStatus;
use crate::suspension::{Held, Suspension};
use crate::time::Timestamp;
use crate::tool::EffectClass;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub id: CallId,
    pub step: u32,
    pub tool: ToolName,
    /// Of the arguments that will run; they stand in the event `arguments_seq`.
    pub arguments: Digest,
    pub arguments_seq: u64,
    pub state: CallState,
    /// The last attempt's number.
    pub attempts: u32,
    /// Attempts in a row that ended without an answer.
    pub failures: u32,
    /// As the gate last saw it. A call that never passed the gate has none.
    pub class: Option<EffectClass>,
    /// Who has held this call: they do not ask again.
    pub asked: Vec<Asker>,
    pub ask_rounds: u8,
    pub pending_rounds: u8,
    /// The last approval. It holds for repeats of the call too, as long as the tool stays what was shown.
    pub approved: Option<Approved>,
    /// The attempts whose outcome nobody knows, also after somebody wished for another one.
    pub doubted: Vec<u32>,
    /// The tool changed under its approval: whoever asks or not, this call is held again.
    pub must_ask: bool,
    /// The event with the answer that the tool gets when it runs again.
    pub answer_seq: Option<u64>,
    /// The event that opened the suspension which that answer closes: it has the tool's `resume_state`.
    pub resume_state_seq: Option<u64>,
    /// The events in which hooks of AfterToolExecute asked for a note.
    pub notes: Vec<u64>,
    /// The hooks of AfterToolExecute have been heard about the state that the call is in.
    pub after_answered: bool,
    pub reported: Reported,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    pub approval: SuspensionId,
    pub definition: Digest,
}

/// What the transcript has of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reported {
    Nothing,
    Placeholder,
    Result,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CallState {
    New,
    Running(Attempt),
    Suspended(Suspension),
    Resuming,
    Succeeded { seq: u64 },
    Failed { seq: u64 },
    Cancelled { seq: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub number: u32,
    pub not_before: Timestamp,
    /// The worker that started it is gone. If it may have written, a person is asked from this time on.
    pub lost: Option<Timestamp>,
}

impl CallState {
    #[must_use]
    pub const fn status(&self) -> CallStatus {
        match self {
            Self::New => CallStatus::New,
            Self::Running(_) => CallStatus::Running,
            Self::Suspended(_) => CallStatus::Suspended,
            Self::Resuming => CallStatus::Resuming,
            Self::Succeeded { .. } => CallStatus::Succeeded,
            Self::Failed { .. } => CallStatus::Failed,
            Self::Cancelled { .. } => CallStatus::Cancelled,
        }
    }
}

impl Call {
    #[must_use]
    pub const fn status(&self) -> CallStatus {
        self.state.status()
    }

    /// The worker that made the attempt is gone.
    #[must_use]
    pub const fn lost(&self) -> bool {
        match &self.state {
            CallState::Running(attempt) => attempt.lost.is_some(),
            CallState::New
            | CallState::Suspended(_)
            | CallState::Resuming
            | CallState::Succeeded { .. }
            | CallState::Failed { .. }
            | CallState::Cancelled { .. } => false,
        }
    }

    /// The number of the attempt that runs, lost or not.
    #[must_use]
    pub const fn running_attempt(&self) -> Option<u32> {
        match &self.state {
            CallState::Running(attempt) => Some(attempt.number),
            CallState::New
            | CallState::Suspended(_)
            | CallState::Resuming
            | CallState::Succeeded { .. }
            | CallState::Failed { .. }
            | CallState::Cancelled { .. } => None,
        }
    }

    /// Somebody approved it, and it has not passed the gate since.
    #[must_use]
    pub const fn is_approved_and_unstarted(&self) -> bool {
        matches!(self.state, CallState::Resuming) && self.approved.is_some()
    }

    #[must_use]
    pub const fn settled(&self) -> bool {
        self.status().terminal()
    }

    #[must_use]
    pub const fn suspension(&self) -> Option<&Suspension> {
        match &self.state {
            CallState::Suspended(suspension) => Some(suspension),
            CallState::New
            | CallState::Running(_)
            | CallState::Resuming
            | CallState::Succeeded { .. }
            | CallState::Failed { .. }
            | CallState::Cancelled { .. } => None,
        }
    }

    /// The latest of its askers: those that opened the suspension that is open now.
    #[must_use]
    pub fn open_askers(&self) -> &[Asker] {
        let count = self.suspension().map_or(0, |open| usize::from(open.asker_count));
        self.asked.get(self.asked.len().saturating_sub(count)..).unwrap_or_default()
    }

    /// The event that made the call terminal.
    #[must_use]
    pub const fn settled_seq(&self) -> Option<u64> {
        match &self.state {
            CallState::Succeeded { seq } | CallState::Failed { seq } | CallState::Cancelled { seq } => {
                Some(*seq)
            }
            CallState::New | CallState::Running(_) | CallState::Suspended(_) | CallState::Resuming => None,
        }
    }

    /// An attempt may have taken effect, and repeating it could do so twice.
    #[must_use]
    pub const fn may_have_written(&self) -> bool {
        match &self.state {
            CallState::Running(_) => match self.class {
                Some(class) => !class.repeatable() || !self.doubted.is_empty(),
                None => true,
            },
            CallState::New | CallState::Suspended(_) | CallState::Resuming => !self.doubted.is_empty(),
            CallState::Succeeded { .. } | CallState::Failed { .. } | CallState::Cancelled { .. } => false,
        }
    }

    /// What becomes of it when the run waits for it no longer: may it have taken effect all the same? Whoever else was
    /// given it, a service that answers later or a child run, does not stop with that, or not in time.
    #[must_use]
    pub const fn may_take_effect(&self) -> bool {
        let elsewhere = match self.suspension() {
            Some(open) => match open.held {
                Held::External | Held::ChildRun { .. } => self.attempts > 0,
                Held::Approval { .. } | Held::ClientTool | Held::Question | Held::InDoubt { .. } => false,
            },
            None => false,
        };
        let writes = match self.class {
            Some(class) => !class.repeatable(),
            None => true,
        };
        self.may_have_written() || (elsewhere && writes)
    }
}
