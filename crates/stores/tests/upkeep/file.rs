//! The file itself: its owner, its locks, and the maximum size of its log.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};

use engine::store::{StoreError, StoreFailure, Tenant, ViewStore};
use machine::id::ThreadId;
use rusqlite::Connection;
use stores::sqlite::backup::backup;
use stores::sqlite::{SqliteOpenError, SqliteSettings, SqliteStore};

use crate::fixture::{Clock, World};
use crate::populated_file::{assert_healthy, freeze_agent, world};
use crate::sqlite_fixture::{Folder, open};
use crate::worker::{held, started};

/// Names the file that the process of another test has to open.
const LOOK_INTO: &str = "HOLDPOINT_UPKEEP_LOOK_INTO";

/// Everything in the folder, with its contents.
fn contents(folder: &Folder) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(folder.file().parent().unwrap()).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn a_file_of_another_program_is_refused_and_left_alone() {
    let theirs = [
        "CREATE TABLE notes (text TEXT)",
        "CREATE TABLE notes (text TEXT); PRAGMA user_version = 1",
        "CREATE TABLE notes (text TEXT); PRAGMA user_version = 99",
        "PRAGMA journal_mode = WAL; CREATE TABLE notes (text TEXT); PRAGMA user_version = 1",
        "PRAGMA auto_vacuum = FULL; CREATE TABLE notes (text TEXT)",
        "PRAGMA user_version = 1",
        "PRAGMA application_id = 7",
    ];
    for sql in theirs {
        let folder = Folder::new();
        Connection::open(folder.file()).unwrap().execute_batch(sql).unwrap();
        let before = contents(&folder);
        let refused = SqliteStore::open(folder.file()).unwrap_err();
        assert!(matches!(refused, SqliteOpenError::NotAStore { .. }), "{sql}: {refused}");
        let says = refused.to_string();
        assert!(says.contains("store.db is not a store") && says.contains("name a store"), "{says}");
        assert!(contents(&folder) == before, "{sql}: the folder has changed");
    }
}

#[test]
fn an_empty_file_becomes_a_store() {
    for begun in ["", "PRAGMA journal_mode = WAL", "PRAGMA auto_vacuum = INCREMENTAL; VACUUM"] {
        let folder = Folder::new();
        fs::write(folder.file(), "").unwrap();
        Connection::open(folder.file()).unwrap().execute_batch(begun).unwrap();
        drop(SqliteStore::open(folder.file()).unwrap());
        assert_healthy(&folder.file());
    }
}

/// When a process closes any handle of a file, it loses all its POSIX locks on it. SQLite does not take them again.
#[cfg(unix)]
#[tokio::test]
async fn a_store_that_is_opened_while_its_process_copies_the_file_keeps_its_log() {
    let (folder, copy) = (Folder::new(), Folder::new());
    let world = world(&folder);
    held(&world, "thr_1", "run_1", "transfer").await;
    // The files of a lost process are copied as they are, with their log.
    let lost = folder.copy();
    let mut server = None;
    backup(lost.file(), copy.file(), |_| {
        server.get_or_insert_with(|| SqliteStore::open(lost.file()).unwrap());
        // If another process believed to be the last user of the file, it would checkpoint the log and delete it.
        let seen = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "file::a_process_that_inspects_the_file", "--nocapture"])
            .env(LOOK_INTO, lost.file())
            .status();
        assert!(seen.unwrap().success());
        assert!(lost.file().with_extension("db-wal").exists(), "another process has deleted the log");
    })
    .unwrap();
    assert!(server.is_some());
}

/// The process that another test starts.
#[test]
fn a_process_that_inspects_the_file() {
    let Some(file) = std::env::var_os(LOOK_INTO) else { return };
    let connection = Connection::open(file).unwrap();
    let count: u32 = connection.query_row("SELECT count(*) FROM runs", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
    connection.close().unwrap();
}

#[tokio::test]
async fn a_log_that_grew_during_a_long_read_is_truncated_when_it_restarts() {
    const LOG_BYTES_MAX: u64 = 64 * 1_024 * 1_024;
    let (folder, clock) = (Folder::new(), Clock::new());
    let world = World::new(Arc::new(open(&folder, &clock, true)), clock);
    freeze_agent(&world).await;
    let log_bytes = || fs::metadata(folder.file().with_extension("db-wal")).unwrap().len();
    let mut count = 0;
    let mut said = async |length: usize| {
        count += 1;
        let mut worker = started(&world, &format!("thr_{count}"), &format!("run_{count}")).await;
        worker.finish_with(&"word ".repeat(length));
        worker.commit(&world).await.unwrap();
        assert!(count < 100, "the log does not grow");
    };
    let reader = Connection::open(folder.file()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM runs;").unwrap();
    while log_bytes() < LOG_BYTES_MAX + LOG_BYTES_MAX / 8 {
        said(500_000).await;
    }
    reader.execute_batch("COMMIT").unwrap();
    // The checkpoint after these commits reaches the end of the log, so the next commit restarts the log.
    said(500_000).await;
    said(500_000).await;
    said(1).await;
    assert_eq!(log_bytes(), LOG_BYTES_MAX);
}

/// The files contain conversations and the callback key.
#[cfg(unix)]
#[tokio::test]
async fn what_is_made_belongs_to_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let world = world(&folder);
    held(&world, "thr_1", "run_1", "transfer").await;
    for name in ["store.db", "store.db-wal", "store.db-shm", "store.db.lock"] {
        let mode = fs::metadata(folder.file().with_file_name(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// If the lock file is removed, only a check in the file itself keeps two processes from using it.
#[tokio::test]
async fn a_store_overtaken_past_its_lock_writes_nothing_more() {
    let folder = Folder::new();
    let told = Arc::new(Mutex::new(String::new()));
    let hears = told.clone();
    let settings = SqliteSettings {
        on_fatal: Some(Arc::new(move |why| why.clone_into(&mut hears.lock().unwrap()))),
        ..SqliteSettings::default()
    };
    let first = SqliteStore::open_with(folder.file(), settings).unwrap();
    let (tenant, metadata) = (Tenant::from("acme"), serde_json::Value::Null);
    let put =
        async |store: &SqliteStore, id: &str| store.put_thread(&tenant, &ThreadId::from(id), &metadata).await;
    assert_eq!(put(&first, "before").await, Ok(true));
    fs::remove_file(folder.file().with_extension("db.lock")).unwrap();
    let second = SqliteStore::open(folder.file()).unwrap();
    assert!(matches!(put(&first, "late").await, Err(StoreError::Failed(StoreFailure::Unavailable(_)))));
    assert!(told.lock().unwrap().contains("another process has opened the store"), "{:?}", told.lock());
    assert_eq!(put(&second, "late").await, Ok(true), "the first store wrote nothing");
    assert_eq!(put(&second, "before").await, Ok(false));
}
