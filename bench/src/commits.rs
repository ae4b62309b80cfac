//! The commits of a run, read off its events: how many there were, and which results settled apart.

use engine::store::CommittedEvent;
use machine::event::Fact;

/// A run of W1 takes so many commits if its results settle together: the start, the answer that asks, the results,
/// and the last answer.
pub(crate) const TOOL_ROUND: u64 = 4;

/// What a commit of W2 hands to the store, on average.
pub(crate) const APPROVAL_COMMIT_BYTES: usize = 1_300;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commits {
    pub(crate) count: u64,
    /// Commits that brought a result.
    with_results: u64,
    result_is_open: bool,
}

impl Commits {
    pub(crate) fn see(&mut self, committed: &CommittedEvent) {
        self.result_is_open |= matches!(committed.event.fact, Fact::ExecutionSucceeded { .. });
        // The last event of a commit has its name.
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
