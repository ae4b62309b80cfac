//! A run as it is stored: its control, its log, and what a worker starts from.

use std::sync::Arc;

use engine::store::{Committed, Lease, Loaded, Refused, Tenant};
use machine::control::ControlUnreadable;
use machine::event::Event;
use machine::id::{MessageId, RunId, ThreadId};
use machine::inbox::{Item, Ticket};
use machine::{Control, Timestamp, fold, stored};
use tokio_postgres::Row;

use super::connection::Connections;
use super::text::told;
use super::trouble::{Stop, corrupt};
use crate::words::{checkpoint_of, number, timestamp, unsigned};

/// A control that another fold wrote is folded anew from the log.
pub(super) async fn control_of(connections: &Connections, run: i64, stored: &[u8]) -> Result<Control, Stop> {
    match Control::decode(stored) {
        Ok(control) => Ok(control),
        Err(ControlUnreadable::OtherVersion(_)) => {
            let log = events_after(connections, run, 0, usize::MAX).await?;
            fold(log.iter().map(|committed| &*committed.event)).map_err(|why| corrupt(why.to_string()))
        }
        Err(ControlUnreadable::Corrupt(why)) => Err(corrupt(format!("control of run {run}: {why}"))),
    }
}

/// A row of `loaded`.
pub(super) struct StoredRun {
    pub(super) lease: Lease,
    pub(super) doubt_at: Option<Timestamp>,
    holds: bool,
    begins_after: Option<String>,
    control: Vec<u8>,
    tickets: Vec<i64>,
    items: Vec<String>,
}

impl StoredRun {
    /// The columns of `loaded`, from the column `first` on.
    pub(super) fn of(row: &Row, first: usize) -> Result<Self, Stop> {
        let text = |column: usize| row.try_get::<_, String>(first + column).map(told);
        Ok(Self {
            lease: Lease {
                row: row.try_get(first)?,
                tenant: Tenant::from(text(1)?.as_str()),
                run: RunId::from(text(2)?),
                thread: ThreadId::from(text(3)?),
                epoch: unsigned(row.try_get(first + 4)?),
            },
            holds: row.try_get(first + 5)?,
            begins_after: row.try_get::<_, Option<String>>(first + 6)?.map(told),
            doubt_at: row.try_get::<_, Option<i64>>(first + 7)?.map(timestamp),
            control: row.try_get(first + 8)?,
            tickets: row.try_get(first + 9)?,
            items: row.try_get(first + 10)?,
        })
    }

    /// The last row of its inbox.
    pub(super) fn last_ticket(&self) -> Ticket {
        self.tickets.last().copied().map_or(0, unsigned)
    }

    pub(super) async fn load(self, connections: &Connections) -> Result<Loaded, Stop> {
        let control = control_of(connections, self.lease.row, &self.control).await?;
        let inbox =
            self.tickets.iter().zip(&self.items).map(|(ticket, item)| Ok((unsigned(*ticket), read(item)?)));
        Ok(Loaded {
            control,
            inbox: inbox.collect::<Result<Vec<_>, Stop>>()?,
            holds_thread: self.holds,
            begins_after: self.begins_after.map(MessageId::from),
        })
    }
}

fn read(item: &str) -> Result<Item, Stop> {
    serde_json::from_str(item).map_err(|error| corrupt(error.to_string()))
}

/// Commits that are asked for at once: each has a few events.
const COMMIT_COUNT: usize = 256;

/// At most `limit` events, and at least one if there is one.
pub(super) async fn events_after(
    connections: &Connections,
    run: i64,
    after: u64,
    limit: usize,
) -> Result<Vec<Committed>, Stop> {
    let limit = limit.max(1);
    let mut events: Vec<Committed> = Vec::new();
    let mut seen = after;
    loop {
        let count = COMMIT_COUNT.min(limit - events.len());
        let asked = i64::try_from(count).unwrap_or(i64::MAX);
        let rows =
            connections.read(include_str!("sql/commits_after.sql"), &[&run, &number(seen), &asked]).await?;
        for row in &rows {
            let (first_seq, last_seq) = (unsigned(row.try_get(0)?), unsigned(row.try_get(1)?));
            let (word, body): (&str, &str) = (row.try_get(2)?, row.try_get(3)?);
            for (line, seq) in body.lines().zip(first_seq..) {
                if seq <= after {
                    continue;
                }
                if events.len() == limit {
                    return Ok(events);
                }
                let checkpoint = if seq == last_seq { Some(checkpoint_of(word)?) } else { None };
                events.push(Committed { event: Arc::new(event(line, seq)?), checkpoint });
            }
            seen = last_seq;
        }
        if rows.len() < count || events.len() == limit {
            return Ok(events);
        }
    }
}

/// One event of a run, with nothing read but its commit.
pub(super) async fn event_at(connections: &Connections, run: i64, seq: u64) -> Result<Arc<Event>, Stop> {
    let before = seq.checked_sub(1).ok_or(Refused::NotFound)?;
    let found = events_after(connections, run, before, 1).await?;
    let committed = found.into_iter().next().ok_or(Refused::NotFound)?;
    Ok(committed.event)
}

/// One event in the body of its commit.
pub(super) fn event_in(body: &str, first_seq: u64, seq: u64) -> Result<Event, Stop> {
    let place = seq.checked_sub(first_seq).and_then(|place| usize::try_from(place).ok());
    let line = place.and_then(|place| body.lines().nth(place));
    event(line.ok_or_else(|| corrupt(format!("event {seq} is not in its commit")))?, seq)
}

fn event(line: &str, seq: u64) -> Result<Event, Stop> {
    let event = stored::read(line).map_err(|why| corrupt(why.to_string()))?;
    if event.seq == seq {
        Ok(event)
    } else {
        Err(corrupt(format!("event {} stands where {seq} belongs", event.seq)))
    }
}
