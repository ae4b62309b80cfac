//! What outlives a process: the data of a real store, and opening it again.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use engine::clock::{Clock as _, RuntimeClock};
use engine::store::{Refused, Store, Task, Trouble};
use machine::Timestamp;
use stores::memory::MemoryStore;
use stores::sqlite::{Settings, SqliteStore};

type StoreClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

pub(crate) struct Disk {
    medium: Medium,
    clock: StoreClock,
    /// None while no process has it open.
    open: Mutex<Option<Arc<dyn Store>>>,
}

enum Medium {
    Memory(MemoryStore),
    File(PathBuf),
}

impl Disk {
    pub(crate) fn in_memory(clock: RuntimeClock) -> Self {
        let clock: StoreClock = Arc::new(move || clock.now());
        let store = MemoryStore::with_clock(clock.clone());
        Self { open: Mutex::new(Some(Arc::new(store.clone()))), medium: Medium::Memory(store), clock }
    }

    pub(crate) fn in_a_file(clock: RuntimeClock) -> Result<Self, String> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        // A file in memory: what a disk does with a sync is for the store's own tests.
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = folder.join(format!("holdpoint-sim-{}-{number}.db", std::process::id()));
        let disk =
            Self { medium: Medium::File(path), clock: Arc::new(move || clock.now()), open: Mutex::default() };
        disk.reopen()?;
        Ok(disk)
    }

    /// Two processes cannot have one file; a store in memory shows what an old process can still do.
    pub(crate) const fn outlives_its_process(&self) -> bool {
        matches!(self.medium, Medium::Memory(_))
    }

    /// As a process that starts opens it: no lease that was given out before counts any more.
    pub(crate) fn reopen(&self) -> Result<(), String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.take();
        *open = Some(match &self.medium {
            Medium::Memory(store) => Arc::new(store.reopen()),
            Medium::File(path) => {
                let settings = Settings { clock: Some(self.clock.clone()), on_fatal: None, inline: true };
                Arc::new(SqliteStore::open_with(path, settings).map_err(|why| format!("{why:?}"))?)
            }
        });
        Ok(())
    }

    /// Asks the real store. It answers at once: nothing of it waits.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&dyn Store) -> Result<T, Refused>) -> Result<T, Refused> {
        let store = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match store {
            Some(store) => ask(&*store),
            None => Err(Trouble::Unavailable("no process has the store open".into()).into()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Medium::File(path) = &self.medium {
            for ending in ["", "-wal", "-shm", ".lock"] {
                let mut name = path.clone().into_os_string();
                name.push(ending);
                // A file that was never made is gone as well.
                let _ = std::fs::remove_file(PathBuf::from(name));
            }
        }
    }
}

/// The answer of a store that never waits.
pub(crate) fn at_once<T>(task: Task<'_, Result<T, Refused>>) -> Result<T, Refused> {
    match pin!(task).poll_once() {
        Poll::Ready(result) => result,
        Poll::Pending => Err(Refused::Impossible("a store of the simulator waits".into())),
    }
}

trait PollOnce: Future {
    fn poll_once(self: std::pin::Pin<&mut Self>) -> Poll<Self::Output> {
        self.poll(&mut Context::from_waker(Waker::noop()))
    }
}

impl<F: Future> PollOnce for F {}
