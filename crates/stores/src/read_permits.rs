//! Permits for reads that may take a while: they limit how many run at a time, and skip reads whose caller is gone.
//!
//! A caller waits for a permit in its own future: if it gives up, nothing of it remains in a queue. Giving up a read
//! that has begun does not stop it, so the read itself keeps its permit until it is over: there are never more reads
//! than permits, however many callers come and go.

use std::sync::Arc;

use engine::store::{StoreError, StoreFailure};
use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reads of more events than this need a permit.
pub(crate) const POINT_READ_EVENT_COUNT_MAX: usize = 32;

pub(crate) struct ReadPermits(Arc<Semaphore>);

/// The reading side: holds the permit and sends the answer.
pub(crate) struct PermittedRead<T> {
    answer: Sender<Result<T, StoreError>>,
    _permit: OwnedSemaphorePermit,
}

/// The caller's side: receives the answer.
pub(crate) struct PendingRead<T>(Receiver<Result<T, StoreError>>);

impl ReadPermits {
    pub(crate) fn new(permits: usize) -> Self {
        Self(Arc::new(Semaphore::new(permits)))
    }

    /// Waits until a permit is free.
    pub(crate) async fn acquire<T>(&self) -> Result<(PermittedRead<T>, PendingRead<T>), StoreError> {
        let permit = self.0.clone().acquire_owned().await;
        let permit = permit.map_err(|closed| StoreFailure::Unavailable(closed.to_string()))?;
        let (answer, pending) = oneshot::channel();
        Ok((PermittedRead { answer, _permit: permit }, PendingRead(pending)))
    }
}

impl<T> PermittedRead<T> {
    /// The caller is gone, so the read need not begin.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    pub(crate) fn finish(self, found: Result<T, StoreError>) {
        // The caller may be gone by now.
        let _ = self.answer.send(found);
    }
}

impl<T> PendingRead<T> {
    pub(crate) async fn result(self) -> Result<T, StoreError> {
        let nothing = |_| Err(StoreFailure::Unavailable("a read ended without an answer".into()).into());
        self.0.await.unwrap_or_else(nothing)
    }
}
