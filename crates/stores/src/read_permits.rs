//! A lane for reads that may take a while: so many at a time, and none that nobody waits for any more.
//!
//! Whoever waits in front of a lane waits in their own future: to give up is to be gone, and nothing is left in a line
//! behind them. Whoever gives up a read that has begun has not stopped it, so the read itself keeps its permit until it
//! is over: there are never more of them than permits, however many askers come and go.

use std::sync::Arc;

use engine::store::{StoreError, StoreFailure};
use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// More events than this are read in a lane.
pub(crate) const POINT_READ_EVENT_COUNT_MAX: usize = 32;

pub(crate) struct ReadPermits(Arc<Semaphore>);

/// What a read takes with it.
pub(crate) struct PermittedRead<T> {
    answer: Sender<Result<T, StoreError>>,
    _permit: OwnedSemaphorePermit,
}

/// Where its answer comes.
pub(crate) struct PendingRead<T>(Receiver<Result<T, StoreError>>);

impl ReadPermits {
    pub(crate) fn new(permits: usize) -> Self {
        Self(Arc::new(Semaphore::new(permits)))
    }

    /// Waits until one of its permits is free.
    pub(crate) async fn acquire<T>(&self) -> Result<(PermittedRead<T>, PendingRead<T>), StoreError> {
        let permit = self.0.clone().acquire_owned().await;
        let permit = permit.map_err(|closed| StoreFailure::Unavailable(closed.to_string()))?;
        let (answer, pending) = oneshot::channel();
        Ok((PermittedRead { answer, _permit: permit }, PendingRead(pending)))
    }
}

impl<T> PermittedRead<T> {
    /// Nobody waits for it, so it need not begin.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    pub(crate) fn finish(self, found: Result<T, StoreError>) {
        // Whoever asked may be gone by now.
        let _ = self.answer.send(found);
    }
}

impl<T> PendingRead<T> {
    pub(crate) async fn result(self) -> Result<T, StoreError> {
        let nothing = |_| Err(StoreFailure::Unavailable("a read ended without an answer".into()).into());
        self.0.await.unwrap_or_else(nothing)
    }
}
