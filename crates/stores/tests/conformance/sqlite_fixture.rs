//! A store in a SQLite file, and a crash after which only synced data is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stores::sqlite::{SqliteSettings, SqliteStore};

use crate::fixture::{Clock, Fixture, World};

/// A folder that is removed when the test ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("holdpoint-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("store.db")
    }

    /// Copies what another process would find if this one stopped here: the file and its log, not closed.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        fs::copy(self.file(), copy.file()).unwrap();
        let log = |file: &Path| file.with_file_name("store.db-wal");
        if log(&self.file()).exists() {
            fs::copy(log(&self.file()), log(&copy.file())).unwrap();
        }
        copy
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn open(folder: &Folder, clock: &Clock, inline: bool) -> SqliteStore {
    let clock = clock.clone();
    let settings = SqliteSettings {
        clock: Some(Arc::new(move || clock.now())),
        on_fatal: Some(Arc::new(|why| panic!("{why}"))),
        inline,
    };
    SqliteStore::open_with(folder.file(), settings).unwrap()
}

/// The store has its own writer thread, or runs inline on the calling thread.
pub(crate) struct Sqlite<const INLINE: bool> {
    // The folders of all earlier processes are kept, because their connections may still be open.
    folders: Vec<Folder>,
}

impl<const INLINE: bool> Fixture for Sqlite<INLINE> {
    #[allow(clippy::unused_async, reason = "other stores wait while they open")]
    async fn open() -> (Self, World) {
        let (folder, clock) = (Folder::new(), Clock::new());
        let store = open(&folder, &clock, INLINE);
        (Self { folders: vec![folder] }, World::new(Arc::new(store), clock))
    }

    #[allow(clippy::unused_async, reason = "other stores wait while they open")]
    async fn crash(&mut self, world: World) -> World {
        let World { store, clock, tenant } = world;
        let folder = self.folders.last().expect("a store was opened").copy();
        drop(store);
        let store = open(&folder, &clock, INLINE);
        self.folders.push(folder);
        World { store: Arc::new(store), clock, tenant }
    }
}
