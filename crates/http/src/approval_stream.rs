//! The approvals of one tenant as they change: the pending ones first, then whatever opens or closes.
//!
//! What was sent is remembered for a while and no longer: a stream costs the same however many approvals are pending.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use engine::store::{ApprovalFilter, Page, SuspensionView, Tenant};
use engine::{ApprovalFeed, ApprovalNews};
use futures_util::{Stream, stream};
use machine::Timestamp;
use machine::id::{RunId, SuspensionId};
use machine::rows::ApprovalStatus;
use tokio_util::sync::CancellationToken;

use crate::access::Caller;
use crate::error::ApiError;
use crate::limits::OpenStream;
use crate::server::Server;
use crate::shown::shown;
use crate::streaming;

/// A change is told within this time, or its stream is over. Older ones were told before.
const RECENT_MS: u64 = 10 * 60 * 1_000;
/// Changes that one stream remembers to have told.
const TOLD_MAX: usize = 16 * 1_024;

pub(crate) fn open(
    server: &Arc<Server>,
    caller: &Caller,
) -> Result<impl Stream<Item = Result<Event, Infallible>> + Send + use<>, ApiError> {
    let watched = Watched {
        _open: server.streams.open(&caller.tenant, server.limits.streams_per_tenant_max)?,
        // Before the list is read: nothing may happen in between.
        feed: server.engine.approval_feed(),
        server: server.clone(),
        tenant: caller.tenant.clone(),
        revoked: caller.revoked.clone(),
        listing: Some(Page::default()),
        ready: VecDeque::new(),
        told: Told::default(),
    };
    Ok(stream::unfold(watched, |mut watched| async move {
        match watched.next().await {
            Ok(Some(event)) => Some((Ok(event), watched)),
            Ok(None) => None,
            // Whoever reconnects starts over.
            Err(error) => {
                tracing::warn!(code = error.code.as_str(), "a stream of approvals ends early");
                None
            }
        }
    }))
}

struct Watched {
    server: Arc<Server>,
    tenant: Tenant,
    revoked: CancellationToken,
    feed: ApprovalFeed,
    /// The next page of the pending ones, until all were read.
    listing: Option<Page>,
    ready: VecDeque<SuspensionView>,
    told: Told,
    _open: OpenStream,
}

impl Watched {
    /// None where the stream is over: the server drains, the key is gone, or more happened than this stream heard of.
    async fn next(&mut self) -> Result<Option<Event>, ApiError> {
        loop {
            if self.server.is_draining() || self.revoked.is_cancelled() {
                return Ok(None);
            }
            if let Some(view) = self.ready.pop_front() {
                let approval = shown(&self.server, &view).await?;
                return Ok(streaming::event("approval", &approval));
            }
            if let Some(page) = self.listing.take() {
                self.read_pending(page).await?;
                continue;
            }
            let news = tokio::select! {
                biased;
                () = self.server.draining.cancelled() => return Ok(None),
                () = self.revoked.cancelled() => return Ok(None),
                news = self.feed.next() => news,
            };
            match news {
                Some(ApprovalNews::Run { tenant, run }) if tenant == self.tenant => {
                    self.look_at(&run).await?
                }
                Some(ApprovalNews::Run { .. }) => {}
                Some(ApprovalNews::Missed) | None => return Ok(None),
            }
        }
    }

    async fn read_pending(&mut self, page: Page) -> Result<(), ApiError> {
        let listed = self.server.engine.approvals(&self.tenant, &ApprovalFilter::default(), &page).await?;
        let now = self.server.engine.store().now();
        for view in listed.items {
            self.told.is_news(&view, now);
            self.ready.push_back(view);
        }
        self.listing = listed.next.map(|next| Page { cursor: Some(next), ..page });
        Ok(())
    }

    /// Something of this run was opened or closed.
    async fn look_at(&mut self, run: &RunId) -> Result<(), ApiError> {
        let filter = ApprovalFilter { status: None, run: Some(run.clone()), thread: None };
        let mut page = Page::default();
        loop {
            let listed = self.server.engine.approvals(&self.tenant, &filter, &page).await?;
            let now = self.server.engine.store().now();
            let told = &mut self.told;
            self.ready.extend(listed.items.into_iter().filter(|view| told.is_news(view, now)));
            match listed.next {
                Some(next) => page.cursor = Some(next),
                None => return Ok(()),
            }
        }
    }
}

/// What was told lately.
#[derive(Default)]
struct Told {
    standing: BTreeMap<SuspensionId, (ApprovalStatus, Timestamp)>,
}

impl Told {
    /// Whether this has changed lately and was not told; from here on it was.
    fn is_news(&mut self, view: &SuspensionView, now: Timestamp) -> bool {
        let changed_at = view.decided_at.unwrap_or(view.created_at);
        let recent_from = Timestamp(now.0.saturating_sub(RECENT_MS));
        if changed_at < recent_from {
            return false;
        }
        if self.standing.len() >= TOLD_MAX {
            self.standing.retain(|_, (_, changed_at)| *changed_at >= recent_from);
        }
        if self.standing.len() >= TOLD_MAX {
            self.standing.pop_first();
        }
        let standing = (view.status, changed_at);
        self.standing.insert(view.id.clone(), standing) != Some(standing)
    }
}
