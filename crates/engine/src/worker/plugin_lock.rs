//! The lock of plugins: plugins of a run are asked one after the other, each with what the ones before have kept.

use std::sync::{Arc, Mutex, PoisonError};

use machine::projection_rows::StateRow;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Whoever asks plugins takes the lock, and releases it once what they answered is stored. Else two of them would
/// judge by the same state, and the later answer would write over the earlier one.
#[derive(Clone)]
pub(crate) struct PluginLock {
    semaphore: Arc<Semaphore>,
    state: Arc<Mutex<Arc<[StateRow]>>>,
}

/// Holds the lock until it is dropped.
pub(crate) struct PluginLockGuard(
    #[expect(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>,
);

impl PluginLock {
    pub(crate) fn new() -> Self {
        Self { semaphore: Arc::new(Semaphore::new(1)), state: Arc::default() }
    }

    /// With what is stored at this moment.
    pub(crate) async fn acquire(&self) -> (PluginLockGuard, Arc<[StateRow]>) {
        // The semaphore is never closed.
        let guard = PluginLockGuard(self.semaphore.clone().acquire_owned().await.ok());
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (guard, state)
    }

    pub(crate) fn set_state(&self, state: &Arc<[StateRow]>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state.clone();
    }
}
