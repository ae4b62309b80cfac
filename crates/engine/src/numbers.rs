//! How the work goes, in numbers for whoever shows them. Nothing is decided by them.
//!
//! They are plain counts that belong to one engine or one store, and are looked at now and then: there is no registry,
//! and a number that nobody looks at costs an addition.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use machine::Timestamp;
use machine::id::ToolName;
use machine::projection_rows::PublicRunStatus;

use crate::live::lock;

/// Sizes are told apart by powers of two, so many of them. The last one has everything that is larger.
pub const SPREAD_COUNT: usize = 28;
/// Tools that are counted by name. Names come from the configuration, which may be replaced again and again.
const TOOLS_MAX: usize = 256;

/// How often values of which size came.
#[derive(Debug, Default)]
pub struct Spread {
    counts: [AtomicU64; SPREAD_COUNT],
    sum: AtomicU64,
}

/// A [`Spread`] at one moment. Place `n` counts the values above 2ⁿ⁻¹ and up to 2ⁿ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub counts: [u64; SPREAD_COUNT],
    pub sum: u64,
}

impl Spread {
    pub fn note(&self, value: u64) {
        let place = u64::BITS - value.saturating_sub(1).leading_zeros();
        let place = usize::try_from(place).unwrap_or(SPREAD_COUNT).min(SPREAD_COUNT - 1);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    #[must_use]
    pub fn seen(&self) -> Sizes {
        Sizes {
            counts: std::array::from_fn(|place| {
                self.counts.get(place).map_or(0, |count| count.load(Ordering::Relaxed))
            }),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

impl Sizes {
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// What an engine has done since it started. Times are in milliseconds of its clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Steps that were worked on from their beginning to their end without the run being let go.
    pub step_ms: Sizes,
    /// From the moment at which a decision was accepted to the commit that starts its call.
    pub decision_to_start_ms: Sizes,
    /// Attempts of tools that were sent, by the name of the tool.
    pub tool_ms: Vec<(ToolName, Sizes)>,
    /// Runs that ended here, by how.
    pub ended: BTreeMap<PublicRunStatus, u64>,
}

/// Where an engine counts.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) step_ms: Spread,
    pub(crate) decision_to_start_ms: Spread,
    tool_ms: Mutex<BTreeMap<ToolName, Arc<Spread>>>,
    ended: Mutex<BTreeMap<PublicRunStatus, u64>>,
}

impl Tally {
    /// An attempt of a tool that is configured.
    pub(crate) fn sent(&self, tool: &ToolName, ms: u64) {
        let mut tools = lock(&self.tool_ms);
        let full = tools.len() >= TOOLS_MAX && !tools.contains_key(tool);
        let name = if full { ToolName::from("other") } else { tool.clone() };
        let spread = tools.entry(name).or_default().clone();
        drop(tools);
        spread.note(ms);
    }

    pub(crate) fn ended(&self, how: PublicRunStatus) {
        *lock(&self.ended).entry(how).or_default() += 1;
    }

    pub(crate) fn seen(&self) -> Numbers {
        Numbers {
            step_ms: self.step_ms.seen(),
            decision_to_start_ms: self.decision_to_start_ms.seen(),
            tool_ms: lock(&self.tool_ms).iter().map(|(tool, spread)| (tool.clone(), spread.seen())).collect(),
            ended: lock(&self.ended).clone(),
        }
    }
}

/// None is left where a clock was set back meanwhile.
pub(crate) const fn ms_between(from: Timestamp, to: Timestamp) -> u64 {
    to.0.saturating_sub(from.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_at_the_power_of_two_that_it_does_not_exceed() {
        let spread = Spread::default();
        for value in [0, 1, 2, 3, 4, 5, 1 << 26, (1 << 26) + 1, u64::MAX >> 8] {
            spread.note(value);
        }
        let seen = spread.seen();
        assert_eq!(seen.counts.get(..4), Some(&[2, 1, 2, 1][..]));
        assert_eq!(seen.counts.get(26..), Some(&[1, 2][..]), "the last place has all that is larger");
        assert_eq!(seen.count(), 9);
    }

    #[test]
    fn names_of_tools_are_bounded() {
        let tally = Tally::default();
        for number in 0..2 * TOOLS_MAX {
            tally.sent(&ToolName::from(format!("tool_{number}").as_str()), 1);
        }
        tally.sent(&ToolName::from("tool_0"), 1);
        let seen = tally.seen().tool_ms;
        assert_eq!(seen.len(), TOOLS_MAX + 1);
        let count =
            |name: &str| seen.iter().find(|(tool, _)| tool.as_str() == name).map(|(_, sizes)| sizes.count());
        assert_eq!((count("tool_0"), count("other")), (Some(2), Some(TOOLS_MAX as u64)));
    }
}
