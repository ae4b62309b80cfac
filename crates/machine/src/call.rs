//! One tool call in the control state.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, Digest, SuspensionId, ToolName};
use crate::rules::Asker;
use crate::status::CallStatus;
use crate::suspension::{Held, Suspension};
use crate::time::Timestamp;
use crate::tool::{EffectClass, ExpiryTerms};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub id: CallId,
    pub step: u32,
    pub tool: ToolName,
    /// Digest of the arguments that will run; the arguments themselves are in the event `arguments_seq`.
    pub arguments: Digest,
    pub arguments_seq: u64,
    pub state: CallState,
    /// The last attempt's number.
    pub attempts: u32,
    /// Number of consecutive attempts that ended without an answer.
    pub failures: u32,
    /// The effect class when the call last passed the gate. A call that never passed the gate has none.
    pub class: Option<EffectClass>,
    /// When a suspension that the last attempt leads to expires.
    pub expires: Option<ExpiryTerms>,
    /// Askers that have already held this call. They do not ask again.
    pub asked: Vec<Asker>,
    pub ask_rounds: u8,
    pub pending_rounds: u8,
    /// The last approval. It is also valid for repeats of the call, as long as the tool is the one that was shown.
    pub approved: Option<Approved>,
    /// Attempts whose outcome is unknown. They stay here even after a person asked for another attempt.
    pub doubted: Vec<u32>,
    /// The tool changed after it was approved: this call is held again, even if no asker asks.
    pub must_ask: bool,
    /// The event with the answer that the tool receives when it runs again.
    pub answer_seq: Option<u64>,
    /// The event that opened the suspension which that answer closes. It has the tool's `resume_state`.
    pub resume_state_seq: Option<u64>,
    /// The events in which hooks of AfterToolExecute asked for a note.
    pub notes: Vec<u64>,
    /// The hooks of AfterToolExecute have answered for the call's current state.
    pub after_answered: bool,
    pub reported: Reported,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    pub approval: SuspensionId,
    pub definition: Digest,
}

/// What the transcript contains of a call.
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
    /// The worker that started the attempt is gone. If the attempt may have written, a person is asked from then on.
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

    /// The number of the running attempt, lost or not.
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

    /// The call was approved, and has not passed the gate since.
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

    /// The most recent askers: those that opened the current suspension.
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

    /// An attempt may have taken effect, and repeating it could apply the effect twice.
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

    /// Whether the call may still take effect once the run stops waiting for it. An external service that answers
    /// later, or a child run, does not stop then, or does not stop in time.
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
