//! Shows progress on standard error from time to time: the current task and how far it is.

use std::time::{Duration, Instant};

use super::output::print_stderr;

/// Often enough to see progress, seldom enough for a log.
const INTERVAL: Duration = Duration::from_secs(1);

/// How much of a task is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    Unknown,
    Done(u64),
    Part { done: u64, total: u64 },
}

#[derive(Debug, Default)]
pub(super) struct ProgressLine {
    task: String,
    printed_at: Option<Instant>,
}

impl ProgressLine {
    /// Prints a new task at once, and the progress of the same task at most once per interval.
    pub(super) fn update(&mut self, task: &str, amount: Amount) {
        let soon = self.printed_at.is_some_and(|at| at.elapsed() < INTERVAL);
        if soon && self.task == task {
            return;
        }
        task.clone_into(&mut self.task);
        self.printed_at = Some(Instant::now());
        match amount {
            Amount::Unknown => print_stderr(task),
            Amount::Done(done) => print_stderr(&format!("{task}: {done}")),
            Amount::Part { done, total } => print_stderr(&format!("{task}: {done} of {total}")),
        }
    }
}
