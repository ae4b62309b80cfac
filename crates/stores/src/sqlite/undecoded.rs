//! Ends an interrupted run that cannot be fully decoded, using only its plain columns.

use engine::store::{Appended, Lease, StoreError};
use machine::Control;
use machine::id::{AgentName, CallId, RunId, SuspensionId, ThreadId};
use machine::inbox::Ticket;
use machine::suspension::SuspensionKind;
use machine::undecodable::{HeldCall, ParentCall, UndecodedRun, final_commit};
use rusqlite::{Connection, OptionalExtension, params};

use super::append::{CommitTarget, write};
use super::chain::previous_hash;
use super::errors::SqliteError;
use super::stored_run::fold_log;
use super::write_tx::WriteTx;
use crate::columns::{parse_suspension_kind, timestamp, to_u64};
use crate::encoded_commit::{EncodedCommit, EndingRun, EndingSource, interrupt_cause_in, readable_items};
use crate::failure_counters::none_if_corrupt;

const RUN: &str = "SELECT r.tenant, r.id, r.seq, r.epoch, r.thread, r.holds, r.interrupt_accepted, t.id, r.agent, \
        p.id, r.parent_call, max(r.created_at, coalesce(r.started_at, 0)), r.control, r.ended_at IS NOT NULL, \
        r.version, r.chain_head \
    FROM runs r JOIN threads t ON t.row = r.thread LEFT JOIN runs p ON p.row = r.parent WHERE r.row = ?1";
const HELD: &str =
    "SELECT call, id, kind FROM suspensions WHERE run = ?1 AND status = 'pending' ORDER BY seq, id";
/// There is no index by parent: if a held call waits for a child, all unended runs of the tenant are scanned.
const CHILDREN: &str = "SELECT id FROM runs WHERE tenant = ?2 AND parent = ?1 \
    AND status IN ('queued', 'running', 'waiting_approval', 'waiting_tool', 'interrupting')";
const INBOX: &str = "SELECT ticket, item FROM inbox WHERE run = ?1 ORDER BY ticket";

struct UndecodedColumns {
    target: CommitTarget,
    run: EndingRun,
    parent: Option<ParentCall>,
    known_at: i64,
    control: Vec<u8>,
    interrupt_accepted: bool,
    ended: bool,
}

pub(super) fn end(tx: &WriteTx<'_>, lease: &Lease, ends: EndingSource) -> Result<Appended, SqliteError> {
    tx.check_lease(lease)?;
    let connection = tx.connection();
    let found = columns(connection, lease.row)?.filter(|found| {
        let same = found.run.id == lease.run && found.target.tenant == lease.tenant.as_str();
        same && !found.ended && found.target.epoch <= lease.epoch
    });
    let Some(UndecodedColumns { mut target, mut run, parent, known_at, control, interrupt_accepted, .. }) =
        found
    else {
        return Err(StoreError::Fenced.into());
    };
    if !interrupt_accepted {
        return Err(StoreError::Stale.into());
    }
    target.epoch = lease.epoch;
    let (inbox, texts) = inbox(connection, lease.row)?;
    let cause = interrupt_cause_in(texts.iter().map(String::as_str));
    let held = held(connection, lease.row)?;
    let plain = UndecodedRun {
        run: run.id.clone(),
        seq: run.seq,
        now: tx.now.max(timestamp(known_at)),
        children: children(connection, &target, &held)?,
        held,
        parent,
        inbox_count: inbox.len(),
        unprocessed: readable_items(texts.iter().map(String::as_str)),
    };
    run.inbox = inbox;
    let decoded = match ends {
        EndingSource::Control => match Control::decode(&control) {
            Ok(control) => Some(control),
            Err(_) => none_if_corrupt(fold_log(connection, lease.row))?,
        },
        EndingSource::Columns => None,
    };
    let commit = EncodedCommit::for_undecoded_end(
        &target.tenant,
        run,
        final_commit(&plain, decoded, &cause),
        control,
    )?;
    let woken = write(tx, &target, &commit)?;
    tx.count_commit(commit.bytes);
    Ok(Appended { woken, version: commit.expected_version + 1 })
}

fn columns(connection: &Connection, row: i64) -> Result<Option<UndecodedColumns>, SqliteError> {
    let mut statement = connection.prepare_cached(RUN)?;
    let found = statement.query_row([row], |columns| {
        let parent: Option<(String, String)> =
            columns.get::<_, Option<String>>(9)?.zip(columns.get::<_, Option<String>>(10)?);
        Ok(UndecodedColumns {
            target: CommitTarget {
                tenant: columns.get(0)?,
                row,
                thread: columns.get(4)?,
                holds: columns.get(5)?,
                epoch: to_u64(columns.get(3)?),
                chain_head: previous_hash(columns, 15)?,
            },
            run: EndingRun {
                id: RunId::from(columns.get::<_, String>(1)?),
                thread: ThreadId::from(columns.get::<_, String>(7)?),
                agent: AgentName::from(columns.get::<_, String>(8)?),
                seq: to_u64(columns.get(2)?),
                version: to_u64(columns.get(14)?),
                inbox: Vec::new(),
            },
            parent: parent.map(|(run, call)| ParentCall { run: RunId::from(run), call: CallId::from(call) }),
            known_at: columns.get(11)?,
            control: columns.get(12)?,
            interrupt_accepted: columns.get(6)?,
            ended: columns.get(13)?,
        })
    });
    Ok(found.optional()?)
}

fn held(connection: &Connection, run: i64) -> Result<Vec<HeldCall>, SqliteError> {
    let mut statement = connection.prepare_cached(HELD)?;
    let mut rows = statement.query([run])?;
    let mut held = Vec::new();
    while let Some(row) = rows.next()? {
        held.push(HeldCall {
            call: CallId::from(row.get::<_, String>(0)?),
            suspension: SuspensionId::from(row.get::<_, String>(1)?),
            kind: parse_suspension_kind(&row.get::<_, String>(2)?)?,
        });
    }
    Ok(held)
}

fn children(
    connection: &Connection,
    target: &CommitTarget,
    held: &[HeldCall],
) -> Result<Vec<RunId>, SqliteError> {
    if !held.iter().any(|held| held.kind == SuspensionKind::ChildRun) {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare_cached(CHILDREN)?;
    let found = statement
        .query_map(params![target.row, target.tenant], |row| Ok(RunId::from(row.get::<_, String>(0)?)))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// The tickets of all items in the inbox, and the texts of those that are readable.
fn inbox(connection: &Connection, run: i64) -> Result<(Vec<Ticket>, Vec<String>), SqliteError> {
    let mut statement = connection.prepare_cached(INBOX)?;
    let mut rows = statement.query([run])?;
    let (mut tickets, mut texts) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        tickets.push(to_u64(row.get(0)?));
        texts.extend(row.get_ref(1)?.as_str().ok().map(str::to_owned));
    }
    Ok((tickets, texts))
}
