//! A run as it is stored: its control, its log, and the state that a worker starts from.

use std::iter::repeat;
use std::sync::Arc;

use engine::store::{
    CommittedEvent, EVENTS_BYTES_MAX, Lease, Loaded, LogEntry, StoreError, Tenant, UnreadableEvent,
};
use machine::apply::{apply, initial_control};
use machine::control::ControlDecodeError;
use machine::event::Event;
use machine::id::{MessageId, RunId};
use machine::inbox::{Item, Ticket};
use machine::{Control, Timestamp, event_codec};
use tokio_postgres::Row;

use super::chain::parse_chain_end;
use super::claim::parse_lease;
use super::connection::Connections;
use super::errors::{PostgresError, corrupt};
use super::nul_escape::{escape, unescape};
use crate::chain::ChainEnd;
use crate::columns::{parse_checkpoint, timestamp, to_i64, to_u64};
use crate::failure_counters::none_if_corrupt;

/// `None` if the control cannot be decoded.
pub(super) async fn control_if_readable(
    connections: &Connections,
    run: i64,
    stored: &[u8],
) -> Result<Option<Control>, PostgresError> {
    none_if_corrupt(control_to_show(connections, run, stored).await)
}

/// For showing the run or judging an item: does not read the log if an earlier version stored the control.
pub(super) async fn control_to_show(
    connections: &Connections,
    run: i64,
    stored: &[u8],
) -> Result<Control, PostgresError> {
    control_or_fold(connections, run, Control::decode_read_only(stored)).await
}

async fn control_or_fold(
    connections: &Connections,
    run: i64,
    decoded: Result<Control, ControlDecodeError>,
) -> Result<Control, PostgresError> {
    match decoded {
        Ok(control) => Ok(control),
        Err(ControlDecodeError::UnsupportedVersion(_)) => fold_log(connections, run).await,
        Err(ControlDecodeError::Corrupt(why)) => Err(corrupt(format!("control of run {run}: {why}"))),
    }
}

/// The control, folded from the log.
pub(super) async fn fold_log(connections: &Connections, run: i64) -> Result<Control, PostgresError> {
    let mut control: Option<Control> = None;
    loop {
        let after = control.as_ref().map_or(0, |control| control.seq);
        let page = events_after(connections, run, after, usize::MAX).await?;
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

/// A row of `loaded`.
pub(super) struct PostgresStoredRun {
    pub(super) lease: Lease,
    pub(super) doubt_at: Option<Timestamp>,
    holds: bool,
    begins_after: Option<String>,
    control: Vec<u8>,
    tickets: Vec<i64>,
    items: Vec<String>,
    version: u64,
    seq: u64,
    chain: ChainEnd,
}

impl PostgresStoredRun {
    /// The columns of `loaded`, from the column `first` on.
    pub(super) fn from_row(row: &Row, first: usize) -> Result<Self, PostgresError> {
        Ok(Self {
            lease: parse_lease(row, first)?,
            holds: row.try_get(first + 5)?,
            begins_after: row.try_get::<_, Option<String>>(first + 6)?.map(unescape),
            doubt_at: row.try_get::<_, Option<i64>>(first + 7)?.map(timestamp),
            control: row.try_get(first + 8)?,
            tickets: row.try_get(first + 9)?,
            items: row.try_get(first + 10)?,
            version: to_u64(row.try_get(first + 11)?),
            seq: to_u64(row.try_get(first + 12)?),
            chain: parse_chain_end(row, first + 13)?,
        })
    }

    /// The ticket of the last inbox row.
    pub(super) fn last_ticket(&self) -> Ticket {
        self.tickets.last().copied().map_or(0, to_u64)
    }

    pub(super) async fn load(self, connections: &Connections) -> Result<Loaded, PostgresError> {
        // A worker writes the control back, so a control that another version wrote is folded again from the log.
        let decoded = Control::decode(&self.control);
        let control = control_or_fold(connections, self.lease.row, decoded).await?;
        let Lease { tenant, run, .. } = &self.lease;
        self.chain.check(tenant.as_str(), run.as_str(), self.seq, &control.revision)?;
        let inbox = self
            .tickets
            .iter()
            .zip(&self.items)
            .map(|(ticket, item)| Ok((to_u64(*ticket), parse_item(item)?)));
        Ok(Loaded {
            control,
            inbox: inbox.collect::<Result<Vec<_>, PostgresError>>()?,
            version: self.version,
            holds_thread: self.holds,
            begins_after: self.begins_after.map(MessageId::from),
        })
    }
}

pub(super) fn parse_item(item: &str) -> Result<Item, PostgresError> {
    serde_json::from_str(item).map_err(|error| corrupt(error.to_string()))
}

/// Commits requested at once: each has a few events.
const COMMIT_COUNT_MAX: usize = 256;

/// Collects the events of a run, page by page.
struct EventReader {
    after: u64,
    limit: usize,
    events: Vec<LogEntry>,
    bytes: usize,
    /// The last commit that was read.
    seen: u64,
}

impl EventReader {
    fn new(after: u64, limit: usize) -> Self {
        Self { after, limit: limit.max(1), events: Vec::new(), bytes: 0, seen: after }
    }

    fn commit_count(&self) -> usize {
        COMMIT_COUNT_MAX.min(self.limit - self.events.len())
    }

    /// No more events are accepted.
    fn is_full(&self) -> bool {
        self.events.len() >= self.limit || self.bytes >= EVENTS_BYTES_MAX
    }

    /// Bytes that may still be added. The server counts whole commits, and so sends one that is too much.
    fn bytes_left(&self) -> i64 {
        to_i64(EVENTS_BYTES_MAX.saturating_sub(self.bytes) as u64)
    }

    /// Adds the rows of one page. True if there may be more of the requested events.
    fn add_rows(&mut self, rows: &[Row]) -> Result<bool, PostgresError> {
        let (asked, left) = (self.commit_count(), self.bytes_left());
        let mut sent = 0;
        for row in rows {
            let (first_seq, last_seq) = (to_u64(row.try_get(0)?), to_u64(row.try_get(1)?));
            let (word, body): (&str, &str) = (row.try_get(2)?, row.try_get(3)?);
            sent += to_i64(body.len() as u64);
            let lines = body.lines().chain(repeat("")).zip(first_seq..=last_seq);
            for (line, seq) in lines.filter(|(_, seq)| *seq > self.after) {
                if self.is_full() {
                    return Ok(false);
                }
                self.bytes += line.len();
                let checkpoint = if seq == last_seq { Some(parse_checkpoint(word)?) } else { None };
                self.events.push(match parse_event(line, seq) {
                    Ok(event) => LogEntry::Event(CommittedEvent { event: Arc::new(event), checkpoint }),
                    Err(_) => LogEntry::Unreadable(UnreadableEvent { seq, checkpoint }),
                });
            }
            self.seen = last_seq;
        }
        let is_end = rows.len() < asked && sent < left;
        Ok(!is_end && !self.is_full())
    }
}

/// At most `limit` events, of about as many bytes as are read at once, and at least one if there is one; with the
/// number of the run, and whether these are all its remaining events.
pub(super) async fn events_of(
    connections: &Connections,
    tenant: &Tenant,
    run: &RunId,
    after: u64,
    limit: usize,
) -> Result<(i64, Vec<LogEntry>, bool), PostgresError> {
    let mut reader = EventReader::new(after, limit);
    let count = to_i64(reader.commit_count() as u64);
    let sql = include_str!("sql/events_of_run.sql");
    let (tenant, run) = (escape(tenant.as_str()), escape(run.as_str()));
    let left = reader.bytes_left();
    let rows = connections.read(sql, &[&tenant, &run, &to_i64(after), &count, &left]).await?;
    let first = rows.first().ok_or(StoreError::NotFound)?;
    let run = first.try_get(4)?;
    let nothing = first.try_get::<_, Option<i64>>(0)?.is_none();
    if !nothing && reader.add_rows(&rows)? {
        read_rest(connections, run, &mut reader).await?;
    }
    let is_all = !reader.is_full();
    Ok((run, reader.events, is_all))
}

pub(super) async fn events_after(
    connections: &Connections,
    run: i64,
    after: u64,
    limit: usize,
) -> Result<Vec<LogEntry>, PostgresError> {
    let mut reader = EventReader::new(after, limit);
    read_rest(connections, run, &mut reader).await?;
    Ok(reader.events)
}

async fn read_rest(
    connections: &Connections,
    run: i64,
    reader: &mut EventReader,
) -> Result<(), PostgresError> {
    let sql = include_str!("sql/commits_after.sql");
    loop {
        let count = to_i64(reader.commit_count() as u64);
        let left = reader.bytes_left();
        let rows = connections.read(sql, &[&run, &to_i64(reader.seen), &count, &left]).await?;
        if !reader.add_rows(&rows)? {
            return Ok(());
        }
    }
}

/// One event of a run; reads only its commit.
pub(super) async fn event_at(
    connections: &Connections,
    run: i64,
    seq: u64,
) -> Result<Arc<Event>, PostgresError> {
    let before = seq.checked_sub(1).ok_or(StoreError::NotFound)?;
    let found = events_after(connections, run, before, 1).await?;
    let found = found.first().filter(|found| found.seq() == seq).ok_or(StoreError::NotFound)?;
    Ok(found.decoded()?.event.clone())
}

/// Finds one event in the body of its commit.
pub(super) fn parse_event_in(body: &str, first_seq: u64, seq: u64) -> Result<Event, PostgresError> {
    let place = seq.checked_sub(first_seq).and_then(|place| usize::try_from(place).ok());
    let line = place.and_then(|place| body.lines().nth(place));
    parse_event(line.ok_or_else(|| corrupt(format!("event {seq} is not in its commit")))?, seq)
}

pub(super) fn parse_event(line: &str, seq: u64) -> Result<Event, PostgresError> {
    let event = event_codec::decode(line).map_err(|why| corrupt(why.to_string()))?;
    if event.seq == seq {
        Ok(event)
    } else {
        Err(corrupt(format!("found event {} where {seq} belongs", event.seq)))
    }
}
