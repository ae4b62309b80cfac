//! Who is claimed when: what is ready gets a worker as soon as there is a slot for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use machine::Timestamp;

use super::{Need, Node, Slot, WorkerMessage};
use crate::agent::milliseconds;
use crate::live::lock;
use crate::store::{Claim, Claimed, Notification, StoreError};
use crate::worker::RunSource;

/// Runs that are claimed at once.
const CLAIM_MAX: usize = 64;
const NEVER: Timestamp = Timestamp(u64::MAX);
const POLL_INTERVAL_MIN_MS: u64 = 1;

impl Node {
    /// A run that was let go has to be looked at again at this time.
    pub(crate) fn wake_dispatcher_by(&self, at: Timestamp) {
        if at.0 < self.next_poll_at.load(Ordering::Acquire) {
            self.dispatch.notify_one();
        }
    }

    /// Claims what is ready: at the beginning, when a slot is free again, and when something falls due.
    pub(crate) async fn dispatch(self: Arc<Self>) {
        self.backlog.store(true, Ordering::Release);
        loop {
            // Whatever falls due while this looks rings, and is looked at next.
            self.next_poll_at.store(u64::MAX, Ordering::Release);
            let poll_at = match self.claim_ready().await {
                Ok(poll_at) => poll_at,
                Err(trouble) => {
                    tracing::error!(%trouble, "cannot claim runs; trying again");
                    self.backlog.store(true, Ordering::Release);
                    self.clock.now().plus_ms(milliseconds(self.settings.store_retry_pause))
                }
            };
            self.next_poll_at.store(poll_at.0, Ordering::Release);
            let due = async {
                if poll_at == NEVER {
                    std::future::pending::<()>().await;
                }
                self.clock.sleep_until(poll_at).await;
            };
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                () = self.dispatch.notified() => {}
                () = due => self.backlog.store(true, Ordering::Release),
            }
        }
    }

    /// What happened in other processes. Also while this one stops: what it holds hears what is brought to it to the end.
    pub(crate) async fn listen(self: Arc<Self>) {
        loop {
            let notification = tokio::select! {
                biased;
                () = self.aborted.cancelled() => return,
                notification = self.store.next_notification() => notification,
            };
            match notification {
                Notification::Run { tenant, run } => self.wake(&tenant, &run, Need::Continue),
                Notification::Ready => self.schedule_dispatch(),
                Notification::Committed { run } => self.feeds.committed_elsewhere(&run),
                Notification::Approvals { tenant, run } => self.approvals.changed(&tenant, &run),
                Notification::ApprovalsMissed => self.approvals.missed(),
                Notification::LiveRequested { run } => self.feeds.live_requested(&run),
                Notification::Live { run, after, updates } => {
                    if !self.feeds.receive_live(&run, after, updates) {
                        self.store.request_live(&run);
                    }
                }
            }
        }
    }

    /// What others have asked to hear of the runs that are held here.
    pub(crate) async fn relay(self: Arc<Self>) {
        tokio::select! {
            () = self.aborted.cancelled() => {}
            () = self.feeds.relay.run(&*self.store) => {}
        }
    }

    /// Claims as many as there are slots, and says when to look again. Without a slot, or with none for the runs of one
    /// tenant, what is interrupted or due is claimed all the same.
    async fn claim_ready(self: &Arc<Self>) -> Result<Timestamp, StoreError> {
        while self.backlog.swap(false, Ordering::AcqRel) {
            let (mut slots, mut full) = self.slots_to_claim(CLAIM_MAX);
            if slots.is_empty() {
                // Whoever leaves a slot from here on rings; one may have been left just before.
                self.backlog.store(true, Ordering::SeqCst);
                (slots, full) = self.slots_to_claim(CLAIM_MAX);
                if slots.is_empty() {
                    self.has_queue.store(true, Ordering::SeqCst);
                    return self.claim_urgent().await;
                }
            }
            let claim = Claim::Next { limit: slots.len(), skip_tenant: full.clone() };
            let claimed = self.store.claim(claim).await?;
            // Whoever came meanwhile has rung, and is looked for next.
            let may_be_more = claimed.len() == slots.len();
            self.has_queue.store(may_be_more, Ordering::SeqCst);
            if may_be_more {
                self.backlog.store(true, Ordering::Release);
            }
            self.take_all(claimed, slots);
            if !may_be_more && let Some(full) = full {
                // What was passed over is looked for again as soon as its tenant leaves a slot, as above.
                self.backlog.store(true, Ordering::SeqCst);
                if self.is_full(&full) {
                    return self.claim_urgent().await;
                }
            }
        }
        self.next_due().await
    }

    /// An interrupt and the time do not wait until somebody else is done.
    async fn claim_urgent(self: &Arc<Self>) -> Result<Timestamp, StoreError> {
        loop {
            let slots: Vec<Slot> = std::iter::from_fn(|| self.take_spare_slot()).collect();
            if slots.is_empty() {
                // Whoever leaves one rings.
                return Ok(NEVER);
            }
            let claimed = match self.store.claim(Claim::Urgent { limit: slots.len() }).await {
                Ok(claimed) => claimed,
                Err(refused) => {
                    slots.into_iter().for_each(Slot::return_unused);
                    return Err(refused);
                }
            };
            let is_all = claimed.len() < slots.len();
            self.take_all(claimed, slots);
            if is_all {
                return self.next_due().await;
            }
        }
    }

    /// What is due by now has just been claimed; nothing is looked at more often than this.
    async fn next_due(&self) -> Result<Timestamp, StoreError> {
        let soonest = self.clock.now().plus_ms(POLL_INTERVAL_MIN_MS);
        Ok(self.store.next_wake().await?.map_or(NEVER, |at| at.max(soonest)))
    }

    fn take_all(self: &Arc<Self>, claimed: Vec<Claimed>, slots: Vec<Slot>) {
        let mut claimed = claimed.into_iter();
        for slot in slots {
            match claimed.next() {
                Some(claimed) => self.take(claimed, slot),
                None => slot.return_unused(),
            }
        }
    }

    fn take(self: &Arc<Self>, claimed: Claimed, mut slot: Slot) {
        slot.assign_to(&claimed.lease.tenant);
        let (tenant, run) = (claimed.lease.tenant.clone(), claimed.lease.run.clone());
        let mut active = lock(&self.active);
        let Some(worker) = active.workers.get(&(tenant.clone(), run.clone())) else {
            self.start(&mut active, &tenant, &run, RunSource::Claimed(Box::new(claimed)), None, slot);
            return;
        };
        // Its worker is about to claim it, and finds that it is taken: by us. It is told so.
        if worker.mailbox.try_send(WorkerMessage::Claimed(Box::new(claimed))).is_err() {
            tracing::error!(%run, "a worker with a full mailbox cannot be told that its run is claimed");
        }
    }
}
