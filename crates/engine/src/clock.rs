//! Time comes in from here and from nowhere else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use machine::Timestamp;

use crate::store::Task;

/// Says what time it is, and waits.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Comes back when [`Clock::now`] has reached `at`.
    fn sleep_until(&self, at: Timestamp) -> Task<'static, ()>;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, at: Timestamp) -> Task<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            // The clock may be set back while we sleep: what counts is what it says.
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

/// Follows the runtime's clock, which tests and the simulator stop and move on by hand.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    began: tokio::time::Instant,
    began_at: Timestamp,
}

impl RuntimeClock {
    /// The runtime's present counts as `began_at`.
    #[must_use]
    pub fn starting_at(began_at: Timestamp) -> Self {
        Self { began: tokio::time::Instant::now(), began_at }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let since = self.began.elapsed().as_millis();
        self.began_at.plus_ms(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, at: Timestamp) -> Task<'static, ()> {
        let deadline = self.began + Duration::from_millis(at.ms_since(self.began_at));
        Box::pin(tokio::time::sleep_until(deadline))
    }
}
