//! Threads: as admission sees them, the data stored for them, and their deletion.

use engine::store::{Deleted, Deletion, Listed, Page, StoreError, Tenant, ThreadView};
use machine::id::{MessageId, Principal, RunId, ThreadId, ToolName};
use machine::thread::{RunActivity, ThreadState};
use tokio_postgres::Row;

use super::PostgresShared;
use super::audit::bound_actor;
use super::connection::Connections;
use super::errors::{PostgresError, corrupt};
use super::nul_escape::{escape, unescape};
use crate::columns::{parse_status, timestamp};
use crate::page::{PagePosition, PageRequest};

impl PostgresShared {
    /// True if the thread is new.
    pub(super) async fn put_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        metadata: &str,
    ) -> Result<bool, PostgresError> {
        let sql = include_str!("sql/thread_insert.sql");
        let (tenant, thread) = (escape(tenant.as_str()), escape(thread.as_str()));
        let rows = self.change(sql, &[&tenant, &thread, &metadata, &self.clock.override_ms()]).await?;
        Ok(!rows.is_empty())
    }

    pub(super) async fn delete_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        deletion: &Deletion,
    ) -> Result<Deleted, PostgresError> {
        let (tenant_text, thread_text) = (escape(tenant.as_str()), escape(thread.as_str()));
        let sql = "SELECT delete_thread($1, $2, $3, $4::text::jsonb, $5)";
        let (actor, at) = (bound_actor(&deletion.actor)?, self.clock.override_ms());
        let rows =
            self.change(sql, &[&tenant_text, &thread_text, &deletion.decided_approvals, &actor, &at]).await?;
        let row = rows.first().ok_or_else(|| corrupt("a deletion came to nothing"))?;
        match row.try_get(0)? {
            "deleted" => {
                self.notify_thread(tenant, thread);
                Ok(Deleted::Thread)
            }
            "nothing" => Ok(Deleted::Nothing),
            "stale" => Err(StoreError::Stale.into()),
            "not_found" => Err(StoreError::NotFound.into()),
            other => Err(corrupt(format!("a deletion came to {other}"))),
        }
    }
}

pub(super) async fn view(
    connections: &Connections,
    tenant: &Tenant,
    thread: &ThreadId,
) -> Result<ThreadView, PostgresError> {
    let sql = include_str!("sql/thread_by_id.sql");
    let rows = connections.read(sql, &[&escape(tenant.as_str()), &escape(thread.as_str())]).await?;
    rows.first().map_or_else(|| Ok(ThreadView::absent(thread.clone())), view_from_row)
}

/// Newest first.
pub(super) async fn views(
    connections: &Connections,
    tenant: &Tenant,
    page: &Page,
) -> Result<Listed<ThreadView>, PostgresError> {
    let request = PageRequest::from_page(page)?;
    let after = request.after.clone().unwrap_or_else(PagePosition::start_newest_first);
    let sql = include_str!("sql/threads_newest.sql");
    let parameters: super::connection::Parameters<'_> =
        &[&escape(tenant.as_str()), &after.at, &escape(&after.id), &request.row_count()];
    let rows = connections.read(sql, parameters).await?;
    let views = rows.iter().map(view_from_row).collect::<Result<Vec<_>, PostgresError>>()?;
    Ok(request
        .page_of(views, |view| PagePosition::new(view.created_at.unwrap_or_default(), view.id.as_str())))
}

/// A row of `threads_shown`.
fn view_from_row(row: &Row) -> Result<ThreadView, PostgresError> {
    let metadata = serde_json::from_str(row.try_get(2)?).ok();
    let text = |column: usize| row.try_get::<_, Option<String>>(column).map(|text| text.map(unescape));
    let state = match text(5)? {
        Some(front) => {
            let RunActivity { state, in_doubt } = front_activity(row)?;
            let queued = usize::try_from(row.try_get::<_, i64>(8)?).unwrap_or(usize::MAX);
            ThreadState::Busy { front: RunId::from(front), front_is: state, in_doubt, queued }
        }
        None => ThreadState::Free,
    };
    let tools: Vec<String> = row.try_get(9)?;
    Ok(ThreadView {
        id: ThreadId::from(unescape(row.try_get(0)?)),
        row: row.try_get(10)?,
        created_at: Some(timestamp(row.try_get(1)?)),
        metadata,
        head: text(3)?.map(MessageId::from),
        state,
        auto_approved_by: text(4)?.map(Principal::from),
        approved_tools: tools.into_iter().map(|tool| ToolName::from(unescape(tool))).collect(),
    })
}

/// The view counts the doubts of descendants, but not yet what they execute.
fn front_activity(row: &Row) -> Result<RunActivity, PostgresError> {
    let in_doubt = row.try_get(7)?;
    let activity = |status: &str| -> Result<RunActivity, PostgresError> {
        Ok(RunActivity { state: parse_status(status)?.front_state(), in_doubt })
    };
    let statuses: Vec<&str> = row.try_get(11)?;
    let descendants = statuses.into_iter().map(activity).collect::<Result<Vec<_>, _>>()?;
    Ok(activity(row.try_get(6)?)?.with_descendants(descendants))
}
