//! Backups: of a file in use, of a closed file, and what happens if a backup cannot be made.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use engine::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use engine::store::{ClusterStore, Tenant, ViewStore};
use machine::id::RunId;
use stores::sqlite::backup::{BackupError, backup};
use stores::sqlite::{InspectError, SqliteStore};

use crate::fixture::{Clock, World};
use crate::populated_file::{assert_healthy, freeze_agent, populate, world};
use crate::sqlite_fixture::{Folder, open};
use crate::worker::{next, parked, started};

fn copy_path(folder: &Folder) -> PathBuf {
    folder.file().with_file_name("copy.db")
}

fn names(folder: &Folder) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.file().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Enough data for a copy of several steps.
async fn large(world: &World) {
    freeze_agent(world).await;
    for index in 0..4 {
        let mut worker = started(world, &format!("thr_large_{index}"), &format!("large_{index}")).await;
        worker.finish_with(&"word ".repeat(300_000));
        worker.commit(world).await.unwrap();
    }
}

async fn has(path: &Path, run: &str) -> bool {
    let store = SqliteStore::open(path).unwrap();
    store.run(&Tenant::from("acme"), &RunId::from(run)).await.unwrap().is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_callbacks_are_no_part_of_a_backup() {
    let folder = Folder::new();
    let world = world(&folder);
    freeze_agent(&world).await;
    let first = CallbackKey::from(*b"32 bytes that are found in files");
    let second = CallbackKey::from(*b"32 others that are found as well");
    world.store.callback_keys(Some(first)).await.unwrap();
    assert_eq!(world.store.rotate_callback_key(second).await, Ok(KeyRotation::Rotated));
    let is_in = |path: &Path, key: CallbackKey| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(CallbackKey::BYTES).any(|window| window == key.as_bytes())
    };
    backup(folder.file(), copy_path(&folder), |_| {}).unwrap();
    for key in [first, second] {
        assert!(!is_in(&copy_path(&folder), key));
    }
    let kept = StoredCallbackKeys { current: second, previous: Some(first) };
    assert_eq!(world.store.callback_keys(None).await, Ok(Some(kept)), "the store itself keeps its keys");
    let restored = SqliteStore::open(copy_path(&folder)).unwrap();
    assert_eq!(restored.callback_keys(None).await, Ok(None));
    drop(world);
    for (which, gone) in [(KeysToRemove::Previous, first), (KeysToRemove::All, second)] {
        assert!(is_in(&folder.file(), gone));
        let store = SqliteStore::open(folder.file()).unwrap();
        assert_eq!(store.remove_callback_keys(which).await, Ok(true));
        drop(store);
        assert!(!is_in(&folder.file(), gone), "a removed key is not left in a free page");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_one_moment_with_all_that_was_acknowledged_before() {
    let folder = Folder::new();
    let world = world(&folder);
    large(&world).await;
    parked(&world, "thr_before", "before", "transfer").await;
    let (from, to) = (folder.file(), copy_path(&folder));
    let (steps, mut stepped) = tokio::sync::mpsc::unbounded_channel();
    let (commits, committed) = mpsc::channel();
    let copying = tokio::task::spawn_blocking(move || {
        // Each step waits for another commit, so the source changes between steps.
        backup(from, to, |progress| {
            steps.send(progress).unwrap();
            committed.recv().unwrap();
        })
    });
    let mut count = 0;
    let mut last = None;
    while let Some(progress) = stepped.recv().await {
        parked(&world, &format!("thr_during_{count}"), &format!("during_{count}"), "transfer").await;
        count += 1;
        assert!(count < 100, "every commit restarts the copy");
        last = Some(progress);
        commits.send(()).unwrap();
    }
    let copied = copying.await.unwrap().unwrap();
    let last = last.unwrap();
    assert!(count > 3, "only {count} steps");
    assert_eq!(last.pages_done, last.pages_total);
    assert_eq!(copied.bytes, fs::metadata(&copied.path).unwrap().len());
    assert_eq!(assert_healthy(&copied.path).runs, 5, "commits after the copied moment are not in the backup");
    assert_eq!(assert_healthy(&folder.file()).runs, 5 + count);
    assert!(has(&copied.path, "before").await);
}

#[tokio::test]
async fn a_backup_is_a_working_store() {
    let folder = Folder::new();
    populate(&folder).await;
    let before = assert_healthy(&folder.file());
    backup(folder.file(), copy_path(&folder), |_| {}).unwrap();
    let after = assert_healthy(&copy_path(&folder));
    assert_eq!((before.threads, before.runs, before.events), (after.threads, after.runs, after.events));
    let other = Folder::new();
    fs::copy(copy_path(&folder), other.file()).unwrap();
    let clock = Clock::new();
    let world = World::new(Arc::new(open(&other, &clock, false)), clock);
    assert!(next(&world, 10).await.contains(&"decided".to_owned()), "its inbox holds a decision");
}

#[tokio::test]
async fn nothing_is_overwritten() {
    let folder = Folder::new();
    populate(&folder).await;
    let to = copy_path(&folder);
    fs::write(&to, "dear").unwrap();
    let before = names(&folder);
    let refused = backup(folder.file(), &to, |_| panic!("the backup was not refused")).unwrap_err();
    assert!(matches!(refused, BackupError::Exists { .. }), "{refused}");
    let refused = backup(folder.file(), folder.file(), |_| panic!("the backup was not refused")).unwrap_err();
    assert!(matches!(refused, BackupError::Exists { .. }), "{refused}");
    assert_eq!(fs::read(&to).unwrap(), b"dear");
    assert_eq!(names(&folder), before);
}

#[tokio::test]
async fn a_file_created_meanwhile_is_not_overwritten() {
    let folder = Folder::new();
    populate(&folder).await;
    let to = copy_path(&folder);
    let before = names(&folder);
    let refused = backup(folder.file(), &to, |_| fs::write(&to, "dear").unwrap()).unwrap_err();
    assert!(matches!(refused, BackupError::Exists { .. }), "{refused}");
    assert_eq!(fs::read(&to).unwrap(), b"dear");
    fs::remove_file(&to).unwrap();
    assert_eq!(names(&folder), before, "the incomplete copy is removed");
}

#[tokio::test]
async fn a_backup_that_cannot_be_made_leaves_nothing_behind() {
    let folder = Folder::new();
    populate(&folder).await;
    let before = names(&folder);
    let nowhere = folder.file().with_file_name("nowhere").join("copy.db");
    let refused = backup(folder.file(), nowhere, |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Copy { .. }), "{refused}");
    let nothing = folder.file().with_file_name("nothing.db");
    let refused = backup(nothing, copy_path(&folder), |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Inspect(InspectError::NotFound { .. })), "{refused}");
    let stopped =
        std::panic::catch_unwind(|| backup(folder.file(), copy_path(&folder), |_| panic!("stopped")));
    assert!(stopped.is_err());
    assert_eq!(names(&folder), before);
}

#[tokio::test]
async fn a_file_at_rest_that_a_server_opens_meanwhile_is_copied_once_more() {
    let folder = Folder::new();
    let first = world(&folder);
    large(&first).await;
    drop(first);
    let mut server = None;
    let mut begun = 0;
    backup(folder.file(), copy_path(&folder), |progress| {
        if progress.pages_done <= 256 {
            begun += 1;
        }
        server.get_or_insert_with(|| SqliteStore::open(folder.file()).unwrap());
    })
    .unwrap();
    assert_eq!(begun, 2);
    assert_eq!(assert_healthy(&copy_path(&folder)).runs, 4);
}

#[tokio::test]
async fn two_backups_of_one_process_to_the_same_name_do_not_touch_each_other() {
    let folder = Folder::new();
    populate(&folder).await;
    let mut before = names(&folder);
    let to = copy_path(&folder);
    let mut other = None;
    let refused = backup(folder.file(), &to, |_| {
        other.get_or_insert_with(|| backup(folder.file(), &to, |_| {}));
    })
    .unwrap_err();
    assert_eq!(other.unwrap().unwrap().path, to);
    assert!(matches!(refused, BackupError::Exists { .. }), "{refused}");
    assert_healthy(&to);
    before.push("copy.db".into());
    before.sort();
    assert_eq!(names(&folder), before);
}

#[cfg(unix)]
#[tokio::test]
async fn a_backup_belongs_to_its_owner_alone_whatever_the_rights_of_the_store() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    populate(&folder).await;
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o644)).unwrap();
    backup(folder.file(), copy_path(&folder), |_| {}).unwrap();
    assert_eq!(fs::metadata(copy_path(&folder)).unwrap().permissions().mode() & 0o777, 0o600);
}
