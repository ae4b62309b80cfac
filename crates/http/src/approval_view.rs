//! Approvals as people see them: with the tool's description, and with the arguments that will really run.

use engine::store::{CommittedEvent, StoreError, StoreFailure, SuspensionView, decoded};
use machine::event::{Fact, OpenedSuspension};
use machine::id::CallId;
use machine::projection_rows::ApprovalStatus;
use machine::suspension::SuspensionKind;
use machine::tool::Arguments;

use crate::error::{ApiError, Code};
use crate::routes::runs::run_refused;
use crate::server::Server;
use crate::wire::approval::Approval;

/// Events per read.
const READ_MAX: usize = 256;

/// Where the arguments that the approver edited come from.
pub(crate) enum EditedArguments {
    /// From the decision that was just accepted; None if it edits nothing.
    Known(Option<Arguments>),
    /// From the store.
    Stored,
}

pub(crate) async fn build_approval(server: &Server, view: &SuspensionView) -> Result<Approval, ApiError> {
    build_approval_with(server, view, EditedArguments::Stored).await
}

/// Leaves out what cannot be decoded, and marks the approval as unreadable.
pub(crate) async fn build_approval_with(
    server: &Server,
    view: &SuspensionView,
    edited: EditedArguments,
) -> Result<Approval, ApiError> {
    let Some(opened) = &view.opened else { return Ok(Approval::from_view(view)) };
    match full_approval(server, view, opened, edited).await {
        Ok(approval) => Ok(approval),
        Err(StoreError::Failed(StoreFailure::Corrupt(why))) => {
            tracing::error!(approval = %view.id, why, "an approval is unreadable; run `holdpoint doctor`");
            Ok(Approval::from_view(view).marked_unreadable().with_display())
        }
        Err(refused) => Err(run_refused(&view.run, refused)),
    }
}

async fn full_approval(
    server: &Server,
    view: &SuspensionView,
    opened: &OpenedSuspension,
    edited: EditedArguments,
) -> Result<Approval, StoreError> {
    let edited = match edited {
        EditedArguments::Known(edited) => edited,
        EditedArguments::Stored => stored_edit(server, view).await?,
    };
    let mut approval = Approval::from_view(view).with_description(&description(server, view, opened).await?);
    if opened.arguments.is_none()
        && let Some(arguments) = arguments_when_held(server, view).await?
    {
        approval = approval.with_arguments(view, &arguments);
    }
    let approval = match &edited {
        Some(arguments) => approval.with_edited_arguments(arguments),
        None => approval,
    };
    Ok(approval.with_display())
}

/// None if the approval was deleted since it was listed, so that the others can still be shown.
pub(crate) async fn build_approval_if_exists(
    server: &Server,
    view: &SuspensionView,
) -> Result<Option<Approval>, ApiError> {
    match build_approval(server, view).await {
        Ok(approval) => Ok(Some(approval)),
        Err(error) if error.code == Code::RunNotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The tool's description from the current configuration, or from the run's inline tools; empty if the tool is gone.
async fn description(
    server: &Server,
    view: &SuspensionView,
    opened: &OpenedSuspension,
) -> Result<String, StoreError> {
    let agents = server.agents();
    let agent = agents.iter().find(|agent| agent.name == view.agent.as_str());
    let tool = agent.and_then(|agent| agent.tools.iter().find(|tool| tool.name == opened.tool.as_str()));
    if let Some(tool) = tool {
        return Ok(tool.description.clone());
    }
    let brought = server.engine.inline_tool(&view.tenant, &view.run, &opened.tool).await?;
    Ok(brought.map(|tool| tool.description.clone()).unwrap_or_default())
}

/// The arguments of a call at the time it was held, if its suspension does not contain them: an approver who is asked
/// to retry it has to see what will run.
async fn arguments_when_held(
    server: &Server,
    view: &SuspensionView,
) -> Result<Option<Arguments>, StoreError> {
    let run = server.engine.view(&view.tenant, &view.run).await?;
    // While the call is in the control state, the seq of its arguments is known.
    let control = run.as_ref().and_then(|run| run.control.as_ref());
    let known = control.and_then(|control| control.call(&view.call)).map(|call| call.arguments_seq);
    if let Some(seq) = known.filter(|seq| *seq < view.opened_seq) {
        return last_arguments(server, view, seq.saturating_sub(1), seq).await;
    }
    // Otherwise they are a little earlier in the log, usually in the same step.
    let mut until = view.opened_seq;
    while until > 0 {
        let from = until.saturating_sub(READ_MAX as u64);
        if let Some(found) = last_arguments(server, view, from, until).await? {
            return Ok(Some(found));
        }
        until = from;
    }
    Ok(None)
}

/// The call's arguments according to the last event that sets them, after `from` and no later than `until`.
async fn last_arguments(
    server: &Server,
    view: &SuspensionView,
    from: u64,
    until: u64,
) -> Result<Option<Arguments>, StoreError> {
    let (mut read, mut found) = (from, None);
    while read < until {
        let limit = usize::try_from(until - read).unwrap_or(READ_MAX).min(READ_MAX);
        let events = events_after(server, view, read, limit).await?;
        let Some(last) = events.last() else { break };
        read = last.event.seq;
        let until_then = events.iter().filter(|committed| committed.event.seq <= until);
        for committed in until_then {
            found = arguments_in(&committed.event.fact, &view.call).cloned().or(found);
        }
    }
    Ok(found)
}

async fn events_after(
    server: &Server,
    view: &SuspensionView,
    after: u64,
    limit: usize,
) -> Result<Vec<CommittedEvent>, StoreError> {
    decoded(server.engine.store().events(&view.tenant, &view.run, after, limit).await?)
}

/// The arguments that this event sets for the call, if any.
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

/// The arguments as the approver edited them, if they did. The approving event in the log contains them.
async fn stored_edit(server: &Server, view: &SuspensionView) -> Result<Option<Arguments>, StoreError> {
    if view.kind != SuspensionKind::Approval || view.status != ApprovalStatus::Approved {
        return Ok(None);
    }
    // No event contains them until the run has processed the answer.
    if view.answered {
        return Ok(view.edited.clone());
    }
    let Some(seq) = view.closed_seq else { return Ok(None) };
    let events = events_after(server, view, seq.saturating_sub(1), 1).await?;
    if let Some(committed) = events.first()
        && let Fact::ToolApproved { approval_id, arguments, .. } = &committed.event.fact
        && *approval_id == view.id
    {
        return Ok(arguments.clone());
    }
    Ok(None)
}
