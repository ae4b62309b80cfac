//! Progress on standard error: what is being done, and how far it is, now and then.

use std::time::{Duration, Instant};

use super::output::print_stderr;

/// Often enough to see that it moves, seldom enough for a log.
const INTERVAL: Duration = Duration::from_secs(1);

/// How far something is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    /// Nobody knows.
    Unknown,
    Done(u64),
    Part {
        done: u64,
        total: u64,
    },
}

#[derive(Debug, Default)]
pub(super) struct ProgressLine {
    task: String,
    printed_at: Option<Instant>,
}

impl ProgressLine {
    /// Another task is said at once; how far the same one is, once in a while.
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
