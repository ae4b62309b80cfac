//! The feed of a run: stored events by sequence number, and live updates. Any number of watchers, each from any
//! position.
//!
//! A commit raises a version number and wakes waiting watchers. Each watcher reads for itself, from the recent events
//! in memory or from the store. The engine never pushes to watchers, and many watchers take turns, so no watcher can
//! slow the run down.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use machine::event::{Fact, Message};
use machine::id::{RunId, assistant_message_id};

use crate::live::{Live, LiveCursor, LiveItem, Reset, lock};
use crate::page_cache::{PAGE_EVENTS, PageCache};
use crate::recent_events::RecentEvents;
use crate::relay::Relay;
use crate::store::{CommittedEvent, LiveUpdate, LogEntry, Store, StoreError, Tenant, UnreadableEvent};
use crate::thread_feed::ThreadNotifier;
use crate::watchers::{WakeQueue, WatcherSignal, Watchers};

/// Events that a watcher reads from the store at once.
const READ_MAX: usize = 256;

/// What a watcher gets.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedItem {
    Event(CommittedEvent),
    /// A stored event that cannot be decoded. The events after it are still delivered.
    Unreadable(UnreadableEvent),
    Live(LiveItem),
}

/// The feeds of the runs that are in memory or watched.
#[derive(Debug, Default)]
pub(crate) struct Feeds {
    feeds: Mutex<BTreeMap<RunId, Weak<RunFeed>>>,
    wake_queue: Arc<WakeQueue>,
    pub(crate) relay: Relay,
    pub(crate) threads: ThreadNotifier,
}

impl Feeds {
    pub(crate) fn for_run(self: &Arc<Self>, run: &RunId) -> Arc<RunFeed> {
        let mut feeds = lock(&self.feeds);
        if let Some(feed) = feeds.get(run).and_then(Weak::upgrade) {
            return feed;
        }
        let feed = Arc::new(RunFeed {
            run: run.clone(),
            feeds: Arc::downgrade(self),
            watchers: Arc::new(Watchers::new(self.wake_queue.clone())),
            held: AtomicBool::new(false),
            owner: OnceLock::new(),
            version: AtomicU64::new(0),
            live_requested_at: AtomicU64::new(u64::MAX),
            live_after: AtomicU64::new(0),
            published: AtomicU64::new(0),
            recent: Mutex::default(),
            pages: PageCache::default(),
            live: Mutex::default(),
        });
        feeds.insert(run.clone(), Arc::downgrade(&feed));
        feed
    }

    /// Another process has stored events of this run: watchers here find them in the store.
    pub(crate) fn committed_elsewhere(&self, run: &RunId) {
        let feed = lock(&self.feeds).get(run).and_then(Weak::upgrade);
        // A worker that has lost its run finds out by itself.
        if let Some(feed) = feed.filter(|feed| !feed.is_held()) {
            feed.reread_from_store();
        }
    }

    /// A watcher in another process wants the live updates of this run.
    pub(crate) fn live_requested(&self, run: &RunId) {
        let feed = lock(&self.feeds).get(run).and_then(Weak::upgrade);
        if let Some(feed) = feed.filter(|feed| feed.is_held()) {
            self.relay.request(run, &feed);
        }
    }

    /// Live updates from the process that holds this run; they follow the event with sequence number `after`. False if
    /// an earlier update has not arrived.
    pub(crate) fn receive_live(&self, run: &RunId, after: u64, updates: Vec<LiveUpdate>) -> bool {
        let Some(feed) = lock(&self.feeds).get(run).and_then(Weak::upgrade) else { return true };
        if feed.is_held() {
            feed.receive_notes(updates);
            return true;
        }
        feed.receive_live(after, updates)
    }

    /// The engine stops: watchers are no longer woken in turn, but can still read what is stored.
    pub(crate) fn stop(&self) {
        self.wake_queue.stop();
        let feeds: Vec<Arc<RunFeed>> = lock(&self.feeds).values().filter_map(Weak::upgrade).collect();
        feeds.iter().for_each(|feed| feed.watchers.wake_all_at_once());
    }

    pub(crate) fn wake_queue(&self) -> Arc<WakeQueue> {
        self.wake_queue.clone()
    }
}

#[derive(Debug)]
pub(crate) struct RunFeed {
    run: RunId,
    feeds: Weak<Feeds>,
    watchers: Arc<Watchers>,
    /// This process works on the run, and publishes what it stores.
    pub(crate) held: AtomicBool,
    /// The tenant of the run, once a watcher has looked it up.
    owner: OnceLock<Tenant>,
    /// Rises with every change.
    version: AtomicU64,
    /// Rises with every commit in this process, and with every one in another process that we are notified of.
    published: AtomicU64,
    /// Value of `published` when live updates were last requested from another process.
    live_requested_at: AtomicU64,
    /// The last event before the live updates received from another process.
    live_after: AtomicU64,
    recent: Mutex<RecentEvents>,
    /// Pages that lagging watchers have read recently, if there are many watchers.
    pages: PageCache,
    live: Mutex<Live>,
}

impl RunFeed {
    /// Publishes the events of one commit, after the append returned.
    pub(crate) fn publish(&self, events: impl IntoIterator<Item = CommittedEvent>) {
        let events: Vec<CommittedEvent> = events.into_iter().collect();
        let answered = events.iter().any(|committed| {
            matches!(
                committed.event.fact,
                Fact::MessageAdded(Message::Assistant { .. }) | Fact::RunEnded { .. }
            )
        });
        self.published.fetch_add(1, Ordering::AcqRel);
        // First of all: a delta must not be delivered after the event that carries the complete answer.
        if answered {
            self.live().clear();
        }
        let restarts: Vec<_> = events.iter().filter_map(|committed| self.restart(committed)).collect();
        lock(&self.recent).push(events);
        for reset in restarts {
            self.live().restart(&reset);
        }
        self.signal();
    }

    /// The answer that this event restarts.
    fn restart(&self, committed: &CommittedEvent) -> Option<Reset> {
        let event = &*committed.event;
        let Fact::ModelRetrying { attempt, .. } = &event.fact else { return None };
        let message_id = assistant_message_id(&self.run, event.step?);
        Some(Reset { message_id, attempt: *attempt, step: event.step, at: event.at })
    }

    /// Something was stored that was not published here: watchers find it in the store.
    pub(crate) fn invalidate(&self) {
        self.live().clear();
        self.reread_from_store();
    }

    /// Keeps the live updates: they may come from another process.
    fn reread_from_store(&self) {
        self.published.fetch_add(1, Ordering::AcqRel);
        lock(&self.recent).clear();
        self.signal();
    }

    fn receive_live(&self, after: u64, updates: Vec<LiveUpdate>) -> bool {
        let mut live = self.live();
        let mut is_whole = true;
        for update in updates {
            match update {
                LiveUpdate::Delta(delta) => is_whole &= live.receive(&delta),
                LiveUpdate::Note(note) => live.receive_note(note),
            }
        }
        drop(live);
        self.live_after.fetch_max(after, Ordering::AcqRel);
        self.signal();
        is_whole
    }

    /// For a run that this process holds: its deltas come from here, but a tool may report to any process.
    fn receive_notes(&self, updates: Vec<LiveUpdate>) {
        let mut live = self.live();
        updates.into_iter().for_each(|update| match update {
            LiveUpdate::Delta(_) => {}
            LiveUpdate::Note(note) => live.receive_note(note),
        });
        drop(live);
        self.signal();
    }

    /// True once for each commit.
    fn should_request_live(&self, published: u64) -> bool {
        !self.is_held() && self.live_requested_at.swap(published, Ordering::AcqRel) != published
    }

    /// A watcher has read these events from the store: the live updates that led to them are obsolete.
    fn note_stored(&self, events: &[LogEntry]) {
        let Some(last) = events.last() else { return };
        // A watcher that reads old events says nothing about the current live updates.
        if self.is_held() || last.seq() < self.live_after.load(Ordering::Acquire) {
            return;
        }
        for committed in events.iter().filter_map(LogEntry::readable) {
            if let Fact::MessageAdded(Message::Assistant { id, .. }) = &committed.event.fact {
                self.live().mark_stored(id);
            }
            if let Some(reset) = self.restart(committed) {
                self.live().restart(&reset);
            }
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    pub(crate) fn commit_count(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.last().map_or(0, |(seq, _)| seq)
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, Live> {
        lock(&self.live)
    }

    pub(crate) fn signal(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.watchers.wake();
    }

    /// Once every watcher has read everything, further watchers can read it from the store.
    fn drop_read_events(&self) {
        if self.watchers.all_parked() {
            lock(&self.recent).keep_last();
        }
    }

    /// The events after `after`, if the first of them is still in memory.
    fn recent_after(&self, after: u64, limit: usize) -> Vec<CommittedEvent> {
        lock(&self.recent).after(after, limit)
    }

    /// The last event's sequence number, and whether it is the terminal one.
    pub(crate) fn last(&self) -> Option<(u64, bool)> {
        lock(&self.recent).last()
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

/// One watcher of a run. It begins after any event and ends after the terminal one.
pub struct Subscription {
    feed: Arc<RunFeed>,
    signal: Arc<WatcherSignal>,
    store: Arc<dyn Store>,
    tenant: Tenant,
    after: u64,
    ready: VecDeque<FeedItem>,
    cursor: LiveCursor,
    /// The run was found for this tenant.
    found: bool,
    /// Value of `published` at which the store had nothing after `after`.
    quiet_at: Option<u64>,
    /// The version at which it last read since it was woken.
    read_at: Option<u64>,
    /// There was more than it took.
    has_more: bool,
    ended: bool,
    /// It gets live updates too.
    live: bool,
}

impl Subscription {
    pub(crate) fn new(feed: Arc<RunFeed>, store: Arc<dyn Store>, tenant: Tenant, after: u64) -> Self {
        feed.watchers.join();
        Self {
            feed,
            signal: Arc::default(),
            store,
            tenant,
            after,
            ready: VecDeque::new(),
            cursor: LiveCursor::default(),
            found: false,
            quiet_at: None,
            read_at: None,
            has_more: false,
            ended: false,
            live: true,
        }
    }

    /// For a caller that has just created the run.
    pub(crate) const fn found(mut self) -> Self {
        self.found = true;
        self
    }

    /// For a caller that needs no live updates: no other process has to send them.
    #[must_use]
    pub const fn without_live(mut self) -> Self {
        self.live = false;
        self
    }

    /// The next event or delta; none after the terminal event.
    pub async fn next(&mut self) -> Option<Result<FeedItem, StoreError>> {
        // A watcher that reads in a loop is always ready: let other tasks have the thread too.
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
            if let Some(version) = self.read_at.take()
                && self.feed.watchers.takes_turns()
            {
                self.next_turn(version).await;
            }
            let version = self.feed.version.load(Ordering::SeqCst);
            if let Err(refused) = self.read().await {
                return Some(Err(refused));
            }
            if self.ready.is_empty() && !self.ended {
                self.park(version).await;
            } else {
                self.read_at = Some(version);
            }
        }
    }

    /// With many watchers, the others come first after each page.
    async fn next_turn(&self, version: u64) {
        if self.has_more || self.feed.version.load(Ordering::SeqCst) != version {
            self.feed.watchers.enqueue(&self.signal);
            self.signal.notified().await;
        } else {
            self.park(version).await;
        }
    }

    /// Waits until there is something newer than this version.
    async fn park(&self, version: u64) {
        self.feed.watchers.park(&self.signal);
        if self.feed.version.load(Ordering::SeqCst) != version {
            self.feed.watchers.wake();
        }
        self.feed.drop_read_events();
        self.signal.notified().await;
    }

    /// Whether no event will ever follow those that were read.
    async fn is_over(&self) -> Result<bool, StoreError> {
        let run = self.store.run(&self.tenant, &self.feed.run).await?.ok_or(StoreError::NotFound)?;
        Ok(run.status.ended() && run.seq <= self.after)
    }

    fn is_behind_live(&self) -> bool {
        self.feed.live_after.load(Ordering::Acquire) > self.after
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        let published = self.feed.published.load(Ordering::Acquire);
        // What is in memory belongs to a tenant: only a watcher that can find the run may read it.
        if !self.found && self.feed.owner.get() == Some(&self.tenant) && self.feed.last().is_some() {
            self.found = true;
        }
        let looks = !self.found;
        if looks {
            let run = self.store.run(&self.tenant, &self.feed.run).await?.ok_or(StoreError::NotFound)?;
            self.found = true;
            let _ = self.feed.owner.set(self.tenant.clone());
            self.ended = run.status.ended() && run.seq <= self.after;
            if self.ended {
                return Ok(());
            }
        }
        let shared = self.feed.watchers.takes_turns();
        let recent = self.feed.recent_after(self.after, if shared { PAGE_EVENTS } else { READ_MAX });
        let mut events: Vec<LogEntry> = recent.into_iter().map(LogEntry::Event).collect();
        let known = self.feed.last();
        // Only a live update woke it: everything stored has been read.
        let is_quiet = known.is_none() && self.quiet_at == Some(published) && !self.is_behind_live();
        if !is_quiet && events.is_empty() && known.is_none_or(|(last, _)| last > self.after) {
            let (store, run) = (&*self.store, &self.feed.run);
            events = if shared {
                self.feed.pages.after(store, &self.tenant, run, self.after).await?
            } else {
                store.events(&self.tenant, run, self.after, READ_MAX).await?
            };
            self.feed.note_stored(&events);
        }
        if let Some(last) = events.last() {
            self.after = last.seq();
            self.has_more = known.is_none_or(|(last, _)| last > self.after);
            self.queue_events(events);
            return Ok(());
        }
        if let Some((_, true)) = known {
            self.ended = true;
            return Ok(());
        }
        // The recent events were dropped, and nothing follows `after`: the watcher may have seen the terminal event
        // before.
        if known.is_none() && !is_quiet {
            if !looks && self.is_over().await? {
                self.ended = true;
                return Ok(());
            }
            self.quiet_at = Some(published);
            if self.live && self.feed.should_request_live(published) {
                self.store.request_live(&self.feed.run);
            }
        }
        // A watcher receives deltas only after it has read every event before them.
        if !self.live {
            return Ok(());
        }
        let (mut items, mut cursor) = (Vec::new(), self.cursor.clone());
        self.feed.live().read(&mut cursor, &mut items);
        if self.feed.published.load(Ordering::Acquire) == published {
            self.cursor = cursor;
            self.ready.extend(items.into_iter().map(FeedItem::Live));
        }
        Ok(())
    }
}

impl Subscription {
    /// A restarted answer is reported together with the event that restarts it: by the time the watcher reads the live
    /// text, the next attempt may have failed too, or be over.
    fn queue_events(&mut self, events: Vec<LogEntry>) {
        for logged in events {
            let committed = match logged {
                LogEntry::Event(committed) => committed,
                LogEntry::Unreadable(event) => {
                    self.ready.push_back(FeedItem::Unreadable(event));
                    continue;
                }
            };
            let restart = self.feed.restart(&committed);
            self.ready.push_back(FeedItem::Event(committed));
            let reset = restart.and_then(|reset| self.cursor.restart(&reset));
            self.ready.extend(reset.map(FeedItem::Live));
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.watchers.leave();
        if !self.feed.watchers.takes_turns() {
            self.feed.pages.clear();
        }
    }
}
