//! The plugin lock: plugins of a run are asked one at a time, each with the state that earlier ones stored.

use std::sync::{Arc, Mutex, PoisonError};

use machine::projection_rows::StateRow;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Held from asking plugins until their answers are stored. Otherwise two of them would decide by the same state, and
/// the later answer would overwrite the earlier one.
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

    /// Also returns the state that is stored at this moment.
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
