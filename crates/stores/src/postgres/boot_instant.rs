//! A point in time on clocks that cannot be set. Time during which the machine is suspended counts too.

use std::time::{Duration, Instant};

/// The monotonic clock, and if available the clock that continues while the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub(super) struct BootInstant {
    monotonic: Instant,
    since_boot: Option<Duration>,
}

impl BootInstant {
    pub(super) fn now() -> Self {
        Self { monotonic: Instant::now(), since_boot: since_boot() }
    }

    pub(super) fn plus(self, time: Duration) -> Self {
        Self {
            monotonic: self.monotonic + time,
            since_boot: self.since_boot.and_then(|boot| boot.checked_add(time)),
        }
    }

    /// True if either clock has passed that time.
    pub(super) fn has_passed(self) -> bool {
        let slept_through = self.since_boot.zip(since_boot()).is_some_and(|(at, now)| at <= now);
        slept_through || self.monotonic <= Instant::now()
    }
}

/// The kernel includes suspended time here, in hundredths of a second.
fn since_boot() -> Option<Duration> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    Duration::try_from_secs_f64(uptime.split_whitespace().next()?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_over_on_whichever_clock_comes_first() {
        let (now, hour) = (BootInstant::now(), Duration::from_secs(3_600));
        assert!(now.has_passed());
        assert!(!now.plus(hour).has_passed());
        assert!(BootInstant { monotonic: now.monotonic, ..now.plus(hour) }.has_passed());
        if now.since_boot.is_some() {
            let slept = BootInstant { since_boot: now.since_boot, ..now.plus(hour) };
            assert!(slept.has_passed(), "the machine slept for an hour");
        }
    }
}
