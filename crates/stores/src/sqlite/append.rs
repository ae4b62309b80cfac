//! The one commit of a run: what speaks against it, and what it writes.

use engine::store::{Appended, Lease, StoreError};
use machine::id::RunId;
use machine::phase::Scope;
use machine::projection_rows::{ClosedRow, GrantRow};
use machine::suspension::SuspensionKind;
use rusqlite::{Connection, OptionalExtension, Params, params};

use super::births::birth;
use super::desk::Desk;
use super::grants;
use super::inboxes::{deliver, remember};
use super::thread::promote_next;
use super::trouble::{Stop, impossible};
use crate::entry::Entry;
use crate::words::{item_word, millis, number, role_word, unsigned};

/// The run that a commit goes to.
pub(super) struct Target {
    pub(super) tenant: String,
    pub(super) row: i64,
    /// The row of its thread.
    pub(super) thread: i64,
    pub(super) holds: bool,
    pub(super) epoch: u64,
}

pub(super) fn append(desk: &Desk<'_>, lease: &Lease, entry: &Entry) -> Result<Appended, Stop> {
    desk.check_lease(lease)?;
    let target = fence(desk, lease, entry)?;
    let woken = write(desk, &target, entry)?;
    desk.count_commit(entry.bytes);
    Ok(Appended { woken, version: entry.expected_version + 1 })
}

fn fence(desk: &Desk<'_>, lease: &Lease, entry: &Entry) -> Result<Target, Stop> {
    let mut statement = desk.prepare(include_str!("sql/run_fence.sql"))?;
    let found = statement
        .query_row([lease.row], |row| {
            let (run, thread_id): (String, String) = (row.get(1)?, row.get(6)?);
            let (seq, version): (i64, i64) = (row.get(2)?, row.get(7)?);
            let target = Target {
                tenant: row.get(0)?,
                row: lease.row,
                thread: row.get(4)?,
                holds: row.get(5)?,
                epoch: unsigned(row.get(3)?),
            };
            Ok((target, run, unsigned(seq), unsigned(version), thread_id))
        })
        .optional()?;
    let Some((mut target, run, seq, version, thread_id)) = found else {
        return Err(StoreError::Fenced.into());
    };
    let same = run == lease.run.as_str() && target.tenant == lease.tenant.as_str();
    if !same || seq != entry.expected_seq || target.epoch > lease.epoch {
        return Err(StoreError::Fenced.into());
    }
    if version != entry.expected_version {
        return Err(StoreError::Behind.into());
    }
    let state = &entry.state;
    if state.run.as_str() != run || state.thread.as_str() != thread_id {
        return Err(impossible(format!("the control is of {} on {}", state.run, state.thread)));
    }
    target.epoch = lease.epoch;
    Ok(target)
}

pub(super) fn check_seq(connection: &Connection, run: i64, expected_seq: u64) -> Result<(), Stop> {
    let mut statement = connection.prepare_cached("SELECT seq FROM runs WHERE row = ?1")?;
    let seq: Option<i64> = statement.query_row([run], |row| row.get(0)).optional()?;
    if seq.map(unsigned) == Some(expected_seq) { Ok(()) } else { Err(StoreError::Fenced.into()) }
}

/// Everything that a commit changes. Gives the other runs that have something to do because of it.
pub(super) fn write(desk: &Desk<'_>, target: &Target, entry: &Entry) -> Result<Vec<RunId>, Stop> {
    take_from_inbox(desk, target, entry)?;
    write_run(desk, target, entry)?;
    write_thread(desk, target, entry)?;
    write_suspensions(desk, target, entry)?;
    for one in &entry.accepted {
        remember(desk, &target.tenant, target.row, one)?;
    }
    let mut woken = Vec::new();
    if entry.state.summary.status.ended() {
        desk.forget_after_commit(target.row);
        if target.holds {
            woken.extend(promote_next(desk, target.thread)?);
        }
    }
    for born in &entry.spawn {
        woken.push(birth(desk, target, born)?);
    }
    for (to, one) in &entry.deliver {
        if deliver(desk, &target.tenant, to, one)? && !woken.contains(to) {
            woken.push(to.clone());
        }
    }
    Ok(woken)
}

fn take_from_inbox(desk: &Desk<'_>, target: &Target, entry: &Entry) -> Result<(), Stop> {
    for ticket in &entry.consumed {
        let params = params![number(*ticket), target.row];
        if desk.execute("DELETE FROM inbox WHERE ticket = ?1 AND run = ?2", params)? == 0 {
            return Err(impossible(format!("the inbox has no row {ticket}")));
        }
    }
    if entry.state.summary.status.ended() {
        desk.execute("DELETE FROM inbox WHERE run = ?1", [target.row])?;
    }
    Ok(())
}

fn write_run(desk: &Desk<'_>, target: &Target, entry: &Entry) -> Result<(), Stop> {
    let state = &entry.state;
    let summary = state.summary;
    let mut statement = desk.prepare("SELECT EXISTS (SELECT 1 FROM inbox WHERE run = ?1)")?;
    let has_items: bool = statement.query_row([target.row], |row| row.get(0))?;
    let interrupted = entry.accepted.iter().any(|one| item_word(&one.item) == "interrupt");
    // Whoever commits goes on with the run; only what waits in its inbox makes it claimable.
    let ready = i64::from(has_items);
    desk.execute(
        include_str!("sql/run_append.sql"),
        params![
            target.row,
            number(state.seq),
            number(target.epoch),
            summary.status.as_str(),
            target.holds && !summary.status.ended(),
            state.wake_at().map(millis),
            summary.in_doubt,
            interrupted,
            entry.started_at.map(millis),
            state.ended_at().map(millis),
            state.control,
            ready,
            desk.arrival(),
        ],
    )?;
    let Some(log) = &entry.log else { return Ok(()) };
    desk.execute(
        include_str!("sql/commit_insert.sql"),
        params![
            target.tenant,
            target.row,
            number(log.first_seq),
            number(log.last_seq),
            log.checkpoint,
            log.body
        ],
    )?;
    Ok(())
}

fn write_thread(desk: &Desk<'_>, target: &Target, entry: &Entry) -> Result<(), Stop> {
    let (tenant, thread) = (&target.tenant, target.thread);
    for message in &entry.rows.messages {
        let role = role_word(message.role);
        if is_awaited(
            desk,
            include_str!("sql/message_awaited.sql"),
            params![thread, message.id.as_str(), role],
        )? {
            return Err(impossible(format!("message {} is somebody else's", message.id)));
        }
        desk.execute(
            include_str!("sql/message_insert.sql"),
            params![tenant, thread, message.id.as_str(), target.row, number(message.seq), role],
        )?;
    }
    if let Some(head) = entry.rows.messages.last() {
        desk.execute("UPDATE threads SET head = ?2 WHERE row = ?1", params![thread, head.id.as_str()])?;
    }
    for call in &entry.rows.calls {
        if is_awaited(desk, include_str!("sql/call_awaited.sql"), params![thread, call.as_str(), target.row])?
        {
            return Err(impossible(format!("the message of call {call} is somebody else's")));
        }
        desk.execute(include_str!("sql/call_insert.sql"), params![tenant, thread, call.as_str()])?;
    }
    for GrantRow { grant, since } in &entry.rows.grants {
        grants::insert(desk, tenant, thread, grant, *since)?;
    }
    for (kept, value) in entry.rows.state.iter().zip(&entry.state_values) {
        let run = match kept.scope {
            Scope::Run => target.row,
            Scope::Thread => 0,
        };
        desk.execute(
            include_str!("sql/state_put.sql"),
            params![tenant, thread, run, kept.plugin.as_str(), kept.key, value],
        )?;
    }
    Ok(())
}

/// What waits to join the thread counts as being in it: the message of a run that has not started, and the one that
/// each call gets.
fn is_awaited(desk: &Desk<'_>, sql: &str, params: impl Params) -> Result<bool, Stop> {
    Ok(desk.prepare(sql)?.query_row(params, |row| row.get(0))?)
}

fn write_suspensions(desk: &Desk<'_>, target: &Target, entry: &Entry) -> Result<(), Stop> {
    let rows = &entry.rows;
    // In the order of the log: a call may be held, let go and held again in one commit.
    let mut closed = rows.closed.iter().peekable();
    for opened in &rows.opened {
        while let Some(before) = closed.next_if(|closed| closed.seq < opened.seq) {
            close(desk, target, before)?;
        }
        desk.execute(
            include_str!("sql/suspension_insert.sql"),
            params![
                target.tenant,
                opened.id.as_str(),
                target.row,
                number(opened.seq),
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
            desk.execute(
                include_str!("sql/suspension_answer_early.sql"),
                params![target.tenant, opened.id.as_str(), target.row, opened.call.as_str(), digest.0],
            )?;
        }
    }
    for rest in closed {
        close(desk, target, rest)?;
    }
    for voided in &rows.voided {
        let sql = include_str!("sql/suspension_void.sql");
        if decide(desk, target, sql, voided)? == 0 {
            return Err(impossible(format!("suspension {} was not given before it was void", voided.id)));
        }
    }
    // A row that was heard and closed nothing answers nothing any more.
    for ticket in &entry.consumed {
        desk.execute(include_str!("sql/suspension_forget.sql"), params![target.row, number(*ticket)])?;
    }
    Ok(())
}

fn decide(desk: &Desk<'_>, target: &Target, sql: &str, closed: &ClosedRow) -> Result<usize, Stop> {
    let (status, by) = (closed.status.as_str(), closed.by.as_str());
    let (at, id, seq) = (millis(closed.at), closed.id.as_str(), number(closed.seq));
    desk.execute(sql, params![target.tenant, id, target.row, status, at, by, closed.reason, closed.note, seq])
}

fn close(desk: &Desk<'_>, target: &Target, closed: &ClosedRow) -> Result<(), Stop> {
    let changed = decide(desk, target, include_str!("sql/suspension_close.sql"), closed)?;
    if changed == 0 {
        return Err(impossible(format!("suspension {} is not open", closed.id)));
    }
    Ok(())
}
