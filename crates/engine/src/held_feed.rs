//! The feed of a run while this process works on it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::feed::RunFeed;

/// The feed of a run that this process works on.
pub(crate) struct HeldFeed {
    feed: Arc<RunFeed>,
    /// Other processes may continue the run.
    shared: bool,
}

impl HeldFeed {
    pub(crate) fn new(feed: Arc<RunFeed>, shared: bool) -> Self {
        feed.held.store(true, Ordering::Release);
        Self { feed, shared }
    }
}

impl Deref for HeldFeed {
    type Target = Arc<RunFeed>;

    fn deref(&self) -> &Arc<RunFeed> {
        &self.feed
    }
}

impl Drop for HeldFeed {
    fn drop(&mut self) {
        self.feed.held.store(false, Ordering::Release);
        // From here on another process may write. Watchers then read from the store, which thereby learns about them.
        // Only a run that has ended cannot change any more.
        let ended = self.feed.last().is_some_and(|(_, is_last)| is_last);
        if self.shared && !ended {
            self.feed.invalidate();
        }
    }
}
