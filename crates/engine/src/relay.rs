//! What is said on the way of runs that are held here and watched in other processes: told to them a few times a second.
//!
//! Whoever watches elsewhere asks, and is told until the next commit of the run; it reads that commit and asks again. So
//! nobody has to say that it is gone, and nothing is told that nobody asked for. What is told stands at its offset, and
//! whoever misses something before it asks once more, and gets the text so far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use machine::id::RunId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::feed::RunFeed;
use crate::live::{LiveCursor, LiveItem, lock};
use crate::store::{Said, Store};

/// What was said meanwhile goes together.
const TELL_EVERY: Duration = Duration::from_millis(75);
/// The text so far is not told more often, however many ask.
const ALL_EVERY: Duration = Duration::from_secs(1);

/// The runs of this process of which others have asked to be told.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    watched: Mutex<BTreeMap<RunId, Watch>>,
    bell: Notify,
}

#[derive(Debug)]
struct Watch {
    feed: Weak<RunFeed>,
    cursor: LiveCursor,
    /// As many commits had been published when somebody asked last.
    asked_at: u64,
    /// Somebody may not have what was told before.
    starts_over: bool,
    all_told_at: Option<Instant>,
}

impl Relay {
    /// Somebody elsewhere watches the run, and has nothing of what is said.
    pub(crate) fn ask(&self, run: &RunId, feed: &Arc<RunFeed>) {
        let mut watched = lock(&self.watched);
        let watch = watched.entry(run.clone()).or_insert_with(|| Watch {
            feed: Arc::downgrade(feed),
            cursor: LiveCursor::default(),
            asked_at: 0,
            starts_over: false,
            all_told_at: None,
        });
        watch.feed = Arc::downgrade(feed);
        watch.asked_at = feed.commit_count();
        watch.starts_over = true;
        drop(watched);
        self.bell.notify_one();
    }

    /// Tells until it is dropped.
    pub(crate) async fn work(&self, store: &dyn Store) {
        loop {
            self.bell.notified().await;
            while self.tell(store) {
                tokio::time::sleep(TELL_EVERY).await;
            }
        }
    }

    /// False if nobody is to be told more before somebody asks again.
    fn tell(&self, store: &dyn Store) -> bool {
        let mut watched = lock(&self.watched);
        watched.retain(|_, watch| watch.feed.upgrade().is_some_and(|feed| feed.is_held()));
        let mut goes_on = false;
        for (run, watch) in watched.iter_mut() {
            let Some(feed) = watch.feed.upgrade() else { continue };
            if feed.commit_count() != watch.asked_at {
                continue;
            }
            goes_on = true;
            let said = watch.read(&feed);
            if !said.is_empty() {
                store.tell(run, feed.last_seq(), said);
            }
        }
        goes_on
    }
}

impl Watch {
    fn read(&mut self, feed: &RunFeed) -> Vec<Said> {
        let now = Instant::now();
        if self.starts_over && self.all_told_at.is_none_or(|at| now.duration_since(at) >= ALL_EVERY) {
            self.starts_over = false;
            self.all_told_at = Some(now);
            self.cursor.start_over();
        }
        let mut items = Vec::new();
        feed.live().read_joined(&mut self.cursor, &mut items);
        let said = items.into_iter().filter_map(|item| match item {
            LiveItem::Delta(delta) => Some(Said::Delta(delta)),
            LiveItem::Note(note) => Some(Said::Note(note)),
            // Whoever hears of a later attempt knows it.
            LiveItem::Reset { .. } => None,
        });
        said.collect()
    }
}
