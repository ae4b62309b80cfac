//! The only source of time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use machine::Timestamp;

use crate::store::BoxFuture;

/// Tells the time, and waits.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Resolves when [`Clock::now`] has reached `at`.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            sleep_until_reached(|| clock.now(), at).await;
        })
    }
}

/// The longest sleep without checking the clock. The clock may be set, and it advances while the machine is suspended;
/// the sleep does not.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// What counts is the clock, not how long the sleep took.
async fn sleep_until_reached(now: impl Fn() -> Timestamp, at: Timestamp) {
    loop {
        let left = at.ms_since(now());
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(left).min(CHECK_INTERVAL_MAX)).await;
    }
}

/// When something may begin: at this time, or once the duration that remained until then has passed. So neither a clock
/// that is set back nor a suspended machine delays it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotBefore {
    at: Timestamp,
    over: tokio::time::Instant,
}

impl NotBefore {
    /// None if it may begin at once. `logged` is the time of the last event; the clock may have been set back before
    /// it.
    pub(crate) fn new(at: Timestamp, now: Timestamp, logged: Timestamp) -> Option<Self> {
        let left = at.ms_since(now.max(logged));
        (left > 0).then(|| Self { at, over: tokio::time::Instant::now() + Duration::from_millis(left) })
    }

    pub(crate) async fn wait(self, clock: &dyn Clock) {
        tokio::select! {
            biased;
            () = clock.sleep_until(self.at) => {}
            () = tokio::time::sleep_until(self.over) => {}
        }
    }
}

/// Follows the runtime's clock, which tests and the simulator pause and advance by hand.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    began: tokio::time::Instant,
    began_at: Timestamp,
}

impl RuntimeClock {
    /// The runtime's current instant counts as `began_at`.
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

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let deadline = self.began + Duration::from_millis(at.ms_since(self.began_at));
        Box::pin(tokio::time::sleep_until(deadline))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_advanced_while_the_machine_slept_is_noticed_soon() {
        let clock = Arc::new(AtomicU64::new(0));
        let seen = clock.clone();
        let hour = Duration::from_secs(3600);
        let at = Timestamp(u64::try_from(hour.as_millis()).unwrap());
        let began = tokio::time::Instant::now();
        let waiting = tokio::spawn(sleep_until_reached(move || Timestamp(seen.load(Ordering::SeqCst)), at));
        tokio::time::sleep(Duration::from_secs(600)).await;
        // Suspended for eight hours, which the runtime does not notice.
        clock.store(8 * at.0, Ordering::SeqCst);
        waiting.await.unwrap();
        assert!(began.elapsed() <= Duration::from_secs(600) + CHECK_INTERVAL_MAX, "{:?}", began.elapsed());
    }
}
