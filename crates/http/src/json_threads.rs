//! Threads that process long JSON texts, so that other requests do not wait.
//!
//! They are few and always the same. The C allocator keeps freed memory for the thread that allocated it: if each large
//! value were built on another thread, every one of these threads would keep that much memory.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use tokio::sync::oneshot;

/// Large values are limited by their memory as well, which seldom leaves room for more of them at the same time.
const THREAD_COUNT: usize = 2;
/// A shorter text is processed on the thread of its request.
pub(crate) const LONG_BYTES: usize = 64 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// The threads start with the first long text, and end when this is dropped.
#[derive(Default)]
pub(crate) struct JsonThreads {
    /// None if no thread could be started.
    jobs: OnceLock<Option<Sender<Job>>>,
}

impl JsonThreads {
    /// Runs `work` on a text of this length. If it panics, the panic is passed on to the caller.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        text_bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if text_bytes <= LONG_BYTES {
            return work();
        }
        let Some(jobs) = self.jobs.get_or_init(start) else { return work() };
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            // The caller may be gone.
            drop(done.send(catch_unwind(AssertUnwindSafe(work))));
        });
        if let Err(unsent) = jobs.send(job) {
            // Unreachable: the threads end only after the sender is dropped.
            (unsent.0)();
        }
        match result.await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => resume_unwind(panic),
            // Unreachable: a job that was sent always runs.
            Err(_) => std::future::pending().await,
        }
    }
}

fn start() -> Option<Sender<Job>> {
    let (sender, receiver) = channel();
    let receiver = Arc::new(Mutex::new(receiver));
    let start_one = |_| {
        let receiver = receiver.clone();
        thread::Builder::new().name("json".to_owned()).spawn(move || run_jobs(&receiver))
    };
    let started = (0..THREAD_COUNT).map(start_one).filter(Result::is_ok).count();
    if started == 0 {
        tracing::warn!("no thread can be started for long JSON texts; other requests wait while one is read");
        return None;
    }
    Some(sender)
}

fn run_jobs(jobs: &Mutex<Receiver<Job>>) {
    // The lock is held while waiting for a job, and not while the job runs.
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(job) = next() {
        job();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test]
    async fn long_texts_are_read_on_few_threads_and_short_ones_where_they_are() {
        let threads = JsonThreads::default();
        let here = thread::current().id();
        assert_eq!(threads.run(LONG_BYTES, || thread::current().id()).await, here);
        let mut used = Vec::new();
        for _ in 0..50 {
            used.push(threads.run(LONG_BYTES + 1, || thread::current().id()).await);
        }
        let used: BTreeSet<String> = used.iter().map(|id| format!("{id:?}")).collect();
        assert!(used.len() <= THREAD_COUNT && !used.contains(&format!("{here:?}")), "{used:?}");
    }

    #[tokio::test]
    async fn a_panic_is_the_callers_and_the_thread_continues() {
        let threads = Arc::new(JsonThreads::default());
        for _ in 0..2 * THREAD_COUNT {
            let threads = threads.clone();
            let run = async move { threads.run(LONG_BYTES + 1, || panic!("on purpose")).await };
            let failed: Result<(), _> = tokio::spawn(run).await;
            assert!(failed.is_err_and(|failed| failed.is_panic()));
        }
        assert_eq!(threads.run(LONG_BYTES + 1, || 7).await, 7);
    }
}
