//! Metrics of the engine. Nothing is decided by them.
//!
//! They are plain counters that belong to one engine or one store, and are read from time to time: there is no
//! registry, and a counter that is never read costs one addition.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use machine::Timestamp;
use machine::id::ToolName;
use machine::projection_rows::PublicRunStatus;

use crate::live::lock;

/// Buckets of a histogram, one for each power of two. The last one counts everything larger.
pub const HISTOGRAM_BUCKETS: usize = 28;
/// Tools that are counted by name. Names come from the configuration, which may be replaced repeatedly.
const TOOLS_MAX: usize = 256;

/// Counts values by size.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; HISTOGRAM_BUCKETS],
    sum: AtomicU64,
}

/// A [`Histogram`] at one moment. Bucket `n` counts the values above 2ⁿ⁻¹ and up to 2ⁿ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    pub counts: [u64; HISTOGRAM_BUCKETS],
    pub sum: u64,
}

impl Histogram {
    pub fn record(&self, value: u64) {
        let bucket = u64::BITS - value.saturating_sub(1).leading_zeros();
        let bucket = usize::try_from(bucket).unwrap_or(HISTOGRAM_BUCKETS).min(HISTOGRAM_BUCKETS - 1);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            counts: std::array::from_fn(|bucket| {
                self.counts.get(bucket).map_or(0, |count| count.load(Ordering::Relaxed))
            }),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

impl HistogramSnapshot {
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Metrics of an engine since it started. Times are in milliseconds of its clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineMetrics {
    /// Duration of steps that one worker executed from beginning to end, without releasing the run.
    pub step_ms: HistogramSnapshot,
    /// From the acceptance of a decision to the commit that starts its call.
    pub decision_to_start_ms: HistogramSnapshot,
    /// Attempts of tools that were sent, by tool name.
    pub tool_ms: Vec<(ToolName, HistogramSnapshot)>,
    /// Runs that ended here, by status.
    pub ended: BTreeMap<PublicRunStatus, u64>,
}

/// The counters of an engine.
#[derive(Debug, Default)]
pub(crate) struct EngineCounters {
    pub(crate) step_ms: Histogram,
    pub(crate) decision_to_start_ms: Histogram,
    tool_ms: Mutex<BTreeMap<ToolName, Arc<Histogram>>>,
    ended: Mutex<BTreeMap<PublicRunStatus, u64>>,
}

impl EngineCounters {
    /// An attempt of a configured tool.
    pub(crate) fn record_attempt(&self, tool: &ToolName, ms: u64) {
        let mut tools = lock(&self.tool_ms);
        let full = tools.len() >= TOOLS_MAX && !tools.contains_key(tool);
        let name = if full { ToolName::from("other") } else { tool.clone() };
        let histogram = tools.entry(name).or_default().clone();
        drop(tools);
        histogram.record(ms);
    }

    pub(crate) fn record_end(&self, how: PublicRunStatus) {
        *lock(&self.ended).entry(how).or_default() += 1;
    }

    pub(crate) fn snapshot(&self) -> EngineMetrics {
        EngineMetrics {
            step_ms: self.step_ms.snapshot(),
            decision_to_start_ms: self.decision_to_start_ms.snapshot(),
            tool_ms: lock(&self.tool_ms)
                .iter()
                .map(|(tool, histogram)| (tool.clone(), histogram.snapshot()))
                .collect(),
            ended: lock(&self.ended).clone(),
        }
    }
}

/// 0 if the clock was set back meanwhile.
pub(crate) const fn ms_between(from: Timestamp, to: Timestamp) -> u64 {
    to.0.saturating_sub(from.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_at_the_power_of_two_that_it_does_not_exceed() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 5, 1 << 26, (1 << 26) + 1, u64::MAX >> 8] {
            histogram.record(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.counts.get(..4), Some(&[2, 1, 2, 1][..]));
        assert_eq!(snapshot.counts.get(26..), Some(&[1, 2][..]), "the last bucket has all that is larger");
        assert_eq!(snapshot.count(), 9);
    }

    #[test]
    fn names_of_tools_are_bounded() {
        let counters = EngineCounters::default();
        for number in 0..2 * TOOLS_MAX {
            counters.record_attempt(&ToolName::from(format!("tool_{number}").as_str()), 1);
        }
        counters.record_attempt(&ToolName::from("tool_0"), 1);
        let snapshot = counters.snapshot().tool_ms;
        assert_eq!(snapshot.len(), TOOLS_MAX + 1);
        let count = |name: &str| {
            snapshot.iter().find(|(tool, _)| tool.as_str() == name).map(|(_, sizes)| sizes.count())
        };
        assert_eq!((count("tool_0"), count("other")), (Some(2), Some(TOOLS_MAX as u64)));
    }
}
