//! Ends an interrupted run using only what every store knows of it. Here everything is readable, but the rules are the
//! same.

use std::sync::Arc;

use engine::store::{Append, Appended, Lease, StoreError};
use machine::Timestamp;
use machine::event::InterruptCause;
use machine::id::Principal;
use machine::inbox::Item;
use machine::undecodable::{FinalCommit, HeldCall, UndecodedRun, final_commit};

use super::append::append;
use super::state::{MemoryRun, MemoryState};

pub(super) fn end(state: &mut MemoryState, lease: &Lease, now: Timestamp) -> Result<Appended, StoreError> {
    let run = state.leased(lease)?;
    if !run.interrupt_accepted {
        return Err(StoreError::Stale);
    }
    let control = (*run.control).clone();
    let FinalCommit { events, rows, deliver, control } =
        final_commit(&plain(run, now), Some(control), &interrupt_cause(run));
    let control =
        control.ok_or_else(|| StoreError::Impossible("the state does not agree with its rows".into()))?;
    let append_last = Append {
        expected_seq: run.seq(),
        expected_version: run.version,
        events: events.into_iter().map(Arc::new).collect(),
        control: Arc::new(control),
        consumed: run.inbox.keys().copied().collect(),
        accepted: Vec::new(),
        spawn: Vec::new(),
        deliver,
        rows,
    };
    append(state, lease, &append_last, now)
}

fn plain(run: &MemoryRun, now: Timestamp) -> UndecodedRun {
    let open = run.suspensions.values().filter(|held| held.closed.is_none()).map(|held| &held.opened);
    let held = open.map(|opened| HeldCall {
        call: opened.call.clone(),
        suspension: opened.id.clone(),
        kind: opened.kind,
    });
    UndecodedRun {
        run: run.id.clone(),
        seq: run.seq(),
        now: now.max(run.control.at),
        held: held.collect(),
        // The state names them.
        parent: None,
        children: Vec::new(),
        inbox_count: run.inbox.len(),
        unprocessed: run.inbox.values().cloned().collect(),
    }
}

fn interrupt_cause(run: &MemoryRun) -> InterruptCause {
    let causes = run.inbox.values().filter_map(|item| match item {
        Item::Interrupt { cause } => Some(cause.clone()),
        Item::Decision(_) | Item::Early { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => None,
    });
    causes.into_iter().next().unwrap_or_else(|| InterruptCause::Person(Principal::system()))
}
