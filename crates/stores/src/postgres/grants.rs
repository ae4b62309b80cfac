//! Grants: given for a whole thread, read for a call or a list, revoked. Those of approvals come with their commit.

use engine::store::{
    AutoApproval, GRANTS_READ_MAX, GrantFilter, GrantView, Lease, Listed, Page, StoreError, Tenant,
};
use machine::grant::Grant;
use machine::id::{GrantId, ThreadId, ToolName};
use tokio_postgres::Row;

use super::Shared;
use super::connection::{Connections, Parameters};
use super::text::{kept, told};
use super::trouble::{Stop, corrupt};
use crate::grants::GrantColumns;
use crate::page::{Asked, Place};
use crate::words::{number, timestamp};

impl Shared {
    pub(super) async fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        given: Option<&AutoApproval>,
    ) -> Result<(), Stop> {
        let (tenant, thread) = (kept(tenant.as_str()), kept(thread.as_str()));
        let id = given.map(|given| kept(given.id.as_str()));
        let by = given.map(|given| kept(given.by.as_str()));
        let sql = "SELECT set_auto_approve($1, $2, $3, $4, $5)";
        let rows = self.change(sql, &[&tenant, &thread, &id, &by, &self.clock.given()]).await?;
        let row = rows.first().ok_or_else(|| corrupt("set_auto_approve returned no row"))?;
        if row.try_get(0)? { Ok(()) } else { Err(StoreError::NotFound.into()) }
    }

    pub(super) async fn revoke_grant(&self, tenant: &Tenant, id: &GrantId) -> Result<(), Stop> {
        let sql = include_str!("sql/grant_revoke.sql");
        let rows = self.change(sql, &[&kept(tenant.as_str()), &kept(id.as_str())]).await?;
        if rows.is_empty() { Err(StoreError::NotFound.into()) } else { Ok(()) }
    }
}

pub(super) async fn for_tool(
    connections: &Connections,
    lease: &Lease,
    tool: &ToolName,
) -> Result<Vec<Grant>, Stop> {
    let sql = include_str!("sql/grants_for_tool.sql");
    let count = number(GRANTS_READ_MAX as u64);
    let rows = connections.read(sql, &[&lease.row, &kept(tool.as_str()), &count]).await?;
    rows.iter().map(|row| Ok(columns(row)?.shown()?.0)).collect()
}

pub(super) async fn one(
    connections: &Connections,
    tenant: &Tenant,
    id: &GrantId,
) -> Result<Option<GrantView>, Stop> {
    let sql = include_str!("sql/grant_by_id.sql");
    let rows = connections.read(sql, &[&kept(tenant.as_str()), &kept(id.as_str())]).await?;
    rows.first().map(view).transpose()
}

/// Newest first.
pub(super) async fn list(
    connections: &Connections,
    tenant: &Tenant,
    filter: &GrantFilter,
    page: &Page,
) -> Result<Listed<GrantView>, Stop> {
    let asked = Asked::of(page)?;
    let behind = asked.behind.clone().unwrap_or_else(Place::newest);
    let by = filter.by.as_ref().map(|by| kept(by.as_str()));
    let parameters: Parameters<'_> =
        &[&kept(tenant.as_str()), &behind.at, &kept(&behind.id), &asked.row_count(), &by];
    let rows = connections.read(include_str!("sql/grants_newest.sql"), parameters).await?;
    let views = rows.iter().map(view).collect::<Result<Vec<_>, Stop>>()?;
    Ok(asked.listed(views, |view| Place::new(view.since, view.grant.id.as_str())))
}

fn view(row: &Row) -> Result<GrantView, Stop> {
    let (grant, is_unreadable) = columns(row)?.shown()?;
    Ok(GrantView {
        grant,
        is_unreadable,
        thread: ThreadId::from(told(row.try_get(7)?)),
        since: timestamp(row.try_get(6)?),
    })
}

/// The first six columns.
pub(super) fn columns(row: &Row) -> Result<GrantColumns, tokio_postgres::Error> {
    let text = |column: usize| row.try_get::<_, Option<String>>(column).map(|text| text.map(told));
    Ok(GrantColumns {
        id: told(row.try_get(0)?),
        given_by: told(row.try_get(1)?),
        tool: text(2)?,
        agent: text(3)?,
        definition: row.try_get(4)?,
        reasons: text(5)?,
    })
}
