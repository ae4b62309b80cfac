//! What a model's answer leads to: valid calls are taken, the others are counted, and an empty answer does not fail the
//! run.

use std::collections::BTreeSet;

use machine::event::{Event, Fact, Message};
use machine::input::ModelAnswered;
use machine::phase::Action;
use machine::revision::CALLS_OPEN_MAX;
use machine::termination::{ErrorCode, Termination};

use crate::judge::invariant::{Checked, Invariant, ensure};
use crate::judge::ledger::RunLedger;

/// `ledger` is the state before the events that the answer led to.
pub(crate) fn check(ledger: &RunLedger, answered: &ModelAnswered, events: &[Event]) -> Checked {
    check_empty(ledger, answered, events)?;
    check_calls(ledger, answered, events)
}

/// An empty answer is retried once, on the first step. Otherwise it is a final answer like any other.
fn check_empty(ledger: &RunLedger, answered: &ModelAnswered, events: &[Event]) -> Checked {
    if !answered.text.is_empty() || !answered.calls.is_empty() {
        return Ok(());
    }
    let retried = events.iter().any(|event| matches!(event.fact, Fact::ModelRetrying { .. }));
    let may_retry = answered.step == 1 && !ledger.empty_retried;
    ensure(!retried || may_retry, Invariant::EmptyAnswerEndsTheRun, || {
        format!("the empty answer of step {} is asked for again", answered.step)
    })?;
    let failed = events.iter().find(|event| {
        matches!(&event.fact, Fact::RunEnding { termination } | Fact::RunEnded { termination, .. }
            if is_model_error(termination))
    });
    ensure(failed.is_none(), Invariant::EmptyAnswerEndsTheRun, || {
        format!("the empty answer of step {} fails the run: {failed:?}", answered.step)
    })
}

fn is_model_error(termination: &Termination) -> bool {
    matches!(termination, Termination::Error(error) if error.code == ErrorCode::Model)
}

fn check_calls(ledger: &RunLedger, answered: &ModelAnswered, events: &[Event]) -> Checked {
    let added = events.iter().find_map(|event| {
        let Fact::MessageAdded(Message::Assistant { calls, .. }) = &event.fact else { return None };
        Some(calls.len())
    });
    let Some(taken) = added else { return Ok(()) };
    let by_hooks: BTreeSet<u16> = answered
        .hooks
        .actions()
        .filter_map(|(_, action)| if let Action::DropCall { index } = action { Some(*index) } else { None })
        .filter(|index| usize::from(*index) < answered.calls.len())
        .collect();
    let noted = events.iter().find_map(|event| {
        let Fact::MessageAdded(Message::CallsDropped { taken, dropped, .. }) = &event.fact else {
            return None;
        };
        Some((*taken, *dropped))
    });
    let wanted = answered.calls.len() - by_hooks.len();
    let open = ledger.calls.iter().filter(|call| !call.status.terminal()).count();
    let counted = match noted {
        Some((said, dropped)) => said as usize == taken && dropped > 0 && taken + dropped as usize == wanted,
        None => taken == wanted,
    };
    ensure(counted && open + taken <= CALLS_OPEN_MAX, Invariant::DroppedCallsAreNoted, || {
        format!("{taken} of {wanted} calls are taken beside {open} open ones, and the note says {noted:?}")
    })
}
