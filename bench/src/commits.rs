//! Counts the commits of a run from its events, and the results that were committed separately.

use engine::store::CommittedEvent;
use machine::event::Fact;

/// Commits of a W1 run if its results share a commit: the start, the answer with the calls, the results, and the last
/// answer.
pub(crate) const TOOL_ROUND: u64 = 4;

/// Average size of a W2 commit passed to the store.
pub(crate) const APPROVAL_COMMIT_BYTES: usize = 1_300;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commits {
    pub(crate) count: u64,
    /// Commits that contained a result.
    with_results: u64,
    result_is_open: bool,
}

impl Commits {
    pub(crate) fn see(&mut self, committed: &CommittedEvent) {
        self.result_is_open |= matches!(committed.event.fact, Fact::ExecutionSucceeded { .. });
        // Only the last event of a commit has a checkpoint.
        if committed.checkpoint.is_some() {
            self.count += 1;
            self.with_results += u64::from(self.result_is_open);
            self.result_is_open = false;
        }
    }

    /// Results of one step that did not share a commit with an earlier one.
    pub(crate) const fn settled_apart(self) -> u64 {
        self.with_results.saturating_sub(1)
    }
}
