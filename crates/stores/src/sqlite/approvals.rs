//! Views of suspensions, with the path down to the held call.

use std::sync::Arc;

use engine::store::{
    ApprovalFilter, Listed, Page, PathEntry, StoreError, StoreFailure, SuspensionView, Tenant,
};
use machine::event::{Fact, OpenedSuspension};
use machine::id::{AgentName, CallId, Principal, RunId, SuspensionId, ThreadId};
use machine::inbox::Item;
use machine::projection_rows::ApprovalStatus;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::errors::SqliteError;
use super::stored_run::event_at;
use super::views::find_row;
use crate::columns::{parse_approval_status, parse_suspension_kind, timestamp, to_i64, to_u64};
use crate::page::{PagePosition, PageRequest};

/// No run is nested deeper; a longer path is a cycle.
const PATH_COUNT_MAX: usize = 64;

pub(super) fn suspension(
    connection: &Connection,
    tenant: &Tenant,
    id: &SuspensionId,
) -> Result<Option<SuspensionView>, SqliteError> {
    let snapshot = connection.unchecked_transaction()?;
    let sql = include_str!("sql/suspension_by_id.sql");
    let found = views(connection, tenant, sql, params![tenant.as_str(), id.as_str()])?;
    drop(snapshot);
    Ok(found.into_iter().next())
}

pub(super) fn approvals(
    connection: &Connection,
    tenant: &Tenant,
    filter: &ApprovalFilter,
    page: &Page,
) -> Result<Listed<SuspensionView>, SqliteError> {
    let request = PageRequest::from_page(page)?;
    let mut after = request.after.clone().unwrap_or_else(PagePosition::start_oldest_first);
    let snapshot = connection.unchecked_transaction()?;
    let mut found = Vec::new();
    loop {
        let rows = candidates(connection, tenant, filter, &after, request.row_count())?;
        let is_last = rows.len() <= request.limit;
        after = rows.last().map_or(after, position);
        found.extend(rows.into_iter().filter(|view| filter.matches(view)));
        if is_last || found.len() > request.limit {
            break;
        }
    }
    drop(snapshot);
    Ok(request.page_of(found, position))
}

/// The next candidates for the filter, oldest first. Suspensions whose answer the run has not processed yet are
/// included unless the filter asks only for pending ones: the answer determines the status they are shown with.
fn candidates(
    connection: &Connection,
    tenant: &Tenant,
    filter: &ApprovalFilter,
    after: &PagePosition,
    count: i64,
) -> Result<Vec<SuspensionView>, SqliteError> {
    let status = filter.status.map(ApprovalStatus::as_str);
    if let Some(run) = &filter.run {
        let Some(run) = find_row(connection, tenant, run)? else { return Ok(Vec::new()) };
        if filter.descendants {
            let params = params![tenant.as_str(), status, after.at, after.id, count, run, None::<&str>];
            return views(connection, tenant, include_str!("sql/approvals_of_tree.sql"), params);
        }
        let params = params![run, status, after.at, after.id, count, to_i64(filter.changed_after)];
        return views(connection, tenant, include_str!("sql/approvals_of_run.sql"), params);
    }
    if let Some(thread) = &filter.thread {
        let no_run = None::<i64>;
        let params = params![tenant.as_str(), status, after.at, after.id, count, no_run, thread.as_str()];
        return views(connection, tenant, include_str!("sql/approvals_of_tree.sql"), params);
    }
    let mut found = Vec::new();
    if filter.status.is_none_or(|asked| asked == ApprovalStatus::Pending) {
        let params = params![tenant.as_str(), after.at, after.id, count];
        found = views(connection, tenant, include_str!("sql/approvals_pending.sql"), params)?;
    }
    if filter.status != Some(ApprovalStatus::Pending) {
        // One index serves every other filter. The pages of all requested statuses are merged, together with the
        // suspensions whose answer has not been processed.
        let may_be = |one: &ApprovalStatus| {
            *one == ApprovalStatus::Pending || filter.status.is_none_or(|asked| asked == *one)
        };
        for status in ApprovalStatus::ALL.into_iter().filter(may_be) {
            let params = params![tenant.as_str(), status.as_str(), after.at, after.id, count];
            found.extend(views(connection, tenant, include_str!("sql/approvals_oldest.sql"), params)?);
        }
        found.sort_by_key(position);
        found.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    }
    Ok(found)
}

fn position(view: &SuspensionView) -> PagePosition {
    PagePosition::new(view.created_at, view.id.as_str())
}

fn views(
    connection: &Connection,
    tenant: &Tenant,
    sql: &str,
    params: impl Params,
) -> Result<Vec<SuspensionView>, SqliteError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut views = Vec::new();
    while let Some(row) = rows.next()? {
        views.push(view(connection, tenant, row)?);
    }
    Ok(views)
}

fn view(connection: &Connection, tenant: &Tenant, row: &Row<'_>) -> Result<SuspensionView, SqliteError> {
    let (kind, status): (String, String) = (row.get(4)?, row.get(5)?);
    let (run, agent) = (RunId::from(row.get::<_, String>(12)?), AgentName::from(row.get::<_, String>(13)?));
    let thread = ThreadId::from(row.get::<_, String>(16)?);
    let call = CallId::from(row.get::<_, String>(3)?);
    let opened_seq = to_u64(row.get(2)?);
    let opened = opening(connection, row.get(1)?, opened_seq)?;
    let (step, opened) = opened.map_or((0, None), |(step, opened)| (step, Some(Arc::new(opened))));
    let last =
        PathEntry { run: run.clone(), thread: thread.clone(), agent: agent.clone(), call: call.clone() };
    let answered: bool = row.get(6)?;
    let view = SuspensionView {
        tenant: tenant.clone(),
        id: SuspensionId::from(row.get::<_, String>(0)?),
        run,
        thread,
        agent,
        call,
        step,
        kind: parse_suspension_kind(&kind)?,
        status: parse_approval_status(&status)?,
        answered,
        edited: None,
        opened,
        answer_is_unreadable: false,
        opened_seq,
        closed_seq: row.get::<_, Option<i64>>(17)?.map(to_u64),
        created_at: timestamp(row.get(7)?),
        decided_at: row.get::<_, Option<i64>>(8)?.map(timestamp),
        decided_by: row.get::<_, Option<String>>(9)?.map(Principal::from),
        reason: row.get(10)?,
        note: row.get(11)?,
        path: path(connection, last, row.get(14)?, row.get(15)?)?,
    };
    if answered { with_its_answer(connection, view) } else { Ok(view) }
}

/// Adds an answer that the run has not processed yet; it is in the run's inbox.
fn with_its_answer(connection: &Connection, view: SuspensionView) -> Result<SuspensionView, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/suspension_answer_given.sql"))?;
    let answer = statement.query_row(params![view.tenant.as_str(), view.id.as_str()], |row| {
        let text = row.get_ref(0)?.as_str().unwrap_or_default();
        Ok(serde_json::from_str::<Item>(text).ok())
    });
    Ok(match answer.optional()?.flatten() {
        Some(item) => view.answered_by(&item),
        None => view.answered_unreadably(),
    })
}

/// The details a person needs are in the event. None if it cannot be decoded, is missing or is a different event.
fn opening(
    connection: &Connection,
    run: i64,
    seq: u64,
) -> Result<Option<(u32, OpenedSuspension)>, SqliteError> {
    let event = match event_at(connection, run, seq) {
        Ok(event) => event,
        Err(SqliteError(StoreError::Failed(StoreFailure::Corrupt(_)) | StoreError::NotFound)) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let (Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened)) = &event.fact else {
        return Ok(None);
    };
    Ok(Some((event.step.unwrap_or_default(), opened.clone())))
}

/// The path from the run that a person started, as far as its ancestors are stored.
fn path(
    connection: &Connection,
    last: PathEntry,
    parent: Option<i64>,
    parent_call: Option<String>,
) -> Result<Vec<PathEntry>, SqliteError> {
    let mut path = vec![last];
    let mut above = parent.zip(parent_call);
    while let Some((row, call)) = above
        && path.len() < PATH_COUNT_MAX
    {
        let mut statement = connection.prepare_cached(include_str!("sql/run_above.sql"))?;
        let found = statement.query_row([row], |row| {
            let entry = PathEntry {
                run: RunId::from(row.get::<_, String>(0)?),
                thread: ThreadId::from(row.get::<_, String>(4)?),
                agent: AgentName::from(row.get::<_, String>(1)?),
                call: CallId::from(call),
            };
            let parent: Option<i64> = row.get(2)?;
            Ok((entry, parent.zip(row.get::<_, Option<String>>(3)?)))
        });
        let Some((entry, parent)) = found.optional()? else { break };
        path.push(entry);
        above = parent;
    }
    path.reverse();
    Ok(path)
}
