//! The two state machines as truth tables: which transitions a call and a run may make.

use core::fmt;
use serde::{Deserialize, Serialize};

use crate::termination::Termination;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    New,
    Running,
    Suspended,
    Resuming,
    Succeeded,
    Failed,
    Cancelled,
}

impl CallStatus {
    pub const ALL: [Self; 7] = [
        Self::New,
        Self::Running,
        Self::Suspended,
        Self::Resuming,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    #[must_use]
    pub const fn terminal(self) -> bool {
        match self {
            Self::New | Self::Running | Self::Suspended | Self::Resuming => false,
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
        }
    }

    /// The complete table. `docs/rules.md` explains each pair.
    pub const fn transition_to(self, to: Self) -> Result<Self, IllegalCallTransition> {
        use CallStatus::{Cancelled, Failed, New, Resuming, Running, Succeeded, Suspended};
        let legal = match (self, to) {
            (New, Running | Suspended | Succeeded | Failed | Cancelled)
            // Running to Running is a new attempt: the worker was lost, or the outcome is unknown and the effect class
            // allows it.
            | (Running, Running | Suspended | Succeeded | Failed | Cancelled)
            | (Suspended, Resuming | Cancelled)
            | (Resuming, Running | Suspended | Succeeded | Failed | Cancelled) => true,
            (New, New | Resuming)
            | (Running, New | Resuming)
            | (Suspended, New | Running | Suspended | Succeeded | Failed)
            | (Resuming, New | Resuming)
            | (Succeeded | Failed | Cancelled, _) => false,
        };
        if legal { Ok(to) } else { Err(IllegalCallTransition { from: self, to }) }
    }
}

impl fmt::Display for CallStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalCallTransition {
    pub from: CallStatus,
    pub to: CallStatus,
}

impl fmt::Display for IllegalCallTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a call that is {} cannot become {}", self.from, self.to)
    }
}

/// What a run that waits is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitingOn {
    /// A person: an approval, a question, or a call in doubt.
    Person,
    /// A front end, an external service that posts results, or a child run.
    Tool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Queued,
    Running,
    Waiting(WaitingOn),
    Interrupting,
    Done(Termination),
}

impl RunStatus {
    #[must_use]
    pub const fn ended(&self) -> bool {
        match self {
            Self::Done(_) => true,
            Self::Queued | Self::Running | Self::Waiting(_) | Self::Interrupting => false,
        }
    }

    /// The complete table. A waiting run ends directly only by cancellation or error; any other end resumes it first.
    /// Waiting for something else is a new wait.
    pub fn transition_to(&self, to: Self) -> Result<Self, IllegalRunTransition> {
        use RunStatus::{Done, Interrupting, Queued, Running, Waiting};
        let legal = match (self, &to) {
            (Queued, Running | Interrupting) | (Running, Waiting(_) | Interrupting | Done(_)) => true,
            (Waiting(_), Running | Interrupting) => true,
            (Waiting(before), Waiting(after)) => before != after,
            (Queued | Waiting(_), Done(how)) => how.is_abort(),
            (Interrupting, Done(how)) => how.is_cancelled(),
            (Queued, Queued | Waiting(_))
            | (Running, Queued | Running)
            | (Waiting(_), Queued)
            | (Interrupting, Queued | Running | Waiting(_) | Interrupting)
            | (Done(_), Queued | Running | Waiting(_) | Interrupting | Done(_)) => false,
        };
        if legal { Ok(to) } else { Err(IllegalRunTransition { from: self.clone(), to }) }
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued => f.write_str("Queued"),
            Self::Running => f.write_str("Running"),
            Self::Waiting(WaitingOn::Person) => f.write_str("Waiting on a person"),
            Self::Waiting(WaitingOn::Tool) => f.write_str("Waiting on a tool"),
            Self::Interrupting => f.write_str("Interrupting"),
            Self::Done(how) => write!(f, "Done({})", how.done_reason()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IllegalRunTransition {
    pub from: RunStatus,
    pub to: RunStatus,
}

impl fmt::Display for IllegalRunTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a run that is {} cannot become {}", self.from, self.to)
    }
}
