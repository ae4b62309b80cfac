//! What a sweep over ended threads has deleted, or would delete.

/// Numbers of deleted items, or of items that would be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub threads: u64,
    pub runs: u64,
    pub events: u64,
    /// Threads that are kept because an event that names their children cannot be read.
    pub unreadable: u64,
}

impl Pruned {
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            threads: self.threads.saturating_add(other.threads),
            runs: self.runs.saturating_add(other.runs),
            events: self.events.saturating_add(other.events),
            unreadable: self.unreadable.saturating_add(other.unreadable),
        }
    }
}
