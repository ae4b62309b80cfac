//! Who is claimed when: what is ready gets a worker as soon as there is a place for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use machine::Timestamp;

use super::{Mail, Need, Node, Place};
use crate::agent::milliseconds;
use crate::live::lock;
use crate::store::{Claim, Claimed, Refused, Ring};
use crate::worker::Entry;

/// Runs that are claimed at once.
const CLAIM_MAX: usize = 64;
const NEVER: Timestamp = Timestamp(u64::MAX);
const LOOK_AGAIN_MS: u64 = 1;

impl Node {
    /// A run that was let go has to be looked at again at this time.
    pub(crate) fn due(&self, at: Timestamp) {
        if at.0 < self.next_look.load(Ordering::Acquire) {
            self.dispatch.notify_one();
        }
    }

    /// Claims what is ready: at the beginning, when a place is free again, and when something falls due.
    pub(crate) async fn dispatch(self: Arc<Self>) {
        self.backlog.store(true, Ordering::Release);
        loop {
            // Whatever falls due while this looks rings, and is looked at next.
            self.next_look.store(u64::MAX, Ordering::Release);
            let look_at = match self.claim_ready().await {
                Ok(look_at) => look_at,
                Err(trouble) => {
                    tracing::error!(%trouble, "cannot claim runs; trying again");
                    self.backlog.store(true, Ordering::Release);
                    self.clock.now().plus_ms(milliseconds(self.settings.trouble_pause))
                }
            };
            self.next_look.store(look_at.0, Ordering::Release);
            let due = async {
                if look_at == NEVER {
                    std::future::pending::<()>().await;
                }
                self.clock.sleep_until(look_at).await;
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
            let ring = tokio::select! {
                biased;
                () = self.aborted.cancelled() => return,
                ring = self.store.rung() => ring,
            };
            match ring {
                Ring::Run { tenant, run } => self.wake(&tenant, &run, Need::Continue),
                Ring::Ready => self.later(),
                Ring::Committed { run } => self.feeds.heard_of(&run),
                Ring::Approvals { tenant, run } => self.approvals.changed(&tenant, &run),
                Ring::ApprovalsMissed => self.approvals.missed(),
                Ring::Watched { run } => self.feeds.watched_elsewhere(&run),
                Ring::Said { run, after, said } => {
                    if !self.feeds.said_elsewhere(&run, after, said) {
                        self.store.watch(&run);
                    }
                }
            }
        }
    }

    /// What others have asked to hear of the runs that are held here.
    pub(crate) async fn relay(self: Arc<Self>) {
        tokio::select! {
            () = self.aborted.cancelled() => {}
            () = self.feeds.relay.work(&*self.store) => {}
        }
    }

    /// Claims as many as there are places, and says when to look again. Without a place, or with none for the runs of one
    /// tenant, what is interrupted or due is claimed all the same.
    async fn claim_ready(self: &Arc<Self>) -> Result<Timestamp, Refused> {
        while self.backlog.swap(false, Ordering::AcqRel) {
            let (mut places, mut full) = self.places_to_claim(CLAIM_MAX);
            if places.is_empty() {
                // Whoever leaves a place from here on rings; one may have been left just before.
                self.backlog.store(true, Ordering::SeqCst);
                (places, full) = self.places_to_claim(CLAIM_MAX);
                if places.is_empty() {
                    self.has_line.store(true, Ordering::SeqCst);
                    return self.claim_pressing().await;
                }
            }
            let claim = Claim::Next { limit: places.len(), pass_over: full.clone() };
            let claimed = self.store.claim(claim).await?;
            // Whoever came meanwhile has rung, and is looked for next.
            let may_be_more = claimed.len() == places.len();
            self.has_line.store(may_be_more, Ordering::SeqCst);
            if may_be_more {
                self.backlog.store(true, Ordering::Release);
            }
            self.take_all(claimed, places);
            if !may_be_more && let Some(full) = full {
                // What was passed over is looked for again as soon as its tenant leaves a place, as above.
                self.backlog.store(true, Ordering::SeqCst);
                if self.is_full(&full) {
                    return self.claim_pressing().await;
                }
            }
        }
        self.next_due().await
    }

    /// An interrupt and the time do not wait until somebody else is done.
    async fn claim_pressing(self: &Arc<Self>) -> Result<Timestamp, Refused> {
        loop {
            let places: Vec<Place> = std::iter::from_fn(|| self.spare_place()).collect();
            if places.is_empty() {
                // Whoever leaves one rings.
                return Ok(NEVER);
            }
            let claimed = match self.store.claim(Claim::Pressing { limit: places.len() }).await {
                Ok(claimed) => claimed,
                Err(refused) => {
                    places.into_iter().for_each(Place::give_back);
                    return Err(refused);
                }
            };
            let is_all = claimed.len() < places.len();
            self.take_all(claimed, places);
            if is_all {
                return self.next_due().await;
            }
        }
    }

    /// What is due by now has just been claimed; nothing is looked at more often than this.
    async fn next_due(&self) -> Result<Timestamp, Refused> {
        let soonest = self.clock.now().plus_ms(LOOK_AGAIN_MS);
        Ok(self.store.next_wake().await?.map_or(NEVER, |at| at.max(soonest)))
    }

    fn take_all(self: &Arc<Self>, claimed: Vec<Claimed>, places: Vec<Place>) {
        let mut claimed = claimed.into_iter();
        for place in places {
            match claimed.next() {
                Some(claimed) => self.take(claimed, place),
                None => place.give_back(),
            }
        }
    }

    fn take(self: &Arc<Self>, claimed: Claimed, mut place: Place) {
        place.belongs_to(&claimed.lease.tenant);
        let (tenant, run) = (claimed.lease.tenant.clone(), claimed.lease.run.clone());
        let mut active = lock(&self.active);
        let Some(held) = active.held.get(&(tenant.clone(), run.clone())) else {
            self.start(&mut active, &tenant, &run, Entry::Claimed(Box::new(claimed)), None, place);
            return;
        };
        // Its worker is about to claim it, and finds that it is taken: by us. It is told so.
        if held.mail.try_send(Mail::Claimed(Box::new(claimed))).is_err() {
            tracing::error!(%run, "a worker with a full mailbox cannot be told that its run is claimed");
        }
    }
}
