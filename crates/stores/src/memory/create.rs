//! Runs come into being: admission to the thread, the first commit, and the lease where it is asked for.

use engine::store::{Create, Created, PostKey, Refused, Tenant, ThreadView};
use machine::Timestamp;
use machine::event::InterruptCause;
use machine::id::{CallId, MessageId, RunId};
use machine::inbox::Item;
use machine::thread::{Admission, Thread};
use serde_json::Value;

use super::append::check_possible;
use super::state::{Row, State, StoredRun, lost_row};
use super::write::{put_item, write};

pub(super) fn create(state: &mut State, create: &Create, now: Timestamp) -> Result<Created, Refused> {
    let Create { tenant, seen, admission, key, brought, append, .. } = create;
    key.as_ref().map_or(Ok(()), PostKey::check)?;
    brought.as_ref().map_or(Ok(()), |brought| brought.check(&append.control))?;
    let view = state.thread_view(tenant, &seen.id);
    if !view.admits_as(seen) {
        return Err(Refused::Stale);
    }
    if let (Some(key), Some(thread)) = (key, state.thread_of(tenant, &seen.id))
        && thread.posted.contains_key(&key.scope)
    {
        return Err(Refused::Stale);
    }
    check_admission(&view, admission)?;
    if create.lease && *admission != Admission::Hold {
        return Err(Refused::Impossible("a run that does not hold its thread cannot be worked on".into()));
    }
    let id = &append.control.run;
    if state.row_of(tenant, id).is_some() {
        return Err(Refused::Impossible(format!("run {id} exists already")));
    }
    if append.expected_seq != 0 || append.events.is_empty() {
        return Err(Refused::Impossible("a log begins with event 1".into()));
    }
    check_possible(state, tenant, &seen.id, None, append)?;
    if let Some(message) = &append.control.user_message
        && promised(state, tenant, &view, message)
    {
        return Err(Refused::Impossible(format!("the thread has a message {message} already")));
    }
    state.tenants.entry(tenant.clone()).or_default().put_thread(&seen.id, Value::Null, now);
    let row = add(state, create, now);
    let superseded = take_place(state, tenant, admission, row, id);
    keep_beside(state, create);
    let mut woken = write(state, row, append, now)?;
    if let Some(front) = superseded {
        state.line_up(front, now);
        woken.extend(state.runs.get(&front).map(|front| front.id.clone()));
    }
    let lease = if create.lease { Some(state.take(row, now)?.lease) } else { None };
    let version = state.runs.get(&row).ok_or_else(|| lost_row(row))?.version;
    Ok(Created { lease, woken, version })
}

/// The admission can follow from what the thread is.
fn check_admission(view: &ThreadView, admission: &Admission) -> Result<(), Refused> {
    let fits = match (admission, &view.state) {
        (Admission::Hold, Thread::Free) | (Admission::Enqueue, Thread::Busy { .. }) => true,
        (Admission::TakeOver { from }, Thread::Busy { front, .. }) => from == front,
        (Admission::Hold, Thread::Busy { .. })
        | (Admission::Enqueue | Admission::TakeOver { .. }, Thread::Free)
        | (Admission::Refuse(_), Thread::Free | Thread::Busy { .. }) => false,
    };
    if fits {
        Ok(())
    } else {
        Err(Refused::Impossible(format!("{admission:?} on a thread that is {:?}", view.state)))
    }
}

/// The message is in the thread, or joins it once a run that exists has started, or is that of a call. Its run could
/// never start.
fn promised(state: &State, tenant: &Tenant, view: &ThreadView, message: &MessageId) -> bool {
    let Some(thread) = state.thread_of(tenant, &view.id) else { return false };
    let of_a_call =
        message.as_str().strip_prefix("msg_").is_some_and(|call| thread.calls.contains(&CallId::from(call)));
    of_a_call
        || thread.messages.contains_key(message)
        || state.unstarted_messages(thread).any(|other| other == message)
}

fn add(state: &mut State, create: &Create, now: Timestamp) -> Row {
    let created_at = create.append.events.first().map_or(now, |first| first.at);
    let mut run = StoredRun::new(create.tenant.clone(), create.append.control.clone(), created_at);
    run.begins_after.clone_from(&create.begins_after);
    state.add_run(run)
}

/// A repeat of the message is recognised from here on, and what came with it is found.
fn keep_beside(state: &mut State, create: &Create) {
    let thread = state.tenants.get_mut(&create.tenant).and_then(|rows| rows.threads.get_mut(&create.seen.id));
    let Some(thread) = thread else { return };
    if let Some(PostKey { scope, body }) = &create.key {
        thread.posted.insert(scope.clone(), (create.append.control.run.clone(), *body));
    }
    if let Some(brought) = &create.brought {
        thread.brought.insert(*brought.digest(), brought.text().to_owned());
    }
}

/// Who has to hear that the run took its place.
fn take_place(
    state: &mut State,
    tenant: &Tenant,
    admission: &Admission,
    row: Row,
    id: &RunId,
) -> Option<Row> {
    let thread_id = state.runs.get(&row)?.thread.clone();
    let thread = state.tenants.get_mut(tenant)?.threads.get_mut(&thread_id)?;
    match admission {
        Admission::Hold => {
            thread.holder = Some(row);
            None
        }
        Admission::Enqueue => {
            thread.queue.push(row);
            None
        }
        Admission::TakeOver { from } => {
            thread.queue.push(row);
            let front = state.row_of(tenant, from)?;
            let item = Item::Interrupt { cause: InterruptCause::Superseded(id.clone()) };
            put_item(state, front, &item).map(|_| front)
        }
        Admission::Refuse(_) => None,
    }
}
