//! The store's views of suspensions, with the path down to the held call.

use std::sync::Arc;

use engine::store::{ApprovalFilter, Listed, Page, PathEntry, SuspensionView, Tenant};
use machine::event::{Event, Fact, OpenedSuspension};
use machine::id::{AgentName, CallId, Principal, RunId, SuspensionId, ThreadId};
use machine::inbox::Item;
use machine::projection_rows::ApprovalStatus;
use tokio_postgres::Row;

use super::connection::{Connections, Parameters};
use super::errors::PostgresError;
use super::nul_escape::{escape, unescape};
use super::stored_run::parse_event_in;
use crate::columns::{parse_approval_status, parse_suspension_kind, timestamp, to_i64, to_u64};
use crate::page::{PagePosition, PageRequest};

pub(super) async fn suspension(
    connections: &Connections,
    tenant: &Tenant,
    id: &SuspensionId,
) -> Result<Option<SuspensionView>, PostgresError> {
    let sql = "SELECT * FROM suspensions_shown WHERE tenant = $1 AND id = $2";
    let found = views(connections, tenant, sql, &[&escape(tenant.as_str()), &escape(id.as_str())]).await?;
    Ok(found.into_iter().next())
}

/// Oldest first.
pub(super) async fn approvals(
    connections: &Connections,
    tenant: &Tenant,
    filter: &ApprovalFilter,
    page: &Page,
) -> Result<Listed<SuspensionView>, PostgresError> {
    let request = PageRequest::from_page(page)?;
    let mut after = request.after.clone().unwrap_or_else(PagePosition::start_oldest_first);
    let mut found = Vec::new();
    loop {
        let rows = candidates(connections, tenant, filter, &after, request.row_count()).await?;
        let is_last = rows.len() <= request.limit;
        after = rows.last().map_or(after, position);
        found.extend(rows.into_iter().filter(|view| filter.matches(view)));
        if is_last || found.len() > request.limit {
            return Ok(request.page_of(found, position));
        }
    }
}

/// The next suspensions that may match the filter, oldest first. Those whose answer the run has not processed yet are
/// included unless only pending ones are requested: the answer decides how they are shown.
async fn candidates(
    connections: &Connections,
    tenant: &Tenant,
    filter: &ApprovalFilter,
    after: &PagePosition,
    count: i64,
) -> Result<Vec<SuspensionView>, PostgresError> {
    let (tenant_there, after_id) = (escape(tenant.as_str()), escape(&after.id));
    let run = filter.run.as_ref().map(|run| escape(run.as_str()));
    let thread = filter.thread.as_ref().map(|thread| escape(thread.as_str()));
    let unheard = filter.status != Some(ApprovalStatus::Pending);
    let asked_for = |one: &ApprovalStatus| filter.status.is_none_or(|asked| asked == *one);
    if run.is_some() || thread.is_some() {
        let asked_for = ApprovalStatus::ALL.into_iter().filter(asked_for);
        let statuses: Vec<&str> = asked_for.map(ApprovalStatus::as_str).collect();
        let changed_after = to_i64(filter.changed_after);
        let parameters: Parameters<'_> = &[
            &tenant_there,
            &statuses,
            &after.at,
            &after_id,
            &count,
            &run,
            &thread,
            &unheard,
            &changed_after,
            &(filter.run.is_none() || filter.descendants),
        ];
        return views(connections, tenant, include_str!("sql/approvals_of_run.sql"), parameters).await;
    }
    // One index serves pending suspensions, another one all others: the pages of all requested ones are merged.
    let pending = asked_for(&ApprovalStatus::Pending);
    let rest = ApprovalStatus::ALL
        .into_iter()
        .filter(|one| unheard && (*one == ApprovalStatus::Pending || asked_for(one)));
    let rest: Vec<&str> = rest.map(ApprovalStatus::as_str).collect();
    let parameters: Parameters<'_> = &[&tenant_there, &rest, &after.at, &after_id, &count, &pending];
    views(connections, tenant, include_str!("sql/approvals_oldest.sql"), parameters).await
}

fn position(view: &SuspensionView) -> PagePosition {
    PagePosition::new(view.created_at, view.id.as_str())
}

async fn views(
    connections: &Connections,
    tenant: &Tenant,
    sql: &str,
    parameters: Parameters<'_>,
) -> Result<Vec<SuspensionView>, PostgresError> {
    connections.read(sql, parameters).await?.iter().map(|row| view(tenant, row)).collect()
}

/// A row of `suspensions_shown`.
fn view(tenant: &Tenant, row: &Row) -> Result<SuspensionView, PostgresError> {
    let text = |name: &str| row.try_get::<_, Option<String>>(name).map(|text| text.map(unescape));
    let name = |column: &str| row.try_get::<_, String>(column).map(unescape);
    let (run, agent) = (RunId::from(name("run_id")?), AgentName::from(name("agent")?));
    let thread = ThreadId::from(name("thread_id")?);
    let call = CallId::from(name("call")?);
    let seq = to_u64(row.try_get("seq")?);
    let opened = match (row.try_get::<_, Option<&str>>("body")?, row.try_get::<_, Option<i64>>("first_seq")?)
    {
        (Some(body), Some(first)) => parse_event_in(body, to_u64(first), seq).ok().and_then(opening),
        (Some(_) | None, _) => None,
    };
    let (step, opened) = opened.map_or((0, None), |(step, opened)| (step, Some(Arc::new(opened))));
    let mut path = above(row)?;
    path.push(PathEntry {
        run: run.clone(),
        thread: thread.clone(),
        agent: agent.clone(),
        call: call.clone(),
    });
    let view = SuspensionView {
        tenant: tenant.clone(),
        id: SuspensionId::from(name("id")?),
        run,
        thread,
        agent,
        call,
        step,
        kind: parse_suspension_kind(row.try_get("kind")?)?,
        status: parse_approval_status(row.try_get("status")?)?,
        answered: false,
        edited: None,
        opened,
        answer_is_unreadable: false,
        opened_seq: seq,
        closed_seq: row.try_get::<_, Option<i64>>("closed_seq")?.map(to_u64),
        created_at: timestamp(row.try_get("created_at")?),
        decided_at: row.try_get::<_, Option<i64>>("decided_at")?.map(timestamp),
        decided_by: text("decided_by")?.map(Principal::from),
        reason: text("reason")?,
        note: text("note")?,
        path,
    };
    // An answer that the run has not processed yet is in its inbox.
    let Some(text) = row.try_get::<_, Option<&str>>("answer")? else { return Ok(view) };
    Ok(match serde_json::from_str::<Item>(text) {
        Ok(item) => view.answered_by(&item),
        Err(_) => view.answered_unreadably(),
    })
}

/// What an approver needs to see is in the event. `None` if the event is of another kind.
fn opening(event: Event) -> Option<(u32, OpenedSuspension)> {
    let Event { step, fact, .. } = event;
    let (Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened)) = fact else { return None };
    Some((step.unwrap_or_default(), opened))
}

/// The path from the run that a person started, as far as its ancestors are stored.
fn above(row: &Row) -> Result<Vec<PathEntry>, PostgresError> {
    let names = |column: &str| row.try_get::<_, Vec<String>>(column);
    let runs = names("above_runs")?.into_iter().zip(names("above_threads")?);
    let calls = names("above_agents")?.into_iter().zip(names("above_calls")?);
    let entries = runs.zip(calls).map(|((run, thread), (agent, call))| PathEntry {
        run: RunId::from(unescape(run)),
        thread: ThreadId::from(unescape(thread)),
        agent: AgentName::from(unescape(agent)),
        call: CallId::from(unescape(call)),
    });
    Ok(entries.collect())
}
