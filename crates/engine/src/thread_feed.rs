//! Wakes those who follow a thread when it has a new run, or is gone. Nothing is kept for threads without followers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use machine::id::ThreadId;
use tokio::sync::watch;

use crate::engine::Engine;
use crate::live::lock;
use crate::store::{Deleted, Deletion, StoreError, Tenant};

/// The channels of the threads that are followed.
type FollowedThreads = Mutex<BTreeMap<(Tenant, ThreadId), watch::Sender<()>>>;

/// Changes of one thread from its creation on. Create it before you read which runs the thread has.
#[derive(Debug)]
pub struct ThreadFeed {
    thread: (Tenant, ThreadId),
    /// None only while it is dropped.
    receiver: Option<watch::Receiver<()>>,
    followed: Arc<FollowedThreads>,
}

impl ThreadFeed {
    /// Waits until the thread may have changed since the last call: read its runs again. A hint: it may be spurious, and
    /// it is missing if a notification between processes was lost or if retention deleted the thread. False once the
    /// engine is gone. Cancel-safe.
    pub async fn changed(&mut self) -> bool {
        match &mut self.receiver {
            Some(receiver) => receiver.changed().await.is_ok(),
            None => false,
        }
    }
}

impl Drop for ThreadFeed {
    /// The last follower removes the channel.
    fn drop(&mut self) {
        let mut followed = lock(&self.followed);
        self.receiver = None;
        if followed.get(&self.thread).is_some_and(|changes| changes.receiver_count() == 0) {
            followed.remove(&self.thread);
        }
    }
}

/// Sends the changes.
#[derive(Debug, Default)]
pub(crate) struct ThreadNotifier {
    followed: Arc<FollowedThreads>,
}

impl Drop for ThreadNotifier {
    /// Feeds also hold the map, and would otherwise wait forever.
    fn drop(&mut self) {
        lock(&self.followed).clear();
    }
}

impl ThreadNotifier {
    pub(crate) fn changed(&self, tenant: &Tenant, thread: &ThreadId) {
        let followed = lock(&self.followed);
        // Most threads have no followers.
        if !followed.is_empty()
            && let Some(changes) = followed.get(&(tenant.clone(), thread.clone()))
        {
            changes.send_replace(());
        }
    }

    fn feed(&self, tenant: &Tenant, thread: &ThreadId) -> ThreadFeed {
        let thread = (tenant.clone(), thread.clone());
        let receiver =
            lock(&self.followed).entry(thread.clone()).or_insert_with(|| watch::Sender::new(())).subscribe();
        ThreadFeed { thread, receiver: Some(receiver), followed: self.followed.clone() }
    }
}

impl Engine {
    /// Reports from now on that the thread may have a new run, or may be gone.
    #[must_use]
    pub fn thread_feed(&self, tenant: &Tenant, thread: &ThreadId) -> ThreadFeed {
        self.node().feeds.threads.feed(tenant, thread)
    }

    /// Removes a thread with everything in it ([`crate::store::ViewStore::delete_thread`]). Its followers notice at once.
    pub async fn delete_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        deletion: &Deletion,
    ) -> Result<Deleted, StoreError> {
        let deleted = self.store().delete_thread(tenant, thread, deletion).await?;
        match deleted {
            Deleted::Thread => self.node().feeds.threads.changed(tenant, thread),
            Deleted::Nothing => {}
        }
        Ok(deleted)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a failing test may stop in the plainest way there is")]

    use super::*;

    fn has_changed(feed: &ThreadFeed) -> bool {
        feed.receiver.as_ref().expect("it is not dropped").has_changed().expect("the engine is there")
    }

    #[tokio::test]
    async fn followers_of_a_thread_are_woken_and_no_others() {
        let notifier = ThreadNotifier::default();
        let (acme, other) = (Tenant::from("acme"), Tenant::from("other"));
        let mut feed = notifier.feed(&acme, &"t".into());
        let elsewhere = notifier.feed(&other, &"t".into());
        notifier.changed(&acme, &"t".into());
        notifier.changed(&acme, &"t".into());
        assert!(feed.changed().await);
        assert!(!has_changed(&feed), "both changes are one wake-up");
        assert!(!has_changed(&elsewhere), "another tenant's thread of the same name");
        notifier.changed(&acme, &"t".into());
        assert!(!has_changed(&notifier.feed(&acme, &"t".into())), "only later changes");
        assert!(feed.changed().await, "the change was not lost while this feed did not wait");
        drop(elsewhere);
        assert_eq!(lock(&notifier.followed).len(), 1);
        drop(notifier);
        assert!(!feed.changed().await, "the engine is gone");
    }
}
