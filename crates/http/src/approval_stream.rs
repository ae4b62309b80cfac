//! Streams the approvals of one tenant: first the pending ones, then every approval that opens or closes.
//!
//! A stream remembers what it sent only for a while, so it costs the same however many approvals are pending.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use engine::store::{ApprovalFilter, Page, SuspensionView};
use engine::{ApprovalChange, ApprovalFeed};
use futures_util::{FutureExt, Stream, stream};
use machine::Timestamp;
use machine::id::{RunId, SuspensionId};
use machine::projection_rows::ApprovalStatus;

use crate::approval_view::build_approval;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::limits::{TenantCount, rate_limited};
use crate::server::Server;
use crate::streaming;

/// A change is sent within this time, or the stream ends. So older changes have been sent already.
const RECENT_MS: u64 = 10 * 60 * 1_000;
/// Sent changes that one stream remembers.
const SENT_MAX: usize = 16 * 1_024;
/// Runs for which one stream remembers the last seq that it has read.
const TRACKED_RUNS_MAX: usize = 4 * 1_024;
/// Approvals per read.
const ROWS_MAX: usize = 8;

pub(crate) fn open(
    server: &Arc<Server>,
    caller: &Caller,
) -> Result<impl Stream<Item = Result<Event, Infallible>> + Send + use<>, ApiError> {
    let open = server.open_stream(&caller.tenant)?;
    // Subscribe before the list is read, so that no change is missed in between.
    let Some(feed) = server.engine.approval_feed(&caller.tenant) else {
        return Err(rate_limited("too many tenants are streaming their approvals"));
    };
    let watcher = ApprovalWatcher {
        _open: open,
        feed,
        server: server.clone(),
        caller: caller.clone(),
        listing: Some(Listing::new(pending_filter(caller))),
        ready: VecDeque::new(),
        sent: SentApprovals::default(),
        last_seqs: BTreeMap::new(),
        began_at: server.engine.store().now(),
        caught_up_at: server.engine.store().now(),
    };
    Ok(stream::unfold(watcher, |mut watcher| async move {
        match watcher.next().await {
            Ok(Some(event)) => Some((Ok(event), watcher)),
            Ok(None) => None,
            // A client that reconnects starts over.
            Err(error) => {
                tracing::warn!(
                    code = error.code.as_str(),
                    "approval stream ended early; a client that reconnects starts over"
                );
                None
            }
        }
    }))
}

/// The pending approvals that the caller can reach.
fn pending_filter(caller: &Caller) -> ApprovalFilter {
    ApprovalFilter {
        thread: caller.reach.thread(),
        run: caller.reach.run(),
        descendants: true,
        ..ApprovalFilter::default()
    }
}

struct ApprovalWatcher {
    server: Arc<Server>,
    caller: Caller,
    feed: ApprovalFeed,
    /// What to read next: first the pending approvals, then the changes of one run after the other.
    listing: Option<Listing>,
    ready: VecDeque<SuspensionView>,
    sent: SentApprovals,
    /// The last seq of each run whose changes were read. A run that is not in here is read from its beginning.
    last_seqs: BTreeMap<RunId, u64>,
    began_at: Timestamp,
    /// When nothing was left unread for the last time.
    caught_up_at: Timestamp,
    _open: TenantCount,
}

/// Approvals that are read a few at a time.
struct Listing {
    filter: ApprovalFilter,
    page: Page,
}

impl Listing {
    const fn new(filter: ApprovalFilter) -> Self {
        Self { filter, page: Page { cursor: None, limit: ROWS_MAX } }
    }
}

impl ApprovalWatcher {
    /// None when the stream is over: the server drains, the key was revoked, or the stream missed changes.
    async fn next(&mut self) -> Result<Option<Event>, ApiError> {
        loop {
            if self.server.is_draining() || self.caller.validity.has_ended() {
                return Ok(None);
            }
            if let Some(view) = self.ready.pop_front() {
                let approval = build_approval(&self.server, &view).await?;
                return Ok(streaming::event("approval", &approval));
            }
            if let Some(listing) = self.listing.take() {
                if self.is_too_slow() {
                    return Ok(None);
                }
                self.read(listing).await?;
                continue;
            }
            match self.next_change().await {
                Some(ApprovalChange::Run { run }) => {
                    let after = self.last_seqs.get(&run).copied().unwrap_or(0);
                    self.listing = Some(Listing::new(ApprovalFilter::changed(&run, after)));
                }
                Some(ApprovalChange::Missed) | None => return Ok(None),
            }
        }
    }

    /// None when the stream is over.
    async fn next_change(&mut self) -> Option<ApprovalChange> {
        if let Some(change) = self.feed.next().now_or_never() {
            return change;
        }
        let change = tokio::select! {
            biased;
            () = self.server.draining.cancelled() => None,
            () = self.caller.validity.ended() => None,
            change = self.feed.next() => change,
        };
        // Nothing was left to read until now.
        self.caught_up_at = self.now();
        change
    }

    /// A client this slow may have missed changes that are no longer recent. If it reconnects, it starts over.
    fn is_too_slow(&self) -> bool {
        self.now().0.saturating_sub(self.caught_up_at.0) > RECENT_MS
    }

    fn now(&self) -> Timestamp {
        self.server.engine.store().now()
    }

    async fn read(&mut self, Listing { filter, page }: Listing) -> Result<(), ApiError> {
        let listed = self.server.engine.approvals(&self.caller.tenant, &filter, &page).await?;
        // From the first page only: what changes between two pages gets a later seq than anything on the first.
        let changed_run = filter.run.as_ref().filter(|_| filter.status.is_none());
        if let (Some(run), None) = (changed_run, &page.cursor)
            && let Some(last) = listed.items.iter().map(SuspensionView::changed_seq).max()
            && last > filter.changed_after
        {
            if self.last_seqs.len() >= TRACKED_RUNS_MAX {
                self.last_seqs.pop_first();
            }
            self.last_seqs.insert(run.clone(), last);
        }
        let now = self.now();
        let mut changes: Vec<SuspensionView> = Vec::new();
        for view in listed.items.into_iter().filter(|view| self.caller.can_read(view)) {
            let is_known = self.sent.contains(&view.id);
            let has_changed = self.sent.record(&view, now);
            let is_change = changed_run.is_some();
            if is_change && !has_changed {
                continue;
            }
            // Opened and closed before this stream read it: the client is sent both changes.
            let is_pending = view.status == ApprovalStatus::Pending;
            if is_change && !is_known && !is_pending && view.created_at >= self.began_at {
                changes.push(as_opened(&view));
            }
            changes.push(view);
        }
        if changed_run.is_some() {
            changes.sort_by_key(SuspensionView::changed_seq);
        }
        self.ready.extend(changes);
        self.listing = listed.next.map(|next| Listing { filter, page: Page { cursor: Some(next), ..page } });
        Ok(())
    }
}

/// The approval as it was before the decision.
fn as_opened(view: &SuspensionView) -> SuspensionView {
    SuspensionView {
        status: ApprovalStatus::Pending,
        answered: false,
        edited: None,
        closed_seq: None,
        decided_at: None,
        decided_by: None,
        reason: None,
        note: None,
        ..view.clone()
    }
}

/// The changes that were sent recently.
#[derive(Default)]
struct SentApprovals {
    statuses: BTreeMap<SuspensionId, (ApprovalStatus, Timestamp)>,
}

impl SentApprovals {
    fn contains(&self, id: &SuspensionId) -> bool {
        self.statuses.contains_key(id)
    }

    /// Records the change as sent. True if it is recent and had not been sent.
    fn record(&mut self, view: &SuspensionView, now: Timestamp) -> bool {
        let changed_at = view.decided_at.unwrap_or(view.created_at);
        let recent_from = Timestamp(now.0.saturating_sub(RECENT_MS));
        if changed_at < recent_from {
            return false;
        }
        if self.statuses.len() >= SENT_MAX {
            self.statuses.retain(|_, (_, changed_at)| *changed_at >= recent_from);
        }
        if self.statuses.len() >= SENT_MAX {
            self.statuses.pop_first();
        }
        // An answer is sent when it is accepted. The status does not change again when the run processes it.
        let before = self.statuses.insert(view.id.clone(), (view.status, changed_at));
        before.is_none_or(|(status, _)| status != view.status)
    }
}
