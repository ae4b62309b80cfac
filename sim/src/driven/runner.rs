//! Plays engine worlds by seed, in one thread or several, and prints the story of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::clock::RuntimeClock;
use machine::Timestamp;

use super::book::Book;
use super::context::WorldContext;
use super::disk::Disk;
use super::listener::objecting;
use super::place::Place;
use super::tally::Tally;
use super::trouble::{EngineTrouble, Side};
use super::world::EngineWorld;
use crate::judge::invariant::{Invariant, Violation};
use crate::play::runner::Batch;
use crate::play::shrink::shrink;
use crate::play::tape::Tape;
use crate::world::setup::WorldSetup;

const BEGAN_AT: Timestamp = Timestamp(1_000_000);

/// What goes wrong in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultLevel {
    /// As drawn from the tape.
    Drawn,
    /// The only trouble is that the first process is lost before this commit, or after it.
    LostBefore(u64),
    LostAfter(u64),
    /// No process is lost, no call is slow or refused.
    Smooth,
}

#[derive(Debug)]
pub struct Played {
    pub violation: Option<Violation>,
    pub tally: Tally,
    pub event_count: u64,
    /// The number of commits of the first process.
    pub commit_count: u64,
    pub diary: Vec<String>,
    /// Every choice that was drawn.
    pub choices: Vec<u32>,
    /// Each event as run number, time and name. The same in every play of the same seed.
    pub outline: Vec<String>,
}

/// Plays the world of a seed.
#[must_use]
pub fn play(seed: u64, place: Place, roughness: FaultLevel, tells: bool) -> Played {
    play_tape(Tape::seeded(seed), place, roughness, tells)
}

/// The shortest tape that breaks the same invariant.
#[must_use]
pub fn shorten(choices: &[u32], place: Place, invariant: Invariant) -> Vec<u32> {
    shrink(choices, |shorter| {
        let played = play_tape(Tape::recorded(shorter.to_vec()), place, FaultLevel::Drawn, false);
        played.violation.is_some_and(|violation| violation.invariant == invariant)
    })
}

#[must_use]
pub fn play_tape(mut tape: Tape, place: Place, roughness: FaultLevel, tells: bool) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(why) => return unplayable(format!("no runtime: {why}")),
    };
    let entered = runtime.enter();
    let clock = RuntimeClock::starting_at(BEGAN_AT);
    drop(entered);
    let disk = match Disk::at(place, clock) {
        Ok(disk) => disk,
        Err(why) => return unplayable(format!("the store does not open: {why}")),
    };
    let setup = WorldSetup::draw(&mut tape);
    let mut temper = EngineTrouble::draw(&mut tape, setup.temper);
    let lost_at = match roughness {
        FaultLevel::Drawn => None,
        FaultLevel::Smooth => Some((u64::MAX, Side::Before)),
        FaultLevel::LostBefore(commit) => Some((commit, Side::Before)),
        FaultLevel::LostAfter(commit) => Some((commit, Side::After)),
    };
    if lost_at.is_some() {
        temper = EngineTrouble { act_count: temper.act_count, setup: temper.setup, ..EngineTrouble::calm() };
    }
    let stage = Arc::new(WorldContext::new(Book::new(tape, temper, tells), disk, clock));
    stage.count("place", place.name());
    let mut world = EngineWorld::new(stage.clone(), setup, lost_at);
    tracing::subscriber::with_default(objecting(stage.clone()), || runtime.block_on(world.play()));
    let commit_count = match &world.process {
        Some(process) if process.life.number == 1 => process.life.commit_count(),
        Some(_) | None => world.first_commits,
    };
    drop(world);
    drop(runtime);
    let mut book = stage.book();
    Played {
        violation: book.violation.take(),
        tally: std::mem::take(&mut book.tally),
        event_count: book.event_count,
        commit_count,
        diary: book.diary.take().unwrap_or_default(),
        choices: book.tape.drawn().to_vec(),
        outline: outline(&book),
    }
}

fn outline(book: &Book) -> Vec<String> {
    let of_run = |(run, ordinal): (&super::book::RunBook, usize)| -> Vec<String> {
        run.log
            .iter()
            .map(|event| format!("{ordinal} {} {} {}", event.seq, event.at, event.fact.name()))
            .collect()
    };
    book.runs.iter().zip(1..).flat_map(of_run).collect()
}

fn unplayable(detail: String) -> Played {
    Played {
        violation: Some(Violation { invariant: Invariant::NothingIsBroken, detail }),
        tally: Tally::default(),
        event_count: 0,
        commit_count: 0,
        diary: Vec::new(),
        choices: Vec::new(),
        outline: Vec::new(),
    }
}

/// The results of a batch of worlds.
#[derive(Debug, Default)]
pub struct Summary {
    pub world_count: u64,
    pub event_count: u64,
    pub tally: Tally,
    pub failures: Vec<(u64, Violation)>,
}

/// Plays all seeds of a batch, each in its own place unless one is given. Calls `progress` with the number done.
pub fn run(batch: Batch, place: Option<Place>, progress: &(impl Fn(u64) + Sync)) -> Summary {
    let next = AtomicU64::new(batch.from);
    let done = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let end = batch.from.saturating_add(batch.count);
    let work = || {
        let mut own = Summary::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            let place = place.unwrap_or(Place::of_seed(seed));
            let played = play(seed, place, FaultLevel::Drawn, false);
            own.world_count += 1;
            own.event_count += played.event_count;
            own.tally.merge(&played.tally);
            if let Some(violation) = played.violation {
                own.failures.push((seed, violation));
                stop.fetch_or(batch.until_failure, Ordering::Relaxed);
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        own
    };
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..batch.threads.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(own) => {
                    summary.world_count += own.world_count;
                    summary.event_count += own.event_count;
                    summary.tally.merge(&own.tally);
                    summary.failures.extend(own.failures);
                }
                Err(_) => {
                    stop.store(true, Ordering::Relaxed);
                    let detail = "a world panicked near this seed".to_owned();
                    let violation = Violation { invariant: Invariant::NothingIsBroken, detail };
                    summary.failures.push((next.load(Ordering::Relaxed), violation));
                }
            }
        }
    });
    summary.failures.sort_by_key(|(seed, _)| *seed);
    summary
}
