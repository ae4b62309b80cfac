//! Pages of a log that many read at about the same time: the store is asked for each page once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use machine::id::RunId;

use crate::live::lock;
use crate::store::{LogEntry, Store, StoreError, Tenant};

/// Events of one page.
pub(crate) const PAGE_EVENTS: usize = 64;
/// Pages that are kept of one run, and how large each may be.
const PAGES_MAX: usize = 32;
const PAGE_BYTES_MAX: usize = 128 * 1024;

type EventPage = Arc<[LogEntry]>;

/// The pages of one run that were asked for last; the one that was asked for longest ago goes first. A page that is
/// full stays what it is: the log only grows.
#[derive(Debug, Default)]
pub(crate) struct PageCache(Mutex<VecDeque<(u64, EventPage)>>);

impl PageCache {
    /// Events behind `after`, up to the end of their page.
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
            // A store may give fewer than it was asked for.
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
