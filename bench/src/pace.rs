//! Repeats the same work for a while, one at a time or concurrently, and measures the resources used.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use engine::store::{Store, StoreMetrics};
use tokio::task::JoinSet;

use crate::effort::Effort;
use crate::failure::Failure;
use crate::postmaster::Postmaster;
use crate::process;

/// The results of one repetition.
pub(crate) struct Done<T> {
    pub(crate) results: Vec<T>,
    pub(crate) seconds: f64,
    pub(crate) used: Used,
}

impl<T> Done<T> {
    pub(crate) const fn run_count(&self) -> f64 {
        self.results.len() as f64
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.run_count() / self.seconds
    }
}

/// Resources that the store and the process used during a repetition.
#[derive(Clone, Copy)]
pub(crate) struct Used {
    pub(crate) counts: StoreMetrics,
    pub(crate) cpu: Option<Duration>,
    /// CPU time of the database server behind the store.
    pub(crate) server_cpu: Option<Duration>,
    pub(crate) bytes_written: Option<u64>,
}

impl Used {
    fn so_far(store: &dyn Store, server: Option<Postmaster>) -> Self {
        let (cpu, bytes_written) = (process::cpu_time(), process::bytes_written());
        let server_cpu = server.and_then(Postmaster::cpu_time);
        Self { counts: store.metrics(), cpu, server_cpu, bytes_written }
    }

    fn since(self, before: Self) -> Self {
        let between = |after: Option<Duration>, before: Option<Duration>| {
            after.zip(before).map(|(after, before)| after.saturating_sub(before))
        };
        Self {
            counts: StoreMetrics {
                commits: self.counts.commits - before.counts.commits,
                syncs: self.counts.syncs - before.counts.syncs,
                bytes: self.counts.bytes - before.counts.bytes,
                ..StoreMetrics::default()
            },
            cpu: between(self.cpu, before.cpu),
            server_cpu: between(self.server_cpu, before.server_cpu),
            bytes_written: self.bytes_written.zip(before.bytes_written).map(|(after, before)| after - before),
        }
    }
}

/// Repeats until the time is over, and after that only until there are enough results.
pub(crate) async fn repeat<T, F, W>(
    store: &Arc<dyn Store>,
    server: Option<Postmaster>,
    effort: Effort,
    at_once: usize,
    one: F,
) -> Result<Done<T>, Failure>
where
    T: Send + 'static,
    F: Fn() -> W + Clone + Send + 'static,
    W: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let begun = Arc::new(AtomicUsize::new(0));
    let before = Used::so_far(&**store, server);
    let begin = Instant::now();
    let lane = || {
        let (one, begun) = (one.clone(), begun.clone());
        async move {
            let mut results = Vec::new();
            loop {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                let is_over = begin.elapsed() >= effort.repetition && number >= effort.run_count_min;
                if is_over || number >= effort.run_count_max {
                    return Ok(results);
                }
                results.push(one().await?);
            }
        }
    };
    let mut results: Vec<T> = Vec::new();
    if at_once == 1 {
        results = lane().await.map_err(|why: Failure| why)?;
    } else {
        let mut lanes: JoinSet<Result<Vec<T>, Failure>> = (0..at_once).map(|_| lane()).collect();
        while let Some(done) = lanes.join_next().await {
            results.extend(done??);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Done { results, seconds, used: Used::so_far(&**store, server).since(before) })
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
