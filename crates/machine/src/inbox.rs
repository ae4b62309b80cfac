//! What comes from outside the worker: the verdict when it is submitted, and the order in which a run hears it.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::control::Control;
use crate::decision::{Decision, DecisionAction, meaning};
use crate::event::InterruptCause;
use crate::id::{CallId, Digest, SuspensionId};
use crate::input::{ChildEnded, Input, Outcome};
use crate::policy::Decisions;
use crate::projection::{self, Projection};
use crate::status::CallStatus;
use crate::suspension::{ResumeMode, SuspensionKind};
use crate::time::Timestamp;

/// One row of a run's inbox. It was accepted, so it will be heard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    Decision(Decision),
    /// Given before the call was held; only for the arguments with this digest. The append that opens an approval
    /// for them marks it answered: nobody else can decide it any more.
    Early {
        decision: Decision,
        digest: Digest,
    },
    Interrupt {
        cause: InterruptCause,
    },
    ChildEnded(ChildEnded),
    /// An attempt that another worker had started has answered after all.
    LateAnswer {
        step: u32,
        call: CallId,
        attempt: u32,
        outcome: Outcome,
    },
}

/// A run as the store shows it while an item is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunRow {
    Open,
    /// An interrupt was accepted, or the end is decided.
    OnTheWayOut,
    Ended,
}

/// An open suspension as the store shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspensionRow {
    pub id: SuspensionId,
    pub kind: SuspensionKind,
    pub mode: ResumeMode,
    pub arguments: Digest,
    /// Of the tool as it was shown, where it is an approval.
    pub definition: Option<Digest>,
    pub expires_at: Option<Timestamp>,
    /// An accepted decision, still unheard, answers it.
    pub answered: bool,
    /// The attempt in doubt, where it is one.
    pub doubted_attempt: Option<u32>,
}

/// A decision that was accepted earlier under the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    pub same_content: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// The approval was for another definition of the tool. The item is put into the inbox all the same: the run
    /// voids the approval and holds the call again.
    ToolChanged,
    /// The same decision again, also after the end.
    AlreadyApplied,
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The same id was used for another decision.
    IdUsed,
    NotHeld,
    /// Somebody else was faster.
    Answered,
    Expired,
    RunOver,
    DigestMismatch,
    /// Malformed, or it fails the schema: nothing changed, still held.
    Invalid(String),
}

/// Decides who wins, in the transaction that marks the suspension answered. `row` is the suspension of the
/// decision's call that is open now, if one is.
#[must_use]
pub fn judge_decision(
    decision: &Decision,
    run: RunRow,
    row: Option<&SuspensionRow>,
    earlier: Option<Earlier>,
) -> Verdict {
    match earlier {
        Some(Earlier { same_content: true }) => return Verdict::AlreadyApplied,
        Some(Earlier { same_content: false }) => return Verdict::Refused(Refusal::IdUsed),
        None => {}
    }
    match run {
        RunRow::Open => {}
        RunRow::OnTheWayOut | RunRow::Ended => return Verdict::Refused(Refusal::RunOver),
    }
    let Some(row) = row.filter(|row| row.id == decision.suspension) else {
        return Verdict::Refused(Refusal::NotHeld);
    };
    if row.answered {
        return Verdict::Refused(Refusal::Answered);
    }
    if row.expires_at.is_some_and(|at| at <= decision.accepted_at) {
        return Verdict::Refused(Refusal::Expired);
    }
    if let Err(why) = meaning(row.kind, row.mode, &decision.action) {
        return Verdict::Refused(Refusal::Invalid(why));
    }
    match &decision.action {
        DecisionAction::Resume(resume) if resume.expect_digest.is_some_and(|seen| seen != row.arguments) => {
            Verdict::Refused(Refusal::DigestMismatch)
        }
        DecisionAction::Resume(_) if changed(decision, row) => Verdict::ToolChanged,
        DecisionAction::Resume(_) | DecisionAction::Cancel { .. } => Verdict::Accepted,
    }
}

fn changed(decision: &Decision, row: &SuspensionRow) -> bool {
    row.definition.is_some_and(|shown| decision.definition_now.is_some_and(|current| current != shown))
}

/// The late answer of the attempt that is under way, lost or in doubt settles it; any other is stale.
/// `under_way` is the attempt of a call that is Running, `row` the call's open suspension.
#[must_use]
pub fn judge_late_answer(
    run: RunRow,
    under_way: Option<u32>,
    row: Option<&SuspensionRow>,
    attempt: u32,
) -> Verdict {
    match (run, row) {
        (RunRow::OnTheWayOut | RunRow::Ended, _) => Verdict::Refused(Refusal::RunOver),
        (RunRow::Open, _) if under_way == Some(attempt) => Verdict::Accepted,
        (RunRow::Open, Some(row)) if row.answered => Verdict::Refused(Refusal::Answered),
        (RunRow::Open, Some(row)) if row.doubted_attempt == Some(attempt) => Verdict::Accepted,
        (RunRow::Open, Some(_) | None) => Verdict::Refused(Refusal::NotHeld),
    }
}

/// Which rows of the inbox the run hears in this pass, in which order: results first, then the rest as it came.
/// A result never overtakes an earlier decision about the same call. With `at_boundary` decisions stay for
/// later while a call executes, unless what comes after them closes what they answer, or the store said that
/// the run is behind (`hurry`).
#[must_use]
pub fn drain(control: &Control, inbox: &[Item], hurry: bool) -> Vec<usize> {
    let closes_all = inbox.iter().any(|item| matches!(item, Item::Interrupt { .. }));
    let defer = control.policy.decisions == Decisions::AtBoundary
        && projection::of_run(control) == Projection::Executing
        && !hurry
        && !closes_all;
    let mut results = Vec::new();
    let mut rest = Vec::new();
    let mut decided: Vec<&CallId> = Vec::new();
    for (item, index) in inbox.iter().zip(0_usize..) {
        match item {
            Item::ChildEnded(ChildEnded { call, .. }) | Item::LateAnswer { call, .. } => {
                match decided.contains(&call) {
                    true if defer => {}
                    true => rest.push(index),
                    false => results.push(index),
                }
            }
            Item::Decision(decision) => {
                decided.push(&decision.call);
                if !defer {
                    rest.push(index);
                }
            }
            Item::Early { decision, digest } => match early(control, &decision.call, digest) {
                Early::NotYet => {}
                Early::Due(_) if defer => {}
                Early::Due(_) | Early::Moot => rest.push(index),
            },
            Item::Interrupt { .. } => rest.push(index),
        }
    }
    results.extend(rest);
    results
}

/// What an item says to the run; none where it has become pointless.
#[must_use]
pub fn hear(control: &Control, item: &Item) -> Option<Input> {
    match item {
        Item::Decision(decision) => Some(Input::Decide(decision.clone())),
        Item::Early { decision, digest } => match early(control, &decision.call, digest) {
            Early::Due(suspension) => Some(Input::Decide(Decision { suspension, ..decision.clone() })),
            Early::NotYet | Early::Moot => None,
        },
        Item::Interrupt { cause } => Some(Input::Interrupt { cause: cause.clone() }),
        Item::ChildEnded(ended) => Some(Input::ChildEnded(ended.clone())),
        Item::LateAnswer { step, call, attempt, outcome } => Some(Input::ToolReturned {
            step: *step,
            call: call.clone(),
            attempt: *attempt,
            outcome: outcome.clone(),
        }),
    }
}

/// An early decision may be kept for a call that is on its way: the run is executing, so it is not parked.
#[must_use]
pub fn may_keep_early(control: &Control, call: &CallId) -> bool {
    control
        .call(call)
        .is_some_and(|call| call.status() == CallStatus::Running || projection::at_the_gate(control, call))
}

enum Early {
    NotYet,
    Due(SuspensionId),
    Moot,
}

fn early(control: &Control, id: &CallId, digest: &Digest) -> Early {
    let Some(call) = control.call(id) else { return Early::Moot };
    match call.suspension() {
        Some(open) if open.held.kind() == SuspensionKind::Approval && call.arguments == *digest => {
            Early::Due(open.id.clone())
        }
        Some(_) => Early::Moot,
        None if Call::settled(call) => Early::Moot,
        None => Early::NotYet,
    }
}
