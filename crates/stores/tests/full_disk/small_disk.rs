//! A real file system that is too small. Skipped if this user may not mount one.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use engine::store::{StoreError, StoreFailure};
use machine::inbox::Item;
use stores::sqlite::SqliteStore;

use crate::disk::Disk;
use crate::fixture::{Clock, World};
use crate::ledger::Ledger;
use crate::recording::{one_run, one_run_with_a_long_message};
use crate::sqlite_fixture::Folder;
use crate::worker::{approve, held};

const FOLDER: &str = "HOLDPOINT_TEST_SMALL_DISK";

/// The process that the other test starts on the small file system. Without its environment variable it does nothing.
#[tokio::test]
async fn a_process_that_fills_its_disk() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let file = folder.join("store.db");
    // The ballast reserves space for later: a checkpoint copies the log into the file, so its pages need space twice.
    std::fs::write(folder.join("ballast"), vec![1_u8; 5 << 20]).unwrap();
    let ledger = Ledger::new(Arc::new(Disk::default()), &file);
    let world = World::new(Arc::new(SqliteStore::open(&file).unwrap()), Clock::new());
    let mut waiting = held(&world, "thr_waiting", "waiting", "transfer").await;
    let mut stored = 0;
    let refused = loop {
        match one_run_with_a_long_message(&ledger, &world, &format!("long_{stored:02}")).await {
            Ok(()) => stored += 1,
            Err(refused) => break refused,
        }
        assert!(stored < 200, "the store accepted more than the disk can hold");
    };
    assert!(matches!(refused, StoreError::Failed(StoreFailure::Full(_))), "{refused}");
    for index in 0..stored {
        world.run(&format!("long_{index:02}")).await;
    }
    let decision = waiting.decision("call_waiting", Some("d1"), approve());
    std::fs::remove_file(folder.join("ballast")).unwrap();
    world.submit_accepted("waiting", Item::Decision(decision)).await;
    waiting.reload(&world).await;
    waiting.drain();
    waiting.commit(&world).await.unwrap();
    one_run(&ledger, &world, "after").await.unwrap();
    drop(world);
    let world = World::new(Arc::new(SqliteStore::open(&file).unwrap()), Clock::new());
    for index in 0..stored {
        world.run(&format!("long_{index:02}")).await;
    }
    println!("\nstored {stored} and continued");
}

#[test]
fn a_store_on_a_small_file_system_refuses_when_it_is_full_and_resumes_when_there_is_space() {
    let folder = Folder::new();
    let place = folder.file().parent().unwrap().to_owned();
    let mount = "mount -t tmpfs -o size=9m holdpoint \"$0\"";
    // As root, or as root of a user namespace.
    let ways = [["-m", "--"], ["-Urm", "--"]];
    let works = |way: &&[&str; 2]| {
        let mut trial = Command::new("unshare");
        trial.args(way.iter()).args(["sh", "-c", mount]).arg(&place).stderr(Stdio::null());
        trial.status().is_ok_and(|status| status.success())
    };
    let Some(way) = ways.iter().find(works) else {
        // Written directly to stderr: the harness captures a test's output and has no result for "skipped". `make test`
        // prints the line and does not count the test.
        let told = "\nskipped: a store on a small file system, because this user may not mount one\n";
        std::io::stderr().write_all(told.as_bytes()).unwrap();
        return;
    };
    let run = format!("{mount} && exec \"$1\" --exact small_disk::a_process_that_fills_its_disk --nocapture");
    let mut child = Command::new("unshare")
        .args(way)
        .args(["sh", "-c", &run])
        .args([place.as_os_str(), std::env::current_exe().unwrap().as_os_str()])
        .env(FOLDER, &place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> =
        BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with("and continued")), "{lines:?}");
}
