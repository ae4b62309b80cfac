//! Hash chains of a file: the doctor finds every change of a log, and a run whose last commit was changed is halted.

use engine::store::{Claim, StoreFailure};
use machine::event::InterruptCause;
use machine::inbox::Item;
use machine::projection_rows::PublicRunStatus;
use rusqlite::Connection;
use stores::sqlite::backup::backup;
use stores::sqlite::doctor::FindingCode;

use crate::populated_file::{assert_healthy, examined, freeze_agent, populate, world};
use crate::sqlite_fixture::Folder;
use crate::tampering::{LoggedCommit, Tampering, tamperings};
use crate::worker::parked;

fn log_of(folder: &Folder, run: &str) -> Vec<LoggedCommit> {
    let raw = Connection::open(folder.file()).unwrap();
    let sql = "SELECT first_seq, last_seq, body FROM commits WHERE run = (SELECT row FROM runs WHERE id = ?1) \
        ORDER BY last_seq";
    let mut statement = raw.prepare(sql).unwrap();
    let rows = statement.query_map([run], |row| {
        Ok(LoggedCommit { first_seq: row.get(0)?, last_seq: row.get(1)?, body: row.get(2)? })
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn tamper(folder: &Folder, sql: &str) {
    let raw = Connection::open(folder.file()).unwrap();
    raw.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    let row = |run| format!("(SELECT row FROM runs WHERE tenant = 'acme' AND id = '{run}')");
    let sql = sql.replace("{ended}", &row("ended")).replace("{waits}", &row("waits"));
    assert_ne!(raw.execute(&sql, []).unwrap(), 0, "{sql} changes nothing");
}

#[tokio::test]
async fn every_way_to_tamper_with_a_log_is_found_and_names_run_and_commit() {
    let good = Folder::new();
    populate(&good).await;
    let report = assert_healthy(&good.file());
    assert_eq!((report.chains.whole, report.chains.late, report.chains.none), (report.runs, 0, 0));
    for Tampering { sql, run, says } in tamperings(&log_of(&good, "ended")) {
        let folder = good.copy();
        sql.iter().for_each(|sql| tamper(&folder, sql));
        let report = examined(&folder.file());
        let found = report.findings.kept().iter().any(|finding| {
            finding.code == FindingCode::ChainBroken
                && finding.place.starts_with(&format!("run {run} on thread "))
                && finding.what.contains(&says)
        });
        assert!(found, "{sql:?}: nothing says {says:?} in {:#?}", report.findings.kept());
    }
}

/// The rows beside the log agree with the change, so only the chain can show it.
#[tokio::test]
async fn who_decided_cannot_be_rewritten_together_with_its_row() {
    let folder = Folder::new();
    populate(&folder).await;
    let tampering = tamperings(&log_of(&folder, "ended")).remove(0);
    tampering.sql.iter().for_each(|sql| tamper(&folder, sql));
    let report = examined(&folder.file());
    let codes: Vec<_> = report.findings.counts().iter().map(|(code, count)| (*code, *count)).collect();
    assert_eq!(codes, [(FindingCode::ChainBroken, 1)], "{:#?}", report.findings.kept());
}

#[tokio::test]
async fn a_run_whose_last_commit_was_changed_is_halted_and_the_next_one_continues() {
    let folder = Folder::new();
    let world = world(&folder);
    freeze_agent(&world).await;
    parked(&world, "thr_bad", "bad", "transfer").await;
    parked(&world, "thr_good", "good", "transfer").await;
    let changed = "UPDATE commits SET body = replace(body, '\"call_bad\"', '\"call_eve\"') \
        WHERE row = (SELECT max(row) FROM commits WHERE run = (SELECT row FROM runs WHERE id = 'bad'))";
    tamper(&folder, changed);
    for run in ["bad", "good"] {
        world.submit_accepted(run, Item::Interrupt { cause: InterruptCause::Person("ann".into()) }).await;
    }
    assert_eq!(world.run("bad").await.control, None, "it is shown as unreadable");
    assert!(world.run("good").await.control.is_some());
    let mut claimed = world.store.claim(Claim::Next { limit: 10, skip_tenant: None }).await.unwrap();
    claimed.sort_by(|one, other| one.lease.run.cmp(&other.lease.run));
    let [bad, good] = &claimed[..] else { panic!("{claimed:?}") };
    assert!(good.loaded.is_ok());
    let Err(StoreFailure::Corrupt(why)) = &bad.loaded else { panic!("{:?}", bad.loaded) };
    assert!(why.contains("run bad") && why.contains("the commit of events"), "{why}");
    assert!(why.contains("does not match its hash") && why.contains("holdpoint doctor"), "{why}");
    // An interrupt ends it, and its thread can be deleted.
    world.store.end_undecoded(&bad.lease).await.unwrap();
    assert_eq!(world.run("bad").await.status, PublicRunStatus::Interrupted);
    let report = examined(&folder.file());
    let found = report.findings.kept().iter().filter(|found| found.code == FindingCode::ChainBroken);
    assert_eq!(found.count(), 1, "the later commit hides nothing: {:#?}", report.findings.kept());
    world.store.delete_thread(&world.tenant, &"thr_bad".into(), &"tester".into()).await.unwrap();
    assert_healthy(&folder.file());
}

#[tokio::test]
async fn a_run_whose_end_was_cut_off_or_whose_head_was_changed_is_halted() {
    let last = "(SELECT max(row) FROM commits)";
    let faults = [
        (format!("DELETE FROM commits WHERE row = {last}"), "the log ends with event"),
        ("UPDATE runs SET chain_head = zeroblob(32)".into(), "the head in the run's row"),
        ("UPDATE runs SET chain_head = x'00'".into(), "the head in the run's row"),
        ("UPDATE runs SET chain_head = NULL".into(), "the head in the run's row"),
        (format!("UPDATE commits SET hash = zeroblob(32) WHERE row = {last}"), "does not match its hash"),
        (format!("UPDATE commits SET hash = NULL WHERE row = {last}"), "has no hash"),
        (format!("UPDATE commits SET body = body || ' ' WHERE row = {last}"), "does not match its hash"),
    ];
    for (sql, says) in faults {
        let folder = Folder::new();
        let world = world(&folder);
        parked(&world, "thr", "run", "transfer").await;
        tamper(&folder, &sql);
        let claim = Claim::Run { tenant: world.tenant.clone(), run: "run".into() };
        let claimed = world.store.claim(claim).await.unwrap().remove(0);
        let Err(StoreFailure::Corrupt(why)) = &claimed.loaded else { panic!("{sql}: {:?}", claimed.loaded) };
        assert!(why.contains(says), "{sql}: {why}");
        assert_eq!(world.run("run").await.control, None, "{sql}");
        world.submit_accepted("run", Item::Interrupt { cause: InterruptCause::Person("ann".into()) }).await;
        world.store.end_undecoded(&claimed.lease).await.unwrap_or_else(|why| panic!("{sql}: {why}"));
    }
}

#[tokio::test]
async fn chains_of_a_backup_are_whole_and_continue() {
    let folder = Folder::new();
    let world = world(&folder);
    freeze_agent(&world).await;
    parked(&world, "thr", "run", "transfer").await;
    let copy = folder.file().with_file_name("copy.db");
    backup(folder.file(), &copy, |_| {}).unwrap();
    let head = world.store.chain_head(&world.tenant, &"run".into()).await.unwrap();
    drop(world);
    std::fs::rename(&copy, folder.file()).unwrap();
    assert_eq!(assert_healthy(&folder.file()).chains.whole, 1);
    let world = crate::populated_file::world(&folder);
    assert_eq!(world.store.chain_head(&world.tenant, &"run".into()).await.unwrap(), head);
    let mut worker = crate::worker::claim(&world, "run").await.unwrap();
    worker.take_over();
    worker.accept(Item::Interrupt { cause: InterruptCause::Person("ann".into()) });
    worker.commit(&world).await.unwrap();
    drop(world);
    assert_eq!(assert_healthy(&folder.file()).chains.whole, 1);
}
