//! A run's commit: the checks it must pass, and everything it writes.

use engine::store::{Appended, Lease, StoreError};
use machine::id::{Digest, RunId};
use machine::phase::Scope;
use machine::projection_rows::{ClosedRow, GrantRow};
use machine::suspension::SuspensionKind;
use rusqlite::{Connection, OptionalExtension, Params, params};

use super::audit;
use super::chain::previous_hash;
use super::create::create_child;
use super::errors::{SqliteError, impossible};
use super::grants;
use super::inboxes::{deliver, record_decision};
use super::thread::promote_next;
use super::write_tx::WriteTx;
use crate::columns::{item_kind_name, millis, role_name, to_i64, to_u64};
use crate::encoded_commit::{EncodedCommit, EncodedRun};

/// The run that a commit is for.
pub(super) struct CommitTarget {
    pub(super) tenant: String,
    pub(super) row: i64,
    /// The row of its thread.
    pub(super) thread: i64,
    pub(super) holds: bool,
    pub(super) epoch: u64,
    /// The hash of its last commit. `None` if the next commit starts its chain.
    pub(super) chain_head: Option<Digest>,
}

pub(super) fn append(
    tx: &WriteTx<'_>,
    lease: &Lease,
    commit: &EncodedCommit,
) -> Result<Appended, SqliteError> {
    tx.check_lease(lease)?;
    let target = fence(tx, lease, commit)?;
    let woken = write(tx, &target, commit)?;
    tx.count_commit(commit.bytes);
    Ok(Appended { woken, version: commit.expected_version + 1 })
}

fn fence(tx: &WriteTx<'_>, lease: &Lease, commit: &EncodedCommit) -> Result<CommitTarget, SqliteError> {
    let mut statement = tx.prepare(include_str!("sql/run_fence.sql"))?;
    let found = statement
        .query_row([lease.row], |row| {
            let (run, thread_id): (String, String) = (row.get(1)?, row.get(6)?);
            let (seq, version): (i64, i64) = (row.get(2)?, row.get(7)?);
            let target = CommitTarget {
                tenant: row.get(0)?,
                row: lease.row,
                thread: row.get(4)?,
                holds: row.get(5)?,
                epoch: to_u64(row.get(3)?),
                chain_head: previous_hash(row, 8)?,
            };
            Ok((target, run, to_u64(seq), to_u64(version), thread_id))
        })
        .optional()?;
    let Some((mut target, run, seq, version, thread_id)) = found else {
        return Err(StoreError::Fenced.into());
    };
    let same = run == lease.run.as_str() && target.tenant == lease.tenant.as_str();
    if !same || seq != commit.expected_seq || target.epoch > lease.epoch {
        return Err(StoreError::Fenced.into());
    }
    if version != commit.expected_version {
        return Err(StoreError::Behind.into());
    }
    let state = &commit.state;
    if state.run.as_str() != run || state.thread.as_str() != thread_id {
        return Err(impossible(format!("the control is of {} on {}", state.run, state.thread)));
    }
    target.epoch = lease.epoch;
    Ok(target)
}

pub(super) fn check_seq(connection: &Connection, run: i64, expected_seq: u64) -> Result<(), SqliteError> {
    let mut statement = connection.prepare_cached("SELECT seq FROM runs WHERE row = ?1")?;
    let seq: Option<i64> = statement.query_row([run], |row| row.get(0)).optional()?;
    if seq.map(to_u64) == Some(expected_seq) { Ok(()) } else { Err(StoreError::Fenced.into()) }
}

/// Writes everything that a commit changes. Returns the other runs that now have work to do.
pub(super) fn write(
    tx: &WriteTx<'_>,
    target: &CommitTarget,
    commit: &EncodedCommit,
) -> Result<Vec<RunId>, SqliteError> {
    take_from_inbox(tx, target, commit)?;
    write_run(tx, target, commit)?;
    write_thread(tx, target, commit)?;
    write_suspensions(tx, target, commit)?;
    let EncodedRun { thread, run, .. } = &commit.state;
    audit::insert_of_run(tx, &target.tenant, thread, run, &commit.rows.audit)?;
    for one in &commit.accepted {
        record_decision(tx, &target.tenant, target.row, one)?;
    }
    let mut woken = Vec::new();
    if commit.state.summary.status.ended() {
        tx.forget_after_commit(target.row);
        if target.holds {
            woken.extend(promote_next(tx, target.thread)?);
        }
    }
    for child in &commit.spawn {
        woken.push(create_child(tx, target, child)?);
    }
    for (to, one) in &commit.deliver {
        if deliver(tx, &target.tenant, to, one)? && !woken.contains(to) {
            woken.push(to.clone());
        }
    }
    Ok(woken)
}

fn take_from_inbox(
    tx: &WriteTx<'_>,
    target: &CommitTarget,
    commit: &EncodedCommit,
) -> Result<(), SqliteError> {
    for ticket in &commit.consumed {
        let params = params![to_i64(*ticket), target.row];
        if tx.execute("DELETE FROM inbox WHERE ticket = ?1 AND run = ?2", params)? == 0 {
            return Err(impossible(format!("the inbox has no row {ticket}")));
        }
    }
    if commit.state.summary.status.ended() {
        tx.execute("DELETE FROM inbox WHERE run = ?1", [target.row])?;
    }
    Ok(())
}

fn write_run(tx: &WriteTx<'_>, target: &CommitTarget, commit: &EncodedCommit) -> Result<(), SqliteError> {
    let state = &commit.state;
    let summary = state.summary;
    let mut statement = tx.prepare("SELECT EXISTS (SELECT 1 FROM inbox WHERE run = ?1)")?;
    let has_items: bool = statement.query_row([target.row], |row| row.get(0))?;
    let interrupted = commit.accepted.iter().any(|one| item_kind_name(&one.item) == "interrupt");
    // The committing worker continues the run; only items in its inbox make it claimable.
    let ready = i64::from(has_items);
    let hash = commit.log.as_ref().and_then(|log| log.links.hash_after(target.chain_head));
    let hash = hash.map(|hash| hash.0);
    let chain_from = commit.log.as_ref().filter(|_| hash.is_some()).map(|log| to_i64(log.first_seq));
    tx.execute(
        include_str!("sql/run_append.sql"),
        params![
            target.row,
            to_i64(state.seq),
            to_i64(target.epoch),
            summary.status.as_str(),
            target.holds && !summary.status.ended(),
            state.wake_at().map(millis),
            summary.in_doubt,
            interrupted,
            commit.started_at.map(millis),
            state.ended_at().map(millis),
            state.control,
            ready,
            tx.next_arrival(),
            hash,
            chain_from,
        ],
    )?;
    let Some(log) = &commit.log else { return Ok(()) };
    tx.execute(
        include_str!("sql/commit_insert.sql"),
        params![
            target.tenant,
            target.row,
            to_i64(log.first_seq),
            to_i64(log.last_seq),
            log.checkpoint,
            log.body,
            hash,
        ],
    )?;
    Ok(())
}

fn write_thread(tx: &WriteTx<'_>, target: &CommitTarget, commit: &EncodedCommit) -> Result<(), SqliteError> {
    let (tenant, thread) = (&target.tenant, target.thread);
    for message in &commit.rows.messages {
        let role = role_name(message.role);
        if is_awaited(
            tx,
            include_str!("sql/message_awaited.sql"),
            params![thread, message.id.as_str(), role],
        )? {
            return Err(impossible(format!("message {} is already in use", message.id)));
        }
        tx.execute(
            include_str!("sql/message_insert.sql"),
            params![tenant, thread, message.id.as_str(), target.row, to_i64(message.seq), role],
        )?;
    }
    if let Some(head) = commit.rows.messages.last() {
        tx.execute("UPDATE threads SET head = ?2 WHERE row = ?1", params![thread, head.id.as_str()])?;
    }
    for call in &commit.rows.calls {
        if is_awaited(tx, include_str!("sql/call_awaited.sql"), params![thread, call.as_str(), target.row])? {
            return Err(impossible(format!("the message of call {call} is already in use")));
        }
        tx.execute(include_str!("sql/call_insert.sql"), params![tenant, thread, call.as_str()])?;
    }
    for GrantRow { grant, since } in &commit.rows.grants {
        grants::insert(tx, tenant, thread, grant, *since)?;
    }
    for (kept, value) in commit.rows.state.iter().zip(&commit.state_values) {
        let run = match kept.scope {
            Scope::Run => target.row,
            Scope::Thread => 0,
        };
        tx.execute(
            include_str!("sql/state_put.sql"),
            params![tenant, thread, run, kept.plugin.as_str(), kept.key, value],
        )?;
    }
    Ok(())
}

/// Messages that are yet to join the thread count as being in it: the message of a run that has not started, and the
/// message that each call gets.
fn is_awaited(tx: &WriteTx<'_>, sql: &str, params: impl Params) -> Result<bool, SqliteError> {
    Ok(tx.prepare(sql)?.query_row(params, |row| row.get(0))?)
}

fn write_suspensions(
    tx: &WriteTx<'_>,
    target: &CommitTarget,
    commit: &EncodedCommit,
) -> Result<(), SqliteError> {
    let rows = &commit.rows;
    // In log order: within one commit a call may be held, released and held again.
    let mut closed = rows.closed.iter().peekable();
    for opened in &rows.opened {
        while let Some(before) = closed.next_if(|closed| closed.seq < opened.seq) {
            close(tx, target, before)?;
        }
        tx.execute(
            include_str!("sql/suspension_insert.sql"),
            params![
                target.tenant,
                opened.id.as_str(),
                target.row,
                to_i64(opened.seq),
                opened.call.as_str(),
                opened.kind.as_str(),
                opened.arguments.map(|digest| digest.0),
                millis(opened.at),
                opened.expires_at.map(millis),
            ],
        )?;
        if opened.kind == SuspensionKind::Approval
            && let Some(digest) = opened.arguments
        {
            tx.execute(
                include_str!("sql/suspension_answer_early.sql"),
                params![target.tenant, opened.id.as_str(), target.row, opened.call.as_str(), digest.0],
            )?;
        }
    }
    for rest in closed {
        close(tx, target, rest)?;
    }
    for voided in &rows.voided {
        let sql = include_str!("sql/suspension_void.sql");
        if decide(tx, target, sql, voided)? == 0 {
            return Err(impossible(format!("suspension {} was not given before it was void", voided.id)));
        }
    }
    // An item that was processed without closing a suspension no longer answers one.
    for ticket in &commit.consumed {
        tx.execute(include_str!("sql/suspension_forget.sql"), params![target.row, to_i64(*ticket)])?;
    }
    Ok(())
}

fn decide(
    tx: &WriteTx<'_>,
    target: &CommitTarget,
    sql: &str,
    closed: &ClosedRow,
) -> Result<usize, SqliteError> {
    let (status, by) = (closed.status.as_str(), closed.by.as_str());
    let (at, id, seq) = (millis(closed.at), closed.id.as_str(), to_i64(closed.seq));
    tx.execute(sql, params![target.tenant, id, target.row, status, at, by, closed.reason, closed.note, seq])
}

fn close(tx: &WriteTx<'_>, target: &CommitTarget, closed: &ClosedRow) -> Result<(), SqliteError> {
    let changed = decide(tx, target, include_str!("sql/suspension_close.sql"), closed)?;
    if changed == 0 {
        return Err(impossible(format!("suspension {} is not open", closed.id)));
    }
    Ok(())
}
