//! A store in memory: all the rules of the contract, nothing on disk. For tests, demos and runs that may be lost.

mod append;
mod audit;
mod chain;
mod create;
mod grants;
mod lists;
mod ready;
mod retention;
mod state;
mod store;
mod submit;
mod undecoded;
mod write;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::store::{BoxFuture, RunStore, StoreError, StoreFailure, StoreMetrics};
use machine::Timestamp;

use state::{MemoryState, RunRowId};

/// Clones are handles on the same data.
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<MemoryState>>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(|| {
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Timestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
        }))
    }

    #[must_use]
    pub fn with_clock(clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        Self { state: Arc::default(), clock }
    }

    /// The same data as after a crash of the process: leases acquired before are no longer valid.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let reopened = self.clone();
        let now = self.now();
        if let Ok(mut state) = self.lock_state() {
            let rows: Vec<RunRowId> = state.runs.keys().copied().collect();
            for row in rows {
                if let Some(run) = state.runs.get_mut(&row) {
                    run.held = false;
                }
                state.update_queues(row, now);
            }
            state.counts = StoreMetrics::default();
        }
        reopened
    }

    /// Fails once a panic has left a commit half written.
    fn lock_state(&self) -> Result<MutexGuard<'_, MemoryState>, StoreError> {
        self.state.lock().map_err(|_| {
            StoreFailure::Corrupt("the store stopped in the middle of a commit; start again".into()).into()
        })
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&MemoryState) -> Result<T, StoreError>,
    ) -> BoxFuture<'_, Result<T, StoreError>>
    where
        T: Send + 'static,
    {
        ready_task(self.lock_state().and_then(|state| read(&state)))
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut MemoryState, Timestamp) -> Result<T, StoreError>,
    ) -> BoxFuture<'_, Result<T, StoreError>>
    where
        T: Send + 'static,
    {
        let now = self.now();
        ready_task(self.lock_state().and_then(|mut state| change(&mut state, now)))
    }
}

fn ready_task<'a, T: Send + 'a>(result: Result<T, StoreError>) -> BoxFuture<'a, Result<T, StoreError>> {
    Box::pin(std::future::ready(result))
}
