//! How to end an interrupted run whose stored data cannot be decoded. The store's plain columns contain enough: which
//! calls are held, who its parent is, and which children have not ended.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::Run;
use crate::audit::{self, AuditEntry, ClosedCall};
use crate::control::Control;
use crate::delivery::{Delivery, deliveries};
use crate::event::{CancelReason, Event, Fact, InterruptCause, Usage};
use crate::id::{CallId, Principal, RunId, SuspensionId};
use crate::inbox::{Item, Refusal, Verdict};
use crate::input::{ChildEnd, ChildEnded, Input};
use crate::projection_rows::{InboxPosition, ProjectionRows};
use crate::revision::Revision;
use crate::suspension::SuspensionKind;
use crate::termination::Termination;
use crate::time::Timestamp;

/// What a store knows about an unended run without decoding anything.
#[derive(Clone, Debug, PartialEq)]
pub struct UndecodedRun {
    pub run: RunId,
    /// The last event's sequence number.
    pub seq: u64,
    /// Not earlier than anything that is known to have happened in the run.
    pub now: Timestamp,
    /// The held calls, in the order in which they were held.
    pub held: Vec<HeldCall>,
    pub parent: Option<ParentCall>,
    /// Children that have not ended.
    pub children: Vec<RunId>,
    /// Number of rows in the inbox. The commit that ends the run consumes all of them.
    pub inbox_count: usize,
    /// Those of them that are readable, in order. The run processes none, but its decisions were acknowledged.
    pub unprocessed: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCall {
    pub call: CallId,
    pub suspension: SuspensionId,
    pub kind: SuspensionKind,
}

/// The call of another run that waits for this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentCall {
    pub run: RunId,
    pub call: CallId,
}

/// The last commit of an interrupted run.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalCommit {
    pub events: Vec<Event>,
    pub rows: ProjectionRows,
    pub deliver: Vec<Delivery>,
    /// The state after these events. None if the state before them cannot be decoded.
    pub control: Option<Control>,
}

/// The verdict on an item that can be judged by the plain columns of its run: an interrupt and the end of a child. None
/// for anything else.
#[must_use]
pub fn judge_without_control(item: &Item, ended: bool, interrupt_accepted: bool) -> Option<Verdict> {
    match item {
        Item::Interrupt { .. } => Some(judge_interrupt(ended, interrupt_accepted)),
        Item::ChildEnded(_) => Some(judge_child_end(ended)),
        Item::Decision(_) | Item::Early { .. } | Item::LateAnswer { .. } => None,
    }
}

/// A second interrupt is not needed if one was already accepted.
pub(crate) const fn judge_interrupt(ended: bool, interrupt_accepted: bool) -> Verdict {
    if ended {
        Verdict::Refused(Refusal::RunOver)
    } else if interrupt_accepted {
        Verdict::AlreadyApplied
    } else {
        Verdict::Accepted
    }
}

pub(crate) const fn judge_child_end(ended: bool) -> Verdict {
    if ended { Verdict::Refused(Refusal::RunOver) } else { Verdict::Accepted }
}

/// The last commit of an interrupted run. `control` is the stored state if it can be decoded; it is used only if it
/// agrees with the plain columns.
#[must_use]
pub fn final_commit(plain: &UndecodedRun, control: Option<Control>, cause: &InterruptCause) -> FinalCommit {
    let decided =
        control.filter(|control| agrees(plain, control)).and_then(|control| decide(plain, control, cause));
    decided.unwrap_or_else(|| end_by_columns(plain, cause))
}

fn agrees(plain: &UndecodedRun, control: &Control) -> bool {
    let open: Vec<SuspensionId> = control.pending().into_iter().map(|open| open.suspension_id).collect();
    let same_calls =
        open.len() == plain.held.len() && plain.held.iter().all(|held| open.contains(&held.suspension));
    control.run == plain.run && control.seq == plain.seq && control.ended().is_none() && same_calls
}

/// The audit record's entries for decisions that were acknowledged and never applied.
fn unapplied(plain: &UndecodedRun, control: Option<&Control>) -> Vec<AuditEntry> {
    let decisions = plain.unprocessed.iter().filter_map(Item::decision);
    decisions
        .map(|decision| {
            let held = plain.held.iter().find(|held| held.suspension == decision.suspension);
            let call = control.and_then(|control| control.call(&decision.call));
            let closed = ClosedCall {
                tool: call.map(|call| call.tool.clone()),
                kind: held.map(|held| held.kind),
                arguments: call.map(|call| call.arguments),
            };
            audit::unapplied_entry(decision, closed)
        })
        .collect()
}

/// Ends the run as the run itself would. An interrupt needs no agent revision, which may be what cannot be decoded.
fn decide(plain: &UndecodedRun, control: Control, cause: &InterruptCause) -> Option<FinalCommit> {
    let before = control.clone();
    let mut run = Run::new(Arc::new(Revision::default()), control);
    let now = plain.now.max(before.at);
    let events = run.decide(&Input::Interrupt { cause: cause.clone() }, now).ok()?.events;
    for event in &events {
        run.apply(event).ok()?;
    }
    let deliver = deliveries(Some(&before), &events, "").ok()?;
    let mut rows = ProjectionRows { audit: unapplied(plain, Some(&before)), ..ProjectionRows::default() };
    rows.add_events(Some(&before), &events, InboxPosition { count: plain.inbox_count, ticket: None });
    run.control.ended().is_some().then_some(FinalCommit { events, rows, deliver, control: Some(run.control) })
}

/// It is not known here whether an executing call took effect; no event says anything about it.
fn end_by_columns(plain: &UndecodedRun, cause: &InterruptCause) -> FinalCommit {
    let reason = match cause {
        InterruptCause::Person(_) | InterruptCause::Parent(_) => CancelReason::Interrupted,
        InterruptCause::Superseded(_) => CancelReason::Superseded,
    };
    let mut facts = vec![Fact::RunInterrupting { cause: cause.clone() }];
    facts.extend(plain.held.iter().map(|held| Fact::ToolCancelled {
        call_id: held.call.clone(),
        reason,
        text: None,
        by: Principal::system(),
        decision_id: None,
        outcome_unknown: held.kind == SuspensionKind::InDoubt,
        suspension_id: Some(held.suspension.clone()),
    }));
    let termination = Termination::Cancelled(cause.cancelled());
    facts.push(Fact::RunEnded { termination, usage: Usage::default(), output: None });
    let numbered = facts.into_iter().zip(plain.seq.saturating_add(1)..);
    let events: Vec<Event> =
        numbered.map(|(fact, seq)| Event { seq, at: plain.now, step: None, fact }).collect();
    let mut rows = ProjectionRows { audit: unapplied(plain, None), ..ProjectionRows::default() };
    let inbox_position = InboxPosition { count: plain.inbox_count, ticket: None };
    rows.add_last_events(&plain.held, &events, inbox_position);
    let mut deliver: Vec<Delivery> = plain.children.iter().map(|child| interrupt(plain, child)).collect();
    deliver.extend(plain.parent.as_ref().map(|parent| {
        let usage = Usage::default();
        let (call, run) = (parent.call.clone(), plain.run.clone());
        // No column counts the descendants, so nothing of the grant is returned to the parent.
        let descendants = u32::MAX;
        let ended = ChildEnded { call, run, end: ChildEnd::Interrupted, usage, descendants };
        Delivery { to: parent.run.clone(), item: Item::ChildEnded(ended) }
    }));
    FinalCommit { events, rows, deliver, control: None }
}

fn interrupt(plain: &UndecodedRun, child: &RunId) -> Delivery {
    let cause = InterruptCause::Parent(plain.run.clone());
    Delivery { to: child.clone(), item: Item::Interrupt { cause } }
}
