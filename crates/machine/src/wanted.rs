//! What the world should be doing now, and when the run must be looked at again. Derived from state, never queued.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use crate::call::{Call, CallState};
use crate::control::{Control, Stage};
use crate::decide::wants_after_hooks;
use crate::id::CallId;
use crate::phase::Phase;
use crate::revision::Revision;
use crate::status::{CallStatus, RunStatus};
use crate::step_projection::is_at_gate;
use crate::suspension::SuspensionKind;
use crate::time::Timestamp;

/// Something the engine should have under way. What is not wanted any more is cancelled; what is wanted and
/// was started by this worker goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Ask the hooks of RunStart, StepEnd or RunEnd, and say [`Input::PhaseAnswered`](crate::Input).
    RunPhase(Phase),
    /// Ask the hooks of `ask_first` in order; report each that answers with something, or fails, and go on only
    /// once that is stored. Then call the model, then ask the hooks of AfterInference, whose answers ride with
    /// the model's.
    CallModel {
        step: u32,
        attempt: u32,
        not_before: Timestamp,
        ask_first: Vec<Phase>,
        /// The events whose actions shape the request.
        adjusted_by: Vec<u64>,
        /// The messages of this run that the model reads.
        message_count: u32,
    },
    /// Look the tool up, validate the arguments, ask the hooks of BeforeToolExecute, and say
    /// [`Input::Gated`](crate::Input).
    Gate(CallId),
    /// Make this attempt, no earlier than `not_before`: its intent is stored. If by then the tool is not what the gate
    /// saw, or the lease is too old, send nothing and say so ([`Outcome::NotSent`](crate::input::Outcome)).
    RunTool { call: CallId, attempt: u32, not_before: Timestamp },
    /// Ask the hooks of AfterToolExecute once about the call as it stands. Say all answers that are not yet
    /// recorded together, empty ones too, whenever one comes in and whenever this is still wanted after other
    /// news.
    RunAfterToolHooks { call: CallId, status: CallStatus },
}

impl Effect {
    /// What is under way for one serves the other. A model call goes on when the answers of its hooks have been
    /// recorded; everything else is the same task only if it is equal.
    #[must_use]
    pub fn same_task(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::CallModel { step, attempt, .. },
                Self::CallModel { step: other_step, attempt: other_attempt, .. },
            ) => step == other_step && attempt == other_attempt,
            (
                Self::RunPhase(_)
                | Self::CallModel { .. }
                | Self::Gate(_)
                | Self::RunTool { .. }
                | Self::RunAfterToolHooks { .. },
                _,
            ) => self == other,
        }
    }
}

/// When the run must hear [`Input::DeadlineReached`](crate::Input), and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    pub at: Timestamp,
    pub reason: DeadlineReason,
    pub call: CallId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadlineReason {
    Expires(SuspensionKind),
    /// The worker that might still have sent the attempt is surely gone.
    InDoubtDue,
}

impl fmt::Display for DeadlineReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expires(kind) => write!(f, "{kind} expires"),
            Self::InDoubtDue => f.write_str("a lost write may be offered as in doubt"),
        }
    }
}

pub(crate) fn wanted(revision: &Revision, control: &Control) -> BTreeSet<Effect> {
    let mut wanted = BTreeSet::new();
    match &control.stage {
        Stage::Queued | Stage::Ended | Stage::Acting | Stage::BetweenSteps => {}
        Stage::Starting => {
            wanted.insert(Effect::RunPhase(Phase::RunStart));
        }
        Stage::StepEnding => {
            wanted.insert(Effect::RunPhase(Phase::StepEnd));
        }
        Stage::Ending(_) if control.calls.iter().all(Call::settled) => {
            wanted.insert(Effect::RunPhase(Phase::RunEnd));
        }
        Stage::Ending(_) => {}
        Stage::Inferring(inferring) if inferring.lost => {}
        Stage::Inferring(inferring) => {
            wanted.insert(Effect::CallModel {
                step: control.step,
                attempt: inferring.attempt,
                not_before: inferring.not_before,
                ask_first: [Phase::StepStart, Phase::BeforeInference]
                    .into_iter()
                    .filter(|phase| revision.phases.has(*phase) && !inferring.answered.has(*phase))
                    .collect(),
                adjusted_by: inferring.adjusted_by.clone(),
                message_count: control.message_count,
            });
        }
    }
    wanted.extend(control.calls.iter().filter_map(|call| wanted_for_call(revision, control, call)));
    wanted
}

fn wanted_for_call(revision: &Revision, control: &Control, call: &Call) -> Option<Effect> {
    if let CallState::Running(attempt) = &call.state
        && attempt.lost.is_none()
    {
        return Some(Effect::RunTool {
            call: call.id.clone(),
            attempt: attempt.number,
            not_before: attempt.not_before,
        });
    }
    match control.stage {
        Stage::Ended => return None,
        Stage::Ending(_) => return call.is_approved_and_unstarted().then(|| Effect::Gate(call.id.clone())),
        Stage::Queued
        | Stage::Starting
        | Stage::Inferring(_)
        | Stage::Acting
        | Stage::StepEnding
        | Stage::BetweenSteps => {}
    }
    let after_step_end = control.stage == Stage::StepEnding && call.step == control.step;
    if is_at_gate(control, call) && !after_step_end {
        return Some(Effect::Gate(call.id.clone()));
    }
    let asks_hooks = revision.phases.has(Phase::AfterToolExecute)
        && !matches!(control.status, RunStatus::Waiting(_))
        && wants_after_hooks(call, control.policy.step_end)
        && !call.after_answered;
    asks_hooks.then(|| Effect::RunAfterToolHooks { call: call.id.clone(), status: call.status() })
}

pub(crate) fn next_deadline(control: &Control) -> Option<Deadline> {
    control.calls.iter().filter_map(deadline_of).min()
}

fn deadline_of(call: &Call) -> Option<Deadline> {
    let (at, reason) = match &call.state {
        CallState::Suspended(open) => (open.expiry?.at, DeadlineReason::Expires(open.held.kind())),
        CallState::Running(attempt) if call.may_have_written() => (attempt.lost?, DeadlineReason::InDoubtDue),
        CallState::New
        | CallState::Running(_)
        | CallState::Resuming
        | CallState::Succeeded { .. }
        | CallState::Failed { .. }
        | CallState::Cancelled { .. } => return None,
    };
    Some(Deadline { at, reason, call: call.id.clone() })
}
