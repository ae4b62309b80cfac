//! The messages of a thread, in the order in which they joined it.

use engine::store::{Listed, MessageOrder, MessageView, Page, StoreError, Tenant, TimedMessage};
use machine::id::{MessageId, RunId, ThreadId};
use tokio_postgres::Row;

use super::connection::{Connections, Parameters};
use super::errors::PostgresError;
use super::nul_escape::{escape, unescape};
use super::stored_run::parse_event;
use crate::columns::{parse_role, to_u64};
use crate::page::{PagePosition, PageRequest};

pub(super) async fn messages(
    connections: &Connections,
    tenant: &Tenant,
    thread: &ThreadId,
    order: MessageOrder,
    page: &Page,
) -> Result<Listed<MessageView>, PostgresError> {
    let request = PageRequest::from_page(page)?;
    let (sql, start) = match order {
        MessageOrder::OldestFirst => (include_str!("sql/messages_in_order.sql"), 0),
        MessageOrder::NewestFirst => (include_str!("sql/messages_newest.sql"), i64::MAX),
    };
    let after = request.after.as_ref().map_or(start, |after| after.at);
    let parameters: Parameters<'_> =
        &[&escape(tenant.as_str()), &escape(thread.as_str()), &after, &request.row_count()];
    let rows = connections.read(sql, parameters).await?;
    if rows.is_empty() {
        return Err(StoreError::NotFound.into());
    }
    let mut found = Vec::new();
    for row in &rows {
        // A thread without messages, or without further ones, yields one row of nulls.
        if let Some(at) = row.try_get(0)? {
            found.push((PagePosition { at, id: unescape(row.try_get(1)?) }, view_from_row(row)?));
        }
    }
    let Listed { items, next } = request.page_of(found, |(position, _)| position.clone());
    Ok(Listed { items: items.into_iter().map(|(_, view)| view).collect(), next })
}

fn view_from_row(row: &Row) -> Result<MessageView, PostgresError> {
    let (run, seq): (String, u64) = (row.try_get(2)?, to_u64(row.try_get(3)?));
    let line: Option<&str> = row.try_get(4)?;
    let said = line.and_then(|line| parse_event(line, seq).ok());
    Ok(MessageView {
        id: MessageId::from(unescape(row.try_get(1)?)),
        run: RunId::from(unescape(run)),
        seq,
        role: parse_role(row.try_get(5)?)?,
        said: said.as_ref().and_then(TimedMessage::from_event),
    })
}
