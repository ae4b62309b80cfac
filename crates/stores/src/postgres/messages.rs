//! The messages of a thread, in the order in which they joined it.

use engine::store::{Listed, MessageView, Page, StoreError, Tenant, TimedMessage};
use machine::id::{MessageId, RunId, ThreadId};
use tokio_postgres::Row;

use super::connection::{Connections, Parameters};
use super::stored_run::event;
use super::text::{kept, told};
use super::trouble::Stop;
use crate::page::{Asked, Place};
use crate::words::{role_of, unsigned};

pub(super) async fn messages(
    connections: &Connections,
    tenant: &Tenant,
    thread: &ThreadId,
    page: &Page,
) -> Result<Listed<MessageView>, Stop> {
    let asked = Asked::of(page)?;
    let behind = asked.behind.as_ref().map_or(0, |behind| behind.at);
    let sql = include_str!("sql/messages_in_order.sql");
    let parameters: Parameters<'_> =
        &[&kept(tenant.as_str()), &kept(thread.as_str()), &behind, &asked.row_count()];
    let rows = connections.read(sql, parameters).await?;
    if rows.is_empty() {
        return Err(StoreError::NotFound.into());
    }
    let mut found = Vec::new();
    for row in &rows {
        // A thread without messages, or without more of them, is one row of nothing.
        if let Some(at) = row.try_get(0)? {
            found.push((Place { at, id: told(row.try_get(1)?) }, shown(row)?));
        }
    }
    let Listed { items, next } = asked.listed(found, |(place, _)| place.clone());
    Ok(Listed { items: items.into_iter().map(|(_, view)| view).collect(), next })
}

fn shown(row: &Row) -> Result<MessageView, Stop> {
    let (run, seq): (String, u64) = (row.try_get(2)?, unsigned(row.try_get(3)?));
    let line: Option<&str> = row.try_get(4)?;
    let said = line.and_then(|line| event(line, seq).ok());
    Ok(MessageView {
        id: MessageId::from(told(row.try_get(1)?)),
        run: RunId::from(told(run)),
        seq,
        role: role_of(row.try_get(5)?)?,
        said: said.as_ref().and_then(TimedMessage::from_event),
    })
}
