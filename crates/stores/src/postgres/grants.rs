//! Grants: given for a whole thread, read for a call or a list, revoked. Grants by approvals come with their commit.

use engine::store::{
    AutoApproval, GRANTS_READ_MAX, GrantFilter, GrantView, Lease, Listed, Page, StoreError, Tenant,
};
use machine::audit::Actor;
use machine::grant::Grant;
use machine::id::{GrantId, ThreadId, ToolName};
use tokio_postgres::Row;

use super::PostgresShared;
use super::audit::bound_actor;
use super::connection::{Connections, Parameters};
use super::errors::{PostgresError, corrupt};
use super::nul_escape::{escape, unescape};
use crate::columns::{timestamp, to_i64};
use crate::grants::GrantColumns;
use crate::page::{PagePosition, PageRequest};

impl PostgresShared {
    pub(super) async fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        given: Option<&AutoApproval>,
        actor: &Actor,
    ) -> Result<(), PostgresError> {
        let (tenant, thread) = (escape(tenant.as_str()), escape(thread.as_str()));
        let id = given.map(|given| escape(given.id.as_str()));
        let by = given.map(|given| escape(given.by.as_str()));
        let sql = "SELECT set_auto_approve($1, $2, $3, $4, $5::text::jsonb, $6)";
        let (actor, at) = (bound_actor(actor)?, self.clock.override_ms());
        let rows = self.change(sql, &[&tenant, &thread, &id, &by, &actor, &at]).await?;
        let row = rows.first().ok_or_else(|| corrupt("set_auto_approve returned no row"))?;
        if row.try_get(0)? { Ok(()) } else { Err(StoreError::NotFound.into()) }
    }

    pub(super) async fn revoke_grant(
        &self,
        tenant: &Tenant,
        id: &GrantId,
        actor: &Actor,
    ) -> Result<(), PostgresError> {
        let sql = "SELECT revoke_grant($1, $2, $3::text::jsonb, $4)";
        let (tenant, id) = (escape(tenant.as_str()), escape(id.as_str()));
        let (actor, at) = (bound_actor(actor)?, self.clock.override_ms());
        let rows = self.change(sql, &[&tenant, &id, &actor, &at]).await?;
        let row = rows.first().ok_or_else(|| corrupt("revoke_grant returned no row"))?;
        if row.try_get(0)? { Ok(()) } else { Err(StoreError::NotFound.into()) }
    }
}

pub(super) async fn for_tool(
    connections: &Connections,
    lease: &Lease,
    tool: &ToolName,
) -> Result<Vec<Grant>, PostgresError> {
    let sql = include_str!("sql/grants_for_tool.sql");
    let count = to_i64(GRANTS_READ_MAX as u64);
    let rows = connections.read(sql, &[&lease.row, &escape(tool.as_str()), &count]).await?;
    rows.iter().map(|row| Ok(columns(row)?.into_effective_grant()?.0)).collect()
}

pub(super) async fn one(
    connections: &Connections,
    tenant: &Tenant,
    id: &GrantId,
) -> Result<Option<GrantView>, PostgresError> {
    let sql = include_str!("sql/grant_by_id.sql");
    let rows = connections.read(sql, &[&escape(tenant.as_str()), &escape(id.as_str())]).await?;
    rows.first().map(view).transpose()
}

/// Newest first.
pub(super) async fn list(
    connections: &Connections,
    tenant: &Tenant,
    filter: &GrantFilter,
    page: &Page,
) -> Result<Listed<GrantView>, PostgresError> {
    let request = PageRequest::from_page(page)?;
    let after = request.after.clone().unwrap_or_else(PagePosition::start_newest_first);
    let by = filter.by.as_ref().map(|by| escape(by.as_str()));
    let parameters: Parameters<'_> =
        &[&escape(tenant.as_str()), &after.at, &escape(&after.id), &request.row_count(), &by];
    let rows = connections.read(include_str!("sql/grants_newest.sql"), parameters).await?;
    let views = rows.iter().map(view).collect::<Result<Vec<_>, PostgresError>>()?;
    Ok(request.page_of(views, |view| PagePosition::new(view.since, view.grant.id.as_str())))
}

fn view(row: &Row) -> Result<GrantView, PostgresError> {
    let (grant, is_unreadable) = columns(row)?.into_effective_grant()?;
    Ok(GrantView {
        grant,
        is_unreadable,
        thread: ThreadId::from(unescape(row.try_get(7)?)),
        since: timestamp(row.try_get(6)?),
    })
}

/// The first six columns.
pub(super) fn columns(row: &Row) -> Result<GrantColumns, tokio_postgres::Error> {
    let text = |column: usize| row.try_get::<_, Option<String>>(column).map(|text| text.map(unescape));
    Ok(GrantColumns {
        id: unescape(row.try_get(0)?),
        given_by: unescape(row.try_get(1)?),
        tool: text(2)?,
        agent: text(3)?,
        definition: row.try_get(4)?,
        reasons: text(5)?,
    })
}
