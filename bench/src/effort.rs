//! How much is measured: many repetitions for figures to quote, few for a quick look.

use std::time::Duration;

use crate::http::Load;
use crate::http::front_ends::FrontEndLoad;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Full,
    Short,
    Quick,
    /// One repetition of this length.
    Once(Duration),
}

/// For the workloads that drive the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// How often a measurement is repeated, each time on an empty store. The median is reported.
    pub(crate) repetition_count: usize,
    /// Length of one repetition, within the two limits that follow.
    pub(crate) repetition: Duration,
    pub(crate) run_count_min: usize,
    /// Limited because a store in memory keeps everything it is given.
    pub(crate) run_count_max: usize,
    /// Synced batches used to measure the disk.
    pub(crate) disk_batch_count: usize,
    /// Appends of each client used to measure the bare store: once all together, and once one after the other.
    pub(crate) bare_batch_count: usize,
    /// Rounds of the long runs.
    pub(crate) rounds: [u32; 2],
    pub(crate) long_run_count: usize,
    /// Answers that are streamed, one after the other on one store.
    pub(crate) stream_count: usize,
    pub(crate) subscriber_count: usize,
    /// Rounds of the run that is watched.
    pub(crate) watched_rounds: u32,
    /// Runs that the engine itself holds; the rest of a fleet is copied from these.
    pub(crate) real_run_count: usize,
    /// Runs in the fleets, smallest first.
    pub(crate) fleets: &'static [usize],
    /// Runs of each fleet that are decided, once with a warm page cache and once with a cold one.
    pub(crate) woken_count: usize,
    /// How long idle nodes are observed.
    pub(crate) idle: Duration,
    /// Runs whose tools are in another process; 0 if this program cannot start itself as one.
    pub(crate) remote_run_count: usize,
    /// The load put on a server.
    pub(crate) http: Load,
    /// Messages that a tenant posts while another tenant sends costly requests.
    pub(crate) costly_posts: usize,
    /// The answers that stream at once.
    pub(crate) front_ends: FrontEndLoad,
}

impl Effort {
    pub(crate) const fn of(level: Level) -> Self {
        let full = Self {
            repetition_count: 5,
            repetition: Duration::from_secs(2),
            run_count_min: 100,
            run_count_max: 20_000,
            disk_batch_count: 100,
            bare_batch_count: 100,
            rounds: [200, 1_000],
            long_run_count: 3,
            stream_count: 200,
            subscriber_count: 10_000,
            watched_rounds: 100,
            real_run_count: 10_000,
            fleets: &[10_000, 100_000, 1_000_000],
            woken_count: 1_000,
            idle: Duration::from_secs(60),
            remote_run_count: 1_000,
            http: Load::FULL,
            costly_posts: 1_000,
            front_ends: FrontEndLoad { stream_count: 500, delta_count: 1_000 },
        };
        match level {
            Level::Full => full,
            Level::Short => Self {
                repetition_count: 3,
                repetition: Duration::from_millis(700),
                disk_batch_count: 40,
                bare_batch_count: 50,
                long_run_count: 1,
                stream_count: 50,
                fleets: &[10_000, 100_000],
                remote_run_count: 300,
                http: Load { duration: Duration::from_secs(10), ..Load::FULL },
                costly_posts: 500,
                front_ends: FrontEndLoad { stream_count: 500, delta_count: 250 },
                ..full
            },
            Level::Once(repetition) => Self {
                repetition_count: 1,
                repetition,
                run_count_max: usize::MAX,
                woken_count: 100,
                http: Load { duration: repetition, ..Load::FULL },
                ..Self::of(Level::Short)
            },
            Level::Quick => Self {
                repetition_count: 1,
                repetition: Duration::from_millis(200),
                run_count_min: 20,
                disk_batch_count: 10,
                bare_batch_count: 50,
                rounds: [20, 200],
                long_run_count: 1,
                stream_count: 10,
                subscriber_count: 1_000,
                watched_rounds: 20,
                real_run_count: 1_000,
                fleets: &[1_000, 10_000],
                woken_count: 100,
                idle: Duration::from_secs(3),
                remote_run_count: 50,
                http: Load::QUICK,
                costly_posts: 100,
                front_ends: FrontEndLoad { stream_count: 50, delta_count: 50 },
                ..full
            },
        }
    }

    /// Enough to see that everything works.
    #[cfg(test)]
    pub(crate) const TINY: Self = Self {
        repetition_count: 1,
        repetition: Duration::ZERO,
        run_count_min: 24,
        run_count_max: 24,
        disk_batch_count: 2,
        bare_batch_count: 2,
        rounds: [3, 6],
        long_run_count: 1,
        stream_count: 2,
        subscriber_count: 20,
        watched_rounds: 3,
        real_run_count: 20,
        fleets: &[50],
        woken_count: 4,
        idle: Duration::from_millis(500),
        remote_run_count: 0,
        http: Load::QUICK,
        costly_posts: 20,
        front_ends: FrontEndLoad { stream_count: 10, delta_count: 20 },
    };
}
