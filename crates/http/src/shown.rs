//! Approvals as people see them: with what the tool does, and with what will really run.

use engine::store::SuspensionView;
use machine::event::Fact;
use machine::id::CallId;
use machine::rows::ApprovalStatus;
use machine::suspension::SuspensionKind;
use machine::tool::Arguments;

use crate::error::{ApiError, Code};
use crate::routes::runs::gone;
use crate::server::Server;
use crate::wire::approval::Approval;

/// Events that are read at once.
const READ_MAX: usize = 256;

pub(crate) async fn shown(server: &Server, view: &SuspensionView) -> Result<Approval, ApiError> {
    let edited = edited_of(server, view).await?;
    let mut approval = Approval::of(view).described(&description(server, view).await?);
    if view.opened.arguments.is_none()
        && let Some(arguments) = standing_of(server, view).await?
    {
        approval = approval.running(&arguments);
    }
    Ok(match &edited {
        Some(arguments) => approval.edited(arguments),
        None => approval,
    })
}

pub(crate) async fn shown_all(server: &Server, views: &[SuspensionView]) -> Result<Vec<Approval>, ApiError> {
    let mut all = Vec::with_capacity(views.len());
    for view in views {
        match shown(server, view).await {
            Ok(approval) => all.push(approval),
            // Deleted since it was listed: the others are still there.
            Err(error) if error.code == Code::RunNotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// As the configuration describes the tool now, or as it came with the message of the run; empty where it is gone.
async fn description(server: &Server, view: &SuspensionView) -> Result<String, ApiError> {
    let agents = server.agents();
    let agent = agents.iter().find(|agent| agent.name == view.agent.as_str());
    let tool = agent.and_then(|agent| agent.tools.iter().find(|tool| tool.name == view.opened.tool.as_str()));
    if let Some(tool) = tool {
        return Ok(tool.description.clone());
    }
    let brought = server.engine.brought_tool(&view.tenant, &view.run, &view.opened.tool).await?;
    Ok(brought.map(|tool| tool.description.clone()).unwrap_or_default())
}

/// The arguments of a call as they stood when it was held, where what holds it does not show them itself: whoever is
/// asked to try it again has to see what will run.
async fn standing_of(server: &Server, view: &SuspensionView) -> Result<Option<Arguments>, ApiError> {
    let run = server.engine.view(&view.tenant, &view.run).await?;
    let call = run.as_ref().and_then(|run| run.control.call(&view.call));
    let mut after = call.map_or(0, |call| call.arguments_seq.saturating_sub(1));
    let mut standing = None;
    loop {
        let events = server
            .engine
            .store()
            .events(&view.tenant, &view.run, after, READ_MAX)
            .await
            .map_err(|refused| gone(&view.run, refused))?;
        let Some(last) = events.last() else { return Ok(standing) };
        after = last.event.seq;
        for committed in &events {
            let fact = &committed.event.fact;
            if matches!(fact, Fact::ToolSuspended(opened) if opened.suspension_id == view.id) {
                return Ok(standing);
            }
            standing = arguments_in(fact, &view.call).cloned().or(standing);
        }
    }
}

/// What a call will run with from this event on, if it says so.
fn arguments_in<'e>(fact: &'e Fact, call: &CallId) -> Option<&'e Arguments> {
    if let Fact::ToolRequested { call_id, arguments, .. } = fact
        && call_id == call
    {
        return Some(arguments);
    }
    if let Fact::ToolApproved { call_id, arguments, .. } | Fact::ToolResumed { call_id, arguments, .. } = fact
        && call_id == call
    {
        return arguments.as_ref();
    }
    None
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
