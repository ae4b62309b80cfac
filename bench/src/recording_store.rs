//! A store wrapper that records when a log is read, when a run is released and when the dispatcher has looked for work.
//! Everything else passes through unchanged.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use engine::Engine;
use engine::store::{BoxFuture, Lease, LogEntry, Store, StoreError, Tenant, Wrapper};
use machine::Timestamp;
use machine::id::RunId;
use tokio::sync::Semaphore;

use crate::environment::parked;
use crate::failure::Failure;

pub(crate) struct StoreRecords {
    first_log_read: Mutex<Option<Instant>>,
    last_release: Mutex<Option<Instant>>,
    released: Semaphore,
    looked: Semaphore,
}

impl StoreRecords {
    fn log_is_read(&self) {
        let mut first = self.first_log_read.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(Instant::now);
    }

    /// When a log was first read since the last call of this function.
    pub(crate) fn take_first_log_read(&self) -> Option<Instant> {
        self.first_log_read.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_released(&self) {
        *self.last_release.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.released.add_permits(1);
    }

    /// Waits until the dispatcher has claimed everything that was ready and knows when to look again.
    pub(crate) async fn looked_around(&self) -> Result<(), Failure> {
        self.looked.acquire().await?.forget();
        Ok(())
    }

    /// Waits until the released run has left memory; returns when it was released. Polling the engine all the time
    /// would take a CPU away from it.
    pub(crate) async fn parked(&self, engine: &Engine) -> Result<Option<Instant>, Failure> {
        self.released.acquire().await?.forget();
        parked(engine).await;
        Ok(*self.last_release.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) struct RecordingStore {
    store: Arc<dyn Store>,
    notes: Arc<StoreRecords>,
}

impl RecordingStore {
    pub(crate) fn around(store: Arc<dyn Store>) -> (Self, Arc<StoreRecords>) {
        let notes = Arc::new(StoreRecords {
            first_log_read: Mutex::default(),
            last_release: Mutex::default(),
            released: Semaphore::new(0),
            looked: Semaphore::new(0),
        });
        (Self { store, notes: notes.clone() }, notes)
    }
}

impl Wrapper for RecordingStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>> {
        self.notes.log_is_read();
        self.store.events(tenant, run, after, limit)
    }

    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<bool, StoreError>> {
        let released = self.store.release(lease);
        Box::pin(async move {
            let released = released.await;
            if released == Ok(true) {
                self.notes.is_released();
            }
            released
        })
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>, StoreError>> {
        let next = self.store.next_wake();
        Box::pin(async move {
            let next = next.await;
            self.notes.looked.add_permits(1);
            next
        })
    }
}
