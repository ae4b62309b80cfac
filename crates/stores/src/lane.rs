//! A lane for reads that may take a while: so many at a time, and none that nobody waits for any more.
//!
//! Whoever waits in front of a lane waits in their own future: to give up is to be gone, and nothing is left in a line
//! behind them. Whoever gives up a read that has begun has not stopped it, so the read itself keeps its place until it
//! is over: there are never more of them than places, however many askers come and go.

use std::sync::Arc;

use engine::store::{StoreError, StoreFailure};
use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// More events than this are read in a lane.
pub(crate) const POINT_EVENT_COUNT_MAX: usize = 32;

pub(crate) struct Lane(Arc<Semaphore>);

/// What a read takes with it.
pub(crate) struct Errand<T> {
    answer: Sender<Result<T, StoreError>>,
    _place: OwnedSemaphorePermit,
}

/// Where its answer comes.
pub(crate) struct Awaited<T>(Receiver<Result<T, StoreError>>);

impl Lane {
    pub(crate) fn new(places: usize) -> Self {
        Self(Arc::new(Semaphore::new(places)))
    }

    /// Waits until one of its places is free.
    pub(crate) async fn enter<T>(&self) -> Result<(Errand<T>, Awaited<T>), StoreError> {
        let place = self.0.clone().acquire_owned().await;
        let place = place.map_err(|closed| StoreFailure::Unavailable(closed.to_string()))?;
        let (answer, awaited) = oneshot::channel();
        Ok((Errand { answer, _place: place }, Awaited(awaited)))
    }
}

impl<T> Errand<T> {
    /// Nobody waits for it, so it need not begin.
    pub(crate) fn is_moot(&self) -> bool {
        self.answer.is_closed()
    }

    pub(crate) fn end(self, found: Result<T, StoreError>) {
        // Whoever asked may be gone by now.
        let _ = self.answer.send(found);
    }
}

impl<T> Awaited<T> {
    pub(crate) async fn answer(self) -> Result<T, StoreError> {
        let nothing = |_| Err(StoreFailure::Unavailable("a read ended without an answer".into()).into());
        self.0.await.unwrap_or_else(nothing)
    }
}
