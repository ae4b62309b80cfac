//! Histories of recently released runs: a run that resumes soon need not read its whole log again.
//!
//! The cache stays within its limit, however many runs wait. Losing an entry loses no data.

use std::collections::BTreeMap;
use std::sync::Mutex;

use machine::id::RunId;

use crate::history::History;
use crate::live::lock;
use crate::store::Tenant;

type TranscriptKey = (Tenant, RunId);

#[derive(Debug)]
pub(crate) struct TranscriptCache {
    bytes_max: usize,
    entries: Mutex<TranscriptEntries>,
}

#[derive(Debug, Default)]
struct TranscriptEntries {
    histories: BTreeMap<TranscriptKey, (u64, History)>,
    /// The oldest entry is evicted first.
    by_age: BTreeMap<u64, TranscriptKey>,
    last: u64,
    bytes: usize,
}

impl TranscriptCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, entries: Mutex::default() }
    }

    pub(crate) fn put(&self, tenant: &Tenant, run: &RunId, history: History) {
        let bytes = history.bytes();
        if bytes > self.bytes_max {
            return;
        }
        let mut entries = lock(&self.entries);
        entries.remove(&(tenant.clone(), run.clone()));
        entries.last += 1;
        entries.bytes += bytes;
        let (age, key) = (entries.last, (tenant.clone(), run.clone()));
        entries.by_age.insert(age, key.clone());
        entries.histories.insert(key, (age, history));
        while entries.bytes > self.bytes_max
            && let Some(oldest) = entries.by_age.first_key_value().map(|(_, key)| key.clone())
        {
            entries.remove(&oldest);
        }
    }

    pub(crate) fn take(&self, tenant: &Tenant, run: &RunId) -> Option<History> {
        lock(&self.entries).remove(&(tenant.clone(), run.clone()))
    }
}

impl TranscriptEntries {
    fn remove(&mut self, key: &TranscriptKey) -> Option<History> {
        let (age, history) = self.histories.remove(key)?;
        self.by_age.remove(&age);
        self.bytes -= history.bytes();
        Some(history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(run: &str, cache: &TranscriptCache) -> Option<u64> {
        cache.take(&Tenant::default(), &RunId::from(run)).map(|history| history.seq())
    }

    fn put(run: &str, seq: u64, cache: &TranscriptCache) {
        cache.put(&Tenant::default(), &RunId::from(run), History::with_size(seq, 100));
    }

    #[test]
    fn what_was_put_is_taken_once() {
        let cache = TranscriptCache::new(1_000);
        put("a", 3, &cache);
        put("a", 7, &cache);
        assert_eq!(taken("a", &cache), Some(7));
        assert_eq!(taken("a", &cache), None);
    }

    #[test]
    fn the_oldest_makes_room() {
        let cache = TranscriptCache::new(250);
        for (run, seq) in [("a", 1), ("b", 2), ("c", 3)] {
            put(run, seq, &cache);
        }
        assert_eq!([taken("a", &cache), taken("b", &cache), taken("c", &cache)], [None, Some(2), Some(3)]);
        assert_eq!(lock(&cache.entries).bytes, 0);
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let cache = TranscriptCache::new(99);
        put("a", 1, &cache);
        assert_eq!(taken("a", &cache), None);
    }

    #[test]
    fn another_tenant_finds_nothing() {
        let cache = TranscriptCache::new(1_000);
        put("a", 1, &cache);
        assert!(cache.take(&Tenant::from("other"), &RunId::from("a")).is_none());
    }
}
