//! Histories of runs that were let go lately: a run that comes back soon need not read its whole log again.
//!
//! However many runs wait, the shelf takes up no more than its bounds, and nothing is lost with it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use machine::id::RunId;

use crate::history::History;
use crate::live::lock;
use crate::store::Tenant;

type Key = (Tenant, RunId);

#[derive(Debug)]
pub(crate) struct Shelf {
    bytes_max: usize,
    rows: Mutex<Rows>,
}

#[derive(Debug, Default)]
struct Rows {
    histories: BTreeMap<Key, (u64, History)>,
    /// The one that was put first goes first.
    by_age: BTreeMap<u64, Key>,
    last: u64,
    bytes: usize,
}

impl Shelf {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, rows: Mutex::default() }
    }

    pub(crate) fn put(&self, tenant: &Tenant, run: &RunId, history: History) {
        let bytes = history.bytes();
        if bytes > self.bytes_max {
            return;
        }
        let mut rows = lock(&self.rows);
        rows.remove(&(tenant.clone(), run.clone()));
        rows.last += 1;
        rows.bytes += bytes;
        let (age, key) = (rows.last, (tenant.clone(), run.clone()));
        rows.by_age.insert(age, key.clone());
        rows.histories.insert(key, (age, history));
        while rows.bytes > self.bytes_max
            && let Some(oldest) = rows.by_age.first_key_value().map(|(_, key)| key.clone())
        {
            rows.remove(&oldest);
        }
    }

    pub(crate) fn take(&self, tenant: &Tenant, run: &RunId) -> Option<History> {
        lock(&self.rows).remove(&(tenant.clone(), run.clone()))
    }
}

impl Rows {
    fn remove(&mut self, key: &Key) -> Option<History> {
        let (age, history) = self.histories.remove(key)?;
        self.by_age.remove(&age);
        self.bytes -= history.bytes();
        Some(history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(run: &str, shelf: &Shelf) -> Option<u64> {
        shelf.take(&Tenant::default(), &RunId::from(run)).map(|history| history.seq())
    }

    fn put(run: &str, seq: u64, shelf: &Shelf) {
        shelf.put(&Tenant::default(), &RunId::from(run), History::weighing(seq, 100));
    }

    #[test]
    fn what_was_put_is_taken_once() {
        let shelf = Shelf::new(1_000);
        put("a", 3, &shelf);
        put("a", 7, &shelf);
        assert_eq!(of("a", &shelf), Some(7));
        assert_eq!(of("a", &shelf), None);
    }

    #[test]
    fn the_oldest_makes_room() {
        let shelf = Shelf::new(250);
        for (run, seq) in [("a", 1), ("b", 2), ("c", 3)] {
            put(run, seq, &shelf);
        }
        assert_eq!([of("a", &shelf), of("b", &shelf), of("c", &shelf)], [None, Some(2), Some(3)]);
        assert_eq!(lock(&shelf.rows).bytes, 0);
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let shelf = Shelf::new(99);
        put("a", 1, &shelf);
        assert_eq!(of("a", &shelf), None);
    }

    #[test]
    fn another_tenant_finds_nothing() {
        let shelf = Shelf::new(1_000);
        put("a", 1, &shelf);
        assert!(shelf.take(&Tenant::from("other"), &RunId::from("a")).is_none());
    }
}
