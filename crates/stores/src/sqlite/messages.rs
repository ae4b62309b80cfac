//! The messages of a thread, in the order in which they joined it.

use engine::store::{Listed, MessageView, Page, StoreError, Tenant, TimedMessage};
use machine::id::{MessageId, RunId, ThreadId};
use rusqlite::{Connection, OptionalExtension, params};

use super::stored_run::StoredCommit;
use super::trouble::Stop;
use crate::page::{Asked, Place};
use crate::words::{role_of, unsigned};

pub(super) fn messages(
    connection: &Connection,
    tenant: &Tenant,
    thread: &ThreadId,
    page: &Page,
) -> Result<Listed<MessageView>, Stop> {
    let asked = Asked::of(page)?;
    let behind = asked.behind.as_ref().map_or(0, |behind| behind.at);
    let snapshot = connection.unchecked_transaction()?;
    let mut threads = connection.prepare_cached("SELECT row FROM threads WHERE tenant = ?1 AND id = ?2")?;
    let thread: Option<i64> =
        threads.query_row(params![tenant.as_str(), thread.as_str()], |row| row.get(0)).optional()?;
    let thread = thread.ok_or(StoreError::NotFound)?;
    let mut statement = connection.prepare_cached(include_str!("sql/messages_in_order.sql"))?;
    let mut rows = statement.query(params![thread, behind, asked.row_count()])?;
    let mut found = Vec::new();
    // Messages that joined together stand in one commit, and it is read once.
    let mut commit: Option<StoredCommit> = None;
    while let Some(row) = rows.next()? {
        let place = Place { at: row.get(0)?, id: row.get(1)? };
        let (run, seq): (i64, u64) = (row.get(3)?, unsigned(row.get(4)?));
        let holding = match commit.take().filter(|commit| commit.holds(run, seq)) {
            Some(commit) => Some(commit),
            None => StoredCommit::find(connection, run, seq)?,
        };
        let said = holding.as_ref().and_then(|commit| commit.event(seq).ok());
        let view = MessageView {
            id: MessageId::from(place.id.clone()),
            run: RunId::from(row.get::<_, String>(2)?),
            seq,
            role: role_of(&row.get::<_, String>(5)?)?,
            said: said.as_ref().and_then(TimedMessage::from_event),
        };
        found.push((place, view));
        commit = holding;
    }
    drop(rows);
    drop(snapshot);
    let Listed { items, next } = asked.listed(found, |(place, _)| place.clone());
    Ok(Listed { items: items.into_iter().map(|(_, view)| view).collect(), next })
}
