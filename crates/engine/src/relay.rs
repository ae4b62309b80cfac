//! Sends live updates of runs that are held here to watchers in other processes, a few times a second.
//!
//! A process with watchers requests updates, and receives them until the run's next commit; it reads that commit and
//! requests again. So no process has to unsubscribe, and nothing is sent without a request. Every update carries its
//! offset: a receiver that misses something before it requests again, and gets the text so far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use machine::id::RunId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::feed::RunFeed;
use crate::live::{LiveCursor, LiveItem, lock};
use crate::store::{LiveUpdate, Store};

/// Updates within this interval are sent together.
const RELAY_INTERVAL: Duration = Duration::from_millis(75);
/// The text so far is not sent again more often than this, however many processes request it.
const RESEND_INTERVAL: Duration = Duration::from_secs(1);

/// The runs of this process whose live updates were requested by other processes.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    watched: Mutex<BTreeMap<RunId, RelayedRun>>,
    requested: Notify,
}

#[derive(Debug)]
struct RelayedRun {
    feed: Weak<RunFeed>,
    cursor: LiveCursor,
    /// The run's commit count at the last request.
    asked_at: u64,
    /// Some receiver may lack what was sent before.
    resend_all: bool,
    all_sent_at: Option<Instant>,
}

impl Relay {
    /// A watcher in another process wants this run's live updates, and has none of them yet.
    pub(crate) fn request(&self, run: &RunId, feed: &Arc<RunFeed>) {
        let mut watched = lock(&self.watched);
        let relayed = watched.entry(run.clone()).or_insert_with(|| RelayedRun {
            feed: Arc::downgrade(feed),
            cursor: LiveCursor::default(),
            asked_at: 0,
            resend_all: false,
            all_sent_at: None,
        });
        relayed.feed = Arc::downgrade(feed);
        relayed.asked_at = feed.commit_count();
        relayed.resend_all = true;
        drop(watched);
        self.requested.notify_one();
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(&self, store: &dyn Store) {
        loop {
            self.requested.notified().await;
            while self.relay_once(store) {
                tokio::time::sleep(RELAY_INTERVAL).await;
            }
        }
    }

    /// False if there is nothing more to send until the next request.
    fn relay_once(&self, store: &dyn Store) -> bool {
        let mut watched = lock(&self.watched);
        watched.retain(|_, relayed| relayed.feed.upgrade().is_some_and(|feed| feed.is_held()));
        let mut has_more = false;
        for (run, relayed) in watched.iter_mut() {
            let Some(feed) = relayed.feed.upgrade() else { continue };
            if feed.commit_count() != relayed.asked_at {
                continue;
            }
            has_more = true;
            let updates = relayed.read(&feed);
            if !updates.is_empty() {
                store.publish_live(run, feed.last_seq(), updates);
            }
        }
        has_more
    }
}

impl RelayedRun {
    fn read(&mut self, feed: &RunFeed) -> Vec<LiveUpdate> {
        let now = Instant::now();
        if self.resend_all && self.all_sent_at.is_none_or(|at| now.duration_since(at) >= RESEND_INTERVAL) {
            self.resend_all = false;
            self.all_sent_at = Some(now);
            self.cursor.start_over();
        }
        let mut items = Vec::new();
        feed.live().read_joined(&mut self.cursor, &mut items);
        let updates = items.into_iter().filter_map(|item| match item {
            LiveItem::Delta(delta) => Some(LiveUpdate::Delta(delta)),
            LiveItem::Note(note) => Some(LiveUpdate::Note(note)),
            // The receiver infers it from the next attempt's updates.
            LiveItem::Reset { .. } => None,
        });
        updates.collect()
    }
}
