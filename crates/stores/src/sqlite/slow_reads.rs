//! Reads that may take long. They run on threads and connections of their own, so that they block no other work.

use engine::store::StoreError;
use rusqlite::Connection;
use tokio::runtime::Handle;

use super::errors::SqliteError;
use super::file::StoreFile;
use super::readers::Readers;
use super::{SqliteShared, SqliteStore};
use crate::read_permits::ReadPermits;

/// Lists are for people, who can wait.
pub(super) const LIST_READER_COUNT: usize = 2;
/// Workers and streams need logs to continue, so log reads never wait for a list.
pub(super) const LOG_READER_COUNT: usize = 2;

/// A set of read permits with one connection for each permit.
pub(super) struct SlowReaders {
    readers: Readers,
    permits: ReadPermits,
}

impl SlowReaders {
    pub(super) fn open(file: &StoreFile, count: usize) -> rusqlite::Result<Self> {
        Ok(Self { readers: Readers::open(file, count)?, permits: ReadPermits::new(count) })
    }
}

impl SqliteStore {
    /// Reads a page of a list.
    pub(super) async fn list<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_slowly(|shared| &shared.lists, read).await
    }

    /// Reads a part of a log.
    pub(super) async fn log<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_slowly(|shared| &shared.logs, read).await
    }

    /// On the blocking pool when a runtime is present and the store is not inline, otherwise on the caller's thread.
    async fn read_slowly<T: Send + 'static>(
        &self,
        which: fn(&SqliteShared) -> &SlowReaders,
        read: impl FnOnce(&Connection) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = self.shared.clone();
        let read = move || {
            let read = which(&shared).readers.read(read).map_err(|SqliteError(refused)| refused);
            shared.counters.count_result(read)
        };
        match Handle::try_current() {
            Ok(runtime) if !self.inline => {
                let (permitted, pending) = which(&self.shared).permits.acquire().await?;
                // The blocking pool is shared with other work: the caller may have given up before the read starts.
                runtime.spawn_blocking(move || {
                    if !permitted.is_abandoned() {
                        permitted.finish(read());
                    }
                });
                pending.result().await
            }
            Ok(_) | Err(_) => read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::path::PathBuf;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::{Context, Waker};
    use std::time::Duration;

    use engine::store::{Tenant, ViewStore};
    use machine::id::RunId;

    use super::*;

    /// No successful read takes this long.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A store in a folder of its own.
    struct Opened {
        store: SqliteStore,
        folder: PathBuf,
    }

    impl Opened {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("holdpoint-apart-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("a folder");
            let store = SqliteStore::open(folder.join("store.db")).expect("the store opens");
            Self { store, folder }
        }
    }

    impl Drop for Opened {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    /// A read that signals its start and then blocks until the sender of `until` is dropped.
    fn slow(
        begun: Sender<()>,
        until: Receiver<()>,
    ) -> impl FnOnce(&Connection) -> Result<(), SqliteError> + Send {
        move |_| {
            begun.send(()).expect("the test receives it");
            let _ = until.recv();
            Ok(())
        }
    }

    fn counted(
        count: &Arc<AtomicUsize>,
    ) -> impl FnOnce(&Connection) -> Result<(), SqliteError> + Send + use<> {
        let count = count.clone();
        move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    /// Starts the request and then drops it.
    fn give_up(asked: impl Future) {
        let mut asked = pin!(asked);
        assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    async fn patiently<T>(what: &str, work: impl Future<Output = T>) -> T {
        tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{what} did not come"))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn abandoned_lists_are_not_read_and_no_log_waits_for_a_list() {
        let opened = Opened::new("lists");
        let store = &opened.store;
        let (begun, begins) = channel();
        let mut ends = Vec::new();
        for _ in 0..LIST_READER_COUNT {
            let (end, until) = channel();
            ends.push(end);
            let mut list = Box::pin(store.list(slow(begun.clone(), until)));
            assert!(list.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            begins.recv_timeout(PATIENCE).expect("a slow list begins");
            // From here on no caller waits for it.
            drop(list);
        }
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..1_000 {
            give_up(store.list(counted(&count)));
        }
        let (tenant, run) = (Tenant::from("acme"), RunId::from("absent"));
        let log = patiently("a log", store.events(&tenant, &run, 0, 256)).await;
        assert_eq!(log, Err(StoreError::NotFound));
        drop(ends);
        let listed = patiently("a list", store.list(counted(&count))).await;
        assert_eq!((listed, count.load(Ordering::SeqCst)), (Ok(()), 1), "only the one that was waited for");
    }

    #[test]
    fn a_read_abandoned_while_it_waits_for_a_thread_is_not_started() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let opened = Opened::new("thread");
            let (begun, begins) = channel();
            let (end, until) = channel::<()>();
            // Unrelated work, on the only thread of the pool.
            let other = tokio::task::spawn_blocking(move || {
                begun.send(()).expect("the test receives it");
                let _ = until.recv();
            });
            begins.recv_timeout(PATIENCE).expect("the other work begins");
            let count = Arc::new(AtomicUsize::new(0));
            for _ in 0..LOG_READER_COUNT {
                give_up(opened.store.log(counted(&count)));
            }
            drop(end);
            other.await.expect("the other work ends");
            let read = patiently("a log", opened.store.log(counted(&count))).await;
            assert_eq!((read, count.load(Ordering::SeqCst)), (Ok(()), 1), "only the one that was waited for");
        });
    }
}
