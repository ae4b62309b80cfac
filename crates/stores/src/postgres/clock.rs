//! What time it is: the database's clock, carried on between two looks at it by the monotonic one.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::Task;
use machine::Timestamp;

use crate::words::{millis, timestamp};

/// Says what time it is, in place of the database.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock that judges leases and due times, as an engine can follow it.
#[derive(Clone)]
pub(super) struct DatabaseClock(Arc<Times>);

struct Times {
    given: Option<Clock>,
    /// What the database said, and when it was heard.
    heard: Mutex<(Instant, u64)>,
    /// Nobody sees time go back.
    last: AtomicU64,
}

impl fmt::Debug for DatabaseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseClock").finish_non_exhaustive()
    }
}

impl DatabaseClock {
    pub(super) fn new(given: Option<Clock>) -> Self {
        let heard = Mutex::new((Instant::now(), 0));
        Self(Arc::new(Times { given, heard, last: AtomicU64::new(0) }))
    }

    /// What a statement is told the time is; none where the database's own counts.
    pub(super) fn given(&self) -> Option<i64> {
        self.0.given.as_ref().map(|clock| millis(clock()))
    }

    pub(super) fn hear(&self, database_ms: i64) {
        let heard = (Instant::now(), timestamp(database_ms).0);
        *self.0.heard.lock().unwrap_or_else(PoisonError::into_inner) = heard;
    }
}

impl engine::clock::Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        if let Some(clock) = &self.0.given {
            return clock();
        }
        let (at, database_ms) = *self.0.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let since = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let now = database_ms.saturating_add(since);
        Timestamp(self.0.last.fetch_max(now, Ordering::Relaxed).max(now))
    }

    fn sleep_until(&self, at: Timestamp) -> Task<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            // The database may be heard again while we sleep: what counts is what its clock says.
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
