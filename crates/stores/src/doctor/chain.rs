//! Examines the hash chain of one run, and notes the runs whose chain does not cover their whole log.

use super::finding::{FindingCode, PlaceFindings};
use super::rows::RunRow;

/// Runs with a late chain that are named; further ones are only counted.
const NAMED_COUNT_MAX: usize = 20;

/// How many runs have a chain, and which chains start late because an earlier version created their run. None of this
/// is a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainCounts {
    /// Runs whose chain covers their whole log.
    pub whole: u64,
    /// Runs whose first commits are from before chains existed.
    pub late: u64,
    /// Runs whose commits are all from before chains existed.
    pub none: u64,
    /// Late chains by name, a bounded number.
    pub late_chains: Vec<LateChain>,
}

/// A chain that does not cover the first events of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateChain {
    /// The run, with its thread and its tenant.
    pub place: String,
    /// The first event that it covers.
    pub starts_at: u64,
}

impl ChainCounts {
    pub(crate) fn add(&mut self, other: Self) {
        self.whole += other.whole;
        self.late += other.late;
        self.none += other.none;
        let room = NAMED_COUNT_MAX.saturating_sub(self.late_chains.len());
        self.late_chains.extend(other.late_chains.into_iter().take(room));
    }

    fn count(&mut self, place: &str, starts_at: Option<u64>) {
        match starts_at {
            Some(1) => self.whole += 1,
            Some(starts_at) => {
                self.late += 1;
                if self.late_chains.len() < NAMED_COUNT_MAX {
                    self.late_chains.push(LateChain { place: place.into(), starts_at });
                }
            }
            None => self.none += 1,
        }
    }
}

/// `broken` says where the chain breaks, if it does. `last_unchained` is the last run from before chains existed.
pub(super) fn examine(
    run: &RunRow,
    broken: Option<String>,
    last_unchained: Option<i64>,
    counts: &mut ChainCounts,
    at: &mut PlaceFindings<'_>,
) {
    let starts_at = run.chain.starts_at;
    counts.count(at.place, starts_at);
    if let Some(what) = broken {
        at.add(FindingCode::ChainBroken, what);
    }
    // Without the number, the store has no run from before.
    if run.row > last_unchained.unwrap_or(0) && starts_at != Some(1) {
        let found = starts_at.map_or_else(|| "it has none".into(), |seq| format!("it starts at event {seq}"));
        let what = format!("the run was created with a hash chain from event 1 on, and {found}");
        at.add(FindingCode::ChainBroken, what);
    }
}
