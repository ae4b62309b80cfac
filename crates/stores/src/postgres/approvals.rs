//! What the store shows of suspensions, with the way down to the held call.

use std::sync::Arc;

use engine::store::{ApprovalFilter, Listed, Page, PathEntry, SuspensionView, Tenant};
use machine::event::{Event, Fact, OpenedSuspension};
use machine::id::{AgentName, CallId, Principal, RunId, SuspensionId, ThreadId};
use machine::inbox::Item;
use machine::projection_rows::ApprovalStatus;
use tokio_postgres::Row;

use super::connection::{Connections, Parameters};
use super::stored_run::event_in;
use super::text::{kept, told};
use super::trouble::Stop;
use crate::page::{Asked, Place};
use crate::words::{approval_status_of, kind_of, number, timestamp, unsigned};

pub(super) async fn suspension(
    connections: &Connections,
    tenant: &Tenant,
    id: &SuspensionId,
) -> Result<Option<SuspensionView>, Stop> {
    let sql = "SELECT * FROM suspensions_shown WHERE tenant = $1 AND id = $2";
    let found = views(connections, tenant, sql, &[&kept(tenant.as_str()), &kept(id.as_str())]).await?;
    Ok(found.into_iter().next())
}

/// Oldest first.
pub(super) async fn approvals(
    connections: &Connections,
    tenant: &Tenant,
    filter: &ApprovalFilter,
    page: &Page,
) -> Result<Listed<SuspensionView>, Stop> {
    let asked = Asked::of(page)?;
    let mut behind = asked.behind.clone().unwrap_or_else(Place::oldest);
    let mut found = Vec::new();
    loop {
        let rows = candidates(connections, tenant, filter, &behind, asked.row_count()).await?;
        let is_last = rows.len() <= asked.limit;
        behind = rows.last().map_or(behind, place);
        found.extend(rows.into_iter().filter(|view| filter.matches(view)));
        if is_last || found.len() > asked.limit {
            return Ok(asked.listed(found, place));
        }
    }
}

/// The next ones that may be asked for, oldest first. What is answered and not heard is among them unless only what is
/// pending is asked for: its answer says how it is shown.
async fn candidates(
    connections: &Connections,
    tenant: &Tenant,
    filter: &ApprovalFilter,
    behind: &Place,
    count: i64,
) -> Result<Vec<SuspensionView>, Stop> {
    let (tenant_there, after_id) = (kept(tenant.as_str()), kept(&behind.id));
    let run = filter.run.as_ref().map(|run| kept(run.as_str()));
    let thread = filter.thread.as_ref().map(|thread| kept(thread.as_str()));
    let unheard = filter.status != Some(ApprovalStatus::Pending);
    let asked_for = |one: &ApprovalStatus| filter.status.is_none_or(|asked| asked == *one);
    if run.is_some() || thread.is_some() {
        let asked_for = ApprovalStatus::ALL.into_iter().filter(asked_for);
        let statuses: Vec<&str> = asked_for.map(ApprovalStatus::as_str).collect();
        let changed_after = number(filter.changed_after);
        let parameters: Parameters<'_> = &[
            &tenant_there,
            &statuses,
            &behind.at,
            &after_id,
            &count,
            &run,
            &thread,
            &unheard,
            &changed_after,
        ];
        return views(connections, tenant, include_str!("sql/approvals_of_run.sql"), parameters).await;
    }
    // One index serves what is pending, another one all the rest: the pages of all that is asked for are merged.
    let pending = asked_for(&ApprovalStatus::Pending);
    let rest = ApprovalStatus::ALL
        .into_iter()
        .filter(|one| unheard && (*one == ApprovalStatus::Pending || asked_for(one)));
    let rest: Vec<&str> = rest.map(ApprovalStatus::as_str).collect();
    let parameters: Parameters<'_> = &[&tenant_there, &rest, &behind.at, &after_id, &count, &pending];
    views(connections, tenant, include_str!("sql/approvals_oldest.sql"), parameters).await
}

fn place(view: &SuspensionView) -> Place {
    Place::new(view.created_at, view.id.as_str())
}

async fn views(
    connections: &Connections,
    tenant: &Tenant,
    sql: &str,
    parameters: Parameters<'_>,
) -> Result<Vec<SuspensionView>, Stop> {
    connections.read(sql, parameters).await?.iter().map(|row| view(tenant, row)).collect()
}

/// A row of `suspensions_shown`.
fn view(tenant: &Tenant, row: &Row) -> Result<SuspensionView, Stop> {
    let text = |name: &str| row.try_get::<_, Option<String>>(name).map(|text| text.map(told));
    let name = |column: &str| row.try_get::<_, String>(column).map(told);
    let (run, agent) = (RunId::from(name("run_id")?), AgentName::from(name("agent")?));
    let call = CallId::from(name("call")?);
    let seq = unsigned(row.try_get("seq")?);
    let opened = match (row.try_get::<_, Option<&str>>("body")?, row.try_get::<_, Option<i64>>("first_seq")?)
    {
        (Some(body), Some(first)) => event_in(body, unsigned(first), seq).ok().and_then(opening),
        (Some(_) | None, _) => None,
    };
    let (step, opened) = opened.map_or((0, None), |(step, opened)| (step, Some(Arc::new(opened))));
    let mut path = above(row)?;
    path.push(PathEntry { run: run.clone(), agent: agent.clone(), call: call.clone() });
    let view = SuspensionView {
        tenant: tenant.clone(),
        id: SuspensionId::from(name("id")?),
        run,
        thread: ThreadId::from(name("thread_id")?),
        agent,
        call,
        step,
        kind: kind_of(row.try_get("kind")?)?,
        status: approval_status_of(row.try_get("status")?)?,
        answered: false,
        edited: None,
        opened,
        answer_is_unreadable: false,
        opened_seq: seq,
        closed_seq: row.try_get::<_, Option<i64>>("closed_seq")?.map(unsigned),
        created_at: timestamp(row.try_get("created_at")?),
        decided_at: row.try_get::<_, Option<i64>>("decided_at")?.map(timestamp),
        decided_by: text("decided_by")?.map(Principal::from),
        reason: text("reason")?,
        note: text("note")?,
        path,
    };
    // What the run has not heard yet stands in its inbox.
    let Some(text) = row.try_get::<_, Option<&str>>("answer")? else { return Ok(view) };
    Ok(match serde_json::from_str::<Item>(text) {
        Ok(item) => view.answered_by(&item),
        Err(_) => view.answered_unreadably(),
    })
}

/// What a person needs to see stands in the event. None where it says something else.
fn opening(event: Event) -> Option<(u32, OpenedSuspension)> {
    let Event { step, fact, .. } = event;
    let (Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened)) = fact else { return None };
    Some((step.unwrap_or_default(), opened))
}

/// From the run that a person started, as far as its ancestors are stored.
fn above(row: &Row) -> Result<Vec<PathEntry>, Stop> {
    let names = |column: &str| row.try_get::<_, Vec<String>>(column);
    let (runs, agents, calls) = (names("above_runs")?, names("above_agents")?, names("above_calls")?);
    let entries = runs.into_iter().zip(agents).zip(calls).map(|((run, agent), call)| PathEntry {
        run: RunId::from(told(run)),
        agent: AgentName::from(told(agent)),
        call: CallId::from(told(call)),
    });
    Ok(entries.collect())
}
