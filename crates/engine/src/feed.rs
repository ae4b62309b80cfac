//! The feed of a run: stored events by number, and what is said on the way. Many may watch, each from anywhere.
//!
//! A commit raises one number and, where somebody waits, rings one bell. Whoever watches reads for themselves, from
//! the latest events in memory or from the store. Nobody is sent anything, so nobody can slow the run down.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use machine::event::{Fact, Message};
use machine::id::RunId;
use tokio::sync::Notify;

use crate::live::{Live, LiveCursor, LiveItem, lock};
use crate::store::{Committed, Refused, Store, Tenant};

/// Latest events of a run that are kept while it is in memory or watched.
const RECENT_MAX: usize = 256;
/// Events that a watcher reads from the store at once.
const READ_MAX: usize = 256;
/// With more watchers than this the run leaves the ringing to the herald.
const RING_SELF_MAX: usize = 4;
/// Watchers that the herald wakes before it lets others have their turn. A run stands behind at most so many readers.
const RING_AT_ONCE: usize = 32;
const RING_PAUSE: Duration = Duration::from_millis(1);

/// What a watcher gets.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedItem {
    Event(Committed),
    Live(LiveItem),
}

/// The feeds of the runs that are in memory or watched.
#[derive(Debug, Default)]
pub(crate) struct Feeds {
    feeds: Mutex<BTreeMap<RunId, Weak<RunFeed>>>,
    herald: Arc<Herald>,
}

impl Feeds {
    pub(crate) fn of(self: &Arc<Self>, run: &RunId) -> Arc<RunFeed> {
        let mut feeds = lock(&self.feeds);
        if let Some(feed) = feeds.get(run).and_then(Weak::upgrade) {
            return feed;
        }
        let feed = Arc::new(RunFeed {
            run: run.clone(),
            feeds: Arc::downgrade(self),
            herald: self.herald.clone(),
            version: AtomicU64::new(0),
            published: AtomicU64::new(0),
            watchers: Mutex::default(),
            watcher_count: AtomicUsize::new(0),
            rung: AtomicBool::new(false),
            recent: Mutex::default(),
            live: Mutex::default(),
        });
        feeds.insert(run.clone(), Arc::downgrade(&feed));
        feed
    }

    /// Rings the bells of runs with many watchers, so that the runs need not.
    pub(crate) fn herald(&self) -> Arc<Herald> {
        self.herald.clone()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Herald {
    /// Each feed stands here at most once.
    rung: Mutex<Vec<Arc<RunFeed>>>,
    some: Notify,
}

impl Herald {
    pub(crate) async fn work(&self) {
        let mut left = RING_AT_ONCE;
        loop {
            self.some.notified().await;
            let rung = std::mem::take(&mut *lock(&self.rung));
            for feed in rung {
                // What is new from here on rings again; whoever is woken before reads it at once.
                feed.rung.store(false, Ordering::Release);
                let mut next = Some(0);
                while let Some(from) = next {
                    (next, left) = feed.ring(from, left);
                    if left == 0 {
                        tokio::time::sleep(RING_PAUSE).await;
                        left = RING_AT_ONCE;
                    }
                }
            }
        }
    }
}

/// Those who watch a run, each with a bell.
#[derive(Debug, Default)]
struct Watchers {
    last: u64,
    bells: BTreeMap<u64, Arc<Notify>>,
}

#[derive(Debug)]
pub(crate) struct RunFeed {
    run: RunId,
    feeds: Weak<Feeds>,
    herald: Arc<Herald>,
    /// Rises with everything new.
    version: AtomicU64,
    /// Rises with every commit.
    published: AtomicU64,
    watchers: Mutex<Watchers>,
    watcher_count: AtomicUsize,
    /// The herald knows already.
    rung: AtomicBool,
    recent: Mutex<VecDeque<Committed>>,
    live: Mutex<Live>,
}

impl RunFeed {
    /// The events of one commit, after it returned.
    pub(crate) fn publish(self: &Arc<Self>, events: impl IntoIterator<Item = Committed>) {
        let events: Vec<Committed> = events.into_iter().collect();
        let answered = events.iter().any(|committed| {
            matches!(
                committed.event.fact,
                Fact::MessageAdded(Message::Assistant { .. }) | Fact::RunEnded { .. }
            )
        });
        self.published.fetch_add(1, Ordering::AcqRel);
        // First of all: a delta must not come after the event that carries the whole.
        if answered {
            self.live().clear();
        }
        {
            let mut recent = lock(&self.recent);
            let last = recent.back().map(|committed| committed.event.seq);
            // A commit whose answer was lost has left a gap: the store has what stands in it.
            if last.is_some_and(|last| events.first().is_some_and(|next| next.event.seq != last + 1)) {
                recent.clear();
            }
            recent.extend(events);
            let surplus = recent.len().saturating_sub(RECENT_MAX);
            recent.drain(..surplus);
        }
        self.signal();
    }

    /// Something was stored that was not published here: whoever watches finds it in the store.
    pub(crate) fn forget(self: &Arc<Self>) {
        lock(&self.recent).clear();
        self.live().clear();
        self.signal();
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, Live> {
        lock(&self.live)
    }

    pub(crate) fn signal(self: &Arc<Self>) {
        self.version.fetch_add(1, Ordering::AcqRel);
        match self.watcher_count.load(Ordering::Acquire) {
            0 => {}
            1..=RING_SELF_MAX => {
                self.ring(0, RING_SELF_MAX);
            }
            _ => {
                if !self.rung.swap(true, Ordering::AcqRel) {
                    lock(&self.herald.rung).push(self.clone());
                    self.herald.some.notify_one();
                }
            }
        }
    }

    /// Rings at most `count` bells from this number on. Says where to go on, and how many are left.
    fn ring(&self, from: u64, count: usize) -> (Option<u64>, usize) {
        let watchers = lock(&self.watchers);
        let mut left = count;
        for (number, bell) in watchers.bells.range(from..) {
            if left == 0 {
                return (Some(*number), 0);
            }
            bell.notify_one();
            left -= 1;
        }
        (None, left)
    }

    /// The events behind `after`, if the first of them is still in memory.
    fn recent_after(&self, after: u64) -> Vec<Committed> {
        let recent = lock(&self.recent);
        let Some(first) = recent.front().map(|committed| committed.event.seq) else { return Vec::new() };
        let next = after.saturating_add(1);
        if first > next {
            return Vec::new();
        }
        let skipped = usize::try_from(next - first).unwrap_or(usize::MAX);
        recent.iter().skip(skipped).take(READ_MAX).cloned().collect()
    }

    /// The number of the last event, and whether it is the last one for ever.
    fn last(&self) -> Option<(u64, bool)> {
        let recent = lock(&self.recent);
        let last = recent.back()?;
        Some((last.event.seq, matches!(last.event.fact, Fact::RunEnded { .. })))
    }
}

impl Drop for RunFeed {
    fn drop(&mut self) {
        let Some(feeds) = self.feeds.upgrade() else { return };
        let mut feeds = lock(&feeds.feeds);
        if feeds.get(&self.run).is_some_and(|feed| feed.strong_count() == 0) {
            feeds.remove(&self.run);
        }
    }
}

/// One watcher of a run. It begins behind any event and ends after the last one.
pub struct Subscription {
    feed: Arc<RunFeed>,
    number: u64,
    bell: Arc<Notify>,
    store: Arc<dyn Store>,
    tenant: Tenant,
    after: u64,
    ready: VecDeque<FeedItem>,
    cursor: LiveCursor,
    /// The tenant has such a run.
    found: bool,
    ended: bool,
}

impl Subscription {
    pub(crate) fn new(feed: Arc<RunFeed>, store: Arc<dyn Store>, tenant: Tenant, after: u64) -> Self {
        let bell = Arc::new(Notify::new());
        let number = {
            let mut watchers = lock(&feed.watchers);
            watchers.last += 1;
            let number = watchers.last;
            watchers.bells.insert(number, bell.clone());
            feed.watcher_count.store(watchers.bells.len(), Ordering::Release);
            number
        };
        Self {
            feed,
            number,
            bell,
            store,
            tenant,
            after,
            ready: VecDeque::new(),
            cursor: LiveCursor::default(),
            found: false,
            ended: false,
        }
    }

    /// For whoever has just created the run.
    pub(crate) const fn found(mut self) -> Self {
        self.found = true;
        self
    }

    /// The next event or delta; none after the terminal event.
    pub async fn next(&mut self) -> Option<Result<FeedItem, Refused>> {
        // Whoever reads in a loop is always ready: others need the thread too.
        tokio::task::consume_budget().await;
        loop {
            if let Some(item) = self.ready.pop_front() {
                if let FeedItem::Event(committed) = &item {
                    self.ended |= matches!(committed.event.fact, Fact::RunEnded { .. });
                }
                return Some(Ok(item));
            }
            if self.ended {
                return None;
            }
            let version = self.feed.version.load(Ordering::Acquire);
            if let Err(refused) = self.read().await {
                return Some(Err(refused));
            }
            // A bell that rang since the number was read keeps ringing until somebody comes.
            let nothing = self.ready.is_empty() && !self.ended;
            if nothing && self.feed.version.load(Ordering::Acquire) == version {
                self.bell.notified().await;
            }
        }
    }

    async fn read(&mut self) -> Result<(), Refused> {
        let published = self.feed.published.load(Ordering::Acquire);
        // What is in memory belongs to somebody: whoever watches must be able to find the run.
        if !self.found {
            let run = self.store.run(&self.tenant, &self.feed.run).await?.ok_or(Refused::NotFound)?;
            self.found = true;
            self.ended = run.status.ended() && run.control.seq <= self.after;
            if self.ended {
                return Ok(());
            }
        }
        let mut events = self.feed.recent_after(self.after);
        let known = self.feed.last();
        if events.is_empty() && known.is_none_or(|(last, _)| last > self.after) {
            events = self.store.events(&self.tenant, &self.feed.run, self.after, READ_MAX).await?;
        }
        if let Some(last) = events.last() {
            self.after = last.event.seq;
            self.ready.extend(events.into_iter().map(FeedItem::Event));
            return Ok(());
        }
        if let Some((_, true)) = known {
            self.ended = true;
            return Ok(());
        }
        // Deltas come only to whoever has read every event before them.
        let (mut items, mut cursor) = (Vec::new(), self.cursor.clone());
        self.feed.live().read(&mut cursor, &mut items);
        if self.feed.published.load(Ordering::Acquire) == published {
            self.cursor = cursor;
            self.ready.extend(items.into_iter().map(FeedItem::Live));
        }
        Ok(())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut watchers = lock(&self.feed.watchers);
        watchers.bells.remove(&self.number);
        self.feed.watcher_count.store(watchers.bells.len(), Ordering::Release);
    }
}
