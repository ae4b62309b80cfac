//! Grants: given with a commit or for a whole thread, read for a call or a list, revoked.

use engine::store::{
    AutoApproval, GRANTS_READ_MAX, GrantFilter, GrantView, Listed, Page, StoreError, Tenant,
};
use machine::Timestamp;
use machine::audit::{Actor, AuditEntry};
use machine::grant::{Grant, GrantCoverage};
use machine::id::{GrantId, Principal, ThreadId, ToolName};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::audit;
use super::errors::SqliteError;
use super::write_tx::WriteTx;
use crate::columns::{millis, timestamp, to_i64};
use crate::grants::GrantColumns;
use crate::page::{PagePosition, PageRequest};

pub(super) fn insert(
    tx: &WriteTx<'_>,
    tenant: &str,
    thread: i64,
    grant: &Grant,
    since: Timestamp,
) -> Result<(), SqliteError> {
    let GrantColumns { id, given_by, tool, agent, definition, reasons } = GrantColumns::from_grant(grant)?;
    let params = params![tenant, id, thread, tool, agent, definition, reasons, given_by, millis(since)];
    tx.execute(include_str!("sql/grant_insert.sql"), params)?;
    Ok(())
}

pub(super) fn set_auto_approve(
    tx: &WriteTx<'_>,
    tenant: &Tenant,
    thread: &ThreadId,
    given: Option<&AutoApproval>,
    actor: &Actor,
) -> Result<(), SqliteError> {
    let mut statement = tx.prepare("SELECT row FROM threads WHERE tenant = ?1 AND id = ?2")?;
    let row: Option<i64> =
        statement.query_row(params![tenant.as_str(), thread.as_str()], |row| row.get(0)).optional()?;
    let Some(row) = row else { return Err(StoreError::NotFound.into()) };
    let entry = AuditEntry::of_auto_approve(tx.now, thread, given.map(|given| &given.id), actor);
    audit::insert(tx, tenant.as_str(), &entry.to_record(tenant.as_str()))?;
    let sql = "SELECT id, given_by, tool FROM grants WHERE thread = ?1 AND revoked = 0 AND (?2 OR tool IS NULL) ORDER BY id";
    let mut statement = tx.prepare(sql)?;
    let mut ended = statement.query(params![row, given.is_none()])?;
    while let Some(grant) = ended.next()? {
        let (id, by, tool): (String, String, Option<String>) = (grant.get(0)?, grant.get(1)?, grant.get(2)?);
        let entry = AuditEntry::of_ended_grant(tx.now, thread, (&id, &by, tool.as_deref()), actor);
        audit::insert(tx, tenant.as_str(), &entry.to_record(tenant.as_str()))?;
    }
    drop(ended);
    // No log contains it, so nothing refers to the row.
    tx.execute(include_str!("sql/auto_approve_end.sql"), [row])?;
    let Some(AutoApproval { id, by }) = given else {
        tx.execute(include_str!("sql/grants_revoke_of_thread.sql"), [row])?;
        return Ok(());
    };
    let grant = Grant { id: id.clone(), by: by.clone(), covers: GrantCoverage::Thread };
    insert(tx, tenant.as_str(), row, &grant, tx.now)
}

pub(super) fn revoke(
    tx: &WriteTx<'_>,
    tenant: &Tenant,
    id: &GrantId,
    actor: &Actor,
) -> Result<(), SqliteError> {
    let view = one(tx.connection(), tenant, id)?.ok_or(StoreError::NotFound)?;
    let entry = AuditEntry::of_revoked_grant(tx.now, &view.thread, &view.grant, actor);
    audit::insert(tx, tenant.as_str(), &entry.to_record(tenant.as_str()))?;
    let one = params![tenant.as_str(), id.as_str()];
    let auto_approve = "DELETE FROM grants WHERE tenant = ?1 AND id = ?2 AND tool IS NULL";
    let of_an_approval = "UPDATE grants SET revoked = 1 WHERE tenant = ?1 AND id = ?2 AND revoked = 0";
    if tx.execute(auto_approve, one)? == 0 && tx.execute(of_an_approval, one)? == 0 {
        return Err(StoreError::NotFound.into());
    }
    Ok(())
}

pub(super) fn for_tool(
    connection: &Connection,
    run: i64,
    tool: &ToolName,
) -> Result<Vec<Grant>, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/grants_for_tool.sql"))?;
    let mut rows = statement.query(params![run, tool.as_str(), to_i64(GRANTS_READ_MAX as u64)])?;
    let mut grants = Vec::new();
    while let Some(row) = rows.next()? {
        grants.push(columns(row)?.into_effective_grant()?.0);
    }
    Ok(grants)
}

pub(super) fn one(
    connection: &Connection,
    tenant: &Tenant,
    id: &GrantId,
) -> Result<Option<GrantView>, SqliteError> {
    let sql = include_str!("sql/grant_by_id.sql");
    Ok(views(connection, sql, params![tenant.as_str(), id.as_str()])?.into_iter().next())
}

/// Newest first.
pub(super) fn list(
    connection: &Connection,
    tenant: &Tenant,
    filter: &GrantFilter,
    page: &Page,
) -> Result<Listed<GrantView>, SqliteError> {
    let request = PageRequest::from_page(page)?;
    let after = request.after.clone().unwrap_or_else(PagePosition::start_newest_first);
    let by = filter.by.as_ref().map(Principal::as_str);
    let params = params![tenant.as_str(), after.at, after.id, request.row_count(), by];
    let found = views(connection, include_str!("sql/grants_newest.sql"), params)?;
    Ok(request.page_of(found, |view| PagePosition::new(view.since, view.grant.id.as_str())))
}

/// Tools for which the thread has a grant, by name.
pub(super) fn tools(connection: &Connection, thread: i64) -> Result<Vec<ToolName>, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/tools_granted.sql"))?;
    let tools = statement.query_map([thread], |row| Ok(ToolName::from(row.get::<_, String>(0)?)))?;
    Ok(tools.collect::<rusqlite::Result<_>>()?)
}

fn views(connection: &Connection, sql: &str, params: impl Params) -> Result<Vec<GrantView>, SqliteError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut views = Vec::new();
    while let Some(row) = rows.next()? {
        let (grant, is_unreadable) = columns(row)?.into_effective_grant()?;
        views.push(GrantView {
            grant,
            is_unreadable,
            thread: ThreadId::from(row.get::<_, String>(7)?),
            since: timestamp(row.get(6)?),
        });
    }
    Ok(views)
}

/// The first six columns.
pub(super) fn columns(row: &Row<'_>) -> rusqlite::Result<GrantColumns> {
    Ok(GrantColumns {
        id: row.get(0)?,
        given_by: row.get(1)?,
        tool: row.get(2)?,
        agent: row.get(3)?,
        definition: row.get(4)?,
        reasons: row.get(5)?,
    })
}
