//! A run's commit: the checks it must pass, and what it writes.

use std::collections::BTreeSet;

use engine::store::{Append, Appended, Lease, StoreError, Tenant};
use machine::Timestamp;
use machine::id::{CallId, DecisionId, MessageId, RunId, SuspensionId, ThreadId};
use machine::inbox::Item;

use super::state::{MemoryRun, MemoryState, TenantRows};
use super::write::write;

pub(super) fn append(
    state: &mut MemoryState,
    lease: &Lease,
    append: &Append,
    now: Timestamp,
) -> Result<Appended, StoreError> {
    let run = state.leased(lease)?;
    if run.seq() != append.expected_seq {
        return Err(StoreError::Fenced);
    }
    if run.version != append.expected_version || repeats_an_id(run, &append.accepted) {
        return Err(StoreError::Behind);
    }
    let version = run.version + 1;
    check_possible(state, &lease.tenant, &run.thread, Some(run), append)?;
    let woken = write(state, lease.row, append, now)?;
    Ok(Appended { woken, version })
}

/// Whether a decision that came directly to the worker has an id that was used before.
fn repeats_an_id(run: &MemoryRun, accepted: &[Item]) -> bool {
    let mut ids: BTreeSet<&DecisionId> = BTreeSet::new();
    accepted
        .iter()
        .filter_map(|item| item.decision()?.id.as_ref())
        .any(|id| run.decisions.contains_key(id) || !ids.insert(id))
}

/// Checks that the rows agree with each other and with what is stored. `run` is none while the commit creates it.
pub(super) fn check_possible(
    state: &MemoryState,
    tenant: &Tenant,
    thread: &ThreadId,
    run: Option<&MemoryRun>,
    append: &Append,
) -> Result<(), StoreError> {
    let tenant = state.tenants.get(tenant);
    check_log(thread, run, append)?;
    check_ids(state, tenant, thread, append)?;
    check_suspensions(tenant, run, append)?;
    check_children(tenant, append)
}

fn impossible(why: String) -> StoreError {
    StoreError::Impossible(why)
}

fn check_log(thread: &ThreadId, run: Option<&MemoryRun>, append: &Append) -> Result<(), StoreError> {
    let mut seq = append.expected_seq;
    for event in &append.events {
        seq += 1;
        if event.seq != seq {
            return Err(impossible(format!("found event {} where {seq} belongs", event.seq)));
        }
    }
    let control = &append.control;
    let other_run = run.is_some_and(|run| run.id != control.run);
    if control.seq != seq || other_run || control.thread != *thread {
        return Err(impossible(format!(
            "the control is of {} on {} after event {}",
            control.run, control.thread, control.seq
        )));
    }
    let unknown = append.consumed.iter().find(|ticket| run.is_none_or(|run| !run.inbox.contains_key(ticket)));
    unknown.map_or(Ok(()), |ticket| Err(impossible(format!("the inbox has no row {ticket}"))))
}

fn check_ids(
    state: &MemoryState,
    tenant: Option<&TenantRows>,
    thread: &ThreadId,
    append: &Append,
) -> Result<(), StoreError> {
    let known = tenant.and_then(|tenant| tenant.threads.get(thread));
    let is_taken = |message: &MessageId| {
        known.is_some_and(|known| {
            known.messages.contains_key(message)
                || state.unstarted_messages(known).any(|other| other == message)
        })
    };
    let mut calls: BTreeSet<&CallId> = BTreeSet::new();
    for call in &append.rows.calls {
        if known.is_some_and(|known| known.calls.contains(call)) || !calls.insert(call) {
            return Err(impossible(format!("the thread has a call {call} already")));
        }
        if is_taken(&MessageId::from(format!("msg_{call}"))) {
            return Err(impossible(format!("the message of call {call} is already in use")));
        }
    }
    let mut messages: BTreeSet<&MessageId> = BTreeSet::new();
    for message in &append.rows.messages {
        let id = &message.id;
        if known.is_some_and(|known| known.messages.contains_key(id)) || !messages.insert(id) {
            return Err(impossible(format!("the thread has a message {id} already")));
        }
    }
    Ok(())
}

fn check_suspensions(
    tenant: Option<&TenantRows>,
    run: Option<&MemoryRun>,
    append: &Append,
) -> Result<(), StoreError> {
    let mut open: BTreeSet<&SuspensionId> = BTreeSet::new();
    for opened in &append.rows.opened {
        if tenant.is_some_and(|tenant| tenant.suspensions.contains_key(&opened.id))
            || !open.insert(&opened.id)
        {
            return Err(impossible(format!("suspension {} is open already", opened.id)));
        }
    }
    let mut closed: BTreeSet<&SuspensionId> = BTreeSet::new();
    for id in append.rows.closed.iter().map(|closed| &closed.id) {
        let was_open =
            run.and_then(|run| run.suspensions.get(id)).is_some_and(|suspension| suspension.closed.is_none());
        if !(was_open || open.contains(id)) || !closed.insert(id) {
            return Err(impossible(format!("suspension {id} is not open")));
        }
    }
    for id in append.rows.voided.iter().map(|voided| &voided.id) {
        let was_closed =
            run.and_then(|run| run.suspensions.get(id)).is_some_and(|suspension| suspension.closed.is_some());
        if !was_closed && !closed.contains(id) {
            return Err(impossible(format!("suspension {id} was not given before it was void")));
        }
    }
    Ok(())
}

fn check_children(tenant: Option<&TenantRows>, append: &Append) -> Result<(), StoreError> {
    let mut runs: BTreeSet<&RunId> = BTreeSet::new();
    let mut threads: BTreeSet<&ThreadId> = BTreeSet::new();
    for birth in &append.spawn {
        let run = &birth.control.run;
        let known_run = tenant.is_some_and(|tenant| tenant.runs.contains_key(run));
        let known_thread = tenant.is_some_and(|tenant| tenant.threads.contains_key(&birth.thread));
        if known_run || known_thread || !runs.insert(run) || !threads.insert(&birth.thread) {
            return Err(impossible(format!("{run} or its thread {} exists already", birth.thread)));
        }
        if birth.control.thread != birth.thread || birth.control.seq != birth.first.seq {
            return Err(impossible(format!("the control of {run} is not of its first event")));
        }
    }
    Ok(())
}
