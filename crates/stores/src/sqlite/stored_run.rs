//! A stored run: its control, its log, and what a worker needs to continue it.

use std::iter::repeat;
use std::sync::Arc;

use engine::store::{
    CommittedEvent, EVENTS_BYTES_MAX, Lease, Loaded, LogEntry, StoreError, Tenant, UnreadableEvent,
};
use machine::apply::{apply, initial_control};
use machine::checkpoint::Checkpoint;
use machine::control::ControlDecodeError;
use machine::event::Event;
use machine::id::{MessageId, RunId, ThreadId};
use machine::inbox::{Item, Ticket};
use machine::{Control, event_codec};
use rusqlite::{Connection, OptionalExtension};

use super::chain::{chain_columns, chain_end};
use super::errors::{SqliteError, corrupt};
use crate::chain::ChainColumns;
use crate::columns::{parse_checkpoint, to_i64, to_u64};
use crate::failure_counters::none_if_corrupt;

/// None if it cannot be decoded.
pub(super) fn control_if_readable(
    connection: &Connection,
    run: i64,
    stored: &[u8],
) -> Result<Option<Control>, SqliteError> {
    none_if_corrupt(control_to_show(connection, run, stored))
}

/// For showing the run or judging an item. Does not read the log even if an earlier version stored the control.
pub(super) fn control_to_show(
    connection: &Connection,
    run: i64,
    stored: &[u8],
) -> Result<Control, SqliteError> {
    control_or_fold(connection, run, Control::decode_read_only(stored))
}

/// For a worker, which writes the control back: a control that another version wrote is folded from the log again.
fn control_to_continue(connection: &Connection, run: i64, stored: &[u8]) -> Result<Control, SqliteError> {
    control_or_fold(connection, run, Control::decode(stored))
}

fn control_or_fold(
    connection: &Connection,
    run: i64,
    decoded: Result<Control, ControlDecodeError>,
) -> Result<Control, SqliteError> {
    match decoded {
        Ok(control) => Ok(control),
        Err(ControlDecodeError::UnsupportedVersion(_)) => fold_log(connection, run),
        Err(ControlDecodeError::Corrupt(why)) => Err(corrupt(format!("control of run {run}: {why}"))),
    }
}

/// Folds the control from the log.
pub(super) fn fold_log(connection: &Connection, run: i64) -> Result<Control, SqliteError> {
    let mut control: Option<Control> = None;
    loop {
        let after = control.as_ref().map_or(0, |control| control.seq);
        let page = events_after(connection, run, after, usize::MAX)?;
        if page.is_empty() {
            return control.ok_or_else(|| corrupt(format!("run {run} has no events")));
        }
        for logged in &page {
            let CommittedEvent { event, .. } = logged.decoded()?;
            let folded = match &mut control {
                Some(control) => apply(control, event),
                None => initial_control(event).map(|born| control = Some(born)),
            };
            folded.map_err(|why| corrupt(why.to_string()))?;
        }
    }
}

/// The columns that decide whether a run can be claimed, and what the worker gets with it.
pub(super) struct SqliteStoredRun {
    pub(super) row: i64,
    pub(super) tenant: String,
    pub(super) id: String,
    pub(super) thread: String,
    pub(super) epoch: u64,
    pub(super) ready: i64,
    pub(super) wake_at: Option<i64>,
    pub(super) holds: bool,
    pub(super) ended: bool,
    pub(super) status: String,
    pub(super) has_items: bool,
    begins_after: Option<String>,
    head: Option<String>,
    control: Vec<u8>,
    version: u64,
    seq: u64,
    chain_head: ChainColumns,
}

impl SqliteStoredRun {
    pub(super) fn find(connection: &Connection, row: i64) -> Result<Option<Self>, SqliteError> {
        let mut statement = connection.prepare_cached(include_str!("sql/run_load.sql"))?;
        let found = statement.query_row([row], |columns| {
            Ok(Self {
                row,
                tenant: columns.get(0)?,
                id: columns.get(1)?,
                epoch: to_u64(columns.get(2)?),
                ready: columns.get(3)?,
                wake_at: columns.get(4)?,
                holds: columns.get(5)?,
                ended: columns.get(6)?,
                begins_after: columns.get(7)?,
                thread: columns.get(8)?,
                head: columns.get(9)?,
                status: columns.get(10)?,
                has_items: columns.get(11)?,
                control: columns.get(12)?,
                version: to_u64(columns.get(13)?),
                seq: to_u64(columns.get(14)?),
                chain_head: chain_columns(columns, 15)?,
            })
        });
        Ok(found.optional()?)
    }

    pub(super) fn lease(&self, epoch: u64) -> Lease {
        Lease {
            tenant: Tenant::from(self.tenant.as_str()),
            thread: ThreadId::from(self.thread.as_str()),
            run: RunId::from(self.id.as_str()),
            epoch,
            row: self.row,
        }
    }

    /// Must run in the same read transaction as the one that read the columns.
    pub(super) fn load(self, connection: &Connection) -> Result<Loaded, SqliteError> {
        let control = control_to_continue(connection, self.row, &self.control)?;
        let end = chain_end(connection, self.row, self.chain_head)?;
        end.check(&self.tenant, &self.id, self.seq, &control.revision)?;
        Ok(Loaded {
            control,
            inbox: inbox(connection, self.row)?,
            version: self.version,
            holds_thread: self.holds,
            begins_after: self.begins_after.or(self.head).map(MessageId::from),
        })
    }
}

pub(super) fn inbox(connection: &Connection, run: i64) -> Result<Vec<(Ticket, Item)>, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/inbox_of_run.sql"))?;
    let mut rows = statement.query([run])?;
    let mut inbox = Vec::new();
    while let Some(row) = rows.next()? {
        let text = row.get_ref(1)?.as_str().map_err(|error| corrupt(error.to_string()))?;
        let item = serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
        inbox.push((to_u64(row.get(0)?), item));
    }
    Ok(inbox)
}

/// At most `limit` events, of about as many bytes as are read at once, and at least one if there is one. Includes
/// events that cannot be decoded.
pub(super) fn events_after(
    connection: &Connection,
    run: i64,
    after: u64,
    limit: usize,
) -> Result<Vec<LogEntry>, SqliteError> {
    let limit = limit.max(1);
    let mut statement = connection.prepare_cached(include_str!("sql/commits_after.sql"))?;
    let mut rows = statement.query([run, to_i64(after)])?;
    let (mut events, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let (first_seq, last_seq) = (to_u64(row.get(0)?), to_u64(row.get(1)?));
        let word: String = row.get(2)?;
        // A body that is not text has no lines.
        let body = row.get_ref(3)?.as_str().unwrap_or_default();
        for (line, seq) in body.lines().chain(repeat("")).zip(first_seq..=last_seq) {
            if seq <= after {
                continue;
            }
            if events.len() == limit || bytes >= EVENTS_BYTES_MAX {
                return Ok(events);
            }
            bytes += line.len();
            let checkpoint = if seq == last_seq { Some(parse_checkpoint(&word)?) } else { None };
            events.push(logged(parse_event(line, seq).ok(), seq, checkpoint));
        }
    }
    Ok(events)
}

/// One event of a run; reads only its commit.
pub(super) fn event_at(connection: &Connection, run: i64, seq: u64) -> Result<Arc<Event>, SqliteError> {
    let before = seq.checked_sub(1).ok_or(StoreError::NotFound)?;
    let found = events_after(connection, run, before, 1)?;
    let found = found.first().filter(|found| found.seq() == seq).ok_or(StoreError::NotFound)?;
    Ok(found.decoded()?.event.clone())
}

fn logged(event: Option<Event>, seq: u64, checkpoint: Option<Checkpoint>) -> LogEntry {
    match event {
        Some(event) => LogEntry::Event(CommittedEvent { event: Arc::new(event), checkpoint }),
        None => LogEntry::Unreadable(UnreadableEvent { seq, checkpoint }),
    }
}

/// One commit of a log, for reading several of its events.
pub(super) struct StoredCommit {
    run: i64,
    first_seq: u64,
    last_seq: u64,
    body: String,
}

impl StoredCommit {
    /// None if no commit contains this event.
    pub(super) fn find(connection: &Connection, run: i64, seq: u64) -> Result<Option<Self>, SqliteError> {
        let mut statement = connection.prepare_cached(include_str!("sql/commits_after.sql"))?;
        let found = statement.query_row([run, to_i64(seq.saturating_sub(1))], |row| {
            let (first_seq, last_seq) = (to_u64(row.get(0)?), to_u64(row.get(1)?));
            let body = row.get_ref(3)?.as_str().unwrap_or_default().to_owned();
            Ok(Self { run, first_seq, last_seq, body })
        });
        Ok(found.optional()?.filter(|found| found.holds(run, seq)))
    }

    pub(super) const fn holds(&self, run: i64, seq: u64) -> bool {
        self.run == run && self.first_seq <= seq && seq <= self.last_seq
    }

    pub(super) fn event(&self, seq: u64) -> Result<Event, SqliteError> {
        let line = self.body.lines().zip(self.first_seq..).find(|(_, line_seq)| *line_seq == seq);
        parse_event(line.map_or("", |(line, _)| line), seq)
    }
}

fn parse_event(line: &str, seq: u64) -> Result<Event, SqliteError> {
    let event = event_codec::decode(line).map_err(|why| corrupt(why.to_string()))?;
    if event.seq == seq {
        Ok(event)
    } else {
        Err(corrupt(format!("found event {} where {seq} belongs", event.seq)))
    }
}
