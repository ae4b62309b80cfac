//! Submits a decision to its run, and returns the approval as it is afterwards.

use std::time::Instant;

use engine::deciding::{Answer, Decide};
use engine::feed::FeedItem;
use engine::store::{ApprovalFilter, Page, StoreError, SuspensionView};
use machine::call::Call;
use machine::event::VoidReason;
use machine::id::{Principal, SuspensionId};
use machine::inbox::{Refusal, Verdict};
use machine::projection_rows::ApprovalStatus;
use machine::suspension::SuspensionKind;

use crate::capacity::RequestPermit;
use crate::error::ApiError;
use crate::server::Server;

/// The approval after the decision, or why the decision was not applied.
pub(crate) async fn submit_decision(
    server: &Server,
    permit: &RequestPermit,
    held: SuspensionView,
    decide: Decide,
) -> Result<SuspensionView, ApiError> {
    let began = Instant::now();
    let (by, answer) = (decide.by.clone(), decide.answer.clone());
    let verdict = match server.engine.decide(decide).await {
        Ok(verdict) => verdict,
        Err(StoreError::NotFound) => return Err(ApiError::no_approval(held.id.as_str())),
        Err(refused) => return Err(refused.into()),
    };
    server.metrics.record_decision(&verdict, began.elapsed());
    match verdict {
        Verdict::Accepted | Verdict::AlreadyApplied | Verdict::ToolChanged => {}
        Verdict::Refused(refusal) => {
            return Err(ApiError::decision_refused(&refusal, &current_approval(server, &held).await?));
        }
    }
    // The verdict is stored. Even if the run has not processed it yet, no other decision can be accepted any more, and
    // the store shows the approval as decided. So there is no need to wait for a run that is waiting for a slot.
    let settled = current_approval(server, &held).await?;
    if is_void(&settled) {
        // Only the run can name the new approval.
        let again =
            tokio::time::timeout(server.limits.decision_timeout, replacement_approval(server, &settled));
        let again = permit.release_while(again).await;
        let again = again.unwrap_or(Ok(None))?;
        return Err(ApiError::tool_changed(&settled, again.as_ref()));
    }
    if has_won(&settled, &by, &answer) {
        return Ok(settled);
    }
    // Something that was accepted earlier has ended the run: this decision was too late after all.
    Err(ApiError::decision_refused(&Refusal::RunOver, &settled))
}

async fn current_approval(server: &Server, held: &SuspensionView) -> Result<SuspensionView, ApiError> {
    let view = server.engine.approval(&held.tenant, &held.id).await?;
    view.ok_or_else(|| ApiError::no_approval(held.id.as_str()))
}

/// Whether the approval shows this decision, and not another caller's.
fn has_won(settled: &SuspensionView, by: &Principal, answer: &Answer) -> bool {
    let matches_answer = match (settled.kind, answer) {
        (SuspensionKind::Approval, Answer::Resume(_)) => settled.status == ApprovalStatus::Approved,
        (SuspensionKind::Approval, Answer::Cancel { .. }) => settled.status == ApprovalStatus::Rejected,
        (
            SuspensionKind::Question
            | SuspensionKind::InDoubt
            | SuspensionKind::ClientTool
            | SuspensionKind::External
            | SuspensionKind::ChildRun,
            _,
        ) => settled.status != ApprovalStatus::Pending,
    };
    matches_answer && settled.decided_by.as_ref() == Some(by)
}

/// Whether the approval no longer counts because the tool has changed.
pub(crate) fn is_void(settled: &SuspensionView) -> bool {
    settled.status == ApprovalStatus::Expired
        && settled.reason.as_deref() == Some(VoidReason::ToolChanged.as_str())
}

/// The approval that holds the call again after a void one; none if the call ended in another way. The hooks that run
/// before it is held again may take a while.
async fn replacement_approval(
    server: &Server,
    old: &SuspensionView,
) -> Result<Option<SuspensionId>, ApiError> {
    let engine = &server.engine;
    let mut subscription = None;
    loop {
        let Some(run) = engine.view(&old.tenant, &old.run).await? else { return Ok(None) };
        let call = run.decoded()?.call(&old.call);
        if let Some(open) = call.and_then(Call::suspension).filter(|open| open.id != old.id) {
            let asks = open.held.kind() == SuspensionKind::Approval;
            return if asks { Ok(Some(open.id.clone())) } else { later_approval(server, old).await };
        }
        if call.is_none_or(Call::settled) {
            return later_approval(server, old).await;
        }
        let subscription =
            subscription.get_or_insert_with(|| engine.subscribe(&old.tenant, &old.run, run.seq));
        loop {
            match subscription.next().await.transpose()? {
                Some(FeedItem::Event(committed)) if committed.checkpoint.is_some() => break,
                Some(FeedItem::Event(_) | FeedItem::Unreadable(_) | FeedItem::Live(_)) => {}
                None => return later_approval(server, old).await,
            }
        }
    }
}

/// The first approval of the same call after an old one, decided or not.
async fn later_approval(server: &Server, old: &SuspensionView) -> Result<Option<SuspensionId>, ApiError> {
    let filter = ApprovalFilter { status: None, ..ApprovalFilter::for_run(&old.run) };
    let mut page = Page::default();
    loop {
        let listed = server.engine.approvals(&old.tenant, &filter, &page).await?;
        let is_later = |view: &SuspensionView| {
            let same = view.call == old.call && view.kind == SuspensionKind::Approval;
            same && view.id != old.id && view.created_at >= old.created_at
        };
        if let Some(found) = listed.items.into_iter().find(is_later) {
            return Ok(Some(found.id));
        }
        match listed.next {
            Some(next) => page.cursor = Some(next),
            None => return Ok(None),
        }
    }
}
