//! After a tool has changed: the approval that holds the call in place of the one that no longer counts.

use machine::call::Call;
use machine::id::SuspensionId;
use machine::suspension::SuspensionKind;

use crate::engine::Engine;
use crate::feed::FeedItem;
use crate::store::{ApprovalFilter, Page, StoreError, SuspensionView};

/// The approval that holds the call again; None if the call ended in another way. The hooks that run before it is held
/// again may take a while.
pub(crate) async fn find(engine: &Engine, void: &SuspensionView) -> Result<Option<SuspensionId>, StoreError> {
    let mut subscription = None;
    loop {
        let Some(run) = engine.view(&void.tenant, &void.run).await? else { return Ok(None) };
        let call = run.decoded()?.call(&void.call);
        if let Some(open) = call.and_then(Call::suspension).filter(|open| open.id != void.id) {
            let asks = open.held.kind() == SuspensionKind::Approval;
            return if asks { Ok(Some(open.id.clone())) } else { later_approval(engine, void).await };
        }
        if call.is_none_or(Call::settled) {
            return later_approval(engine, void).await;
        }
        let subscription =
            subscription.get_or_insert_with(|| engine.subscribe(&void.tenant, &void.run, run.seq));
        loop {
            match subscription.next().await.transpose()? {
                Some(FeedItem::Event(committed)) if committed.checkpoint.is_some() => break,
                Some(FeedItem::Event(_) | FeedItem::Unreadable(_) | FeedItem::Live(_)) => {}
                None => return later_approval(engine, void).await,
            }
        }
    }
}

/// The first approval of the same call after the void one, decided or not.
async fn later_approval(engine: &Engine, void: &SuspensionView) -> Result<Option<SuspensionId>, StoreError> {
    let filter = ApprovalFilter { status: None, ..ApprovalFilter::for_run(&void.run) };
    let mut page = Page::default();
    loop {
        let listed = engine.approvals(&void.tenant, &filter, &page).await?;
        let is_later = |view: &SuspensionView| {
            let same = view.call == void.call && view.kind == SuspensionKind::Approval;
            same && view.id != void.id && view.created_at >= void.created_at
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
