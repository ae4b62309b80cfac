//! Tampering with a copied store is found by `audit verify` and by `doctor`, which name the run and the commit.

use holdpoint::store::postgres::PostgresStore;
use serde_json::json;

use crate::postgres_server::Server as Database;
use crate::program::Folder;
use crate::server::{Server, configured};

/// A change, and what is said about it. `{one}` and `{other}` are the row numbers of two runs.
type Case = (&'static str, &'static str, &'static str);

const OF_RUNS: [Case; 5] = [
    (
        "decided_by",
        "UPDATE commits SET body = replace(body, '\"by\":\"anonymous\"', '\"by\":\"eve\"') WHERE run = {one}",
        "does not match its hash",
    ),
    (
        "arguments",
        "UPDATE commits SET body = replace(body, 'a.txt', 'b.txt') WHERE run = {one}",
        "does not match its hash",
    ),
    (
        "event order",
        "UPDATE commits SET body = replace(replace(replace(body, '\"seq\":2,', '\"seq\":-2,'), '\"seq\":3,', '\"seq\":2,'), '\"seq\":-2,', '\"seq\":3,') WHERE run = {one}",
        "found event 3 where 2 belongs",
    ),
    (
        "a removed commit",
        "DELETE FROM commits WHERE run = {one} AND first_seq = (SELECT min(first_seq) FROM commits WHERE run = {one} AND first_seq > 1)",
        "follows event",
    ),
    (
        "a swapped run",
        "UPDATE commits SET body = (SELECT o.body FROM commits o WHERE o.run = {other} AND o.first_seq = 1), hash = (SELECT o.hash FROM commits o WHERE o.run = {other} AND o.first_seq = 1) WHERE run = {one} AND first_seq = 1",
        "does not match its hash",
    ),
];

const OF_RECORDS: [Case; 2] = [
    (
        "an altered audit line",
        "UPDATE audit SET body = replace(body, 'anonymous', 'eve') WHERE action = 'approval.approved'",
        "BROKEN at record 2",
    ),
    ("a removed audit line", "DELETE FROM audit WHERE seq = 2", "BROKEN at record 3"),
];

/// Two runs with an approved call each.
pub(crate) fn with_two_runs(store: &[&str]) -> (Folder, [String; 2]) {
    let call = json!({"id": "c", "name": "write_file", "arguments": {"path": "a.txt", "text": "a"}});
    let replies = json!([{"tool_calls": [call]}, {"text": "Done."}]);
    let folder = configured(&json!({"rules": [{"when": ".*", "replies": replies}]}));
    let server = Server::start(folder.path(), &[&["serve"], store].concat());
    let runs = [(); 2].map(|()| {
        let run = server.begin("clerk", "write it");
        let shown = server.run_with(&run, "waiting_approval");
        let approval = shown["pending"][0]["approval_id"].as_str().expect("an approval");
        assert_eq!(server.post_nothing(&format!("/v1/approvals/{approval}/approve")).0, 200);
        server.run_with(&run, "completed");
        run
    });
    assert_eq!(server.get("/v1/audit").1["records"].as_array().map(Vec::len), Some(3));
    server.kill();
    (folder, runs)
}

/// Asserts what both commands say.
#[track_caller]
fn assert_found(folder: &Folder, store: &str, (name, _, says): Case, run: &str) {
    let verified = folder.run(&["audit", "verify", "--store", store]);
    assert_eq!(verified.code, Some(1), "{name}: {verified:?}");
    let line = verified.out.lines().find(|line| line.contains(says));
    assert!(line.is_some_and(|line| line.contains(run)), "{name}: {}", verified.out);
    let doctor = folder.run(&["doctor", "--store", store]);
    assert_eq!(doctor.code, Some(1), "{name}: {doctor:?}");
    let codes = if run.starts_with("run_") { ["CHAIN_BROKEN", "LOG_BROKEN"] } else { ["AUDIT_BROKEN"; 2] };
    let is_found = codes.iter().any(|code| doctor.out.contains(code)) && doctor.out.contains(run);
    assert!(is_found, "{name}: {}", doctor.out);
}

#[test]
fn tampering_with_a_copied_file_is_found() {
    let (folder, runs) = with_two_runs(&[]);
    assert_eq!(folder.run(&["audit", "verify"]).code, Some(0), "{:?}", folder.run(&["audit", "verify"]));
    assert_eq!(folder.run(&["backup", "good.db"]).code, Some(0));
    for (case, run) in OF_RUNS
        .iter()
        .map(|case| (case, runs[0].as_str()))
        .chain(OF_RECORDS.iter().map(|case| (case, "tenant default")))
    {
        let copy = folder.path().join("copy.db");
        std::fs::copy(folder.path().join("good.db"), &copy).expect("it is copied");
        let raw = rusqlite::Connection::open(&copy).expect("it opens");
        raw.execute_batch("PRAGMA foreign_keys = OFF").expect("it is set");
        let row = |run: &str| format!("(SELECT row FROM runs WHERE id = '{run}')");
        let sql = case.1.replace("{one}", &row(&runs[0])).replace("{other}", &row(&runs[1]));
        assert_ne!(raw.execute(&sql, []).expect("it is changed"), 0, "{sql} changes nothing");
        drop(raw);
        let said = if run.starts_with("run_") { run } else { "default" };
        assert_found(&folder, "sqlite:copy.db", *case, said);
        std::fs::remove_file(copy).expect("it is removed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tampering_with_a_database_is_found() {
    let server = Database::start();
    let url = format!("postgres://holdpoint@localhost:{}/postgres", server.port);
    drop(PostgresStore::open(&url).await.expect("the store opens"));
    let (folder, runs) = with_two_runs(&["--store", &url]);
    let verified = folder.run(&["audit", "verify", "--store", &url]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let psql = |sql: &str| {
        server.load(&format!("SET search_path = holdpoint; SET session_replication_role = replica; {sql}"))
    };
    psql("CREATE TABLE good_commits AS TABLE commits; CREATE TABLE good_audit AS TABLE audit");
    for (case, run) in OF_RUNS
        .iter()
        .map(|case| (case, runs[0].as_str()))
        .chain(OF_RECORDS.iter().map(|case| (case, "default")))
    {
        let row = |run: &str| format!("(SELECT run FROM runs WHERE id = '{run}')");
        psql(&case.1.replace("{one}", &row(&runs[0])).replace("{other}", &row(&runs[1])));
        assert_found(&folder, &url, *case, run);
        psql(
            "DELETE FROM commits; INSERT INTO commits SELECT * FROM good_commits;
            DELETE FROM audit; INSERT INTO audit OVERRIDING SYSTEM VALUE SELECT * FROM good_audit",
        );
    }
    assert_eq!(folder.run(&["audit", "verify", "--store", &url]).code, Some(0));
}
