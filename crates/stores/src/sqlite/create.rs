//! Creates runs: from a message on a thread, or as the child of a run.

use engine::store::{Created, Lease, PostKey, StoreError, Tenant, ThreadView};
use machine::event::InterruptCause;
use machine::id::{Digest, MessageId, RunId};
use machine::inbox::Item;
use machine::projection_rows::PublicRunStatus;
use machine::thread::{Admission, IfBusy};
use rusqlite::{OptionalExtension, params};

use super::append::{CommitTarget, write};
use super::errors::{SqliteError, impossible};
use super::inboxes::deliver;
use super::keys;
use super::lease_handover::Handover;
use super::revisions;
use super::thread::{put_thread, thread_view, to_supersede};
use super::write_tx::WriteTx;
use crate::columns::{millis, to_i64};
use crate::encoded_commit::{EncodedChild, EncodedCommit, EncodedEvents, EncodedItem, EncodedRun};

/// A run to create, encoded.
pub(super) struct Creation {
    pub(super) tenant: Tenant,
    pub(super) seen: ThreadView,
    pub(super) if_busy: IfBusy,
    pub(super) begins_after: Option<MessageId>,
    pub(super) key: Option<PostKey>,
    pub(super) lease: bool,
    pub(super) commit: EncodedCommit,
    /// The item sent to each run that this one supersedes.
    pub(super) superseded: EncodedItem,
}

impl Creation {
    pub(super) fn from_create(create: engine::store::Create) -> Result<Self, StoreError> {
        let engine::store::Create { tenant, seen, if_busy, begins_after, key, inline_agent, lease, append } =
            create;
        key.as_ref().map_or(Ok(()), PostKey::check)?;
        let commit = EncodedCommit::for_creation(tenant.as_str(), append, inline_agent)?;
        let cause = InterruptCause::Superseded(commit.state.run.clone());
        let superseded = EncodedItem::encode(Item::Interrupt { cause })?;
        Ok(Self { tenant, seen, if_busy, begins_after, key, lease, commit, superseded })
    }
}

pub(super) fn create(
    tx: &WriteTx<'_>,
    creation: &Creation,
    handover: &Handover,
) -> Result<Created, SqliteError> {
    let Creation { seen, commit, .. } = creation;
    let tenant = creation.tenant.as_str();
    let view = thread_view(tx.connection(), tenant, &seen.id)?;
    view.check_same(seen)?;
    if let Some(key) = &creation.key
        && keys::posted(tx.connection(), tenant, &seen.id, &key.scope)?.is_some()
    {
        return Err(StoreError::Stale.into());
    }
    let admission = view.admit(seen, creation.if_busy, creation.lease)?;
    if commit.expected_seq != 0 || commit.state.thread != view.id || !commit.consumed.is_empty() {
        return Err(impossible("a log begins with event 1, on the thread that was judged"));
    }
    let Some(log) = &commit.log else { return Err(impossible("a log begins with event 1")) };
    put_thread(tx, tenant, &seen.id, "null")?;
    let thread = thread_row(tx, tenant, &seen.id)?;
    check_message(tx, thread, &commit.state)?;
    let superseded = match admission {
        Admission::Supersede => to_supersede(tx, thread)?,
        Admission::Hold | Admission::Enqueue | Admission::Refuse(_) => Vec::new(),
    };
    let holds = admission == Admission::Hold;
    let leased = creation.lease && holds && !commit.state.summary.status.ended();
    // No worker can hold a run that has just been given its row, so no epoch was used for it.
    let epoch = if leased { tx.leases.lock().next_epoch(None, 0) } else { 0 };
    let placement = RunPlacement { tenant, thread, holds, epoch, startable: false, chain_head: None };
    let row = insert(tx, &placement, &commit.state, log, creation.begins_after.as_ref(), None)?;
    creation.key.as_ref().map_or(Ok(()), |key| keys::bind(tx, tenant, thread, row, key))?;
    commit
        .inline_agent
        .as_ref()
        .map_or(Ok(()), |inline_agent| revisions::put_inline_agent(tx, tenant, thread, inline_agent))?;
    let target = CommitTarget { tenant: tenant.into(), row, thread, holds, epoch, chain_head: None };
    let mut woken = write(tx, &target, commit)?;
    for run in superseded {
        if deliver(tx, tenant, &run, &creation.superseded)? {
            woken.push(run);
        }
    }
    tx.count_commit(commit.bytes);
    let lease = leased.then(|| Lease {
        tenant: creation.tenant.clone(),
        thread: seen.id.clone(),
        run: commit.state.run.clone(),
        epoch,
        row,
    });
    let lease = lease.filter(|lease| handover.offer(lease));
    match &lease {
        Some(lease) => tx.add_lease(lease.clone()),
        // The commit assumed that a worker continues the run.
        None => {
            tx.execute(include_str!("sql/run_release.sql"), params![row, tx.next_arrival()])?;
        }
    }
    // The first commit has set the version to 1.
    Ok(Created { admission, lease, woken, version: 1 })
}

/// A message that already exists, or that another run or a call will add, could never join the thread.
fn check_message(tx: &WriteTx<'_>, thread: i64, state: &EncodedRun) -> Result<(), SqliteError> {
    let Some(message) = &state.user_message else { return Ok(()) };
    let mut statement = tx.prepare(include_str!("sql/message_taken.sql"))?;
    let taken: bool = statement.query_row(params![thread, message.as_str()], |row| row.get(0))?;
    if taken { Err(impossible(format!("the thread has a message {message} already"))) } else { Ok(()) }
}

/// Creates a child with a thread of its own, which it holds.
pub(super) fn create_child(
    tx: &WriteTx<'_>,
    parent: &CommitTarget,
    child: &EncodedChild,
) -> Result<RunId, SqliteError> {
    let tenant = &parent.tenant;
    if !put_thread(tx, tenant, &child.thread, "null")? {
        return Err(impossible(format!("thread {} exists already", child.thread)));
    }
    let thread = thread_row(tx, tenant, &child.thread)?;
    let chain_head = child.log.links.hash_after(None);
    let placement = RunPlacement { tenant, thread, holds: true, epoch: 0, startable: true, chain_head };
    let row = insert(tx, &placement, &child.state, &child.log, None, Some(parent.row))?;
    tx.execute(
        include_str!("sql/commit_insert.sql"),
        params![
            tenant,
            row,
            to_i64(child.log.first_seq),
            to_i64(child.log.last_seq),
            child.log.checkpoint,
            child.log.body,
            chain_head.map(|hash| hash.0),
        ],
    )?;
    Ok(child.state.run.clone())
}

fn thread_row(tx: &WriteTx<'_>, tenant: &str, thread: &machine::id::ThreadId) -> Result<i64, SqliteError> {
    let mut statement = tx.prepare("SELECT row FROM threads WHERE tenant = ?1 AND id = ?2")?;
    Ok(statement.query_row(params![tenant, thread.as_str()], |row| row.get(0))?)
}

struct RunPlacement<'p> {
    tenant: &'p str,
    thread: i64,
    holds: bool,
    epoch: u64,
    /// True if a claim may find it at once; otherwise the commit that follows makes it claimable.
    startable: bool,
    /// The hash of the first commit, unless the commit that follows writes it.
    chain_head: Option<Digest>,
}

fn insert(
    tx: &WriteTx<'_>,
    placement: &RunPlacement<'_>,
    state: &EncodedRun,
    log: &EncodedEvents,
    begins_after: Option<&MessageId>,
    parent: Option<i64>,
) -> Result<i64, SqliteError> {
    let summary = state.summary;
    let parent = match (&state.parent, parent) {
        (Some(_), Some(row)) => Some(row),
        (Some(known), None) => parent_row(tx, placement.tenant, &known.run_id)?,
        (None, _) => None,
    };
    let parent_call = state.parent.as_ref().filter(|_| parent.is_some()).map(|known| known.call_id.as_str());
    let unstarted = summary.status == PublicRunStatus::Queued;
    let promised = state.user_message.as_ref().filter(|_| unstarted).map(MessageId::as_str);
    tx.execute(
        include_str!("sql/run_insert.sql"),
        params![
            placement.tenant,
            state.run.as_str(),
            placement.thread,
            state.agent.as_str(),
            parent,
            parent_call,
            begins_after.map(MessageId::as_str),
            promised,
            summary.status.as_str(),
            placement.holds && !summary.status.ended(),
            to_i64(state.seq),
            to_i64(placement.epoch),
            summary.in_doubt,
            if placement.startable { 2 } else { 0 },
            placement.startable.then(|| tx.next_arrival()),
            state.wake_at().map(millis),
            millis(log.first_at),
            // The commit that follows sets the start time.
            None::<i64>,
            state.ended_at().map(millis),
            state.control,
            placement.chain_head.map(|hash| hash.0),
            placement.chain_head.map(|_| to_i64(log.first_seq)),
        ],
    )?;
    Ok(tx.connection().last_insert_rowid())
}

fn parent_row(tx: &WriteTx<'_>, tenant: &str, run: &RunId) -> Result<Option<i64>, SqliteError> {
    let mut statement = tx.prepare("SELECT row FROM runs WHERE tenant = ?1 AND id = ?2")?;
    Ok(statement.query_row(params![tenant, run.as_str()], |row| row.get(0)).optional()?)
}
