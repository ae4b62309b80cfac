//! Plays worlds by seed or by tape, in one thread or several, and prints the story of a failure.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::judge::invariant::{Invariant, Violation};
use crate::play::coverage::Coverage;
use crate::play::differential;
use crate::play::shrink::shrink;
use crate::play::tape::Tape;
use crate::play::words;
use crate::world::World;

/// Every nth seed also compares both values of `decisions`.
const DIFFERENTIAL_EVERY: u64 = 8;

#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub violation: Violation,
    /// The choices that led to it. `None` if two worlds were compared.
    pub choices: Option<Vec<u32>>,
}

/// The results of a batch of worlds.
#[derive(Clone, Debug, Default)]
pub struct BatchResult {
    pub worlds: u64,
    pub events: u64,
    pub coverage: Coverage,
    pub failures: Vec<Failure>,
}

impl BatchResult {
    fn add(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.events += other.events;
        self.coverage.merge(&other.coverage);
        self.failures.extend(other.failures);
    }
}

/// Which seeds, and when to stop.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub from: u64,
    pub count: u64,
    pub threads: u64,
    pub until_failure: bool,
}

/// Plays all seeds of a batch. Calls `progress` with the number done.
pub fn run(batch: Batch, progress: &(impl Fn(u64) + Sync)) -> BatchResult {
    let next = AtomicU64::new(batch.from);
    let done = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let end = batch.from.saturating_add(batch.count);
    let mut tally = BatchResult::default();
    let work = || {
        let mut own = BatchResult::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            play_seed(seed, &mut own);
            if batch.until_failure && !own.failures.is_empty() {
                stop.store(true, Ordering::Relaxed);
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        own
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..batch.threads.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            if let Ok(own) = thread.join() {
                tally.add(own);
            } else {
                stop.store(true, Ordering::Relaxed);
                tally.failures.push(Failure {
                    seed: next.load(Ordering::Relaxed),
                    violation: Violation {
                        invariant: Invariant::NothingIsBroken,
                        detail: "a world panicked near this seed".into(),
                    },
                    choices: None,
                });
            }
        }
    });
    tally.failures.sort_by_key(|failure| failure.seed);
    tally
}

fn play_seed(seed: u64, tally: &mut BatchResult) {
    let mut world = World::new(Tape::seeded(seed), false);
    let played = world.play();
    tally.worlds += 1;
    tally.events += world.event_count();
    tally.coverage.merge(&world.coverage);
    if let Err(violation) = played {
        tally.failures.push(Failure { seed, violation, choices: Some(world.tape.drawn().to_vec()) });
    } else if seed.is_multiple_of(DIFFERENTIAL_EVERY)
        && let Err(violation) = differential::check(seed)
    {
        tally.failures.push(Failure { seed, violation, choices: None });
    }
}

/// The logs of a world, byte for byte.
#[must_use]
pub fn logs(tape: Tape) -> (Vec<String>, Option<Violation>) {
    let mut world = World::new(tape, false);
    let violation = world.play().err();
    let mut lines = Vec::new();
    for stored in &world.store.runs {
        for event in &stored.log {
            lines.push(machine::event_codec::encode(event).unwrap_or_default());
        }
    }
    (lines, violation)
}

/// The shortest tape that breaks the same invariant.
#[must_use]
pub fn shorten(choices: &[u32], invariant: Invariant) -> Vec<u32> {
    shrink(choices, |shorter| {
        let mut world = World::new(Tape::recorded(shorter.to_vec()), false);
        world.play().is_err_and(|violation| violation.invariant == invariant)
    })
}

/// The story of a tape as text, with the logs at the end.
#[must_use]
pub fn tell(tape: Tape) -> (String, Option<Violation>) {
    let mut world = World::new(tape, true);
    let violation = world.play().err();
    let mut text = world.diary.take().unwrap_or_default().join("\n");
    for stored in &world.store.runs {
        text.push_str(&format!("\n\nlog of {}\n", stored.id));
        for event in &stored.log {
            text.push_str(&format!("  {}\n", words::event(event)));
        }
    }
    (text, violation)
}
