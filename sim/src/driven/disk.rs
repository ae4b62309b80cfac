//! What outlives a process: the data of a real store, and how to reopen it.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use engine::clock::{Clock as _, RuntimeClock};
use engine::store::{BoxFuture, Store, StoreError, StoreFailure};
use machine::Timestamp;
use stores::memory::MemoryStore;
use stores::sqlite::{SqliteSettings, SqliteStore};

use super::place::Place;
use super::schema::Schema;

type StoreClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

pub(crate) struct Disk {
    /// `None` while no process has it open. Dropped before the medium that it uses.
    open: Mutex<Option<Arc<dyn Store>>>,
    medium: Medium,
    clock: StoreClock,
}

enum Medium {
    Memory(MemoryStore),
    File(PathBuf),
    Server(Box<Schema>),
}

impl Disk {
    pub(crate) fn at(place: Place, clock: RuntimeClock) -> Result<Self, String> {
        let clock: StoreClock = Arc::new(move || clock.now());
        let medium = match place {
            Place::Memory => Medium::Memory(MemoryStore::with_clock(clock.clone())),
            Place::File => Medium::File(new_path()),
            Place::Server => Medium::Server(Box::new(Schema::take()?)),
        };
        let disk = Self { open: Mutex::default(), medium, clock };
        let first = disk.first()?;
        *disk.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(first);
        Ok(disk)
    }

    fn first(&self) -> Result<Arc<dyn Store>, String> {
        match &self.medium {
            Medium::Memory(store) => Ok(Arc::new(store.clone())),
            Medium::File(path) => self.open_file(path),
            Medium::Server(schema) => Ok(schema.open()?),
        }
    }

    fn open_file(&self, path: &Path) -> Result<Arc<dyn Store>, String> {
        let settings = SqliteSettings { clock: Some(self.clock.clone()), on_fatal: None, inline: true };
        Ok(Arc::new(SqliteStore::open_with(path, settings).map_err(|why| format!("{why:?}"))?))
    }

    /// Two processes cannot open one file. A store in memory shows what an old process can still do; on a server this
    /// really happens.
    pub(crate) const fn outlives_its_process(&self) -> bool {
        match self.medium {
            Medium::Memory(_) | Medium::Server(_) => true,
            Medium::File(_) => false,
        }
    }

    /// Opens the store as a starting process does: leases that were granted before are void.
    pub(crate) fn reopen(&self) -> Result<(), String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.take();
        *open = Some(match &self.medium {
            Medium::Memory(store) => Arc::new(store.reopen()),
            Medium::File(path) => self.open_file(path)?,
            Medium::Server(schema) => {
                schema.end_leases((self.clock)())?;
                schema.open()?
            }
        });
        Ok(())
    }

    /// The store of the process that starts now, which it keeps while others open theirs. `None` if processes share
    /// whatever is open at the moment.
    pub(crate) fn own(&self) -> Option<Arc<dyn Store>> {
        match self.medium {
            Medium::Memory(_) | Medium::File(_) => None,
            Medium::Server(_) => self.open(),
        }
    }

    fn open(&self) -> Option<Arc<dyn Store>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls the real store: the process's own, or else the one that is open now. No simulated time passes.
    pub(crate) fn ask<T>(
        &self,
        own: Option<&Arc<dyn Store>>,
        ask: impl for<'s> FnOnce(&'s dyn Store) -> BoxFuture<'s, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let store = own.cloned().or_else(|| self.open()).ok_or_else(closed)?;
        match &self.medium {
            Medium::Memory(_) | Medium::File(_) => at_once(ask(&*store)),
            Medium::Server(schema) => schema.wait_for((self.clock)(), async { ask(&*store).await }),
        }
    }

    /// Calls a store method that does no I/O.
    pub(crate) fn glance<T>(
        &self,
        own: Option<&Arc<dyn Store>>,
        ask: impl FnOnce(&dyn Store) -> T,
    ) -> Option<T> {
        own.cloned().or_else(|| self.open()).map(|store| ask(&*store))
    }
}

fn new_path() -> PathBuf {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    // A file in memory: the effects of a sync on a disk are left to the store's own tests.
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
    folder.join(format!("holdpoint-sim-{}-{number}.db", std::process::id()))
}

fn closed() -> StoreError {
    StoreFailure::Unavailable("no process has the store open".into()).into()
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Medium::File(path) = &self.medium {
            for ending in ["", "-wal", "-shm", ".lock"] {
                let mut name = path.clone().into_os_string();
                name.push(ending);
                // A file that was never created is gone as well.
                let _ = std::fs::remove_file(PathBuf::from(name));
            }
        }
    }
}

/// The answer of a store that never waits.
fn at_once<T>(task: BoxFuture<'_, Result<T, StoreError>>) -> Result<T, StoreError> {
    match pin!(task).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(StoreError::Impossible("a store of the simulator waits".into())),
    }
}
