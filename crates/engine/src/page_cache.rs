//! Pages of a log that many watchers read at about the same time: each page is read from the store once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use machine::id::RunId;

use crate::live::lock;
use crate::store::{LogEntry, Store, StoreError, Tenant};

/// Events per page.
pub(crate) const PAGE_EVENTS: usize = 64;
/// Maximum number of cached pages of one run, and the maximum size of each.
const PAGES_MAX: usize = 32;
const PAGE_BYTES_MAX: usize = 128 * 1024;

type EventPage = Arc<[LogEntry]>;

/// The most recently used pages of one run; the least recently used one is evicted first. A full page never changes,
/// because the log only grows.
#[derive(Debug, Default)]
pub(crate) struct PageCache(Mutex<VecDeque<(u64, EventPage)>>);

impl PageCache {
    /// Events after `after`, up to the end of their page.
    pub(crate) async fn after(
        &self,
        store: &dyn Store,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let size = PAGE_EVENTS as u64;
        let start = after - after % size;
        let page = match self.get(start) {
            Some(page) => page,
            None => {
                let mut events = store.events(tenant, run, start, PAGE_EVENTS).await?;
                events.truncate(PAGE_EVENTS);
                let page = EventPage::from(events);
                let bytes: usize = page.iter().map(LogEntry::weight).sum();
                if page.len() == PAGE_EVENTS && bytes <= PAGE_BYTES_MAX {
                    self.put(start, &page);
                }
                page
            }
        };
        let rest: Vec<LogEntry> = page.iter().filter(|logged| logged.seq() > after).cloned().collect();
        if rest.is_empty() && page.len() < PAGE_EVENTS {
            // A store may return fewer events than requested.
            return store.events(tenant, run, after, PAGE_EVENTS).await;
        }
        Ok(rest)
    }

    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }

    fn get(&self, start: u64) -> Option<EventPage> {
        let mut pages = lock(&self.0);
        let found = pages.iter().position(|(at, _)| *at == start)?;
        let entry = pages.remove(found)?;
        let page = entry.1.clone();
        pages.push_back(entry);
        Some(page)
    }

    fn put(&self, start: u64, page: &EventPage) {
        let mut pages = lock(&self.0);
        if pages.iter().any(|(at, _)| *at == start) {
            return;
        }
        if pages.len() >= PAGES_MAX {
            pages.pop_front();
        }
        pages.push_back((start, page.clone()));
    }
}
