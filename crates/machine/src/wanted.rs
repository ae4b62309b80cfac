//! The effects that should be under way, and when the run must be woken again. Derived from state, never queued.

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

/// Something that the engine should have under way. An effect that is no longer wanted is cancelled; one that is still
/// wanted and was started by this worker continues.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Ask the hooks of RunStart, StepEnd or RunEnd, and submit [`Input::PhaseAnswered`](crate::Input).
    RunPhase(Phase),
    /// Ask the hooks of `ask_first` in order. Report each hook that fails or answers with an action, and continue only
    /// once that is stored. Then call the model, then ask the hooks of AfterInference; their answers are reported
    /// together with the model's.
    CallModel {
        step: u32,
        attempt: u32,
        not_before: Timestamp,
        ask_first: Vec<Phase>,
        /// The events whose actions modify the request.
        adjusted_by: Vec<u64>,
        /// Number of messages of this run that the model reads.
        message_count: u32,
    },
    /// Look up the tool, validate the arguments, ask the hooks of BeforeToolExecute, and submit
    /// [`Input::Gated`](crate::Input).
    Gate(CallId),
    /// Make this attempt, no earlier than `not_before`: its intent is stored. If the tool no longer is what the gate
    /// saw, or the lease is too old, send nothing and report that ([`Outcome::NotSent`](crate::input::Outcome)).
    RunTool { call: CallId, attempt: u32, not_before: Timestamp },
    /// Ask the hooks of AfterToolExecute once about the call in its current state. Submit all answers that are not yet
    /// recorded together, including empty ones: each time an answer arrives, and each time this is still wanted after
    /// another input.
    RunAfterToolHooks { call: CallId, status: CallStatus },
}

impl Effect {
    /// Whether a task that is under way for one effect serves the other. A model call continues after the answers of
    /// its hooks have been recorded; any other effect is the same task only if it is equal.
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

/// When the run must receive [`Input::DeadlineReached`](crate::Input), and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    pub at: Timestamp,
    pub reason: DeadlineReason,
    pub call: CallId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadlineReason {
    Expires(SuspensionKind),
    /// By now the worker that might still have sent the attempt is certainly gone.
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
