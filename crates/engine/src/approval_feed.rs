//! Notifies subscribers about runs whose pending approvals have changed.
//!
//! Each watched tenant has its own channel, so a busy tenant takes no capacity from another. Nothing is kept for
//! tenants without subscribers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use machine::id::RunId;
use tokio::sync::{broadcast, watch};

use crate::live::lock;
use crate::store::Tenant;

/// Unread notifications per subscriber. One that falls further behind has to start over.
const UNREAD_MAX: usize = 1_024;
/// Tenants that may be watched at the same time. Each costs one channel, however many subscribers it has.
const TENANTS_MAX: usize = 1_024;

/// A change to the pending approvals of one tenant. A hint: it may be duplicated or spurious.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalChange {
    /// A suspension of this run was opened or closed: read its approvals again.
    Run { run: RunId },
    /// Notifications were lost: read everything again.
    Missed,
}

/// The channels of the tenants that are watched.
type Subscribers = Mutex<BTreeMap<Tenant, broadcast::Sender<ApprovalChange>>>;

/// Changes of one tenant from its creation on. Create it before you list what is pending.
#[derive(Debug)]
pub struct ApprovalFeed {
    tenant: Tenant,
    /// None only while it is dropped.
    receiver: Option<broadcast::Receiver<ApprovalChange>>,
    watched: Arc<Subscribers>,
}

impl ApprovalFeed {
    /// None once the engine is gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<ApprovalChange> {
        match self.receiver.as_mut()?.recv().await {
            Ok(news) => Some(news),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(ApprovalChange::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Drop for ApprovalFeed {
    /// The last subscriber removes the channel.
    fn drop(&mut self) {
        let mut watched = lock(&self.watched);
        self.receiver = None;
        if watched.get(&self.tenant).is_some_and(|news| news.receiver_count() == 0) {
            watched.remove(&self.tenant);
        }
    }
}

/// Sends the notifications.
pub(crate) struct ApprovalNotifier {
    /// For subscribers that only want to know that something changed.
    count: watch::Sender<u64>,
    watched: Arc<Subscribers>,
}

impl Default for ApprovalNotifier {
    fn default() -> Self {
        Self { count: watch::Sender::new(0), watched: Arc::default() }
    }
}

impl Drop for ApprovalNotifier {
    /// Feeds also hold the map, and would otherwise wait forever.
    fn drop(&mut self) {
        lock(&self.watched).clear();
    }
}

impl ApprovalNotifier {
    pub(crate) fn changed(&self, tenant: &Tenant, run: &RunId) {
        if let Some(news) = lock(&self.watched).get(tenant) {
            send(news, ApprovalChange::Run { run: run.clone() });
        }
        self.count.send_modify(|count| *count += 1);
    }

    pub(crate) fn missed(&self) {
        for news in lock(&self.watched).values() {
            send(news, ApprovalChange::Missed);
        }
        self.count.send_modify(|count| *count += 1);
    }

    pub(crate) fn count(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    /// None if too many other tenants are watched.
    pub(crate) fn feed(&self, tenant: &Tenant) -> Option<ApprovalFeed> {
        let mut watched = lock(&self.watched);
        if watched.len() >= TENANTS_MAX && !watched.contains_key(tenant) {
            return None;
        }
        let news = watched.entry(tenant.clone()).or_insert_with(|| broadcast::Sender::new(UNREAD_MAX));
        let receiver = Some(news.subscribe());
        drop(watched);
        Some(ApprovalFeed { tenant: tenant.clone(), receiver, watched: self.watched.clone() })
    }
}

fn send(to: &broadcast::Sender<ApprovalChange>, news: ApprovalChange) {
    // An error means that the last subscriber is just leaving.
    let _ = to.send(news);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a failing test may stop in the plainest way there is")]

    use super::*;

    fn run(number: usize) -> RunId {
        RunId::from(format!("run_{number}"))
    }

    #[tokio::test]
    async fn a_reader_that_lags_is_notified_and_continues_with_the_latest() {
        let notifier = ApprovalNotifier::default();
        let tenant = Tenant::default();
        let mut feed = notifier.feed(&tenant).expect("there is room");
        let mut count = notifier.count();
        for number in 0..=UNREAD_MAX {
            notifier.changed(&tenant, &run(number));
        }
        assert_eq!(feed.next().await, Some(ApprovalChange::Missed));
        let oldest = ApprovalChange::Run { run: run(1) };
        assert_eq!(feed.next().await, Some(oldest), "the rest arrives in order");
        assert_eq!(*count.borrow_and_update(), UNREAD_MAX as u64 + 1);
        drop(notifier);
        let mut rest = 0;
        while feed.next().await.is_some() {
            rest += 1;
        }
        assert_eq!(rest, UNREAD_MAX - 1, "and then it is over");
    }

    #[tokio::test]
    async fn a_busy_tenant_takes_no_room_from_another_and_a_gap_is_reported_to_all() {
        let notifier = ApprovalNotifier::default();
        let (busy, quiet) = (Tenant::from("busy"), Tenant::from("quiet"));
        let (mut noise, mut feed) =
            (notifier.feed(&busy).expect("there is room"), notifier.feed(&quiet).expect("there is room"));
        for number in 0..2 * UNREAD_MAX {
            notifier.changed(&busy, &run(number));
        }
        notifier.changed(&quiet, &run(7));
        assert_eq!(feed.next().await, Some(ApprovalChange::Run { run: run(7) }));
        assert_eq!(noise.next().await, Some(ApprovalChange::Missed));
        notifier.missed();
        assert_eq!(feed.next().await, Some(ApprovalChange::Missed));
    }

    #[test]
    fn only_watched_tenants_are_kept_up_to_a_limit() {
        let notifier = ApprovalNotifier::default();
        notifier.changed(&Tenant::from("unwatched"), &run(1));
        assert_eq!(lock(&notifier.watched).len(), 0, "no feed watches");
        let feed = |number: usize| notifier.feed(&Tenant::from(format!("t{number}").as_str()));
        let feeds: Vec<_> = (0..TENANTS_MAX).map(|number| feed(number).expect("there is room")).collect();
        assert!(feed(TENANTS_MAX).is_none(), "that is one too many");
        let second = feed(0).expect("it is watched already");
        drop(feeds);
        assert_eq!(lock(&notifier.watched).len(), 1, "a feed still watches the first");
        drop(second);
        assert_eq!(lock(&notifier.watched).len(), 0);
    }
}
