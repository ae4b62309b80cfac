//! SQLite only: one process per file, versions, constraints, batches, query plans, and the size of a file.
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

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Waker};

use engine::store::{
    Append, ApprovalFilter, AuditFilter, AutoApproval, Claim, LogEntry, Page, RunFilter, StoreError,
};
use machine::Control;
use machine::chain::{CommitContent, anchor, link};
use machine::control::ControlDecodeError;
use machine::event::InterruptCause;
use machine::id::{Digest, RunId, ThreadId};
use machine::inbox::{Item, Refusal, Verdict};
use machine::phase::HookAnswers;
use machine::projection_rows::PublicRunStatus;
use rusqlite::types::{Null, Value};
use rusqlite::{Connection, ErrorCode, params, params_from_iter};
use stores::sqlite::{SqliteOpenError, SqliteStore};

use fixture::{Clock, World};
use machine::policy::OnBusy;
use sqlite_fixture::{Folder, open};
use worker::{
    approve, arguments_of, claim, creation, enqueued, held, next, order, parked, queued, reject, started,
};

fn world(folder: &Folder) -> World {
    let clock = Clock::new();
    World::new(Arc::new(open(folder, &clock, false)), clock)
}

#[test]
fn a_second_store_on_the_same_file_is_refused_until_the_first_is_closed() {
    let folder = Folder::new();
    let first = SqliteStore::open(folder.file()).unwrap();
    let refused = SqliteStore::open(folder.file()).unwrap_err();
    assert!(matches!(refused, SqliteOpenError::InUse { .. }), "{refused}");
    assert!(refused.to_string().contains("store.db.lock"), "{refused}");
    // The same file under another name has the same lock.
    let roundabout = folder.file().parent().unwrap().join(".").join("store.db");
    assert!(matches!(SqliteStore::open(roundabout), Err(SqliteOpenError::InUse { .. })));
    drop(first);
    SqliteStore::open(folder.file()).unwrap();
}

/// When a process closes any handle of a file, it loses all its POSIX locks on that file.
#[cfg(unix)]
#[tokio::test]
async fn a_refused_opening_leaves_the_log_of_the_first_store_alone() {
    let folder = Folder::new();
    let world = world(&folder);
    held(&world, "thr_1", "run_1", "transfer").await;
    assert!(matches!(SqliteStore::open(folder.file()), Err(SqliteOpenError::InUse { .. })));
    // If another process believed to be the last user of the file, it would checkpoint the log and delete it.
    let log = folder.file().with_extension("db-wal");
    let seen = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_inspects_the_file", "--nocapture"])
        .env("HOLDPOINT_LOOK_INTO", folder.file())
        .status()
        .unwrap();
    assert!(seen.success());
    assert!(log.exists(), "another process has deleted the log");
}

#[tokio::test]
async fn after_a_failed_sync_a_file_with_a_reader_is_not_opened() {
    let folder = Folder::new();
    let world = world(&folder);
    held(&world, "thr_1", "run_1", "transfer").await;
    let reader = Connection::open(folder.file()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM runs;").unwrap();
    drop(world);
    // If no sync has failed, a reader does not keep the store from opening.
    drop(SqliteStore::open(folder.file()).unwrap());
    let lock = folder.file().with_extension("db.lock");
    fs::write(&lock, "a sync failed").unwrap();
    let refused = SqliteStore::open(folder.file()).unwrap_err();
    assert!(matches!(refused, SqliteOpenError::BeingRead { .. }), "{refused}");
    reader.execute_batch("COMMIT").unwrap();
    drop(SqliteStore::open(folder.file()).unwrap());
    assert_eq!(fs::read_to_string(lock).unwrap(), "", "the log has been restarted");
}

/// The process that another test starts.
#[test]
fn a_process_that_inspects_the_file() {
    let Some(file) = std::env::var_os("HOLDPOINT_LOOK_INTO") else { return };
    let connection = Connection::open(file).unwrap();
    let count: u32 = connection.query_row("SELECT count(*) FROM runs", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
    connection.close().unwrap();
}

#[cfg(unix)]
#[test]
fn a_link_to_a_file_that_does_not_exist_yet_has_the_lock_of_the_file() {
    let folder = Folder::new();
    let link = folder.file().with_file_name("link.db");
    std::os::unix::fs::symlink(folder.file(), &link).unwrap();
    let first = SqliteStore::open(&link).unwrap();
    assert!(matches!(SqliteStore::open(folder.file()), Err(SqliteOpenError::InUse { .. })));
    drop(first);
}

#[test]
fn a_file_of_a_later_version_is_refused_and_left_alone() {
    let folder = Folder::new();
    drop(SqliteStore::open(folder.file()).unwrap());
    Connection::open(folder.file()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = fs::read(folder.file()).unwrap();
    let refused = SqliteStore::open(folder.file()).unwrap_err();
    assert!(matches!(refused, SqliteOpenError::Newer { found: 99, known: 10 }), "{refused}");
    assert!(refused.to_string().contains("version 99"), "{refused}");
    assert_eq!(fs::read(folder.file()).unwrap(), before);
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let folder = Folder::new();
    fs::write(folder.file(), [b'x'; 4_096]).unwrap();
    assert!(matches!(SqliteStore::open(folder.file()), Err(SqliteOpenError::NotSqlite { .. })));
}

#[tokio::test]
async fn the_file_is_opened_as_the_design_says() {
    let folder = Folder::new();
    let world = world(&folder);
    parked(&world, "thr", "run", "transfer").await;
    let raw = Connection::open(folder.file()).unwrap();
    let pragma = |name| raw.pragma_query_value(None, name, |row| row.get::<_, Value>(0)).unwrap();
    assert_eq!(pragma("journal_mode"), "wal".to_owned().into());
    assert_eq!(pragma("auto_vacuum"), 2.into(), "incremental");
    assert_eq!(pragma("user_version"), 10.into());
    assert_eq!(pragma("application_id"), i64::from(i32::from_be_bytes(*b"hold")).into());
}

#[tokio::test]
async fn what_was_acknowledged_is_in_a_copy_of_the_files() {
    let folder = Folder::new();
    let world = world(&folder);
    for index in 0..50 {
        let run = format!("run_{index}");
        let worker = held(&world, &format!("thr_{index}"), &run, "transfer").await;
        let copy = folder.copy();
        let copied = World::new(Arc::new(open(&copy, &world.clock, false)), world.clock.clone());
        let log = |world: &World| {
            let (store, tenant) = (world.store.clone(), world.tenant.clone());
            let run = RunId::from(run.as_str());
            async move { store.events(&tenant, &run, 0, 1_000).await.unwrap() }
        };
        assert_eq!(log(&copied).await, log(&world).await);
        assert_eq!(copied.run(&run).await, world.run(&run).await);
        assert_eq!(copied.run(&run).await.control.as_ref(), Some(&worker.run.control));
    }
}

#[tokio::test]
async fn a_control_of_another_version_is_rebuilt_from_the_log() {
    let folder = Folder::new();
    let world = world(&folder);
    let worker = parked(&world, "thr", "run", "transfer").await;
    let raw = Connection::open(folder.file()).unwrap();
    // Only the leading version byte determines how the rest is decoded.
    raw.execute("UPDATE runs SET control = ?1", params![[99_u8, 1, 2, 3]]).unwrap();
    assert_eq!(world.run("run").await.control.as_ref(), Some(&worker.run.control));
    let again = claim(&world, "run").await.unwrap();
    assert_eq!(again.run.control, worker.run.control);
}

/// The store that commit 1ae1317 wrote, whose controls have fold version 1.
fn written_by_1ae1317() -> Folder {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../holdpoint/tests/cli/fixtures/1ae1317/store.db");
    let folder = Folder::new();
    fs::copy(file, folder.file()).unwrap();
    folder
}

#[tokio::test]
async fn a_control_of_an_earlier_version_is_shown_without_reading_the_log() {
    let folder = written_by_1ae1317();
    let raw = Connection::open(folder.file()).unwrap();
    let mut statement = raw.prepare("SELECT row, id, control FROM runs ORDER BY row").unwrap();
    let runs = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let runs: Vec<(i64, String, Vec<u8>)> = runs.map(Result::unwrap).collect();
    assert_eq!(runs.len(), 18);
    let mut logs = raw.prepare("SELECT body FROM commits WHERE run = ?1 ORDER BY last_seq").unwrap();
    let mut folds = Vec::new();
    for (row, id, control) in &runs {
        assert_eq!(Control::decode(control), Err(ControlDecodeError::UnsupportedVersion(1)));
        let bodies = logs.query_map([row], |row| row.get::<_, String>(0)).unwrap();
        let lines: Vec<String> =
            bodies.flat_map(|body| body.unwrap().lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        let events: Vec<_> = lines.iter().map(|line| machine::event_codec::decode(line).unwrap()).collect();
        folds.push((id.clone(), machine::fold(&events).unwrap()));
    }
    drop((statement, logs));
    raw.execute("UPDATE commits SET body = 'nothing that could be read'", []).unwrap();
    drop(raw);
    let world = World::new(Arc::new(open(&folder, &Clock::new(), false)), Clock::new());
    for (id, fold) in folds {
        let found = world.store.run(&"default".into(), &RunId::from(id.as_str())).await.unwrap().unwrap();
        assert_eq!(found.control, Some(fold), "{id}");
    }
}

#[tokio::test]
async fn a_worker_folds_the_log_of_a_run_whose_control_an_earlier_version_wrote() {
    let folder = written_by_1ae1317();
    let world = World::new(Arc::new(open(&folder, &Clock::new(), false)), Clock::new());
    let raw = Connection::open(folder.file()).unwrap();
    let parent: String = raw
        .query_row(
            "SELECT id FROM runs WHERE status = 'waiting_tool' AND row IN (SELECT parent FROM runs)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let claim = Claim::Run { tenant: "default".into(), run: RunId::from(parent.as_str()) };
    let claimed = world.store.claim(claim).await.unwrap().remove(0);
    assert_eq!(claimed.loaded.unwrap().control.descendants, 1);
    world.store.release(&claimed.lease).await.unwrap();
    raw.execute("UPDATE commits SET body = 'nothing that could be read'", []).unwrap();
    let claim = Claim::Run { tenant: "default".into(), run: RunId::from(parent.as_str()) };
    assert!(
        world.store.claim(claim).await.unwrap().remove(0).loaded.is_err(),
        "the worker has to fold the log"
    );
}

#[tokio::test]
async fn a_run_of_an_earlier_version_gets_a_chain_with_its_next_commit() {
    let folder = written_by_1ae1317();
    let clock = Clock::new();
    clock.advance(1_900_000_000_000);
    let world = World::new(Arc::new(open(&folder, &clock, false)), clock).for_tenant("default");
    let raw = Connection::open(folder.file()).unwrap();
    let sql =
        "SELECT id, seq FROM runs WHERE status = 'waiting_approval' AND parent IS NULL ORDER BY row LIMIT 1";
    let (run, seq): (String, u32) = raw.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let run = RunId::from(run.as_str());
    assert_eq!(world.store.chain_head(&world.tenant, &run).await.unwrap(), None);
    let mut worker = claim(&world, run.as_str()).await.unwrap();
    worker.take_over();
    worker.accept(Item::Interrupt { cause: InterruptCause::Person("ann".into()) });
    worker.commit(&world).await.unwrap();
    let first = world.store.chain_head(&world.tenant, &run).await.unwrap().unwrap();
    let next = u64::from(seq) + 1;
    assert_eq!(first.starts_at, next);
    // The first hash takes the frozen agent and its own position for the previous hash.
    let sql = "SELECT first_seq, last_seq, checkpoint, body FROM commits WHERE hash IS NOT NULL";
    let content = raw.query_row(sql, [], |row| {
        let (checkpoint, body): (String, String) = (row.get(2)?, row.get(3)?);
        let (first_seq, last_seq) = (next, u64::from(row.get::<_, u32>(1)?));
        let (tenant, run) = ("default", run.as_str());
        Ok(CommitContent { tenant, run, first_seq, last_seq, checkpoint: &checkpoint, body: &body }.hash())
    });
    let revision = worker.run.control.revision;
    assert_eq!(first.hash, link(&anchor(&revision, next), &content.unwrap()));
    assert!(world.run(run.as_str()).await.control.is_some());
    raw.execute("UPDATE commits SET hash = NULL WHERE hash IS NOT NULL", []).unwrap();
    assert_eq!(
        world.run(run.as_str()).await.control,
        None,
        "a missing hash after the start breaks the chain"
    );
}

#[tokio::test]
async fn a_decision_on_a_run_that_was_ended_by_its_columns_is_answered_as_ended() {
    let folder = Folder::new();
    let world = world(&folder);
    let worker = parked(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", Some("d1"), approve());
    let raw = Connection::open(folder.file()).unwrap();
    raw.execute("UPDATE runs SET control = ?1", params![[255_u8; 3]]).unwrap();
    raw.execute("UPDATE commits SET body = 'x'", []).unwrap();
    world.submit_accepted("run", Item::Interrupt { cause: InterruptCause::Person("ann".into()) }).await;
    let claim = Claim::Run { tenant: world.tenant.clone(), run: RunId::from("run") };
    let claimed = world.store.claim(claim).await.unwrap().remove(0);
    world.store.end_undecoded(&claimed.lease).await.unwrap();
    let digest = arguments_of("call_run").digest();
    for item in [Item::Decision(decision.clone()), Item::Early { decision, digest }] {
        let verdict = world.store.submit(&world.tenant, &RunId::from("run"), item).await;
        assert_eq!(verdict, Ok(Verdict::Refused(Refusal::RunOver)));
    }
}

#[tokio::test]
async fn an_unreadable_run_blocks_no_other_claim() {
    let folder = Folder::new();
    let world = world(&folder);
    queued(&world, "thr_1", "bad").await;
    queued(&world, "thr_2", "good").await;
    let raw = Connection::open(folder.file()).unwrap();
    raw.execute("UPDATE runs SET control = ?1 WHERE id = 'bad'", params![[255_u8; 3]]).unwrap();
    raw.execute("UPDATE commits SET body = 'x' WHERE run = (SELECT row FROM runs WHERE id = 'bad')", [])
        .unwrap();
    // The engine halts the one that it cannot decode.
    let claimed = world.store.claim(Claim::Next { limit: 10, skip_tenant: None }).await.unwrap();
    let readable = claimed.iter().map(|claimed| (claimed.lease.run.as_str(), claimed.loaded.is_ok()));
    assert_eq!(readable.collect::<Vec<_>>(), [("bad", false), ("good", true)]);
    let bad = world.store.run(&world.tenant, &RunId::from("bad")).await.unwrap().expect("the run is shown");
    assert_eq!(bad.control, None);
}

/// Two runs that wait for an approval. No encoded column of one of them can be decoded.
async fn one_of_two_undecodable(folder: &Folder) -> World {
    let world = world(folder);
    for (thread, run) in [("thr_bad", "bad"), ("thr_good", "good")] {
        world.store.put_thread(&world.tenant, &thread.into(), &"mine".into()).await.unwrap();
        parked(&world, thread, run, "transfer").await;
    }
    let raw = Connection::open(folder.file()).unwrap();
    let bad = "(SELECT row FROM runs WHERE id = 'bad')";
    for sql in [
        format!("UPDATE commits SET body = 'broken' WHERE run = {bad}"),
        "UPDATE runs SET control = x'ffffff' WHERE id = 'bad'".to_owned(),
        // Valid JSON that cannot be parsed into a value.
        r#"UPDATE threads SET metadata = '{"$serde_json::private::RawValue":"1","a":1}' WHERE id = 'thr_bad'"#.to_owned(),
    ] {
        assert!(raw.execute(&sql, []).unwrap() > 0, "{sql}");
    }
    world
}

#[tokio::test]
async fn lists_show_a_row_that_cannot_be_decoded_and_all_others() {
    let folder = Folder::new();
    let world = one_of_two_undecodable(&folder).await;
    let page = Page::default();
    let runs = world.store.runs(&world.tenant, &RunFilter::default(), &page).await.unwrap().items;
    let mut runs: Vec<_> = runs.iter().map(|run| (run.id.as_str(), run.control.is_some())).collect();
    runs.sort_unstable();
    assert_eq!(runs, [("bad", false), ("good", true)]);
    let threads = world.store.threads(&world.tenant, &page).await.unwrap().items;
    let mut threads: Vec<_> = threads.iter().map(|one| (one.id.as_str(), one.metadata.is_some())).collect();
    threads.sort_unstable();
    assert_eq!(threads, [("thr_bad", false), ("thr_good", true)]);
    let held = world.store.approvals(&world.tenant, &ApprovalFilter::default(), &page).await.unwrap().items;
    let mut held: Vec<_> = held.iter().map(|one| (one.run.as_str(), one.is_unreadable())).collect();
    held.sort_unstable();
    assert_eq!(held, [("bad", true), ("good", false)]);
    let log = world.store.events(&world.tenant, &"bad".into(), 0, 1_000).await.unwrap();
    assert!(!log.is_empty() && log.iter().all(|logged| logged.readable().is_none()), "{log:?}");
}

#[tokio::test]
async fn a_run_that_cannot_be_decoded_is_interrupted_and_ended_and_its_thread_deleted() {
    let folder = Folder::new();
    let world = one_of_two_undecodable(&folder).await;
    let interrupt = Item::Interrupt { cause: InterruptCause::Person("ann".into()) };
    let verdict = world.store.submit(&world.tenant, &"bad".into(), interrupt).await.unwrap();
    assert!(verdict.is_taken(), "{verdict:?}");
    let asked = Claim::Run { tenant: world.tenant.clone(), run: "bad".into() };
    let claimed = world.store.claim(asked).await.unwrap().pop().expect("the run is claimed");
    assert!(claimed.loaded.is_err());
    world.store.end_undecoded(&claimed.lease).await.unwrap();
    assert_eq!(world.run("bad").await.status, PublicRunStatus::Interrupted);
    // As if the run had delegated: the event that names the child cannot be decoded either.
    let raw = Connection::open(folder.file()).unwrap();
    let delegated =
        "UPDATE suspensions SET kind = 'child_run' WHERE run = (SELECT row FROM runs WHERE id = 'bad')";
    assert_eq!(raw.execute(delegated, []).unwrap(), 1);
    world.store.delete_thread(&world.tenant, &"thr_bad".into(), &"tester".into()).await.unwrap();
    assert_eq!(world.store.thread(&world.tenant, &"thr_bad".into()).await.unwrap().created_at, None);
    assert!(world.run("good").await.control.is_some());
}

/// A run that waits for approval, one queued after it, and one that has ended; and a plain connection.
async fn three_runs(folder: &Folder) -> (World, Connection) {
    let world = world(folder);
    parked(&world, "thr", "waits", "transfer").await;
    enqueued(&world, "thr", "behind").await;
    let mut ended = held(&world, "thr_2", "ended", "transfer").await;
    let decision = ended.decision("call_ended", Some("d1"), reject());
    ended.accept(Item::Decision(decision));
    ended.finish_with("done");
    ended.commit(&world).await.unwrap();
    let raw = Connection::open(folder.file()).unwrap();
    raw.pragma_update(None, "foreign_keys", true).unwrap();
    (world, raw)
}

#[tokio::test]
async fn rows_that_cannot_be_are_refused() {
    let folder = Folder::new();
    let (_world, raw) = three_runs(&folder).await;
    let refused = [
        "UPDATE runs SET status = 'sleeping' WHERE id = 'waits'",
        "UPDATE runs SET status = 'completed' WHERE id = 'waits'",
        "UPDATE runs SET ended_at = 1 WHERE id = 'waits'",
        "UPDATE runs SET ended_at = NULL WHERE id = 'ended'",
        "UPDATE runs SET holds = 1 WHERE id = 'ended'",
        "UPDATE runs SET holds = 1 WHERE id = 'behind'",
        "UPDATE runs SET status = 'running' WHERE id = 'behind'",
        "UPDATE runs SET holds = 0 WHERE id = 'waits'",
        "UPDATE runs SET ready = 1, ready_at = 1 WHERE id = 'ended'",
        "UPDATE runs SET ready = 2, ready_at = 1 WHERE id = 'waits'",
        "UPDATE runs SET ready = 1 WHERE id = 'waits'",
        "UPDATE runs SET wake_at = 1 WHERE id = 'ended'",
        "UPDATE runs SET seq = 0 WHERE id = 'waits'",
        "UPDATE runs SET seq = 'three' WHERE id = 'waits'",
        "UPDATE runs SET id = 'behind' WHERE id = 'waits'",
        "UPDATE runs SET thread = 4711 WHERE id = 'waits'",
        "UPDATE runs SET promised = 'm' WHERE id = 'waits'",
        "UPDATE suspensions SET status = 'approved' WHERE status = 'pending'",
        "UPDATE suspensions SET decided_at = NULL WHERE status <> 'pending'",
        "UPDATE suspensions SET decided_by = NULL WHERE status <> 'pending'",
        "UPDATE suspensions SET answered_by = 1 WHERE status <> 'pending'",
        "UPDATE suspensions SET kind = 'mood'",
        "UPDATE suspensions SET seq = 0",
        "UPDATE suspensions SET arguments = x'00'",
        "UPDATE commits SET checkpoint = 'lunch'",
        "UPDATE commits SET first_seq = last_seq + 1",
        "UPDATE commits SET run = 4711",
        "UPDATE messages SET role = 'king'",
        "INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body)
            SELECT tenant, run, first_seq, last_seq, checkpoint, body FROM commits LIMIT 1",
        "INSERT INTO inbox (tenant, run, kind, item) VALUES ('acme', 1, 'letter', '{}')",
        "INSERT INTO inbox (tenant, run, kind, item) VALUES ('acme', 1, 'early', '{}')",
        "INSERT INTO inbox (tenant, run, kind, item) VALUES ('acme', 4711, 'interrupt', '{}')",
        "INSERT INTO decisions (tenant, run, id, decision) SELECT tenant, run, id, decision FROM decisions",
        "INSERT INTO call_ids (tenant, thread, id) SELECT tenant, thread, id FROM call_ids LIMIT 1",
        "INSERT INTO messages SELECT * FROM messages LIMIT 1",
        "DELETE FROM threads",
        "DELETE FROM runs",
    ];
    for sql in refused {
        let error = raw.execute(sql, []).expect_err(sql);
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::ConstraintViolation), "{sql}: {error}");
    }
}

#[tokio::test]
async fn a_deleted_thread_leaves_no_row_behind() {
    let folder = Folder::new();
    let (world, raw) = three_runs(&folder).await;
    let counts = || -> BTreeMap<String, i64> {
        let mut tables = raw
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
            .unwrap();
        let names: Vec<String> =
            tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let count = |name: &String| {
            raw.query_row(&format!("SELECT count(*) FROM {name}"), [], |row| row.get(0)).unwrap()
        };
        names.iter().map(|name| (name.clone(), count(name))).collect()
    };
    let before = counts();
    let mut worker = started(&world, "thr_3", "more").await;
    let hooks = HookAnswers::default();
    worker.asks_knowing(&[("a", "transfer")], BTreeSet::new(), hooks);
    worker.commit(&world).await.unwrap();
    let decision = worker.decision("a", Some("d2"), reject());
    worker.accept(Item::Decision(decision));
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    assert_ne!(counts(), before);
    world.store.delete_thread(&world.tenant, &ThreadId::from("thr_3"), &"tester".into()).await.unwrap();
    // The audit record remains: the decision, and the deletion.
    let audit_records = before["audit"] + 2;
    let after = BTreeMap::from_iter(before.into_iter().chain([("audit".to_owned(), audit_records)]));
    assert_eq!(counts(), after);
}

#[tokio::test]
async fn no_statement_reads_a_whole_table() {
    let folder = Folder::new();
    let (_world, raw) = three_runs(&folder).await;
    let mut seen = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/sql")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for sql in fs::read_to_string(&path).unwrap().split_inclusive(";\n") {
            seen += 1;
            for step in plan(&raw, sql) {
                // These partial indexes contain only the rows that are looked for.
                let lines = ["runs_woken", "runs_interrupted", "runs_by_deadline", "runs_under_way"];
                let scans = step.starts_with("SCAN")
                    && !step.contains("CONSTANT ROW")
                    && !step.starts_with("SCAN json_each")
                    && !lines.iter().any(|line| step.ends_with(&format!("INDEX {line}")))
                    // Not tables, but intermediate results of a statement. `i` is the inbox in `run_counts`, which
                    // contains only items that no worker has processed.
                    && !["SCAN tenants", "SCAN unended", "SCAN (subquery-1)", "SCAN i", "SCAN tree", "SCAN below"].contains(&step.as_str());
                // The suspensions of one run, thread or tree of runs are few, and so are the statuses and the grants of a thread,
                // and a thread has at most 10,000 runs.
                let few = name.starts_with("approvals_of_")
                    || ["run_counts", "grants_for_tool", "runs_of_thread_in_order"].contains(&name.as_str());
                let sorts = step.contains("TEMP B-TREE") && !few;
                assert!(!scans && !sorts, "{name}: {step}");
            }
        }
    }
    assert!(seen > 40, "only {seen} statements were found");
}

/// However many other rows there are: the index covers every condition and the order of the list.
#[tokio::test]
async fn no_list_scans_everything_of_its_tenant() {
    let folder = Folder::new();
    let (_world, raw) = three_runs(&folder).await;
    let newer = "(created_at,id)<(?,?)";
    let older = "(created_at,id)>(?,?)";
    let lists = [
        ("runs_newest", "r", format!("runs_by_status (tenant=? AND status=? AND {newer})")),
        ("runs_of_agent", "r", format!("runs_by_agent (tenant=? AND agent=? AND status=? AND {newer})")),
        ("runs_interrupting", "r", format!("runs_interrupting (tenant=? AND {newer})")),
        ("runs_of_thread", "r", format!("runs_by_thread (thread=? AND {newer})")),
        ("threads_newest", "t", format!("threads_by_age (tenant=? AND {newer})")),
        ("approvals_pending", "s", format!("suspensions_pending (tenant=? AND {older})")),
        ("approvals_oldest", "s", format!("suspensions_by_age (tenant=? AND status=? AND {older})")),
        ("approvals_of_run", "s", "suspensions_by_run (run=?)".into()),
        ("approvals_of_tree", "s", "suspensions_by_run (run=?)".into()),
        ("approvals_of_tree", "r", "runs_by_parent (parent=?)".into()),
        ("run_open_descendants", "r", "runs_by_parent (parent=?)".into()),
        ("messages_in_order", "m", "messages_in_order (thread=? AND place>?)".into()),
    ];
    for (name, table, index) in lists {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/sqlite/sql/{name}.sql"));
        let steps = plan(&raw, &fs::read_to_string(path).unwrap());
        let steps: Vec<String> = steps.iter().map(|step| step.replace("COVERING ", "")).collect();
        let wanted = format!("SEARCH {table} USING INDEX {index}");
        assert!(steps.contains(&wanted), "{name}: no {wanted} in {steps:?}");
    }
}

fn statement(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/sqlite/sql/{name}.sql"));
    fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn a_claim_that_passes_over_a_tenant_looks_at_none_of_its_runs_and_at_no_later_deadline() {
    let folder = Folder::new();
    let (_world, raw) = three_runs(&folder).await;
    let due = statement("claim_due_of_others");
    assert_eq!(plan(&raw, &due), ["SEARCH runs USING INDEX runs_by_deadline (wake_at>? AND wake_at<?)"]);
    // Cursor 0 is the table. No column is read from it, because the index contains the tenant.
    for sql in [due, statement("claim_woken_of_others")] {
        let mut explained = raw.prepare(&format!("EXPLAIN {sql}")).unwrap();
        let count = explained.parameter_count();
        let steps = explained
            .query_map(params_from_iter(vec![Null; count]), |row| Ok((row.get(1)?, row.get(2)?)))
            .unwrap();
        let steps: Vec<(String, i64)> = steps.map(Result::unwrap).collect();
        assert!(!steps.contains(&("Column".to_owned(), 0)), "{sql}: {steps:?}");
    }
    let (now, later) = (1_000, 1_000_000);
    raw.execute("UPDATE runs SET wake_at = ?1 WHERE id = 'waits'", [later]).unwrap();
    let mut walk = raw.prepare(&statement("claim_due_of_others")).unwrap();
    let steps = |walk: &rusqlite::Statement<'_>| walk.reset_status(rusqlite::StatementStatus::VmStep);
    assert_eq!(walk.query(params!["acme", now]).unwrap().next().unwrap().map(|_| ()), None);
    let none_due = steps(&walk);
    raw.execute_batch(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
        INSERT INTO threads (tenant, id, created_at, metadata) SELECT 'acme', 'many_' || i, i, '{}' FROM n;
        INSERT INTO runs (tenant, id, thread, agent, status, holds, seq, epoch, interrupt_accepted, in_doubt, ready,
            wake_at, created_at, control)
        SELECT 'acme', 'of_' || id, row, 'a', 'waiting_tool', 1, 1, 0, 0, 0, 0, 1000000 + row, 1, x''
        FROM threads WHERE id LIKE 'many_%'",
    )
    .unwrap();
    assert_eq!(walk.query(params!["acme", now]).unwrap().next().unwrap().map(|_| ()), None);
    assert!(steps(&walk) <= none_due + 10, "the claim scanned a thousand later deadlines");
}

#[tokio::test]
async fn auto_approve_that_was_switched_often_leaves_one_row_and_revoked_grants_are_in_no_index_that_is_used()
{
    let folder = Folder::new();
    let world = world(&folder);
    let thread = ThreadId::from("thr");
    world.store.put_thread(&world.tenant, &thread, &serde_json::Value::Null).await.unwrap();
    let set = async |id: &str, on: bool| {
        let given = AutoApproval { id: id.into(), by: "ana".into() };
        world
            .store
            .set_auto_approve(&world.tenant, &thread, on.then_some(&given), &"tester".into())
            .await
            .unwrap();
    };
    for index in 0..1_000 {
        set(&format!("grt_{index}"), true).await;
        match index % 3 {
            0 => set("", false).await,
            1 => world
                .store
                .revoke_grant(&world.tenant, &format!("grt_{index}").into(), &"tester".into())
                .await
                .unwrap(),
            _ => {}
        }
    }
    set("grt_last", true).await;
    let raw = Connection::open(folder.file()).unwrap();
    let rows = "SELECT group_concat(id) FROM grants";
    assert_eq!(raw.query_row(rows, [], |row| row.get::<_, String>(0)).unwrap(), "grt_last");
    let gone = world.store.revoke_grant(&world.tenant, &"grt_1".into(), &"tester".into()).await;
    assert_eq!(gone, Err(StoreError::NotFound), "the grant was already revoked");
    for name in [
        "thread_by_id",
        "threads_newest",
        "tools_granted",
        "grants_for_tool",
        "auto_approve_end",
        "grants_revoke_of_thread",
    ] {
        let steps = plan(&raw, &statement(name));
        assert!(
            steps.iter().any(|step| step.contains("INDEX grants_in_force (thread=?")),
            "{name}: {steps:?}"
        );
    }
    let deletion = plan(&raw, "DELETE FROM grants WHERE thread = ?1");
    assert!(deletion[0].ends_with("INDEX grants_of_thread (thread=?)"), "{deletion:?}");
}

fn plan(raw: &Connection, sql: &str) -> Vec<String> {
    let mut statement = raw.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let count = statement.parameter_count();
    let nothing = vec![Null; count];
    let steps = statement.query_map(params_from_iter(nothing), |row| row.get(3)).unwrap();
    steps.map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_that_arrive_together_share_a_sync() {
    let folder = Folder::new();
    let world = world(&folder);
    let before = world.store.metrics();
    let tasks: Vec<_> = (0..64)
        .map(|index| {
            let world = world.clone();
            tokio::spawn(async move {
                let mut worker = started(&world, &format!("thr_{index}"), &format!("run_{index}")).await;
                for call in 0..4 {
                    worker.asks(&[(&format!("call_{call}"), "echo")]);
                    worker.commit(&world).await.unwrap();
                    worker.succeeds(&format!("call_{call}"));
                    worker.commit(&world).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let after = world.store.metrics();
    assert_eq!(after.commits - before.commits, 64 * 9);
    assert!(after.syncs - before.syncs < (after.commits - before.commits) / 2, "{before:?} {after:?}");
    assert!(after.bytes > before.bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_refused_append_spoils_no_other_of_its_batch() {
    let folder = Folder::new();
    let world = world(&folder);
    let mut workers = Vec::new();
    for index in 0..90 {
        workers.push(started(&world, &format!("thr_{index}"), &format!("run_{index}")).await);
    }
    let commits = world.store.metrics().commits;
    let mut tasks = Vec::new();
    for (index, mut worker) in workers.into_iter().enumerate() {
        let world = world.clone();
        tasks.push(tokio::spawn(async move {
            worker.asks(&[("a", "transfer"), ("b", "echo")]);
            let good = worker.append();
            let append = match index % 3 {
                0 => good,
                // A call id is used twice, which the store detects only after most rows are written.
                1 => {
                    let mut append = good;
                    append.rows.calls.extend_from_within(..1);
                    append
                }
                _ => Append { expected_seq: good.expected_seq - 1, ..good },
            };
            (index % 3, world.store.append(&worker.lease, append).await.map(|_| ()))
        }));
    }
    for task in tasks {
        match task.await.unwrap() {
            (0, result) => assert_eq!(result, Ok(())),
            (1, result) => assert!(matches!(result, Err(StoreError::Impossible(_))), "{result:?}"),
            (_, result) => assert_eq!(result, Err(StoreError::Fenced)),
        }
    }
    assert_eq!(world.store.metrics().commits, commits + 30);
    for index in 0..90 {
        let seq = world.run(&format!("run_{index}")).await.control.as_ref().unwrap().seq;
        assert_eq!(seq > 5, index % 3 == 0, "the log of run_{index} ends at {seq}");
    }
}

#[tokio::test]
async fn a_held_run_takes_little_room() {
    let folder = Folder::new();
    drop(world(&folder));
    let empty = fs::metadata(folder.file()).unwrap().len();
    let world = world(&folder);
    for index in 0..200 {
        // Ids as long as generated ones.
        let name = format!("018f2c3a-7b1e-7c4d-9e2f-{index:012}");
        parked(&world, &format!("thr_{name}"), &format!("run_{name}"), "transfer").await;
    }
    drop(world);
    let each = (fs::metadata(folder.file()).unwrap().len() - empty) / 200;
    assert!(each <= 8 * 1_024, "{each} bytes");
}

#[tokio::test]
async fn a_claim_passes_over_runs_that_others_hold() {
    let folder = Folder::new();
    let world = world(&folder);
    for index in 0..20 {
        queued(&world, &format!("thr_{index}"), &format!("run_{index:02}")).await;
    }
    let first = next(&world, 5).await;
    let second = next(&world, 5).await;
    assert_eq!(first, ["run_00", "run_01", "run_02", "run_03", "run_04"]);
    assert_eq!(second, ["run_05", "run_06", "run_07", "run_08", "run_09"]);
}

/// Polls the task once, so that the command is sent, and then drops it.
async fn given_up<T>(mut task: engine::store::BoxFuture<'_, T>) {
    std::future::poll_fn(|context| {
        let _ = task.as_mut().poll(context);
        std::task::Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn an_abandoned_creation_leaves_no_unowned_run() {
    let folder = Folder::new();
    let world = world(&folder);
    let names: Vec<String> = (0..50).map(|index| format!("run_{index:02}")).collect();
    for name in &names {
        let create = creation(&world, order(&format!("thr_{name}"), name), OnBusy::Reject, true).await;
        given_up(world.store.create(create)).await;
    }
    // The writer executes commands in order, so the creations are done when this later write is.
    world.store.put_thread(&world.tenant, &ThreadId::from("last"), &serde_json::Value::Null).await.unwrap();
    assert_eq!(next(&world, 100).await, names);
}

/// A caller that stops waiting loses nothing: what its commit decided is committed together with the record of it.
#[tokio::test]
async fn a_decision_and_its_audit_record_are_one_commit() {
    let folder = Folder::new();
    let world = world(&folder);
    let mut worker = held(&world, "thr", "run", "transfer").await;
    worker.accept(Item::Decision(worker.decision("call_run", Some("d1"), reject())));
    let (append, seq) = (worker.append(), worker.append().control.seq);
    let mut waiting = world.store.append(&worker.lease, append);
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(waiting);
    // The writer performs one command after the other.
    world.store.put_revision(&Digest::sha256(b"later"), "later").await.unwrap();
    let stored = world.store.events(&world.tenant, &"run".into(), 0, 1_000).await.unwrap();
    assert_eq!(stored.last().map(LogEntry::seq), Some(seq), "the commit is stored");
    world.store.seal_audit().await.unwrap();
    let records = world.store.audit(&world.tenant, &AuditFilter::default(), 0, 10).await.unwrap();
    assert_eq!(records.len(), 1, "{records:?}");
}
