//! Input from outside the worker: the verdict at submission, and the order in which a run processes it.

mod target;
mod unprocessed;

pub use target::{Target, target_suspension};
pub use unprocessed::overrides_accepted_answer;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::control::Control;
use crate::decision::{
    Decision, DecisionAction, DecisionMeaning, edit_fault, grant_fault, interpret, is_grantable, unstorable,
};
use crate::event::InterruptCause;
use crate::id::{CallId, Digest, SuspensionId};
use crate::input::{ChildEnded, Input, Outcome, ToolAnswer};
use crate::policy::DecisionTiming;
use crate::projection_rows::RunSummary;
use crate::status::CallStatus;
use crate::step_projection::{self, StepProjection};
use crate::suspension::{ResumeMode, SuspensionKind};
use crate::time::Timestamp;
use crate::undecodable::{judge_child_end, judge_interrupt};
use unprocessed::{end_is_accepted, is_answered, keeps_early};

/// The number of an inbox row. Numbers grow in order of arrival.
pub type Ticket = u64;

/// One row of a run's inbox. It was accepted, so the run will process it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    Decision(Decision),
    /// A decision given before the call was held. It is valid only for the arguments with this digest. The append that
    /// opens an approval for them marks it answered, so no other decision can answer it.
    Early {
        decision: Decision,
        digest: Digest,
    },
    Interrupt {
        cause: InterruptCause,
    },
    ChildEnded(ChildEnded),
    /// An attempt that another worker started has answered after all.
    LateAnswer {
        step: u32,
        call: CallId,
        attempt: u32,
        outcome: Outcome,
    },
}

impl Item {
    /// The call that the item is about, if any.
    #[must_use]
    pub const fn call(&self) -> Option<&CallId> {
        match self {
            Self::Decision(decision) | Self::Early { decision, .. } => Some(&decision.call),
            Self::ChildEnded(ended) => Some(&ended.call),
            Self::LateAnswer { call, .. } => Some(call),
            Self::Interrupt { .. } => None,
        }
    }

    /// The item in a form that can be stored, or why it is refused. If a late answer could not be read back from the
    /// log, an error is stored in its place: the attempt has ended, and its call is no longer in doubt.
    pub fn storable(mut self) -> Result<Self, String> {
        match &mut self {
            Self::Decision(decision) | Self::Early { decision, .. } => match &decision.action {
                DecisionAction::Resume(resume) => {
                    if let Some(fault) = resume.value_fault() {
                        return Err(unstorable(fault));
                    }
                }
                DecisionAction::Cancel { .. } => {}
            },
            Self::LateAnswer { outcome: Outcome::Answered(answer), .. } => {
                if let Some(message) = answer.unstorable() {
                    *answer = ToolAnswer::Error { message };
                }
            }
            Self::LateAnswer { outcome: Outcome::NotSent { .. } | Outcome::Unknown { .. }, .. }
            | Self::ChildEnded(_)
            | Self::Interrupt { .. } => {}
        }
        Ok(self)
    }

    /// The item ends the run at once. Anything not stored by then does not happen.
    #[must_use]
    pub const fn interrupts(&self) -> bool {
        match self {
            Self::Interrupt { .. } => true,
            Self::Decision(_) | Self::Early { .. } | Self::ChildEnded(_) | Self::LateAnswer { .. } => false,
        }
    }

    /// The decision in the item, if it is one.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Decision(decision) | Self::Early { decision, .. } => Some(decision),
            Self::ChildEnded(_) | Self::LateAnswer { .. } | Self::Interrupt { .. } => None,
        }
    }
}

impl Verdict {
    /// Whether the item is put into the inbox.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        match self {
            Self::Accepted | Self::ToolChanged => true,
            Self::AlreadyApplied | Self::Refused(_) => false,
        }
    }
}

/// A run's lifecycle as the store sees it when an item is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLifecycle {
    Open,
    /// An interrupt or a decision that ends the run was accepted, or the end is already decided.
    Ending,
    Ended,
}

/// An open suspension as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspensionRow {
    pub id: SuspensionId,
    pub kind: SuspensionKind,
    pub mode: ResumeMode,
    pub arguments: Digest,
    /// For an approval: the digest of the tool definition that was shown to the approver.
    pub definition: Option<Digest>,
    pub expires_at: Option<Timestamp>,
    /// An accepted decision that the run has not processed yet answers it.
    pub answered: bool,
    /// The attempt in doubt, if the suspension is about one.
    pub doubted_attempt: Option<u32>,
    /// The built-in gate asked, and a grant can stop it from asking about later calls.
    pub is_grantable: bool,
}

/// A decision that was accepted earlier under the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierDecision {
    pub same_content: bool,
}

#[must_use = "a refused decision changed nothing"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The item is put into the inbox, and the run will process it.
    Accepted,
    /// The approval was for another definition of the tool. The item is still put into the inbox: the run voids the
    /// approval and holds the call again.
    ToolChanged,
    /// The same decision was submitted again. Also returned after the end of the run.
    AlreadyApplied,
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The same id was used for a different decision.
    IdUsed,
    NotHeld,
    /// Another decision was accepted first.
    Answered,
    Expired,
    RunOver,
    DigestMismatch,
    /// The call is in doubt, and the decision does not name the suspension ([`target_suspension`]).
    SuspensionNotNamed,
    /// The run has no call with this id.
    UnknownCall,
    /// The principal may not answer suspensions of this kind.
    Forbidden(SuspensionKind),
    /// The decision is malformed or fails the schema. Nothing changed; the call is still held.
    Invalid(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::ToolChanged => f.write_str("the tool has changed since; the call is held again"),
            Self::AlreadyApplied => f.write_str("accepted before"),
            Self::Refused(refusal) => write!(f, "refused: {refusal}"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IdUsed => f.write_str("its id was used for another decision"),
            Self::NotHeld => {
                f.write_str("the call is not held, or not by the suspension that the decision names")
            }
            Self::Answered => f.write_str("another decision was accepted first"),
            Self::Expired => f.write_str("the time to decide is over"),
            Self::RunOver => f.write_str("the run is over, or on its way to its end"),
            Self::DigestMismatch => f.write_str("the call is held with other arguments than expected"),
            Self::SuspensionNotNamed => f.write_str(
                "the call is in doubt, and only a decision that names its suspension (`suspension_id`) answers that; \
                 read the call and decide again",
            ),
            Self::UnknownCall => f.write_str("the run has no such call; nothing was changed"),
            Self::Forbidden(kind) => {
                write!(f, "the principal may not answer a call that is held as `{kind}`; nothing was changed")
            }
            Self::Invalid(why) => write!(f, "{why}; the call is still held"),
        }
    }
}

/// A run as a submitted item finds it: its state, and the accepted items that it has not processed yet.
#[derive(Clone, Copy, Debug)]
pub struct SubmitContext<'s> {
    pub control: &'s Control,
    /// All unprocessed items, in order of arrival.
    pub inbox: &'s [Item],
    /// A decision that was accepted earlier under the same id.
    pub earlier: Option<&'s Decision>,
}

/// The verdict on any item, given all items accepted before it. A second interrupt is not needed if one was already
/// accepted.
pub fn judge_item(item: &Item, context: &SubmitContext<'_>) -> Verdict {
    judge_among(item, context.control, context.inbox.iter(), context.earlier)
}

/// Like [`judge_item`], for a driver that has the unprocessed items in another form than a slice.
pub fn judge_among<'i>(
    item: &Item,
    control: &Control,
    inbox: impl Iterator<Item = &'i Item> + Clone,
    earlier: Option<&Decision>,
) -> Verdict {
    let interrupted = inbox.clone().any(Item::interrupts);
    let end_is_accepted = interrupted || end_is_accepted(control, inbox.clone());
    let run = RunSummary::from_control(control).lifecycle(end_is_accepted);
    let row = |call: &CallId| suspension_row(control, call, is_answered(control, inbox.clone(), call));
    match item {
        Item::Decision(decision) => {
            judge_decision(decision, run, row(&decision.call).as_ref(), repeats(earlier, decision))
        }
        Item::Early { decision, .. } => match (repeats(earlier, decision), run) {
            (Some(EarlierDecision { same_content: true }), _) => Verdict::AlreadyApplied,
            (Some(EarlierDecision { same_content: false }), _) => Verdict::Refused(Refusal::IdUsed),
            (None, RunLifecycle::Ending | RunLifecycle::Ended) => Verdict::Refused(Refusal::RunOver),
            (None, RunLifecycle::Open)
                if keeps_early(inbox.clone(), &decision.call) || !may_keep_early(control, &decision.call) =>
            {
                Verdict::Refused(Refusal::NotHeld)
            }
            (None, RunLifecycle::Open) => Verdict::Accepted,
        },
        Item::Interrupt { .. } => judge_interrupt(run == RunLifecycle::Ended, interrupted),
        Item::ChildEnded(_) => judge_child_end(run == RunLifecycle::Ended),
        Item::LateAnswer { call, attempt, .. } => {
            let under_way = control.call(call).and_then(Call::running_attempt);
            judge_late_answer(run, under_way, row(call).as_ref(), *attempt)
        }
    }
}

fn repeats(earlier: Option<&Decision>, decision: &Decision) -> Option<EarlierDecision> {
    earlier.map(|earlier| EarlierDecision { same_content: earlier.same_content(decision) })
}

/// The verdict on an item for a run that has ended. It does not need the run's state. `earlier` is a decision that was
/// accepted under the same id.
pub fn judge_after_end(item: &Item, earlier: Option<&Decision>) -> Verdict {
    let repeated = item.decision().and_then(|decision| repeats(earlier, decision));
    match repeated {
        Some(EarlierDecision { same_content: true }) => Verdict::AlreadyApplied,
        Some(EarlierDecision { same_content: false }) => Verdict::Refused(Refusal::IdUsed),
        None => Verdict::Refused(Refusal::RunOver),
    }
}

/// The call's open suspension, if there is one.
#[must_use]
pub fn suspension_row(control: &Control, call: &CallId, answered: bool) -> Option<SuspensionRow> {
    let call = control.call(call)?;
    let open = call.suspension()?;
    Some(SuspensionRow {
        id: open.id.clone(),
        kind: open.held.kind(),
        mode: open.mode,
        arguments: call.arguments,
        definition: open.held.definition(),
        expires_at: open.expiry.map(|expiry| expiry.at),
        answered,
        doubted_attempt: open.held.doubted_attempt(),
        is_grantable: is_grantable(call),
    })
}

/// Decides which decision wins, in the transaction that marks the suspension answered. `row` is the open suspension of
/// the decision's call, if there is one.
pub fn judge_decision(
    decision: &Decision,
    run: RunLifecycle,
    row: Option<&SuspensionRow>,
    earlier: Option<EarlierDecision>,
) -> Verdict {
    match earlier {
        Some(EarlierDecision { same_content: true }) => return Verdict::AlreadyApplied,
        Some(EarlierDecision { same_content: false }) => return Verdict::Refused(Refusal::IdUsed),
        None => {}
    }
    match run {
        RunLifecycle::Open => {}
        RunLifecycle::Ending | RunLifecycle::Ended => return Verdict::Refused(Refusal::RunOver),
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
    let means = match interpret(row.kind, row.mode, &decision.action) {
        Err(why) => return Verdict::Refused(Refusal::Invalid(why)),
        Ok(means) => means,
    };
    if let Some(why) = grant_fault(&means, &decision.action, row.is_grantable) {
        return Verdict::Refused(Refusal::Invalid(why));
    }
    let edited = match means {
        DecisionMeaning::Approve { edited } => edited,
        DecisionMeaning::Deny
        | DecisionMeaning::Replay { .. }
        | DecisionMeaning::Result(_)
        | DecisionMeaning::Failure(_)
        | DecisionMeaning::GiveUp
        | DecisionMeaning::Cancel => None,
    };
    match &decision.action {
        DecisionAction::Resume(resume) if resume.expect_digest.is_some_and(|seen| seen != row.arguments) => {
            Verdict::Refused(Refusal::DigestMismatch)
        }
        DecisionAction::Resume(_) if changed(decision, row) => Verdict::ToolChanged,
        DecisionAction::Resume(_) | DecisionAction::Cancel { .. } => match edited.and_then(edit_fault) {
            Some(why) => Verdict::Refused(Refusal::Invalid(why)),
            None => Verdict::Accepted,
        },
    }
}

fn changed(decision: &Decision, row: &SuspensionRow) -> bool {
    row.definition.is_some_and(|shown| decision.is_for_changed_tool(shown))
}

/// A late answer settles the attempt if that attempt is running, lost or in doubt; any other late answer is stale.
/// `under_way` is the attempt of a call that is Running, `row` the call's open suspension.
pub fn judge_late_answer(
    run: RunLifecycle,
    under_way: Option<u32>,
    row: Option<&SuspensionRow>,
    attempt: u32,
) -> Verdict {
    match (run, row) {
        (RunLifecycle::Ending | RunLifecycle::Ended, _) => Verdict::Refused(Refusal::RunOver),
        (RunLifecycle::Open, _) if under_way == Some(attempt) => Verdict::Accepted,
        (RunLifecycle::Open, Some(row)) if row.answered => Verdict::Refused(Refusal::Answered),
        (RunLifecycle::Open, Some(row)) if row.doubted_attempt == Some(attempt) => Verdict::Accepted,
        (RunLifecycle::Open, Some(_) | None) => Verdict::Refused(Refusal::NotHeld),
    }
}

/// Which inbox rows the run processes in this pass, and in which order: results first, then the rest in order of
/// arrival. A result never overtakes an earlier decision about the same call. With `at_boundary`, decisions are
/// deferred while a call executes, unless an interrupt is in the inbox too, or the pass would otherwise overtake them
/// (`include_deferred`, see [`overrides_accepted_answer`]). What comes before an interrupt is decided by
/// [`Run::decide_before_interrupt`](crate::Run::decide_before_interrupt).
#[must_use]
pub fn drain<'i>(
    control: &Control,
    inbox: impl IntoIterator<Item = &'i Item, IntoIter: Clone>,
    include_deferred: bool,
) -> Vec<usize> {
    let inbox = inbox.into_iter();
    let closes_all = inbox.clone().any(Item::interrupts);
    let defer = control.policy.decisions == DecisionTiming::AtBoundary
        && step_projection::project_run(control) == StepProjection::Executing
        && !include_deferred
        && !closes_all;
    let mut results = Vec::new();
    let mut rest = Vec::new();
    let mut decided: Vec<&CallId> = Vec::new();
    for (item, index) in inbox.zip(0_usize..) {
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
            Item::Early { decision, digest } => match early_status(control, &decision.call, digest) {
                EarlyStatus::NotYet => {}
                EarlyStatus::Due(_) if defer => {}
                EarlyStatus::Due(_) | EarlyStatus::Obsolete => rest.push(index),
            },
            Item::Interrupt { .. } => rest.push(index),
        }
    }
    results.extend(rest);
    results
}

/// Converts an item to the run's input. None if the item no longer has any effect.
#[must_use]
pub fn to_input(control: &Control, item: &Item) -> Option<Input> {
    match item {
        Item::Decision(decision) => Some(Input::Decide(decision.clone())),
        Item::Early { decision, digest } => match early_status(control, &decision.call, digest) {
            EarlyStatus::Due(suspension) => Some(Input::Decide(Decision { suspension, ..decision.clone() })),
            EarlyStatus::NotYet | EarlyStatus::Obsolete => None,
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

/// An early decision may be kept for a call that is running or at the gate: the run is executing, so it is not parked.
#[must_use]
pub fn may_keep_early(control: &Control, call: &CallId) -> bool {
    control.call(call).is_some_and(|call| {
        call.status() == CallStatus::Running || step_projection::is_at_gate(control, call)
    })
}

enum EarlyStatus {
    NotYet,
    Due(SuspensionId),
    Obsolete,
}

fn early_status(control: &Control, id: &CallId, digest: &Digest) -> EarlyStatus {
    let Some(call) = control.call(id) else { return EarlyStatus::Obsolete };
    match call.suspension() {
        Some(open) if open.held.kind() == SuspensionKind::Approval && call.arguments == *digest => {
            EarlyStatus::Due(open.id.clone())
        }
        Some(_) => EarlyStatus::Obsolete,
        None if Call::settled(call) => EarlyStatus::Obsolete,
        None => EarlyStatus::NotYet,
    }
}
