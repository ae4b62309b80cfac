//! Creates runs: admission to the thread, the first commit, and the lease if requested.

use engine::store::{Create, Created, PostKey, StoreError, Tenant, ThreadView};
use machine::Timestamp;
use machine::event::InterruptCause;
use machine::id::{CallId, MessageId};
use machine::inbox::Item;
use machine::thread::{Admission, to_supersede};
use serde_json::Value;

use super::append::check_possible;
use super::state::{MemoryRun, MemoryState, RunRowId, missing_run};
use super::write::{put_item, write};

pub(super) fn create(
    state: &mut MemoryState,
    create: &Create,
    now: Timestamp,
) -> Result<Created, StoreError> {
    let Create { tenant, seen, key, inline_agent, append, .. } = create;
    key.as_ref().map_or(Ok(()), PostKey::check)?;
    inline_agent.as_ref().map_or(Ok(()), |inline_agent| inline_agent.check(&append.control))?;
    let view = state.thread_view(tenant, &seen.id);
    view.check_same(seen)?;
    if let (Some(key), Some(thread)) = (key, state.find_thread(tenant, &seen.id))
        && thread.posted.contains_key(&key.scope)
    {
        return Err(StoreError::Stale);
    }
    let admission = view.admit(seen, create.if_busy, create.lease)?;
    let id = &append.control.run;
    if state.find_row(tenant, id).is_some() {
        return Err(StoreError::Impossible(format!("run {id} exists already")));
    }
    if append.expected_seq != 0 || append.events.is_empty() {
        return Err(StoreError::Impossible("a log begins with event 1".into()));
    }
    check_possible(state, tenant, &seen.id, None, append)?;
    if let Some(message) = &append.control.user_message
        && is_message_taken(state, tenant, &view, message)
    {
        return Err(StoreError::Impossible(format!("the thread has a message {message} already")));
    }
    state.put_thread(tenant, &seen.id, Value::Null, now);
    let superseded = supersede(state, create, &admission);
    let row = insert_run(state, create, now);
    enter_thread(state, create, &admission, row);
    store_attachments(state, create);
    let mut woken = write(state, row, append, now)?;
    for other in superseded {
        state.update_queues(other, now);
        woken.extend(state.runs.get(&other).map(|other| other.id.clone()));
    }
    let lease = if create.lease { Some(state.lease_run(row, now)?.lease) } else { None };
    let version = state.runs.get(&row).ok_or_else(|| missing_run(row))?.version;
    Ok(Created { admission, lease, woken, version })
}

/// True if the message is in the thread, will join it once an existing run has started, or is the message of a call.
/// Its run could never start.
fn is_message_taken(state: &MemoryState, tenant: &Tenant, view: &ThreadView, message: &MessageId) -> bool {
    let Some(thread) = state.find_thread(tenant, &view.id) else { return false };
    let of_a_call =
        message.as_str().strip_prefix("msg_").is_some_and(|call| thread.calls.contains(&CallId::from(call)));
    of_a_call
        || thread.messages.contains_key(message)
        || state.unstarted_messages(thread).any(|other| other == message)
}

fn insert_run(state: &mut MemoryState, create: &Create, now: Timestamp) -> RunRowId {
    let created_at = create.append.events.first().map_or(now, |first| first.at);
    let mut run = MemoryRun::new(create.tenant.clone(), create.append.control.clone(), created_at);
    run.begins_after.clone_from(&create.begins_after);
    state.add_run(run)
}

/// Stores the idempotency key, which identifies a repeat of the message, and the agent that came with it.
fn store_attachments(state: &mut MemoryState, create: &Create) {
    let thread = state.tenants.get_mut(&create.tenant).and_then(|rows| rows.threads.get_mut(&create.seen.id));
    let Some(thread) = thread else { return };
    if let Some(PostKey { scope, body }) = &create.key {
        thread.posted.insert(scope.clone(), (create.append.control.run.clone(), *body));
    }
    if let Some(inline_agent) = &create.inline_agent {
        thread.inline_agents.insert(*inline_agent.digest(), inline_agent.text().to_owned());
    }
}

/// Interrupts the runs that the new one supersedes.
fn supersede(state: &mut MemoryState, create: &Create, admission: &Admission) -> Vec<RunRowId> {
    match admission {
        Admission::Supersede => {}
        Admission::Hold | Admission::Enqueue | Admission::Refuse(_) => return Vec::new(),
    }
    let Some(thread) = state.find_thread(&create.tenant, &create.seen.id) else { return Vec::new() };
    let superseded: Vec<RunRowId> =
        to_supersede(state.unended(thread)).filter_map(|run| state.find_row(&create.tenant, run)).collect();
    let cause = InterruptCause::Superseded(create.append.control.run.clone());
    for row in &superseded {
        put_item(state, *row, &Item::Interrupt { cause: cause.clone() });
    }
    superseded
}

fn enter_thread(state: &mut MemoryState, create: &Create, admission: &Admission, row: RunRowId) {
    let thread = state.tenants.get_mut(&create.tenant).and_then(|rows| rows.threads.get_mut(&create.seen.id));
    let Some(thread) = thread else { return };
    match admission {
        Admission::Hold => thread.holder = Some(row),
        Admission::Enqueue | Admission::Supersede => thread.queue.push(row),
        Admission::Refuse(_) => {}
    }
}
