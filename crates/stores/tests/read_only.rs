//! A file or a folder without write permission: the store reports the cause and what to do, and changes nothing.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test may panic")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::store::{Tenant, ViewStore};
use machine::id::ThreadId;
use serde_json::Value;
use stores::sqlite::SqliteStore;

const FILE: &str = "HOLDPOINT_TEST_READ_ONLY";
/// The id of a user that owns no files.
const NOBODY: u32 = 65_534;

/// A folder with a store that was closed, or whose process was lost.
struct TestFolder {
    folder: PathBuf,
    /// A copy of the test program that every user may start.
    program: PathBuf,
    /// One test at a time: a program cannot be started while a process that another test has just forked still has it
    /// open for writing.
    _alone: MutexGuard<'static, ()>,
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        self.mode(&self.folder.join("kept"), 0o755);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl TestFolder {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = std::env::temp_dir().join(format!("holdpoint-read-only-{}", std::process::id()));
        fs::create_dir_all(folder.join("kept")).unwrap();
        let place = Self { program: folder.join("program"), folder, _alone: alone };
        fs::copy(std::env::current_exe().unwrap(), &place.program).unwrap();
        place.mode(&place.folder, 0o755);
        place.mode(&place.program, 0o755);
        place
    }

    fn file(&self) -> PathBuf {
        self.folder.join("kept").join("store.db")
    }

    fn mode(&self, path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Creates a store with a thread, so that there is data to lose.
    async fn with_a_store(self) -> Self {
        let store = SqliteStore::open(self.file()).unwrap();
        store.put_thread(&Tenant::default(), &ThreadId::from("thr"), &Value::Null).await.unwrap();
        drop(store);
        self
    }

    /// Creates the files that a lost process leaves: the file, its log and its lock file.
    async fn with_a_lost_store(self) -> Self {
        let lost = self.folder.join("lost").join("store.db");
        fs::create_dir_all(lost.parent().unwrap()).unwrap();
        let store = SqliteStore::open(&lost).unwrap();
        store.put_thread(&Tenant::default(), &ThreadId::from("thr"), &Value::Null).await.unwrap();
        for name in ["store.db", "store.db-wal", "store.db.lock"] {
            fs::copy(lost.with_file_name(name), self.file().with_file_name(name)).unwrap();
        }
        drop(store);
        self
    }

    /// Everything in the folder, with its contents.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = fs::read_dir(self.folder.join("kept")).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    /// Opens the store as a user without special rights, and asserts that no file has changed. Returns the error text.
    fn refusal(&self) -> String {
        let before = self.contents();
        let mut process = Command::new(&self.program);
        process.args(["--exact", "a_process_that_opens_the_store", "--nocapture"]).env(FILE, self.file());
        if permissions_bind_nobody_here(&self.folder) {
            process.uid(NOBODY).gid(NOBODY);
        }
        let output = process.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (after, names) = (self.contents(), |contents: &BTreeMap<PathBuf, Vec<u8>>| {
            contents.keys().cloned().collect::<Vec<_>>()
        });
        assert_eq!(names(&after), names(&before), "a file was created or deleted; {text}");
        assert!(after == before, "a file was changed; {text}");
        let refused = text.lines().find_map(|line| line.strip_prefix("refused: "));
        refused.unwrap_or_else(|| panic!("the store was opened: {text}")).to_owned()
    }
}

/// Whether this process ignores file permissions, as root does.
fn permissions_bind_nobody_here(folder: &Path) -> bool {
    let sealed = folder.join("sealed");
    fs::create_dir_all(&sealed).unwrap();
    fs::set_permissions(&sealed, Permissions::from_mode(0o555)).unwrap();
    let written = fs::write(sealed.join("trial"), "").is_ok();
    fs::remove_dir_all(&sealed).unwrap();
    written
}

/// The process that the other tests start. Without its environment variable it does nothing.
#[test]
fn a_process_that_opens_the_store() {
    let Some(file) = std::env::var_os(FILE) else { return };
    match SqliteStore::open(PathBuf::from(file)) {
        Ok(_) => println!("\nopened"),
        Err(refused) => println!("\nrefused: {refused}"),
    }
}

/// The error names the file, the cause and what to do.
#[track_caller]
fn assert_clear(refusal: &str, file: &Path) {
    let file = file.file_name().unwrap().to_str().unwrap();
    for part in [file, "must be allowed to write"] {
        assert!(refusal.contains(part), "{part} is not in: {refusal}");
    }
    // The text comes from the system or from SQLite.
    let causes = ["Permission denied", "readonly database", "unable to open"];
    assert!(causes.iter().any(|cause| refusal.contains(cause)), "no cause in: {refusal}");
}

#[tokio::test]
async fn a_file_that_may_not_be_written_to_is_refused_and_left_alone() {
    let place = TestFolder::new().with_a_store().await;
    place.mode(&place.folder.join("kept"), 0o777);
    place.mode(&place.file(), 0o444);
    place.mode(&place.file().with_file_name("store.db.lock"), 0o666);
    assert_clear(&place.refusal(), &place.file());
}

#[tokio::test]
async fn a_folder_that_may_not_be_written_to_is_refused_though_the_file_may() {
    let place = TestFolder::new().with_a_store().await;
    place.mode(&place.file(), 0o666);
    fs::remove_file(place.file().with_file_name("store.db.lock")).unwrap();
    place.mode(&place.folder.join("kept"), 0o555);
    assert_clear(&place.refusal(), &place.file());
}

#[tokio::test]
async fn a_folder_that_may_not_be_written_to_is_refused_though_the_file_and_its_lock_may() {
    let place = TestFolder::new().with_a_store().await;
    place.mode(&place.file(), 0o666);
    place.mode(&place.file().with_file_name("store.db.lock"), 0o666);
    place.mode(&place.folder.join("kept"), 0o555);
    assert_clear(&place.refusal(), &place.file());
}

#[tokio::test]
async fn what_a_lost_process_left_in_a_folder_that_may_not_be_written_to_is_left_alone() {
    for (file, log) in [(0o444, 0o444), (0o666, 0o444), (0o444, 0o666), (0o666, 0o666)] {
        let place = TestFolder::new().with_a_lost_store().await;
        place.mode(&place.file(), file);
        place.mode(&place.file().with_file_name("store.db-wal"), log);
        place.mode(&place.file().with_file_name("store.db.lock"), 0o666);
        place.mode(&place.folder.join("kept"), 0o555);
        assert_clear(&place.refusal(), &place.file());
    }
}

#[test]
fn a_store_that_cannot_be_made_where_nothing_may_be_made_is_refused() {
    let place = TestFolder::new();
    place.mode(&place.folder.join("kept"), 0o555);
    assert_clear(&place.refusal(), &place.file());
}
