//! Runs come into being: from a message on a thread, or as the child of a run.

use engine::store::{Created, Lease, PostKey, StoreError, Tenant, ThreadView};
use machine::event::InterruptCause;
use machine::id::{MessageId, RunId};
use machine::inbox::Item;
use machine::projection_rows::PublicRunStatus;
use machine::thread::{Admission, IfBusy};
use rusqlite::{OptionalExtension, params};

use super::append::{Target, write};
use super::desk::Desk;
use super::handover::Handover;
use super::inboxes::deliver;
use super::keys;
use super::revisions;
use super::thread::{put_thread, thread_view, to_supersede};
use super::trouble::{Stop, impossible};
use crate::entry::{Entry, Log, Newborn, State, Written};
use crate::words::{millis, number};

/// A run to create, encoded.
pub(super) struct Creation {
    pub(super) tenant: Tenant,
    pub(super) seen: ThreadView,
    pub(super) if_busy: IfBusy,
    pub(super) begins_after: Option<MessageId>,
    pub(super) key: Option<PostKey>,
    pub(super) lease: bool,
    pub(super) entry: Entry,
    /// What each run hears whose place this one takes.
    pub(super) superseded: Written,
}

impl Creation {
    pub(super) fn of(create: engine::store::Create) -> Result<Self, StoreError> {
        let engine::store::Create {
            tenant,
            seen,
            if_busy,
            begins_after,
            key,
            inline_agent: brought,
            lease,
            append,
        } = create;
        key.as_ref().map_or(Ok(()), PostKey::check)?;
        let entry = Entry::born(append, brought)?;
        let cause = InterruptCause::Superseded(entry.state.run.clone());
        let superseded = Written::of(Item::Interrupt { cause })?;
        Ok(Self { tenant, seen, if_busy, begins_after, key, lease, entry, superseded })
    }
}

pub(super) fn create(desk: &Desk<'_>, creation: &Creation, handover: &Handover) -> Result<Created, Stop> {
    let Creation { seen, entry, .. } = creation;
    let tenant = creation.tenant.as_str();
    let view = thread_view(desk.connection(), tenant, &seen.id)?;
    view.check_same(seen)?;
    if let Some(key) = &creation.key
        && keys::posted(desk.connection(), tenant, &seen.id, &key.scope)?.is_some()
    {
        return Err(StoreError::Stale.into());
    }
    let admission = view.admit(seen, creation.if_busy, creation.lease)?;
    if entry.expected_seq != 0 || entry.state.thread != view.id || !entry.consumed.is_empty() {
        return Err(impossible("a log begins with event 1, on the thread that was judged"));
    }
    let Some(log) = &entry.log else { return Err(impossible("a log begins with event 1")) };
    put_thread(desk, tenant, &seen.id, "null")?;
    let thread = thread_row(desk, tenant, &seen.id)?;
    check_message(desk, thread, &entry.state)?;
    let superseded = match admission {
        Admission::Supersede => to_supersede(desk, thread)?,
        Admission::Hold | Admission::Enqueue | Admission::Refuse(_) => Vec::new(),
    };
    let holds = admission == Admission::Hold;
    let leased = creation.lease && holds && !entry.state.summary.status.ended();
    // Nobody can hold a run that has just been given its row, so no epoch was used for it.
    let epoch = if leased { desk.leases.lock().next_epoch(None, 0) } else { 0 };
    let place = Place { tenant, thread, holds, epoch, startable: false };
    let row = insert(desk, &place, &entry.state, log, creation.begins_after.as_ref(), None)?;
    creation.key.as_ref().map_or(Ok(()), |key| keys::bind(desk, tenant, thread, row, key))?;
    entry.brought.as_ref().map_or(Ok(()), |brought| revisions::keep(desk, tenant, thread, brought))?;
    let target = Target { tenant: tenant.into(), row, thread, holds, epoch };
    let mut woken = write(desk, &target, entry)?;
    for run in superseded {
        if deliver(desk, tenant, &run, &creation.superseded)? {
            woken.push(run);
        }
    }
    desk.count_commit(entry.bytes);
    let lease = leased.then(|| Lease {
        tenant: creation.tenant.clone(),
        thread: seen.id.clone(),
        run: entry.state.run.clone(),
        epoch,
        row,
    });
    let lease = lease.filter(|lease| handover.give(lease));
    match &lease {
        Some(lease) => desk.give(lease.clone()),
        // The commit took the run for one that somebody goes on with.
        None => {
            desk.execute(include_str!("sql/run_let_go.sql"), params![row, desk.arrival()])?;
        }
    }
    // Its first commit has raised it.
    Ok(Created { admission, lease, woken, version: 1 })
}

/// A message that is there already, or that another run or a call will bring, could never join the thread.
fn check_message(desk: &Desk<'_>, thread: i64, state: &State) -> Result<(), Stop> {
    let Some(message) = &state.user_message else { return Ok(()) };
    let mut statement = desk.prepare(include_str!("sql/message_taken.sql"))?;
    let taken: bool = statement.query_row(params![thread, message.as_str()], |row| row.get(0))?;
    if taken { Err(impossible(format!("the thread has a message {message} already"))) } else { Ok(()) }
}

/// A child with a thread of its own, which it holds.
pub(super) fn birth(desk: &Desk<'_>, parent: &Target, born: &Newborn) -> Result<RunId, Stop> {
    let tenant = &parent.tenant;
    if !put_thread(desk, tenant, &born.thread, "null")? {
        return Err(impossible(format!("thread {} exists already", born.thread)));
    }
    let thread = thread_row(desk, tenant, &born.thread)?;
    let place = Place { tenant, thread, holds: true, epoch: 0, startable: true };
    let row = insert(desk, &place, &born.state, &born.log, None, Some(parent.row))?;
    desk.execute(
        include_str!("sql/commit_insert.sql"),
        params![
            tenant,
            row,
            number(born.log.first_seq),
            number(born.log.last_seq),
            born.log.checkpoint,
            born.log.body
        ],
    )?;
    Ok(born.state.run.clone())
}

fn thread_row(desk: &Desk<'_>, tenant: &str, thread: &machine::id::ThreadId) -> Result<i64, Stop> {
    let mut statement = desk.prepare("SELECT row FROM threads WHERE tenant = ?1 AND id = ?2")?;
    Ok(statement.query_row(params![tenant, thread.as_str()], |row| row.get(0))?)
}

struct Place<'p> {
    tenant: &'p str,
    thread: i64,
    holds: bool,
    epoch: u64,
    /// A claim may find it at once; else the commit that follows sees to that.
    startable: bool,
}

fn insert(
    desk: &Desk<'_>,
    place: &Place<'_>,
    state: &State,
    log: &Log,
    begins_after: Option<&MessageId>,
    parent: Option<i64>,
) -> Result<i64, Stop> {
    let summary = state.summary;
    let parent = match (&state.parent, parent) {
        (Some(_), Some(row)) => Some(row),
        (Some(known), None) => parent_row(desk, place.tenant, &known.run_id)?,
        (None, _) => None,
    };
    let parent_call = state.parent.as_ref().filter(|_| parent.is_some()).map(|known| known.call_id.as_str());
    let unstarted = summary.status == PublicRunStatus::Queued;
    let promised = state.user_message.as_ref().filter(|_| unstarted).map(MessageId::as_str);
    desk.execute(
        include_str!("sql/run_insert.sql"),
        params![
            place.tenant,
            state.run.as_str(),
            place.thread,
            state.agent.as_str(),
            parent,
            parent_call,
            begins_after.map(MessageId::as_str),
            promised,
            summary.status.as_str(),
            place.holds && !summary.status.ended(),
            number(state.seq),
            number(place.epoch),
            summary.in_doubt,
            if place.startable { 2 } else { 0 },
            place.startable.then(|| desk.arrival()),
            state.wake_at().map(millis),
            millis(log.first_at),
            // The commit that follows says when it started.
            None::<i64>,
            state.ended_at().map(millis),
            state.control,
        ],
    )?;
    Ok(desk.connection().last_insert_rowid())
}

fn parent_row(desk: &Desk<'_>, tenant: &str, run: &RunId) -> Result<Option<i64>, Stop> {
    let mut statement = desk.prepare("SELECT row FROM runs WHERE tenant = ?1 AND id = ?2")?;
    Ok(statement.query_row(params![tenant, run.as_str()], |row| row.get(0)).optional()?)
}
