//! The store's views of runs and messages, and what a worker reads about its run.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use engine::store::{
    Countable, Lease, Listed, MessagePosition, Page, RunCounts, RunFilter, RunView, StateView, StoreError,
    Tenant,
};
use machine::decision::Decision;
use machine::id::{AgentName, DecisionId, MessageId, PluginName, RunId, ThreadId};
use machine::phase::Scope;
use machine::projection_rows::{PublicRunStatus, StateRow};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::chain::parse_chain_end;
use super::connection::{Connections, Parameters};
use super::errors::{PostgresError, corrupt};
use super::nul_escape::{escape, unescape};
use super::stored_run::control_if_readable;
use crate::columns::{parse_role, parse_status, timestamp, to_u64};
use crate::page::{PagePosition, PageRequest};

pub(super) async fn run_counts(connections: &Connections) -> Result<RunCounts, PostgresError> {
    let mut counts = RunCounts::default();
    for row in connections.read(include_str!("sql/run_counts.sql"), &[]).await? {
        let (what, count): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
        match what {
            "inbox" => counts.inbox = to_u64(count),
            "approved" => counts.approved = to_u64(count),
            status => {
                counts.runs.insert(parse_status(status)?, to_u64(count));
            }
        }
    }
    Ok(counts)
}

pub(super) async fn count_up_to(
    connections: &Connections,
    tenant: &Tenant,
    what: Countable,
    max: u64,
) -> Result<u64, PostgresError> {
    let sql = match what {
        Countable::Threads => include_str!("sql/count_threads.sql"),
        Countable::PendingApprovals => include_str!("sql/count_pending.sql"),
    };
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let rows = connections.read(sql, &[&escape(tenant.as_str()), &max]).await?;
    rows.first().map_or(Ok(0), |row| Ok(to_u64(row.try_get(0)?)))
}

pub(super) async fn has_other_agents(
    connections: &Connections,
    tenant: &Tenant,
    thread: &ThreadId,
    agents: &BTreeSet<AgentName>,
) -> Result<bool, PostgresError> {
    let agents: Vec<_> = agents.iter().map(|agent| escape(agent.as_str())).collect();
    let sql = include_str!("sql/thread_has_other_agents.sql");
    let rows = connections.read(sql, &[&escape(tenant.as_str()), &escape(thread.as_str()), &agents]).await?;
    rows.first().map_or(Ok(false), |row| Ok(row.try_get(0)?))
}

pub(super) async fn run(
    connections: &Connections,
    tenant: &Tenant,
    run: &RunId,
) -> Result<Option<RunView>, PostgresError> {
    let sql = include_str!("sql/run_view.sql");
    let rows = connections.read(sql, &[&escape(tenant.as_str()), &escape(run.as_str())]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (mut view, end) = (run_view(connections, row).await?, parse_chain_end(row, 11)?);
    view.control = view
        .control
        .filter(|control| end.check(tenant.as_str(), run.as_str(), view.seq, &control.revision).is_ok());
    Ok(Some(view))
}

pub(super) async fn runs(
    connections: &Connections,
    tenant: &Tenant,
    filter: &RunFilter,
    page: &Page,
) -> Result<Listed<RunView>, PostgresError> {
    let request = PageRequest::from_page(page)?;
    let after = request.after.clone().unwrap_or_else(PagePosition::start_newest_first);
    let agent = filter.agent.as_ref().map(|agent| escape(AgentName::as_str(agent)));
    let (tenant, after_id, count) = (escape(tenant.as_str()), escape(&after.id), request.row_count());
    let mut found = if let Some(thread) = &filter.thread {
        let status = filter.status.map(PublicRunStatus::as_str);
        let parameters: Parameters<'_> =
            &[&tenant, &status, &after.at, &after_id, &count, &agent, &escape(thread.as_str())];
        run_views(connections, include_str!("sql/runs_of_thread.sql"), parameters).await?
    } else {
        // One index serves interrupting runs, another one all others, a third one all others of an agent: the pages of
        // all requested ones are merged.
        let asked_for = |one: PublicRunStatus| filter.status.is_none_or(|asked| asked == one);
        let interrupting = asked_for(PublicRunStatus::Interrupting);
        let rest = PublicRunStatus::ALL.into_iter();
        let rest = rest.filter(|one| asked_for(*one) && *one != PublicRunStatus::Interrupting);
        let rest: Vec<&str> = rest.map(PublicRunStatus::as_str).collect();
        let parameters: [&(dyn ToSql + Sync); 7] =
            [&tenant, &rest, &after.at, &after_id, &count, &interrupting, &agent];
        match agent {
            Some(_) => run_views(connections, include_str!("sql/runs_of_agent.sql"), &parameters).await?,
            None => run_views(connections, include_str!("sql/runs_newest.sql"), &parameters[..6]).await?,
        }
    };
    found.sort_by_key(|view| Reverse(position(view)));
    Ok(request.page_of(found, position))
}

/// Runs of a thread, in the order in which they were admitted.
pub(super) struct AdmittedRuns {
    /// Number of the thread.
    pub(super) thread: i64,
    /// Number of the last of the runs; if there are none, of the one before them, or 0.
    pub(super) last: i64,
    pub(super) runs: Vec<RunId>,
}

pub(super) async fn runs_of_thread(
    connections: &Connections,
    tenant: &Tenant,
    thread: &ThreadId,
    after: Option<&RunId>,
    limit: usize,
) -> Result<AdmittedRuns, PostgresError> {
    let sql = include_str!("sql/runs_of_thread_in_order.sql");
    let after = after.map(|run| escape(run.as_str()));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let parameters: Parameters<'_> = &[&escape(tenant.as_str()), &escape(thread.as_str()), &after, &limit];
    let rows = connections.read(sql, parameters).await?;
    let first = rows.first().ok_or(StoreError::NotFound)?;
    let mut found = AdmittedRuns {
        thread: first.try_get(0)?,
        last: first.try_get::<_, Option<i64>>(1)?.ok_or(StoreError::NotFound)?,
        runs: Vec::new(),
    };
    for row in &rows {
        // A thread without further runs yields one row of nulls.
        if let Some(number) = row.try_get(2)? {
            found.last = number;
            found.runs.push(RunId::from(unescape(row.try_get(3)?)));
        }
    }
    Ok(found)
}

fn position(view: &RunView) -> PagePosition {
    PagePosition::new(view.created_at, view.id.as_str())
}

async fn run_views(
    connections: &Connections,
    sql: &str,
    parameters: Parameters<'_>,
) -> Result<Vec<RunView>, PostgresError> {
    let mut views = Vec::new();
    for row in connections.read(sql, parameters).await? {
        views.push(run_view(connections, &row).await?);
    }
    Ok(views)
}

async fn run_view(connections: &Connections, row: &Row) -> Result<RunView, PostgresError> {
    Ok(RunView {
        id: RunId::from(unescape(row.try_get(0)?)),
        thread: ThreadId::from(unescape(row.try_get(6)?)),
        agent: AgentName::from(unescape(row.try_get(9)?)),
        status: parse_status(row.try_get(1)?)?,
        seq: to_u64(row.try_get(10)?),
        control: control_if_readable(connections, row.try_get(7)?, row.try_get(8)?).await?,
        interrupt_accepted: row.try_get(2)?,
        created_at: timestamp(row.try_get(3)?),
        started_at: row.try_get::<_, Option<i64>>(4)?.map(timestamp),
        ended_at: row.try_get::<_, Option<i64>>(5)?.map(timestamp),
    })
}

pub(super) async fn decision(
    connections: &Connections,
    tenant: &Tenant,
    run: &RunId,
    id: &DecisionId,
) -> Result<Option<Decision>, PostgresError> {
    let sql = include_str!("sql/decision_by_id.sql");
    let parameters: Parameters<'_> = &[&escape(tenant.as_str()), &escape(run.as_str()), &escape(id.as_str())];
    let rows = connections.read(sql, parameters).await?;
    let text: Option<&str> = rows.first().map(|row| row.try_get(0)).transpose()?;
    text.map(|text| serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))).transpose()
}

pub(super) async fn message(
    connections: &Connections,
    tenant: &Tenant,
    thread: &ThreadId,
    message: &MessageId,
) -> Result<Option<MessagePosition>, PostgresError> {
    let sql = include_str!("sql/message_position.sql");
    let parameters: Parameters<'_> =
        &[&escape(tenant.as_str()), &escape(thread.as_str()), &escape(message.as_str())];
    let rows = connections.read(sql, parameters).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(MessagePosition {
        run: RunId::from(unescape(row.try_get(0)?)),
        seq: to_u64(row.try_get(1)?),
        role: parse_role(row.try_get(2)?)?,
    }))
}

pub(super) async fn plugin_state(
    connections: &Connections,
    lease: &Lease,
) -> Result<Vec<StateRow>, PostgresError> {
    let rows = connections.read(include_str!("sql/state_of_run.sql"), &[&lease.row]).await?;
    rows.iter().map(|row| Ok(state_row(row)?.decoded()?)).collect()
}

/// For callers without a lease.
pub(super) async fn state(
    connections: &Connections,
    tenant: &Tenant,
    run: &RunId,
) -> Result<Vec<StateView>, PostgresError> {
    let sql = include_str!("sql/state_shown.sql");
    let rows = connections.read(sql, &[&escape(tenant.as_str()), &escape(run.as_str())]).await?;
    if rows.is_empty() {
        return Err(StoreError::NotFound.into());
    }
    let mut shown = Vec::new();
    for row in &rows {
        // A run without stored state yields one row of nulls.
        if row.try_get::<_, Option<bool>>(0)?.is_some() {
            shown.push(state_row(row)?);
        }
    }
    Ok(shown)
}

fn state_row(row: &Row) -> Result<StateView, PostgresError> {
    let value = serde_json::from_str(row.try_get(3)?).ok();
    Ok(StateView {
        plugin: PluginName::from(unescape(row.try_get(1)?)),
        scope: if row.try_get(0)? { Scope::Thread } else { Scope::Run },
        key: unescape(row.try_get(2)?),
        value: value.map(Arc::new),
    })
}
