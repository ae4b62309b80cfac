//! The control state: everything the machine needs except closed steps and message bodies. Small, and stored.

mod version_1;
mod version_2;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::version_1::ControlV1;
use self::version_2::ControlV2;
use crate::call::Call;
use crate::event::{Parent, Pending, Usage};
use crate::id::{AgentName, CallId, Digest, MessageId, Principal, RunId, ThreadId};
use crate::output::JudgedOutput;
use crate::phase::PhaseSet;
use crate::policy::Policy;
use crate::recently_settled::RecentlySettled;
use crate::status::RunStatus;
use crate::termination::Termination;
use crate::time::Timestamp;

/// Changes whenever the fold or this layout does. If the stored control of a run has another version, a worker folds
/// the log. Released layouts stay readable for code that only shows the run, which would otherwise fold the log every
/// time.
pub const FOLD_VERSION: u16 = 3;
pub const CONTROL_BYTES_MAX: usize = 16 * 1024;
/// Calls kept for loop detection; no window is wider.
pub const LOOP_WINDOW_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Control {
    pub run: RunId,
    pub thread: ThreadId,
    pub agent: AgentName,
    pub revision: Digest,
    pub parent: Option<Parent>,
    pub policy: Policy,
    pub loosened_by: Option<Principal>,
    pub user_message: Option<MessageId>,
    /// The run's input begins after this message.
    pub after: Option<MessageId>,
    /// The last event's sequence number.
    pub seq: u64,
    pub at: Timestamp,
    pub status: RunStatus,
    pub stage: Stage,
    /// Number of the last step that started; 0 before the first.
    pub step: u32,
    pub step_open: bool,
    /// Stop conditions whose pattern the last answer matched.
    pub matched: Vec<u16>,
    /// Verdict on the last answer, if it asked for no call and an output is wanted. After the end: the run's output.
    pub output: Option<JudgedOutput>,
    /// The model has been asked once to correct its answer. It is not asked again.
    pub output_corrected: bool,
    /// The calls of the last step, and under `eager` those of earlier steps that are still open, in the order
    /// in which the model asked for them.
    pub calls: Vec<Call>,
    pub recent: RecentlySettled,
    pub usage: Usage,
    /// Tokens granted to child runs that have not ended.
    pub reserved_tokens: u64,
    pub consecutive_errors: u32,
    /// Time spent neither queued nor waiting, up to `active_since`.
    pub active_ms: u64,
    pub active_since: Timestamp,
    /// Hashes of name and arguments of the latest calls, oldest first.
    pub loop_window: Vec<[u8; 16]>,
    /// Number of messages that this run has added; together with the run's starting point it identifies a model input.
    pub message_count: u32,
    pub suspension_count: u32,
    /// Runs that count against `descendants_max`: children, the grants of open ones, and what ended ones used.
    pub descendants: u32,
}

/// The run's progress from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    Queued,
    /// The hooks of RunStart are being asked.
    Starting,
    /// The hooks of StepStart and BeforeInference are asked, then the model is called.
    Inferring(Inferring),
    /// The calls of the last answer are being executed or are held.
    Acting,
    /// The hooks of StepEnd are being asked; with `after_inference` the calls come afterwards.
    StepEnding,
    /// The step is over. The run stays here only if `eager` left calls of earlier steps open.
    BetweenSteps,
    /// The end is decided: executing calls are awaited, then the hooks of RunEnd are asked.
    Ending(Termination),
    Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inferring {
    pub attempt: u32,
    /// Failed attempts of this step; attempts that were lost with their worker do not count.
    pub failures: u32,
    /// One of them was an answer without text and calls. The next such answer is accepted as it is.
    pub empty_retried: bool,
    pub not_before: Timestamp,
    /// The worker that made the attempt is gone.
    pub lost: bool,
    /// Phases whose answers are recorded. Their hooks are not asked again.
    pub answered: PhaseSet,
    /// The events that record these answers. Their actions modify the model request.
    pub adjusted_by: Vec<u64>,
}

impl Inferring {
    pub(crate) const fn first(at: Timestamp) -> Self {
        Self {
            attempt: 1,
            failures: 0,
            empty_retried: false,
            not_before: at,
            lost: false,
            answered: PhaseSet::NONE,
            adjusted_by: Vec::new(),
        }
    }
}

/// A stored control that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlDecodeError {
    /// Written by another version of the fold: fold the log again.
    UnsupportedVersion(u16),
    Corrupt(String),
}

impl Control {
    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.calls.iter().find(|call| call.id == *id)
    }

    /// The calls of the last step.
    pub fn step_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.step == self.step)
    }

    #[must_use]
    pub fn ended(&self) -> Option<&Termination> {
        match &self.status {
            RunStatus::Done(termination) => Some(termination),
            RunStatus::Queued | RunStatus::Running | RunStatus::Waiting(_) | RunStatus::Interrupting => None,
        }
    }

    /// Every open suspension in call order.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        self.calls
            .iter()
            .filter_map(|call| {
                call.suspension().map(|open| Pending {
                    call_id: call.id.clone(),
                    tool: call.tool.clone(),
                    kind: open.held.kind(),
                    child_run: open.held.child_run().cloned(),
                    suspension_id: open.id.clone(),
                    expires_at: open.expiry.map(|expiry| expiry.at),
                })
            })
            .collect()
    }

    /// The stored form, prefixed with the fold version.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        postcard::to_allocvec(&(FOLD_VERSION, self)).map_err(|error| format!("{error}"))
    }

    /// The control that folding the log gives. Only [`FOLD_VERSION`] is decoded.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlDecodeError> {
        match versioned(bytes)? {
            (FOLD_VERSION, layout) => whole(layout),
            (version, _) => Err(ControlDecodeError::UnsupportedVersion(version)),
        }
    }

    /// The control for a store that shows the run or judges an item for its inbox. Earlier versions are decoded too, but
    /// a worker must not continue from them: versions 1 and 2 do not have the expiry terms of an attempt, and the
    /// `descendants` of version 1 are only the child runs that are still open. Every other field is what folding the log
    /// gives.
    pub fn decode_read_only(bytes: &[u8]) -> Result<Self, ControlDecodeError> {
        match versioned(bytes)? {
            (FOLD_VERSION, layout) => whole(layout),
            (1, layout) => whole::<ControlV1>(layout).map(Self::from),
            (2, layout) => whole::<ControlV2>(layout).map(Self::from),
            (version, _) => Err(ControlDecodeError::UnsupportedVersion(version)),
        }
    }
}

fn versioned(bytes: &[u8]) -> Result<(u16, &[u8]), ControlDecodeError> {
    postcard::take_from_bytes(bytes).map_err(corrupt)
}

fn whole<T: DeserializeOwned>(layout: &[u8]) -> Result<T, ControlDecodeError> {
    let (decoded, surplus) = postcard::take_from_bytes(layout).map_err(corrupt)?;
    if surplus.is_empty() {
        Ok(decoded)
    } else {
        Err(ControlDecodeError::Corrupt("bytes are left over".into()))
    }
}

fn corrupt(error: postcard::Error) -> ControlDecodeError {
    ControlDecodeError::Corrupt(format!("{error}"))
}
