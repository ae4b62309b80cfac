//! A decision is given to its run, and the answer shows the approval as it stands afterwards.

use std::time::Instant;

use engine::deciding::{Answer, Decide};
use engine::feed::FeedItem;
use engine::store::{ApprovalFilter, Page, Refused, SuspensionView};
use machine::id::{Principal, SuspensionId};
use machine::inbox::{Refusal, Verdict};
use machine::rows::ApprovalStatus;
use machine::suspension::SuspensionKind;

use crate::error::ApiError;
use crate::places::Place;
use crate::server::Server;

/// The approval after the decision, or why nothing came of it.
pub(crate) async fn settle(
    server: &Server,
    place: &Place,
    held: SuspensionView,
    decide: Decide,
) -> Result<SuspensionView, ApiError> {
    let began = Instant::now();
    let (by, answer) = (decide.by.clone(), decide.answer.clone());
    let verdict = match server.engine.decide(decide).await {
        Ok(verdict) => verdict,
        Err(Refused::NotFound) => return Err(ApiError::no_approval(held.id.as_str())),
        Err(refused) => return Err(refused.into()),
    };
    server.metrics.decided(&verdict, began.elapsed());
    let is_void_already = verdict == Verdict::ToolChanged;
    match verdict {
        Verdict::Accepted | Verdict::AlreadyApplied | Verdict::ToolChanged => {}
        Verdict::Refused(refusal) => {
            let now = server.engine.approval(&held.tenant, &held.id).await?;
            return Err(ApiError::not_decided(&refusal, &now.unwrap_or(held)));
        }
    }
    let settled = match closed(server, place, &held).await? {
        Some(settled) => settled,
        // The run has not heard it yet, and will hold the call again when it does.
        None if is_void_already => return Err(ApiError::tool_changed(&held, None)),
        None => accepted(server, held, by.clone(), &answer),
    };
    if !is_void(&settled) {
        // An earlier answer that ends the run was on its way: this one was too late after all.
        if settled.decided_by.as_ref() != Some(&by) {
            return Err(ApiError::not_decided(&Refusal::RunOver, &settled));
        }
        return Ok(settled);
    }
    let again = asked_again(server, &settled).await?;
    Err(ApiError::tool_changed(&settled, again.as_ref()))
}

/// The suspension once it is closed. The commit that closes it may be another one than the commit that accepted the
/// decision: then whoever works on the run has to hear it first.
async fn closed(
    server: &Server,
    place: &Place,
    held: &SuspensionView,
) -> Result<Option<SuspensionView>, ApiError> {
    let engine = &server.engine;
    let seen = engine.view(&held.tenant, &held.run).await?.map_or(0, |run| run.control.seq);
    if let Some(settled) = no_longer_pending(server, held).await? {
        return Ok(Some(settled));
    }
    let mut watched = engine.subscribe(&held.tenant, &held.run, seen);
    let watching = async {
        while let Some(item) = watched.next().await {
            let FeedItem::Event(committed) = item? else { continue };
            if committed.checkpoint.is_some()
                && let Some(settled) = no_longer_pending(server, held).await?
            {
                return Ok(Some(settled));
            }
        }
        no_longer_pending(server, held).await
    };
    place.away(tokio::time::timeout(server.limits.decided_time, watching)).await.unwrap_or(Ok(None))
}

async fn no_longer_pending(
    server: &Server,
    held: &SuspensionView,
) -> Result<Option<SuspensionView>, ApiError> {
    let view = server
        .engine
        .approval(&held.tenant, &held.id)
        .await?
        .ok_or_else(|| ApiError::no_approval(held.id.as_str()))?;
    Ok((view.status != ApprovalStatus::Pending).then_some(view))
}

/// The decision is stored and nobody else can give one; the run hears it when it comes to a boundary.
fn accepted(server: &Server, held: SuspensionView, by: Principal, answer: &Answer) -> SuspensionView {
    let status = match (held.kind, answer) {
        (SuspensionKind::Approval, Answer::Resume(_)) => ApprovalStatus::Approved,
        (SuspensionKind::Approval, Answer::Cancel { .. }) => ApprovalStatus::Rejected,
        (
            SuspensionKind::Question
            | SuspensionKind::InDoubt
            | SuspensionKind::ClientTool
            | SuspensionKind::External
            | SuspensionKind::ChildRun,
            _,
        ) => ApprovalStatus::Answered,
    };
    let (reason, note) = match answer {
        Answer::Resume(resumption) => (None, resumption.note.clone()),
        Answer::Cancel { reason, .. } => (reason.clone(), None),
    };
    let decided_at = Some(server.engine.store().now());
    SuspensionView { status, decided_at, decided_by: Some(by), reason, note, answered: true, ..held }
}

/// The grant counts for nothing because the tool is another one now.
fn is_void(settled: &SuspensionView) -> bool {
    settled.status == ApprovalStatus::Expired && settled.reason.as_deref() == Some("tool_changed")
}

/// The approval that the same call waits for now.
async fn asked_again(server: &Server, old: &SuspensionView) -> Result<Option<SuspensionId>, ApiError> {
    let mut page = Page::default();
    loop {
        let filter = ApprovalFilter::of_run(&old.run);
        let listed = server.engine.approvals(&old.tenant, &filter, &page).await?;
        if let Some(found) = listed.items.into_iter().find(|view| view.call == old.call && view.id != old.id)
        {
            return Ok(Some(found.id));
        }
        match listed.next {
            Some(next) => page.cursor = Some(next),
            None => return Ok(None),
        }
    }
}
