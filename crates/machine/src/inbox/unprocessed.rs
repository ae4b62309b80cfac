//! What follows from items that were accepted but that the run has not processed yet: what they answer, whether they
//! end the run, and what may not overtake them.

use super::{EarlyStatus, Item, Ticket, early_status};
use crate::call::Call;
use crate::control::Control;
use crate::decision::{Decision, DecisionAction};
use crate::id::{CallId, SuspensionId};
use crate::policy::OnReject;
use crate::projection_rows::ClosedRow;
use crate::suspension::SuspensionKind;

/// Whether a commit closes a suspension that has an accepted answer, before the run has processed that answer. A worker
/// never stores such a commit: it starts the pass again and processes its inbox first ([`drain`](super::drain) with
/// `include_deferred`). `before` is the state at the beginning of the commit, `inbox` the items accepted by then,
/// `closed` what the commit closes, and `consumed` the rows it processes, in that order.
#[must_use]
pub fn overrides_accepted_answer(
    before: &Control,
    inbox: &[(Ticket, Item)],
    closed: &[ClosedRow],
    consumed: &[Ticket],
) -> bool {
    closed.iter().any(|closed| {
        inbox
            .iter()
            .filter(|(_, item)| answered_by(before, item) == Some(&closed.id))
            .any(|(ticket, _)| closed.inbox_position.overrides_answer(*ticket, consumed))
    })
}

/// Whether an item answers the open suspension of the call.
pub(super) fn is_answered<'i>(
    control: &Control,
    mut inbox: impl Iterator<Item = &'i Item>,
    call: &CallId,
) -> bool {
    inbox.any(|item| item.call() == Some(call) && answered_by(control, item).is_some())
}

/// Whether the run ends once it has processed its inbox: a denial answers an open approval, and the decision or the
/// policy says that this ends the run. Between such a decision and the end, only an interrupt is accepted from outside.
pub(super) fn end_is_accepted<'i>(control: &Control, mut inbox: impl Iterator<Item = &'i Item>) -> bool {
    inbox.any(|item| {
        let is_approval = || {
            let open = item.call().and_then(|call| control.call(call)).and_then(Call::suspension);
            open.is_some_and(|open| open.held.kind() == SuspensionKind::Approval)
        };
        let ends = item.decision().is_some_and(|decision| would_end(control, decision));
        ends && is_approval() && answered_by(control, item).is_some()
    })
}

fn would_end(control: &Control, decision: &Decision) -> bool {
    match &decision.action {
        DecisionAction::Cancel { then, .. } => control.policy.after_denial(*then) == OnReject::EndRun,
        DecisionAction::Resume(_) => false,
    }
}

/// Whether the inbox holds an early decision for the call.
pub(super) fn keeps_early<'i>(mut inbox: impl Iterator<Item = &'i Item>, call: &CallId) -> bool {
    inbox.any(|item| match item {
        Item::Early { decision, .. } => decision.call == *call,
        Item::Decision(_) | Item::Interrupt { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => false,
    })
}

/// The open suspension that an item answers.
fn answered_by<'c>(control: &'c Control, item: &Item) -> Option<&'c SuspensionId> {
    let open = control.call(item.call()?)?.suspension()?;
    let answers = match item {
        Item::Decision(decision) => decision.suspension == open.id,
        Item::Early { decision, digest } => match early_status(control, &decision.call, digest) {
            EarlyStatus::Due(_) => true,
            EarlyStatus::NotYet | EarlyStatus::Obsolete => false,
        },
        Item::LateAnswer { attempt, .. } => open.held.doubted_attempt() == Some(*attempt),
        Item::Interrupt { .. } | Item::ChildEnded(_) => false,
    };
    answers.then_some(&open.id)
}
