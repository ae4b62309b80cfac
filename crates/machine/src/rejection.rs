//! Why an input was refused. A rejected input changed nothing.

use alloc::string::String;
use core::fmt;

use crate::apply::ImpossibleEvent;
use crate::id::{CallId, Digest, SuspensionId};
use crate::phase::Phase;
use crate::status::CallStatus;
use crate::termination::Termination;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    RunEnded(Termination),
    /// The end is decided; no more decisions or answers are accepted.
    RunEnding,
    AlreadyStarted,
    NotStarted,
    UnknownCall(CallId),
    WrongStep {
        call: CallId,
        step: u32,
        current: u32,
    },
    StaleAttempt {
        call: CallId,
        attempt: u32,
        current: u32,
        status: CallStatus,
    },
    StaleModelAttempt {
        step: u32,
        attempt: u32,
    },
    /// The call is not next in line and is not resuming.
    NotAtGate {
        call: CallId,
        status: CallStatus,
    },
    NotAsked(Phase),
    NotSuspended {
        call: CallId,
        status: CallStatus,
    },
    WrongSuspension {
        call: CallId,
        open: SuspensionId,
    },
    Expired {
        call: CallId,
        at: Timestamp,
    },
    /// The decision is malformed or fails the schema. The call is still held.
    Invalid {
        call: CallId,
        why: String,
    },
    DigestMismatch {
        call: CallId,
        held: Digest,
    },
    NothingDue,
    /// A bug in this software: a decision that the fold refuses.
    InternalError(ImpossibleEvent),
}

impl Rejection {
    /// The error is ours, not the sender's: the run must be halted and the error reported. Any other rejection of an
    /// accepted item means that the item came too late; it is consumed and dropped.
    #[must_use]
    pub const fn is_internal_error(&self) -> bool {
        matches!(self, Self::InternalError(_))
    }
}

impl From<ImpossibleEvent> for Rejection {
    fn from(impossible: ImpossibleEvent) -> Self {
        Self::InternalError(impossible)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunEnded(how) => write!(f, "the run has ended ({})", how.done_reason()),
            Self::RunEnding => f.write_str("the run is ending; nothing is decided in it any more"),
            Self::AlreadyStarted => f.write_str("the run has started already"),
            Self::NotStarted => f.write_str("the run is queued and has not started"),
            Self::UnknownCall(call) => write!(f, "this run has no open call {call}"),
            Self::WrongStep { call, step, current } => {
                write!(f, "call {call} belongs to step {current}, not to step {step}")
            }
            Self::StaleAttempt { call, attempt, current, status } => write!(
                f,
                "attempt {attempt} of call {call} is over: the call is {status}, its last attempt is {current}"
            ),
            Self::StaleModelAttempt { step, attempt } => {
                write!(f, "no model call of step {step} with attempt {attempt} is under way")
            }
            Self::NotAtGate { call, status } => write!(f, "call {call} is {status} and not at the gate"),
            Self::NotAsked(phase) => write!(f, "the hooks of {phase} were not asked"),
            Self::NotSuspended { call, status } => {
                write!(f, "call {call} is {status}, not Suspended: there is nothing to decide")
            }
            Self::WrongSuspension { call, open } => {
                write!(f, "call {call} is held by {open}; this decision answers an earlier question")
            }
            Self::Expired { call, at } => write!(f, "the time to decide on call {call} ended at {at}"),
            Self::Invalid { call, why } => write!(f, "call {call} is still held: {why}"),
            Self::DigestMismatch { call, held } => {
                write!(f, "call {call} is held with other arguments than expected, digest {held}")
            }
            Self::NothingDue => f.write_str("no deadline has been reached"),
            Self::InternalError(impossible) => write!(f, "the decision contradicts the log: {impossible}"),
        }
    }
}

impl core::error::Error for Rejection {}
