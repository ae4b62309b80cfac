//! The current time: the database's clock, extrapolated between two readings with the monotonic clock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::BoxFuture;
use machine::Timestamp;

use crate::columns::{millis, timestamp};

/// Returns the current time in place of the database.
pub type PostgresClockFn = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock that decides on leases and due times, in a form that an engine can follow.
#[derive(Clone)]
pub(super) struct DatabaseClock(Arc<ClockState>);

struct ClockState {
    source: Option<PostgresClockFn>,
    time: Mutex<DatabaseTime>,
    /// The clock never goes backwards.
    last: AtomicU64,
}

/// The last reading from the database, and the time shown at that moment. If the shown time was ahead, it advances at
/// half speed until the database has caught up. So time never stops, even if the database's clock was set back.
#[derive(Clone, Copy)]
struct DatabaseTime {
    at: Instant,
    database_ms: u64,
    shown_ms: u64,
}

impl DatabaseTime {
    fn now(self, at: Instant) -> u64 {
        let since = u64::try_from(at.saturating_duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        self.database_ms.saturating_add(since).max(self.shown_ms.saturating_add(since / 2))
    }

    fn update(self, at: Instant, database_ms: u64) -> Self {
        Self { at, database_ms, shown_ms: self.now(at) }
    }
}

impl fmt::Debug for DatabaseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseClock").finish_non_exhaustive()
    }
}

impl DatabaseClock {
    pub(super) fn new(source: Option<PostgresClockFn>) -> Self {
        let time = Mutex::new(DatabaseTime { at: Instant::now(), database_ms: 0, shown_ms: 0 });
        Self(Arc::new(ClockState { source, time, last: AtomicU64::new(0) }))
    }

    /// The time to pass to a statement; `None` if the database's own clock applies.
    pub(super) fn override_ms(&self) -> Option<i64> {
        self.0.source.as_ref().map(|clock| millis(clock()))
    }

    pub(super) fn update(&self, database_ms: i64) {
        let mut time = self.0.time.lock().unwrap_or_else(PoisonError::into_inner);
        *time = time.update(Instant::now(), timestamp(database_ms).0);
    }
}

impl engine::clock::Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        if let Some(clock) = &self.0.source {
            return clock();
        }
        let time = *self.0.time.lock().unwrap_or_else(PoisonError::into_inner);
        let now = time.now(Instant::now());
        Timestamp(self.0.last.fetch_max(now, Ordering::Relaxed).max(now))
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            // The database's clock may be read again while we sleep, and that reading counts.
            loop {
                let left = at.ms_since(clock.now());
                if left == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(left)).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_slows_down_and_never_stops() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let time = DatabaseTime { at: began, database_ms: 60_000, shown_ms: 0 };
        assert_eq!(time.now(after(1)), 61_000);
        let time = time.update(after(1), 31_000);
        assert_eq!([1, 3, 5].map(|seconds| time.now(after(seconds))), [61_000, 62_000, 63_000]);
        assert_eq!(time.now(after(61)), 91_000, "the database has caught up");
        let time = time.update(after(61), 91_000);
        assert_eq!(time.now(after(62)), 92_000);
    }
}
