//! The floor: plugins of a run are asked one after the other, each with what the ones before have kept.

use std::sync::{Arc, Mutex, PoisonError};

use machine::projection_rows::StateRow;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Whoever asks plugins takes the floor, and gives it back once what they answered is stored. Else two of them would
/// judge by the same state, and the later answer would write over the earlier one.
#[derive(Clone)]
pub(crate) struct Floor {
    free: Arc<Semaphore>,
    state: Arc<Mutex<Arc<[StateRow]>>>,
}

/// Has the floor until it is dropped.
pub(crate) struct Turn(#[expect(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>);

impl Floor {
    pub(crate) fn new() -> Self {
        Self { free: Arc::new(Semaphore::new(1)), state: Arc::default() }
    }

    /// With what is stored at this moment.
    pub(crate) async fn take(&self) -> (Turn, Arc<[StateRow]>) {
        // The semaphore is never closed.
        let turn = Turn(self.free.clone().acquire_owned().await.ok());
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (turn, state)
    }

    pub(crate) fn show(&self, state: &Arc<[StateRow]>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state.clone();
    }
}
