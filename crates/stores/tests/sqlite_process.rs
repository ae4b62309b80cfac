//! Whole processes: one that is killed, and one whose file may not grow any more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test may panic")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and ignores the rest")]

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod fixture;
#[path = "conformance/sqlite_fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod sqlite_fixture;
#[path = "conformance/worker.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod worker;

use engine::store::{Tenant, ViewStore};
use fixture::{Clock, World};
use machine::id::RunId;
use sqlite_fixture::Folder;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use stores::sqlite::{SqliteOpenError, SqliteStore};
use worker::started;

const FILE: &str = "HOLDPOINT_TEST_FILE";
const COUNT: &str = "HOLDPOINT_TEST_COUNT";

/// The process that the other tests start: it creates runs, prints the id of each acknowledged run, and then keeps the
/// file open until it is killed. Without its environment variable it does nothing.
#[tokio::test]
async fn a_process_that_writes() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let count: usize = std::env::var(COUNT).unwrap().parse().unwrap();
    let store = SqliteStore::open(PathBuf::from(file)).unwrap();
    let world = World::new(Arc::new(store), Clock::new());
    for index in 0..count {
        started(&world, &format!("thr_{index}"), &format!("run_{index}")).await;
        let mut out = std::io::stdout().lock();
        writeln!(out, "stored run_{index}").unwrap();
        out.flush().unwrap();
    }
    println!("all stored");
    let _ = std::io::stdin().read(&mut [0]);
}

fn start(file: &Path, count: usize, limit: Option<u32>) -> Child {
    // If the file may not grow any more, a write fails instead of ending the process with a signal.
    let limit = limit.map_or(String::new(), |blocks| format!("trap '' XFSZ; ulimit -f {blocks}; "));
    Command::new("sh")
        .args(["-c", &format!("{limit}exec \"$0\" --exact a_process_that_writes --nocapture")])
        .arg(std::env::current_exe().unwrap())
        .env(FILE, file)
        .env(COUNT, count.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The runs that the process reports as stored, until it reports that it is done or ends.
fn stored(child: &mut Child) -> Vec<RunId> {
    let mut stored = Vec::new();
    for line in BufReader::new(child.stdout.as_mut().unwrap()).lines() {
        let line = line.unwrap();
        // The harness prints its own text in front of the first line.
        if let Some((_, run)) = line.split_once("stored ") {
            stored.push(RunId::from(run));
        }
        if line.ends_with("all stored") {
            break;
        }
    }
    stored
}

async fn assert_all_there(file: &Path, runs: &[RunId]) {
    let store = SqliteStore::open(file).unwrap();
    for run in runs {
        assert!(store.run(&Tenant::from("acme"), run).await.unwrap().is_some(), "{run} is lost");
    }
}

#[tokio::test]
async fn a_killed_process_leaves_what_it_acknowledged_and_its_lock_is_gone() {
    let folder = Folder::new();
    let mut child = start(&folder.file(), 20, None);
    let runs = stored(&mut child);
    assert_eq!(runs.len(), 20);
    let refused = SqliteStore::open(folder.file());
    assert!(matches!(refused, Err(SqliteOpenError::InUse { .. })));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_all_there(&folder.file(), &runs).await;
}

#[tokio::test]
async fn a_commit_that_fails_ends_the_process_and_nothing_acknowledged_is_lost() {
    let folder = Folder::new();
    let mut child = start(&folder.file(), 10_000, Some(1_200));
    let runs = stored(&mut child);
    let ended = child.wait().unwrap();
    assert_eq!(ended.code(), Some(1), "the store ends the process itself");
    assert!(!runs.is_empty() && runs.len() < 10_000, "{} runs were stored", runs.len());
    assert_all_there(&folder.file(), &runs).await;
}
