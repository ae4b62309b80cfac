//! The boundaries that the process crosses, and the one at which it halts until it is killed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::say;
use crate::stop::Stop;
use crate::wire::{Crossing, Line, Passage, Side};

/// How often the runtime yields before the process reports that it has halted. Everything that is ready runs as far
/// as it can without changing the store, so an answer given too early is received and an act done too early is done.
const TURNS: usize = 64;

#[derive(Clone)]
pub(super) struct Stops {
    counts: Arc<Mutex<Counts>>,
    /// Changes when all halted tasks continue.
    goes_on: watch::Sender<u64>,
    /// The number of acts being written to the ledger.
    acting: watch::Sender<u32>,
}

#[derive(Default)]
struct Counts {
    all: u64,
    each: BTreeMap<Crossing, u64>,
    halt: Option<Halt>,
    /// Whether the halt was reached.
    stands: bool,
}

/// Where the process halts.
#[derive(Clone, Copy)]
enum Halt {
    At(Stop),
    BeforeStoring,
}

/// What a task does at a boundary.
enum Turn {
    GoesOn,
    IsFirstToStop,
    Stops,
}

/// An act is being written to the ledger.
pub(super) struct Acting(watch::Sender<u32>);

impl Drop for Acting {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Stops {
    pub(super) fn new(stop: Option<Stop>) -> Self {
        let counts = Counts { halt: stop.map(Halt::At), ..Counts::default() };
        Self {
            counts: Arc::new(Mutex::new(counts)),
            goes_on: watch::Sender::new(0),
            acting: watch::Sender::new(0),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> u64 {
        self.counts().all
    }

    /// Halted tasks continue, and nothing halts any more.
    pub(super) fn go_on(&self) {
        let mut counts = self.counts();
        (counts.halt, counts.stands) = (None, false);
        self.goes_on.send_modify(|count| *count += 1);
    }

    pub(super) fn stand_before_storing(&self) {
        self.counts().halt = Some(Halt::BeforeStoring);
    }

    fn turn(&self, crossing: Crossing) -> Turn {
        let mut counts = self.counts();
        counts.all += 1;
        let count = counts.each.entry(crossing).or_default();
        *count += 1;
        let count = *count;
        let stores = matches!(crossing.passage, Passage::Append | Passage::Start);
        let reached = match counts.halt {
            None => false,
            Some(Halt::At(Stop::At(number))) => counts.all == number,
            Some(Halt::At(Stop::Nth { crossing: wanted, nth })) => crossing == wanted && count == nth,
            Some(Halt::BeforeStoring) => stores && crossing.side == Side::Before,
        };
        if !(reached || counts.stands) {
            return Turn::GoesOn;
        }
        if std::mem::replace(&mut counts.stands, true) { Turn::Stops } else { Turn::IsFirstToStop }
    }

    pub(super) fn acting(&self) -> Acting {
        self.acting.send_modify(|count| *count += 1);
        Acting(self.acting.clone())
    }

    /// Once the process has halted at a boundary, nothing returns from it, and nothing enters or leaves the store,
    /// until `Stops::go_on`.
    pub(super) async fn cross(&self, side: Side, passage: Passage) {
        let crossing = Crossing { side, passage };
        // Subscribe before `turn`, so that a `go_on` in between is not missed.
        let mut goes_on = self.goes_on.subscribe();
        match self.turn(crossing) {
            Turn::GoesOn => return,
            Turn::IsFirstToStop => self.say_that_it_stands(crossing),
            Turn::Stops if passage == Passage::Act => return,
            Turn::Stops => {}
        }
        let _ = goes_on.changed().await;
    }

    fn say_that_it_stands(&self, crossing: Crossing) {
        let mut acting = self.acting.subscribe();
        tokio::spawn(async move {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            let _ = acting.wait_for(|count| *count == 0).await;
            say(&Line::Stopped(crossing));
        });
    }
}
