//! The boundaries that the process crosses, and the one at which it halts until it is killed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::print_line;
use crate::stop::Stop;
use crate::wire::{Boundary, Line, Operation, Side};

/// How often the runtime yields before the process reports that it has halted. Everything that is ready runs as far
/// as it can without changing the store, so an answer given too early is received and an act done too early is done.
const TURNS: usize = 64;

#[derive(Clone)]
pub(super) struct Stops {
    counts: Arc<Mutex<Counts>>,
    /// Changes when all halted tasks continue.
    resumed: watch::Sender<u64>,
    /// The number of acts being written to the ledger.
    acting: watch::Sender<u32>,
}

#[derive(Default)]
struct Counts {
    all: u64,
    each: BTreeMap<Boundary, u64>,
    halt: Option<Halt>,
    /// Whether the halt was reached.
    is_halted: bool,
}

/// Where the process halts.
#[derive(Clone, Copy)]
enum Halt {
    At(Stop),
    BeforeStoring,
}

/// What a task does at a boundary.
enum AtBoundary {
    Continues,
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
            resumed: watch::Sender::new(0),
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
    pub(super) fn resume(&self) {
        let mut counts = self.counts();
        (counts.halt, counts.is_halted) = (None, false);
        self.resumed.send_modify(|count| *count += 1);
    }

    pub(super) fn halt_before_storing(&self) {
        self.counts().halt = Some(Halt::BeforeStoring);
    }

    fn count_and_check(&self, boundary: Boundary) -> AtBoundary {
        let mut counts = self.counts();
        counts.all += 1;
        let count = counts.each.entry(boundary).or_default();
        *count += 1;
        let count = *count;
        let stores = matches!(boundary.operation, Operation::Append | Operation::Start);
        let reached = match counts.halt {
            None => false,
            Some(Halt::At(Stop::At(number))) => counts.all == number,
            Some(Halt::At(Stop::Nth { boundary: wanted, nth })) => boundary == wanted && count == nth,
            Some(Halt::BeforeStoring) => stores && boundary.side == Side::Before,
        };
        if !(reached || counts.is_halted) {
            return AtBoundary::Continues;
        }
        if std::mem::replace(&mut counts.is_halted, true) {
            AtBoundary::Stops
        } else {
            AtBoundary::IsFirstToStop
        }
    }

    pub(super) fn acting(&self) -> Acting {
        self.acting.send_modify(|count| *count += 1);
        Acting(self.acting.clone())
    }

    /// Once the process has halted at a boundary, nothing returns from it, and nothing enters or leaves the store,
    /// until `Stops::resume`.
    pub(super) async fn cross(&self, side: Side, operation: Operation) {
        let boundary = Boundary { side, operation };
        // Subscribe before `count_and_check`, so that a `resume` in between is not missed.
        let mut resumed = self.resumed.subscribe();
        match self.count_and_check(boundary) {
            AtBoundary::Continues => return,
            AtBoundary::IsFirstToStop => self.report_halt(boundary),
            AtBoundary::Stops if operation == Operation::Act => return,
            AtBoundary::Stops => {}
        }
        let _ = resumed.changed().await;
    }

    fn report_halt(&self, boundary: Boundary) {
        let mut acting = self.acting.subscribe();
        tokio::spawn(async move {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            let _ = acting.wait_for(|count| *count == 0).await;
            print_line(&Line::Stopped(boundary));
        });
    }
}
