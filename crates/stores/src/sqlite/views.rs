//! Views of runs, threads and messages: single ones by id, and pages.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use engine::store::{
    Countable, Listed, MessagePosition, Page, RunCounts, RunFilter, RunView, StateView, StoreError, Tenant,
    ThreadView,
};
use machine::decision::Decision;
use machine::id::{AgentName, CallId, DecisionId, MessageId, PluginName, RunId, ThreadId};
use machine::phase::Scope;
use machine::projection_rows::{PublicRunStatus, StateRow};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use serde_json::json;

use super::chain::{chain_columns, chain_end};
use super::errors::{SqliteError, corrupt};
use super::stored_run::control_if_readable;
use super::thread::SqliteThreadColumns;
use crate::columns::{parse_role, parse_status, timestamp, to_u64};
use crate::page::{PagePosition, PageRequest};

pub(super) fn run_counts(connection: &Connection) -> Result<RunCounts, SqliteError> {
    let mut counts = RunCounts::default();
    let mut statement = connection.prepare_cached(include_str!("sql/run_counts.sql"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        counts.runs.insert(parse_status(&row.get::<_, String>(0)?)?, to_u64(row.get(1)?));
    }
    let count = connection.query_row("SELECT count(*) FROM inbox", [], |row| row.get(0))?;
    counts.inbox = to_u64(count);
    let count = connection.query_row(include_str!("sql/run_counts_approved.sql"), [], |row| row.get(0))?;
    counts.approved = to_u64(count);
    Ok(counts)
}

pub(super) fn count_up_to(
    connection: &Connection,
    tenant: &Tenant,
    what: Countable,
    max: u64,
) -> Result<u64, SqliteError> {
    let mut statement = connection.prepare_cached(match what {
        Countable::Threads => include_str!("sql/count_threads.sql"),
        Countable::PendingApprovals => include_str!("sql/count_pending.sql"),
    })?;
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    Ok(to_u64(statement.query_row(params![tenant.as_str(), max], |row| row.get(0))?))
}

pub(super) fn has_other_agents(
    connection: &Connection,
    tenant: &Tenant,
    thread: &ThreadId,
    agents: &BTreeSet<AgentName>,
) -> Result<bool, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/thread_has_other_agents.sql"))?;
    let agents = json!(agents.iter().map(AgentName::as_str).collect::<Vec<_>>()).to_string();
    Ok(statement.query_row(params![tenant.as_str(), thread.as_str(), agents], |row| row.get(0))?)
}

pub(super) fn threads(
    connection: &Connection,
    tenant: &Tenant,
    page: &Page,
) -> Result<Listed<ThreadView>, SqliteError> {
    let request = PageRequest::from_page(page)?;
    let after = request.after.clone().unwrap_or_else(PagePosition::start_newest_first);
    let snapshot = connection.unchecked_transaction()?;
    let mut statement = connection.prepare_cached(include_str!("sql/threads_newest.sql"))?;
    let found = statement
        .query_map(params![tenant.as_str(), after.at, after.id, request.row_count()], |row| {
            Ok((SqliteThreadColumns::from_row(row)?, row.get(5)?))
        })?
        .collect::<rusqlite::Result<Vec<(SqliteThreadColumns, String)>>>()?;
    let views = found
        .into_iter()
        .map(|(columns, id)| columns.view(connection, ThreadId::from(id)))
        .collect::<Result<Vec<_>, SqliteError>>()?;
    drop(statement);
    drop(snapshot);
    Ok(request
        .page_of(views, |view| PagePosition::new(view.created_at.unwrap_or_default(), view.id.as_str())))
}

pub(super) fn run(
    connection: &Connection,
    tenant: &Tenant,
    run: &RunId,
) -> Result<Option<RunView>, SqliteError> {
    let snapshot = connection.unchecked_transaction()?;
    let mut statement = connection.prepare_cached(include_str!("sql/run_view.sql"))?;
    let mut rows = statement.query(params![tenant.as_str(), run.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut view = run_view(connection, row)?;
    let end = chain_end(connection, row.get(7)?, chain_columns(row, 11)?)?;
    view.control = view
        .control
        .filter(|control| end.check(tenant.as_str(), run.as_str(), view.seq, &control.revision).is_ok());
    drop(rows);
    drop(statement);
    drop(snapshot);
    Ok(Some(view))
}

pub(super) fn runs(
    connection: &Connection,
    tenant: &Tenant,
    filter: &RunFilter,
    page: &Page,
) -> Result<Listed<RunView>, SqliteError> {
    let request = PageRequest::from_page(page)?;
    let after = request.after.clone().unwrap_or_else(PagePosition::start_newest_first);
    let agent = filter.agent.as_ref().map(AgentName::as_str);
    let snapshot = connection.unchecked_transaction()?;
    let mut found = Vec::new();
    if let Some(thread) = &filter.thread {
        let status = filter.status.map(PublicRunStatus::as_str);
        let params =
            params![tenant.as_str(), status, after.at, after.id, request.row_count(), agent, thread.as_str()];
        found = run_views(connection, include_str!("sql/runs_of_thread.sql"), params)?;
    } else {
        // The index by status serves every filter but one: without a status, the pages of all statuses are merged.
        for status in
            PublicRunStatus::ALL.into_iter().filter(|one| filter.status.is_none_or(|asked| asked == *one))
        {
            if status == PublicRunStatus::Interrupting {
                let params = params![tenant.as_str(), after.at, after.id, request.row_count(), agent];
                found.extend(run_views(connection, include_str!("sql/runs_interrupting.sql"), params)?);
                continue;
            }
            let (status, count) = (status.as_str(), request.row_count());
            found.extend(match agent {
                Some(agent) => {
                    let params = params![tenant.as_str(), status, after.at, after.id, count, agent];
                    run_views(connection, include_str!("sql/runs_of_agent.sql"), params)?
                }
                None => {
                    let params = params![tenant.as_str(), status, after.at, after.id, count];
                    run_views(connection, include_str!("sql/runs_newest.sql"), params)?
                }
            });
        }
        found.sort_by_key(|view| Reverse(position(view)));
    }
    drop(snapshot);
    Ok(request.page_of(found, position))
}

/// Row numbers grow in the order of admission: a thread's runs are deleted only together.
pub(super) fn runs_of_thread(
    connection: &Connection,
    tenant: &Tenant,
    thread: &ThreadId,
    after: Option<&RunId>,
    limit: usize,
) -> Result<Vec<RunId>, SqliteError> {
    let snapshot = connection.unchecked_transaction()?;
    let mut threads = connection.prepare_cached("SELECT row FROM threads WHERE tenant = ?1 AND id = ?2")?;
    let thread: Option<i64> =
        threads.query_row(params![tenant.as_str(), thread.as_str()], |row| row.get(0)).optional()?;
    let thread = thread.ok_or(StoreError::NotFound)?;
    let after: i64 = match after {
        Some(run) => {
            let mut rows = connection
                .prepare_cached("SELECT row FROM runs WHERE tenant = ?1 AND id = ?2 AND thread = ?3")?;
            let row = rows.query_row(params![tenant.as_str(), run.as_str(), thread], |row| row.get(0));
            row.optional()?.ok_or(StoreError::NotFound)?
        }
        None => 0,
    };
    let mut runs = connection.prepare_cached(include_str!("sql/runs_of_thread_in_order.sql"))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let found = runs.query_map(params![thread, after, limit], |row| row.get::<_, String>(0))?;
    let found = found.map(|id| Ok(RunId::from(id?))).collect::<Result<Vec<_>, SqliteError>>()?;
    drop(snapshot);
    Ok(found)
}

fn position(view: &RunView) -> PagePosition {
    PagePosition::new(view.created_at, view.id.as_str())
}

fn run_views(connection: &Connection, sql: &str, params: impl Params) -> Result<Vec<RunView>, SqliteError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut views = Vec::new();
    while let Some(row) = rows.next()? {
        views.push(run_view(connection, row)?);
    }
    Ok(views)
}

fn run_view(connection: &Connection, row: &Row<'_>) -> Result<RunView, SqliteError> {
    let control = row.get_ref(8)?.as_blob().map_err(|error| corrupt(error.to_string()))?;
    let status: String = row.get(1)?;
    Ok(RunView {
        id: RunId::from(row.get::<_, String>(0)?),
        thread: ThreadId::from(row.get::<_, String>(6)?),
        agent: AgentName::from(row.get::<_, String>(9)?),
        status: parse_status(&status)?,
        seq: to_u64(row.get(10)?),
        control: control_if_readable(connection, row.get(7)?, control)?,
        interrupt_accepted: row.get(2)?,
        created_at: timestamp(row.get(3)?),
        started_at: row.get::<_, Option<i64>>(4)?.map(timestamp),
        ended_at: row.get::<_, Option<i64>>(5)?.map(timestamp),
    })
}

pub(super) fn find_row(
    connection: &Connection,
    tenant: &Tenant,
    run: &RunId,
) -> Result<Option<i64>, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT row FROM runs WHERE tenant = ?1 AND id = ?2")?;
    Ok(statement.query_row(params![tenant.as_str(), run.as_str()], |row| row.get(0)).optional()?)
}

pub(super) fn decision(
    connection: &Connection,
    tenant: &Tenant,
    run: &RunId,
    id: &DecisionId,
) -> Result<Option<Decision>, SqliteError> {
    let Some(run) = find_row(connection, tenant, run)? else { return Ok(None) };
    let mut statement =
        connection.prepare_cached("SELECT decision FROM decisions WHERE run = ?1 AND id = ?2")?;
    let text: Option<String> = statement.query_row(params![run, id.as_str()], |row| row.get(0)).optional()?;
    text.map(|text| serde_json::from_str(&text).map_err(|error| corrupt(error.to_string()))).transpose()
}

pub(super) fn message(
    connection: &Connection,
    tenant: &Tenant,
    thread: &ThreadId,
    message: &MessageId,
) -> Result<Option<MessagePosition>, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/message_position.sql"))?;
    let found: Option<(String, i64, String)> = statement
        .query_row(params![tenant.as_str(), thread.as_str(), message.as_str()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((run, seq, role)) = found else { return Ok(None) };
    Ok(Some(MessagePosition { run: RunId::from(run), seq: to_u64(seq), role: parse_role(&role)? }))
}

/// Each call gets a message of its own, so an id is also taken if its message exists or a queued run will add it.
pub(super) fn taken_call_ids(
    connection: &Connection,
    run: i64,
    asked: &[String],
) -> Result<BTreeSet<CallId>, SqliteError> {
    let snapshot = connection.unchecked_transaction()?;
    let mut statement = connection.prepare_cached(include_str!("sql/calls_taken.sql"))?;
    let mut taken = BTreeSet::new();
    for id in asked {
        // Everything that begins with `id~` lies between these two: DEL is the character after `~`.
        let (from, to) = (format!("{id}~"), format!("{id}\u{7f}"));
        let mut rows = statement.query(params![run, id, from, to])?;
        while let Some(row) = rows.next()? {
            taken.insert(CallId::from(row.get::<_, String>(0)?));
        }
    }
    drop(statement);
    drop(snapshot);
    Ok(taken)
}

/// The plugin state, decoded for the worker.
pub(super) fn plugin_state(connection: &Connection, run: i64) -> Result<Vec<StateRow>, SqliteError> {
    let rows = state(connection, run)?;
    Ok(rows.into_iter().map(StateView::decoded).collect::<Result<_, StoreError>>()?)
}

pub(super) fn state(connection: &Connection, run: i64) -> Result<Vec<StateView>, SqliteError> {
    let snapshot = connection.unchecked_transaction()?;
    let mut statement = connection.prepare_cached(include_str!("sql/state_of_run.sql"))?;
    let mut kept = Vec::new();
    for (scope, key) in [(Scope::Run, run), (Scope::Thread, 0)] {
        let mut rows = statement.query(params![run, key])?;
        while let Some(row) = rows.next()? {
            let value = row.get_ref(2)?.as_str().ok().and_then(|text| serde_json::from_str(text).ok());
            kept.push(StateView {
                plugin: PluginName::from(row.get::<_, String>(0)?),
                scope,
                key: row.get(1)?,
                value: value.map(Arc::new),
            });
        }
    }
    drop(statement);
    drop(snapshot);
    Ok(kept)
}
