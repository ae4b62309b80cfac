//! Faults that are planted one at a time into a healthy file, and the doctor's finding for each.

use machine::id::ThreadId;
use rusqlite::Connection;
use stores::sqlite::doctor::{self, DoctorProgress, FindingCode};
use stores::sqlite::{InspectError, SqliteStore};

use crate::populated_file::{assert_healthy, examined, freeze_agent, populate, world};
use crate::sqlite_fixture::Folder;
use crate::worker::parked;

/// Plants a fault past all constraints.
fn plant(folder: &Folder, sql: &str) {
    let raw = Connection::open(folder.file()).unwrap();
    raw.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;").unwrap();
    let before = raw.total_changes();
    raw.execute_batch(sql).unwrap();
    assert_ne!(raw.total_changes(), before, "{sql} changes nothing");
}

#[tokio::test]
async fn a_good_file_has_nothing_to_find() {
    let folder = Folder::new();
    populate(&folder).await;
    let mut stages = Vec::new();
    let report = doctor::examine(folder.file(), |progress| stages.push(progress)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let raw = Connection::open(folder.file()).unwrap();
    let count = |sql: &str| -> u64 {
        u64::try_from(raw.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()).unwrap()
    };
    assert_eq!(report.threads, count("SELECT count(*) FROM threads"));
    assert_eq!(report.runs, count("SELECT count(*) FROM runs"));
    assert_eq!(report.events, count("SELECT sum(seq) FROM runs"));
    assert_eq!(stages.first(), Some(&DoctorProgress::Pages));
    assert!(
        stages.contains(&DoctorProgress::Threads { done: report.threads, total: report.threads }),
        "{stages:?}"
    );
}

#[tokio::test]
async fn each_planted_fault_is_found_where_it_is() {
    use FindingCode::{
        AuditBroken, CallDiffers, ChildLost, ConstraintBroken, ControlDiffers, DecisionDiffers, FileDamaged,
        InboxDiffers, LogBroken, MessageDiffers, Orphan, RevisionDiffers, RunDiffers, SuspensionDiffers,
        ThreadDiffers, Unreadable,
    };
    let good = Folder::new();
    populate(&good).await;
    let faults: [(&str, FindingCode, &str); 68] = [
        // The audit record.
        (
            "UPDATE audit SET body = replace(body, '\"by\":\"ana\"', '\"by\":\"bob\"') WHERE seq = 1",
            AuditBroken,
            "audit record 1",
        ),
        ("UPDATE audit SET actor = 'bob' WHERE seq = 2", AuditBroken, "audit record 2 of tenant acme"),
        ("DELETE FROM audit WHERE seq = 2", AuditBroken, "record 2 should be here"),
        ("DELETE FROM audit WHERE seq = 3", AuditBroken, "the stored head is 3"),
        ("UPDATE audit SET seq = 9 WHERE seq = 3", AuditBroken, "record 3 should be here"),
        ("DELETE FROM audit_chains", AuditBroken, "the stored head is 0"),
        // The stored state.
        (
            "UPDATE runs SET control = (SELECT control FROM runs WHERE id = 'behind') WHERE id = 'waits'",
            ControlDiffers,
            "run waits",
        ),
        (
            "UPDATE runs SET control = substr(control, 1, length(control) - 1) WHERE id = 'ended'",
            ControlDiffers,
            "run ended",
        ),
        // The log.
        (
            "DELETE FROM commits WHERE run = (SELECT row FROM runs WHERE id = 'ended') AND first_seq > 1 AND checkpoint <> 'run_finished'",
            LogBroken,
            "run ended",
        ),
        (
            "DELETE FROM commits WHERE row = (SELECT max(row) FROM commits WHERE run = (SELECT row FROM runs WHERE id = 'ended'))",
            RunDiffers,
            "run ended",
        ),
        (
            "DELETE FROM commits WHERE run = (SELECT row FROM runs WHERE id = 'behind')",
            LogBroken,
            "run behind",
        ),
        (
            "UPDATE commits SET body = substr(body, instr(body, char(10)) + 1) WHERE run = (SELECT row FROM runs WHERE id = 'ended') AND first_seq > 1",
            LogBroken,
            "run ended",
        ),
        (
            "UPDATE commits SET body = replace(body, '\"type\":\"run.started\"', '\"type\":\"run.paused\"')",
            Unreadable,
            "event 2",
        ),
        (
            "UPDATE commits SET body = replace(body, '\"v\":1', '\"v\":9') WHERE first_seq = 1",
            Unreadable,
            "version 9",
        ),
        (
            "UPDATE commits SET body = replace(body, '{\"of\":\"no\"}', '{\"of\":\"me\"}')",
            LogBroken,
            "digest",
        ),
        ("UPDATE commits SET checkpoint = 'waiting' WHERE first_seq = 1", LogBroken, "user_message"),
        ("UPDATE commits SET tenant = 'thief' WHERE first_seq = 1", LogBroken, "thief"),
        // The row of a run.
        ("UPDATE runs SET status = 'failed' WHERE id = 'ended'", RunDiffers, "status is \"failed\""),
        ("UPDATE runs SET seq = seq + 1 WHERE id = 'waits'", RunDiffers, "seq is"),
        ("UPDATE runs SET wake_at = NULL WHERE wake_at IS NOT NULL", RunDiffers, "wake_at is nothing"),
        ("UPDATE runs SET in_doubt = 0 WHERE id = 'lost'", RunDiffers, "in_doubt is 0"),
        ("UPDATE runs SET epoch = 0 WHERE id = 'lost'", RunDiffers, "epoch 0"),
        ("UPDATE runs SET epoch = 9000000000000 WHERE id = 'waits'", RunDiffers, "opened 2 times"),
        ("UPDATE runs SET promised = NULL WHERE id = 'behind'", RunDiffers, "promised is nothing"),
        (
            "UPDATE runs SET parent = (SELECT row FROM runs WHERE id = 'ended') WHERE parent IS NOT NULL",
            RunDiffers,
            "its parent is ended",
        ),
        (
            "UPDATE runs SET ended_at = NULL WHERE id = 'ended'",
            ConstraintBroken,
            "table runs 1 rows break CHECK",
        ),
        // Suspensions and approvals.
        (
            "UPDATE suspensions SET status = 'approved' WHERE status = 'rejected'",
            SuspensionDiffers,
            "status is \"approved\", the log says \"rejected\"",
        ),
        (
            "UPDATE suspensions SET closed_seq = closed_seq + 1 WHERE status = 'rejected'",
            SuspensionDiffers,
            "closed_seq is",
        ),
        (
            "UPDATE suspensions SET decided_by = 'eve' WHERE decided_by = 'ana'",
            SuspensionDiffers,
            "decided_by is \"eve\"",
        ),
        (
            "UPDATE suspensions SET arguments = zeroblob(32) WHERE call = 'call_waits'",
            SuspensionDiffers,
            "arguments is",
        ),
        (
            "UPDATE suspensions SET answered_by = NULL, expires_at = 5 WHERE kind = 'in_doubt'",
            SuspensionDiffers,
            "expires_at is 5",
        ),
        (
            "UPDATE suspensions SET answered_by = 4711 WHERE call = 'call_decided'",
            SuspensionDiffers,
            "row 4711",
        ),
        ("DELETE FROM suspensions WHERE call = 'call_waits'", SuspensionDiffers, "has no row"),
        // Messages, calls, and what else a thread keeps.
        ("UPDATE messages SET role = 'user' WHERE role = 'tool'", MessageDiffers, "role is \"user\""),
        ("UPDATE messages SET seq = seq + 1 WHERE id = 'msg_user_waits'", MessageDiffers, "msg_user_waits"),
        ("DELETE FROM messages WHERE id = 'msg_user_ended'", MessageDiffers, "has no row"),
        (
            "INSERT INTO messages SELECT tenant, thread, 'msg_more', run, seq, role, 99 FROM messages LIMIT 1",
            MessageDiffers,
            "rows",
        ),
        (
            "UPDATE messages SET place = place + 100 WHERE id = 'msg_user_ended'",
            MessageDiffers,
            "order of the logs",
        ),
        ("UPDATE post_keys SET run = 4711", Orphan, "a run that does not exist"),
        (
            "UPDATE post_keys SET run = (SELECT row FROM runs WHERE id = 'ended')",
            ThreadDiffers,
            "a run of another thread",
        ),
        ("UPDATE post_keys SET tenant = 'thief'", ThreadDiffers, "belongs to another tenant"),
        ("UPDATE remembered SET tenant = 'thief'", DecisionDiffers, "belongs to another tenant"),
        ("UPDATE remembered SET status = 404", DecisionDiffers, "is not what was written"),
        ("UPDATE post_keys SET body = zeroblob(32)", ThreadDiffers, "is not what was written"),
        ("UPDATE remembered SET run = 4711", Orphan, "remembered"),
        ("UPDATE call_ids SET id = 'nay' WHERE id = 'no'", CallDiffers, "call no"),
        ("INSERT INTO call_ids SELECT tenant, thread, 'more' FROM call_ids LIMIT 1", CallDiffers, "rows"),
        ("UPDATE grants SET given_by = 'eve'", ThreadDiffers, "given by eve"),
        (
            "UPDATE grants SET reasons = '[\"tool\",{\"agent\":\"all_tools\"}]'",
            ThreadDiffers,
            "is not what the logs say",
        ),
        ("UPDATE grants SET agent = NULL", ThreadDiffers, "is not what the logs say"),
        ("UPDATE grants SET tenant = 'thief'", ThreadDiffers, "is not what the logs say"),
        ("DELETE FROM grants", ThreadDiffers, "has no row"),
        ("UPDATE plugin_state SET value = '1' WHERE key = 'ours'", ThreadDiffers, "state ours"),
        ("UPDATE threads SET head = 'msg_user_ended' WHERE id = 'thr_ended'", ThreadDiffers, "last message"),
        (
            "UPDATE runs SET holds = 0, status = 'queued' WHERE id = 'waits' AND tenant = 'acme'",
            ThreadDiffers,
            "0 of them hold it",
        ),
        (
            "DROP INDEX runs_one_holder; UPDATE runs SET holds = 1 WHERE id = 'behind'",
            ThreadDiffers,
            "2 of them hold it",
        ),
        // The tables themselves.
        (
            "DROP INDEX runs_one_holder; UPDATE runs SET holds = 1 WHERE id = 'behind'",
            FileDamaged,
            "index runs_one_holder",
        ),
        (
            "UPDATE runs SET ready = 7, ready_at = 1 WHERE id = 'behind'",
            ConstraintBroken,
            "CHECK (ready IN (0, 1, 2))",
        ),
        // Accepted items and decisions.
        ("DELETE FROM decisions WHERE id = 'd1'", DecisionDiffers, "d1"),
        (
            "UPDATE runs SET ready = 0, ready_at = NULL WHERE id = 'decided'",
            InboxDiffers,
            "no worker has been notified",
        ),
        // References to missing rows.
        ("DELETE FROM runs WHERE parent IS NOT NULL", ChildLost, "call delegate"),
        ("DELETE FROM threads WHERE id = 'thr_early'", Orphan, "no row of threads"),
        ("DELETE FROM revisions", RevisionDiffers, "not stored"),
        // Inline agents.
        (
            "DELETE FROM brought",
            RevisionDiffers,
            "run brought on thread thr_brought of acme its frozen agent",
        ),
        ("UPDATE brought SET text = 'what came alone'", RevisionDiffers, "has a text with the digest"),
        (
            "UPDATE brought SET tenant = 'thief'",
            ThreadDiffers,
            "came with a message belongs to another tenant",
        ),
        (
            "INSERT INTO brought SELECT r.tenant, r.thread, b.digest, b.text FROM brought b, runs r WHERE r.id = 'ended'",
            Orphan,
            "no run of the thread is pinned to",
        ),
        ("UPDATE brought SET thread = 4711", Orphan, "brought it belongs to no row of threads"),
    ];
    for (sql, code, says) in faults {
        let folder = good.copy();
        plant(&folder, sql);
        let report = examined(&folder.file());
        let found = report.findings.kept().iter().any(|finding| {
            finding.code == code && format!("{} {}", finding.place, finding.what).contains(says)
        });
        assert!(found, "{sql}: no {code:?} that says {says:?} in {:#?}", report.findings.kept());
        assert!(report.findings.counts()[&code] > 0);
    }
    assert_healthy(&good.file());
}

#[tokio::test]
async fn inbox_items_of_an_ended_run_are_found() {
    let folder = Folder::new();
    populate(&folder).await;
    let row = "INSERT INTO inbox (tenant, run, kind, item)
        SELECT 'acme', row, 'interrupt', '{\"interrupt\":{\"cause\":{\"person\":\"bob\"}}}' FROM runs WHERE id = 'ended'";
    plant(&folder, row);
    let report = examined(&folder.file());
    let said: Vec<&str> = report.findings.kept().iter().map(|finding| finding.what.as_str()).collect();
    assert_eq!(report.findings.counts()[&FindingCode::InboxDiffers], 2, "{said:?}");
    assert!(said.contains(&"it has ended, and 1 rows wait in its inbox"), "{said:?}");
    assert!(said.iter().any(|what| what.ends_with("but the run is not marked as interrupted")), "{said:?}");
}

#[tokio::test]
async fn of_one_code_a_bounded_number_is_kept_and_all_are_counted() {
    let folder = Folder::new();
    let world = world(&folder);
    freeze_agent(&world).await;
    for index in 0..30 {
        parked(&world, &format!("thr_{index}"), &format!("run_{index}"), "transfer").await;
    }
    drop(world);
    plant(&folder, "UPDATE messages SET seq = seq + 1");
    let report = examined(&folder.file());
    assert_eq!(report.findings.counts()[&FindingCode::MessageDiffers], 60);
    assert_eq!(report.findings.kept().len(), 20);
    let first = &report.findings.kept()[0];
    assert_eq!(first.place, "thread thr_0 of acme");
    assert!(first.next_step().contains("backup"), "{}", first.next_step());
}

#[tokio::test]
async fn a_file_that_a_server_has_open_is_examined_beside_it() {
    let folder = Folder::new();
    let world = world(&folder);
    freeze_agent(&world).await;
    parked(&world, "thr", "run", "transfer").await;
    assert_eq!(assert_healthy(&folder.file()).runs, 1);
    // The server keeps working, and the next examination sees its changes.
    parked(&world, "thr_2", "run_2", "transfer").await;
    assert_eq!(assert_healthy(&folder.file()).runs, 2);
    world.store.delete_thread(&world.tenant, &ThreadId::from("thr_3"), &"tester".into()).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_started_again_meanwhile_is_no_fault() {
    let folder = Folder::new();
    let first = world(&folder);
    freeze_agent(&first).await;
    parked(&first, "thr", "run", "transfer").await;
    let mut first = Some(first);
    let mut second = None;
    let report = doctor::examine(folder.file(), |progress| {
        if let DoctorProgress::Threads { done: 0, .. } = progress {
            drop(first.take());
            let again = world(&folder);
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(parked(&again, "thr_2", "run_2", "transfer"))
            });
            second = Some(again);
        }
    });
    let report = report.unwrap();
    assert!(second.is_some());
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.runs, 2, "the runs of both servers were examined");
}

#[tokio::test]
async fn inspecting_a_closed_file_leaves_nothing_beside_it() {
    let folder = Folder::new();
    populate(&folder).await;
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(folder.file().parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let (before, bytes) = (names(), std::fs::read(folder.file()).unwrap());
    assert_healthy(&folder.file());
    assert_eq!(names(), before);
    assert_eq!(std::fs::read(folder.file()).unwrap(), bytes);
}

#[test]
fn what_is_no_store_is_refused_and_stays_as_it_is() {
    let folder = Folder::new();
    let look = || doctor::examine(folder.file(), |_| {});
    assert!(matches!(look(), Err(InspectError::NotFound { .. })));
    assert!(!folder.file().exists());
    std::fs::write(folder.file(), "").unwrap();
    assert!(matches!(look(), Err(InspectError::NotAStore { .. })));
    std::fs::write(folder.file(), [b'x'; 4_096]).unwrap();
    assert!(matches!(look(), Err(InspectError::NotSqlite { .. })));
    std::fs::remove_file(folder.file()).unwrap();
    drop(SqliteStore::open(folder.file()).unwrap());
    assert_healthy(&folder.file());
    Connection::open(folder.file()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(look(), Err(InspectError::Newer { found: 99, .. })));
}
