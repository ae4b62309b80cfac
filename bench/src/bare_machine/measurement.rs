//! Measures time and allocations of a piece of work, over repetitions.

use std::time::Instant;

use super::allocations;
use crate::effort::Level;
use crate::statistics::Summary;

#[derive(Clone, Copy)]
pub(crate) struct MachineEffort {
    /// How often a measurement is repeated. The median is reported.
    pub(crate) repetition_count: usize,
    /// Pieces of work in one repetition.
    pub(crate) batch: usize,
    pub(crate) long_run_count: usize,
}

impl MachineEffort {
    pub(crate) const fn of(level: Level) -> Self {
        match level {
            Level::Full => Self { repetition_count: 101, batch: 256, long_run_count: 21 },
            Level::Short | Level::Once(_) => Self { repetition_count: 41, batch: 128, long_run_count: 7 },
            Level::Quick => Self { repetition_count: 11, batch: 64, long_run_count: 3 },
        }
    }
}

/// Cost of one piece of work.
pub(crate) struct Cost {
    pub(crate) nanoseconds: Summary,
    pub(crate) allocations: Summary,
}

/// Measures `work` but not `prepare`.
pub(crate) fn cost<T>(effort: MachineEffort, prepare: impl Fn() -> T, mut work: impl FnMut(&mut T)) -> Cost {
    let (mut nanoseconds, mut allocations) = (Vec::new(), Vec::new());
    // The first repetition warms the caches and does not count.
    for repetition in 0..=effort.repetition_count {
        let mut prepared: Vec<T> = (0..effort.batch).map(|_| prepare()).collect();
        let (time, count) = measured(|| prepared.iter_mut().for_each(&mut work));
        if repetition > 0 {
            nanoseconds.push(time / effort.batch as f64);
            allocations.push(count / effort.batch as f64);
        }
    }
    Cost {
        nanoseconds: Summary::of(&nanoseconds).expect("there is at least one repetition"),
        allocations: Summary::of(&allocations).expect("there is at least one repetition"),
    }
}

/// Nanoseconds and allocations.
pub(crate) fn measured(work: impl FnOnce()) -> (f64, f64) {
    let counting = allocations::on();
    let count_before = allocations::count();
    let begin = Instant::now();
    work();
    let time = begin.elapsed();
    let count = allocations::count() - count_before;
    drop(counting);
    (time.as_nanos() as f64, count as f64)
}
