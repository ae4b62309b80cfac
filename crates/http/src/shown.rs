//! Approvals as people see them: with what the tool does, and with what will really run.

use engine::store::SuspensionView;
use machine::event::Fact;
use machine::rows::ApprovalStatus;
use machine::suspension::SuspensionKind;
use machine::tool::Arguments;

use crate::error::ApiError;
use crate::routes::runs::gone;
use crate::server::Server;
use crate::wire::approval::Approval;

/// Events that are read at once.
const READ_MAX: usize = 256;

pub(crate) async fn shown(server: &Server, view: &SuspensionView) -> Result<Approval, ApiError> {
    let edited = edited_of(server, view).await?;
    let approval = Approval::of(view).described(&description(server, view));
    Ok(match &edited {
        Some(arguments) => approval.edited(arguments),
        None => approval,
    })
}

pub(crate) async fn shown_all(server: &Server, views: &[SuspensionView]) -> Result<Vec<Approval>, ApiError> {
    let mut all = Vec::with_capacity(views.len());
    for view in views {
        all.push(shown(server, view).await?);
    }
    Ok(all)
}

/// As the configuration describes the tool now; empty where it is gone.
fn description(server: &Server, view: &SuspensionView) -> String {
    let agents = server.agents();
    let agent = agents.iter().find(|agent| agent.name == view.agent.as_str());
    let tool = agent.and_then(|agent| agent.tools.iter().find(|tool| tool.name == view.opened.tool.as_str()));
    tool.map(|tool| tool.description.clone()).unwrap_or_default()
}

/// What the approver changed the arguments to, if they did. It stands in the log, in the event that approved.
async fn edited_of(server: &Server, view: &SuspensionView) -> Result<Option<Arguments>, ApiError> {
    if view.kind != SuspensionKind::Approval || view.status != ApprovalStatus::Approved {
        return Ok(None);
    }
    // While the call is remembered its digest tells whether there is anything to look for.
    if let Some(run) = server.engine.view(&view.tenant, &view.run).await?
        && let Some(call) = run.control.call(&view.call)
        && view.opened.arguments.as_ref().is_some_and(|shown| shown.digest() == call.arguments)
    {
        return Ok(None);
    }
    let mut after = 0;
    loop {
        let events = server
            .engine
            .store()
            .events(&view.tenant, &view.run, after, READ_MAX)
            .await
            .map_err(|refused| gone(&view.run, refused))?;
        let Some(last) = events.last() else { return Ok(None) };
        after = last.event.seq;
        for committed in &events {
            if let Fact::ToolApproved { approval_id, arguments, .. } = &committed.event.fact
                && *approval_id == view.id
            {
                return Ok(arguments.clone());
            }
        }
    }
}
