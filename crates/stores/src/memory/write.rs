//! What an append writes once it has passed all checks: the run itself, its thread, and other runs.

use std::sync::Arc;

use engine::store::{Append, CommittedEvent, MessagePosition, NewChildRun, StoreError};
use machine::Timestamp;
use machine::checkpoint::{self, Checkpoint};
use machine::delivery::Delivery;
use machine::event::{Event, Fact};
use machine::id::{RunId, SuspensionId};
use machine::inbox::{Item, Ticket};
use machine::phase::Scope;
use machine::projection_rows::{OpenedRow, ProjectionRows, RunSummary};
use machine::suspension::SuspensionKind;
use machine::thread::promote;
use serde_json::Value;

use super::state::{
    MemoryRun, MemoryState, MemorySuspension, MemoryThread, RunRowId, TenantRows, missing_run, missing_thread,
};

/// Returns the other runs that now have work to do. An error means that nothing was written.
pub(super) fn write(
    state: &mut MemoryState,
    row: RunRowId,
    append: &Append,
    now: Timestamp,
) -> Result<Vec<RunId>, StoreError> {
    let run = state.runs.get_mut(&row).ok_or_else(|| missing_run(row))?;
    let Some(tenant) = state.tenants.get_mut(&run.tenant) else { return Err(missing_thread(run)) };
    let Some(thread) = tenant.threads.get_mut(&run.thread) else { return Err(missing_thread(run)) };
    run.version += 1;
    update_inbox(run, append);
    write_log(run, append);
    write_thread(run, thread, &append.rows);
    write_suspensions(run, tenant, append);
    let mut woken = Vec::new();
    let ended = run.ended();
    if ended {
        run.inbox.clear();
        run.held = false;
    }
    state.record_commit(row, &append.rows.audit);
    if ended {
        woken.extend(promote_next(state, row));
    }
    woken.extend(append.spawn.iter().filter_map(|birth| create_child(state, row, birth, now)));
    for delivery in &append.deliver {
        woken.extend(deliver(state, row, delivery).filter(|to| !woken.contains(to)));
    }
    state.counts.commits += 1;
    state.update_queues(row, now);
    for other in &woken {
        state.update_queues(*other, now);
    }
    Ok(woken.iter().filter_map(|other| state.runs.get(other)).map(|other| other.id.clone()).collect())
}

fn update_inbox(run: &mut MemoryRun, append: &Append) {
    for ticket in &append.consumed {
        run.inbox.remove(ticket);
    }
    for item in &append.accepted {
        record_item(run, item);
    }
}

/// Records the parts of an item that the run keeps, whether the item came through the inbox or not.
pub(super) fn record_item(run: &mut MemoryRun, item: &Item) {
    if let Some(decision) = item.decision()
        && let Some(id) = &decision.id
    {
        run.decisions.insert(id.clone(), decision.clone());
    }
    run.interrupt_accepted |= matches!(item, Item::Interrupt { .. });
}

fn write_log(run: &mut MemoryRun, append: &Append) {
    let name = commit_checkpoint(&append.events);
    for event in &append.events {
        let checkpoint = name.filter(|_| event.seq == append.control.seq);
        run.log.push(CommittedEvent { event: event.clone(), checkpoint });
        if matches!(event.fact, Fact::RunStarted { .. }) {
            run.started_at = Some(event.at);
        }
        if matches!(event.fact, Fact::RunEnded { .. }) {
            run.ended_at = Some(event.at);
        }
    }
    run.control = append.control.clone();
    run.summary = RunSummary::from_control(&run.control);
}

fn commit_checkpoint(events: &[Arc<Event>]) -> Option<Checkpoint> {
    (!events.is_empty()).then(|| checkpoint::from_event_iter(events.iter().map(Arc::as_ref)))
}

fn write_thread(run: &mut MemoryRun, thread: &mut MemoryThread, rows: &ProjectionRows) {
    for message in &rows.messages {
        let place = MessagePosition { run: run.id.clone(), seq: message.seq, role: message.role };
        thread.messages.insert(message.id.clone(), place);
        thread.messages_in_order.push(message.id.clone());
        thread.head = Some(message.id.clone());
    }
    thread.calls.extend(rows.calls.iter().cloned());
    thread.grants.extend(rows.grants.iter().cloned());
    for kept in &rows.state {
        let plugin_rows = match kept.scope {
            Scope::Run => &mut run.plugin_rows,
            Scope::Thread => &mut thread.plugin_rows,
        };
        plugin_rows.insert((kept.plugin.clone(), kept.key.clone()), kept.clone());
    }
}

fn write_suspensions(run: &mut MemoryRun, tenant: &mut TenantRows, append: &Append) {
    let row_of_run = tenant.runs.get(&run.id).copied();
    for opened in &append.rows.opened {
        let key = (opened.at, opened.id.clone());
        if opened.kind.needs_person() {
            tenant.approvals_by_age.insert(key.clone());
            tenant.pending_by_age.insert(key);
        }
        tenant.suspensions.extend(row_of_run.map(|row| (opened.id.clone(), row)));
        let answered_by = early_answer(run, opened);
        let suspension = MemorySuspension { opened: opened.clone(), answered_by, closed: None };
        run.suspensions.insert(opened.id.clone(), suspension);
    }
    for closed in &append.rows.closed {
        if let Some(suspension) = run.suspensions.get_mut(&closed.id) {
            tenant.pending_by_age.remove(&(suspension.opened.at, closed.id.clone()));
            suspension.closed = Some(closed.clone());
            suspension.answered_by = None;
        }
    }
    for voided in &append.rows.voided {
        if let Some(suspension) = run.suspensions.get_mut(&voided.id) {
            suspension.closed = Some(voided.clone());
        }
    }
    clear_consumed_answers(run, &append.consumed);
}

/// An early decision answers the approval that opens for exactly the same arguments.
fn early_answer(run: &MemoryRun, opened: &OpenedRow) -> Option<Ticket> {
    if opened.kind != SuspensionKind::Approval {
        return None;
    }
    run.inbox.iter().find_map(|(ticket, item)| match item {
        Item::Early { decision, digest }
            if decision.call == opened.call && opened.arguments == Some(*digest) =>
        {
            Some(*ticket)
        }
        Item::Early { .. }
        | Item::Decision(_)
        | Item::Interrupt { .. }
        | Item::ChildEnded(_)
        | Item::LateAnswer { .. } => None,
    })
}

/// An item that was processed without closing a suspension no longer answers one.
fn clear_consumed_answers(run: &mut MemoryRun, consumed: &[Ticket]) {
    if consumed.is_empty() {
        return;
    }
    let open: Vec<SuspensionId> = run.control.pending().into_iter().map(|open| open.suspension_id).collect();
    for id in &open {
        if let Some(suspension) = run.suspensions.get_mut(id)
            && suspension.answered_by.is_some_and(|answered_by| consumed.contains(&answered_by))
        {
            suspension.answered_by = None;
        }
    }
}

/// The run that holds the thread next, if the ended run held it and another one is queued.
fn promote_next(state: &mut MemoryState, ended: RunRowId) -> Option<RunRowId> {
    let run = state.runs.get(&ended)?;
    let (tenant, thread) = (run.tenant.clone(), run.thread.clone());
    let queue = state.queued_runs(state.find_thread(&tenant, &thread)?).filter(|one| *one.run != run.id);
    let next = promote(queue).and_then(|id| state.find_row(&tenant, id));
    let thread = state.tenants.get_mut(&tenant)?.threads.get_mut(&thread)?;
    thread.queue.retain(|row| *row != ended);
    if thread.holder != Some(ended) {
        return None;
    }
    thread.holder = next;
    thread.queue.retain(|row| Some(*row) != next);
    next
}

fn create_child(
    state: &mut MemoryState,
    parent: RunRowId,
    birth: &NewChildRun,
    now: Timestamp,
) -> Option<RunRowId> {
    let tenant = state.runs.get(&parent)?.tenant.clone();
    state.put_thread(&tenant, &birth.thread, Value::Null, now);
    let mut child = MemoryRun::new(tenant.clone(), birth.control.clone(), birth.first.at);
    let checkpoint = commit_checkpoint(std::slice::from_ref(&birth.first));
    child.log.push(CommittedEvent { event: birth.first.clone(), checkpoint });
    let row = state.add_run(child);
    state.tenants.get_mut(&tenant)?.threads.get_mut(&birth.thread)?.holder = Some(row);
    Some(row)
}

/// Returns the receiver, unless it has ended or would get a second interrupt.
fn deliver(state: &mut MemoryState, from: RunRowId, delivery: &Delivery) -> Option<RunRowId> {
    let tenant = state.runs.get(&from)?.tenant.clone();
    let to = state.find_row(&tenant, &delivery.to)?;
    put_item(state, to, &delivery.item).map(|_| to)
}

/// Puts an item into an inbox, unless the run has ended or would get a second interrupt.
pub(super) fn put_item(state: &mut MemoryState, to: RunRowId, item: &Item) -> Option<Ticket> {
    let ticket = state.next_ticket();
    let run = state.runs.get_mut(&to)?;
    if run.ended() || (run.interrupt_accepted && matches!(item, Item::Interrupt { .. })) {
        return None;
    }
    record_item(run, item);
    run.inbox.insert(ticket, item.clone());
    run.version += 1;
    Some(ticket)
}
