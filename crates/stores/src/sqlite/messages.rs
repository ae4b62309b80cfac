//! The messages of a thread, in the order in which they joined it.

use engine::store::{Listed, MessageOrder, MessageView, Page, StoreError, Tenant, TimedMessage};
use machine::id::{MessageId, RunId, ThreadId};
use rusqlite::{Connection, OptionalExtension, params};

use super::errors::SqliteError;
use super::stored_run::StoredCommit;
use crate::columns::{parse_role, to_u64};
use crate::page::{PagePosition, PageRequest};

pub(super) fn messages(
    connection: &Connection,
    tenant: &Tenant,
    thread: &ThreadId,
    order: MessageOrder,
    page: &Page,
) -> Result<Listed<MessageView>, SqliteError> {
    let request = PageRequest::from_page(page)?;
    let (sql, start) = match order {
        MessageOrder::OldestFirst => (include_str!("sql/messages_in_order.sql"), 0),
        MessageOrder::NewestFirst => (include_str!("sql/messages_newest.sql"), i64::MAX),
    };
    let after = request.after.as_ref().map_or(start, |after| after.at);
    let snapshot = connection.unchecked_transaction()?;
    let mut threads = connection.prepare_cached("SELECT row FROM threads WHERE tenant = ?1 AND id = ?2")?;
    let thread: Option<i64> =
        threads.query_row(params![tenant.as_str(), thread.as_str()], |row| row.get(0)).optional()?;
    let thread = thread.ok_or(StoreError::NotFound)?;
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![thread, after, request.row_count()])?;
    let mut found = Vec::new();
    // Messages that joined together are in one commit, which is read once.
    let mut commit: Option<StoredCommit> = None;
    while let Some(row) = rows.next()? {
        let position = PagePosition { at: row.get(0)?, id: row.get(1)? };
        let (run, seq): (i64, u64) = (row.get(3)?, to_u64(row.get(4)?));
        let holding = match commit.take().filter(|commit| commit.holds(run, seq)) {
            Some(commit) => Some(commit),
            None => StoredCommit::find(connection, run, seq)?,
        };
        let said = holding.as_ref().and_then(|commit| commit.event(seq).ok());
        let view = MessageView {
            id: MessageId::from(position.id.clone()),
            run: RunId::from(row.get::<_, String>(2)?),
            seq,
            role: parse_role(&row.get::<_, String>(5)?)?,
            said: said.as_ref().and_then(TimedMessage::from_event),
        };
        found.push((position, view));
        commit = holding;
    }
    drop(rows);
    drop(snapshot);
    let Listed { items, next } = request.page_of(found, |(position, _)| position.clone());
    Ok(Listed { items: items.into_iter().map(|(_, view)| view).collect(), next })
}
