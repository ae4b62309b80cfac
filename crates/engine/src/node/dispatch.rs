//! The dispatcher: claims ready runs and gives each a worker as soon as there is a slot.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use machine::Timestamp;

use super::{Need, Node, Slot, WorkerMessage};
use crate::agent::milliseconds;
use crate::live::lock;
use crate::store::{Claim, Claimed, Notification, StoreError};
use crate::worker::RunSource;

/// Maximum number of runs per claim.
const CLAIM_MAX: usize = 64;
const NEVER: Timestamp = Timestamp(u64::MAX);
const POLL_INTERVAL_MIN_MS: u64 = 1;

impl Node {
    /// A released run is due at this time.
    pub(crate) fn wake_dispatcher_by(&self, at: Timestamp) {
        if at.0 < self.next_poll_at.load(Ordering::Acquire) {
            self.dispatch.notify_one();
        }
    }

    /// Claims ready runs: at startup, when a slot becomes free, and when a run falls due.
    pub(crate) async fn dispatch(self: Arc<Self>) {
        self.backlog.store(true, Ordering::Release);
        loop {
            // A run that falls due during the claim notifies the dispatcher, which then claims again.
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

    /// Processes notifications from other processes. It continues while this node stops: the runs it still holds must
    /// receive their items until the end.
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
                Notification::Thread { tenant, thread } => self.feeds.threads.changed(&tenant, &thread),
                Notification::LiveRequested { run } => self.feeds.live_requested(&run),
                Notification::Live { run, after, updates } => {
                    if !self.feeds.receive_live(&run, after, updates) {
                        self.store.request_live(&run);
                    }
                }
            }
        }
    }

    /// Sends live updates of the runs held here to the processes that requested them.
    pub(crate) async fn relay(self: Arc<Self>) {
        tokio::select! {
            () = self.aborted.cancelled() => {}
            () = self.feeds.relay.run(&*self.store) => {}
        }
    }

    /// Claims as many runs as there are slots, and returns when to poll again. If there is no slot, or none for the
    /// runs of one tenant, interrupted and due runs are claimed anyway.
    async fn claim_ready(self: &Arc<Self>) -> Result<Timestamp, StoreError> {
        while self.backlog.swap(false, Ordering::AcqRel) {
            let (mut slots, mut full) = self.slots_to_claim(CLAIM_MAX);
            if slots.is_empty() {
                // From here on, releasing a slot notifies the dispatcher. One may have been released just before, so
                // look again.
                self.backlog.store(true, Ordering::SeqCst);
                (slots, full) = self.slots_to_claim(CLAIM_MAX);
                if slots.is_empty() {
                    self.has_queue.store(true, Ordering::SeqCst);
                    return self.claim_urgent().await;
                }
            }
            let claim = Claim::Next { limit: slots.len(), skip_tenant: full.clone() };
            let claimed = self.store.claim(claim).await?;
            // A run that became ready meanwhile has notified the dispatcher, and is claimed next.
            let may_be_more = claimed.len() == slots.len();
            self.has_queue.store(may_be_more, Ordering::SeqCst);
            if may_be_more {
                self.backlog.store(true, Ordering::Release);
            }
            self.take_all(claimed, slots);
            if !may_be_more && let Some(full) = full {
                // As above: skipped runs are claimed again as soon as their tenant releases a slot.
                self.backlog.store(true, Ordering::SeqCst);
                if self.is_full(&full) {
                    return self.claim_urgent().await;
                }
            }
        }
        self.next_due().await
    }

    /// Interrupts and deadlines do not wait until another run releases a slot.
    async fn claim_urgent(self: &Arc<Self>) -> Result<Timestamp, StoreError> {
        loop {
            let slots: Vec<Slot> = std::iter::from_fn(|| self.take_spare_slot()).collect();
            if slots.is_empty() {
                // Releasing a spare slot notifies the dispatcher.
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

    /// When to poll next. Everything due by now has just been claimed, so wait at least the minimum interval.
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
        // Its worker is about to claim the run and will find it taken, by this node. Hand it the claim.
        if worker.mailbox.try_send(WorkerMessage::Claimed(Box::new(claimed))).is_err() {
            tracing::error!(%run, "a worker's mailbox is full, so it does not receive the claim of its run");
        }
    }
}
