//! A point in time on clocks that nobody sets, also over a sleep of the whole machine.

use std::time::{Duration, Instant};

/// The monotonic clock, and where there is one the clock that goes on while the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    monotonic: Instant,
    since_boot: Option<Duration>,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { monotonic: Instant::now(), since_boot: since_boot() }
    }

    pub(super) fn plus(self, time: Duration) -> Self {
        Self {
            monotonic: self.monotonic + time,
            since_boot: self.since_boot.and_then(|boot| boot.checked_add(time)),
        }
    }

    /// Either clock says so.
    pub(super) fn is_over(self) -> bool {
        let slept_through = self.since_boot.zip(since_boot()).is_some_and(|(at, now)| at <= now);
        slept_through || self.monotonic <= Instant::now()
    }
}

/// The kernel counts the time of a suspension here, in hundredths of a second.
fn since_boot() -> Option<Duration> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    Duration::try_from_secs_f64(uptime.split_whitespace().next()?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_over_on_whichever_clock_comes_first() {
        let (now, hour) = (Moment::now(), Duration::from_secs(3_600));
        assert!(now.is_over());
        assert!(!now.plus(hour).is_over());
        assert!(Moment { monotonic: now.monotonic, ..now.plus(hour) }.is_over());
        if now.since_boot.is_some() {
            let slept = Moment { since_boot: now.since_boot, ..now.plus(hour) };
            assert!(slept.is_over(), "the machine slept for an hour");
        }
    }
}
