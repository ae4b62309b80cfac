//! An export with the heads of runs shows that a log was cut off, replaced or removed together with its row.

use holdpoint::store::postgres::PostgresStore;

use crate::audit_runs::with_two_runs;
use crate::postgres_server::Server as Database;
use crate::program::{CommandOutput, Folder};
use crate::server::{Server, call, open_bearer, write};

const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const OTHER: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

/// What is changed, and what is said of the run. `{one}` is the row of a run, `{row}` the name of that column.
const CHANGES: [(&str, &str, &str); 3] = [
    (
        "the tail is cut off consistently",
        "DELETE FROM commits WHERE run = {one} AND last_seq = (SELECT max(last_seq) FROM commits WHERE run = {one});
        UPDATE runs SET seq = (SELECT max(last_seq) FROM commits WHERE run = {one}),
            chain_head = (SELECT hash FROM commits WHERE run = {one} ORDER BY last_seq DESC LIMIT 1)
        WHERE {row} = {one}",
        "the end was cut off or rewritten",
    ),
    (
        "the last commit is replaced",
        "UPDATE commits SET hash = (SELECT hash FROM commits WHERE run = {one} ORDER BY last_seq LIMIT 1) WHERE run = {one} AND last_seq = (SELECT max(last_seq) FROM commits WHERE run = {one})",
        "the hash of its commit up to event",
    ),
    (
        "the run is removed",
        "DELETE FROM commits WHERE run = {one}; DELETE FROM runs WHERE {row} = {one}",
        "it is missing, and no record says that thread",
    ),
];

fn export(folder: &Folder, store: &str) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.current_dir(folder.path()).env("KEY", SECRET);
    let output = command
        .args(["audit", "export", "--runs", "--signing-key-env", "KEY", "--store", store])
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(text.lines().filter(|line| line.starts_with("{\"run\":")).count(), 2, "{text}");
    write(folder, "export.jsonl", &text);
}

fn verify(folder: &Folder, store: &str, key: &str) -> CommandOutput {
    folder.run(&["audit", "verify", "--store", store, "--against", "export.jsonl", "--public-key", key])
}

#[track_caller]
fn assert_found(folder: &Folder, store: &str, (name, says): (&str, &str), run: &str) {
    let verified = verify(folder, store, PUBLIC);
    assert_eq!(verified.code, Some(1), "{name}: {verified:?}");
    let line = verified.out.lines().find(|line| line.contains(says));
    assert!(
        line.is_some_and(|line| line.starts_with(&format!("run {run} of tenant default"))),
        "{name}: {verified:?}"
    );
    assert!(
        verified.out.contains("1 runs are as they were exported, 0 were deleted since"),
        "{name}: {verified:?}"
    );
}

#[test]
fn a_changed_end_of_a_run_in_a_file_is_found_against_an_export() {
    let (folder, runs) = with_two_runs(&[]);
    assert_eq!(folder.run(&["backup", "good.db"]).code, Some(0));
    export(&folder, "sqlite:good.db");
    let verified = verify(&folder, "sqlite:good.db", PUBLIC);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.out.contains("2 runs are as they were exported"), "{verified:?}");
    for (name, sql, says) in CHANGES {
        let copy = folder.path().join("copy.db");
        std::fs::copy(folder.path().join("good.db"), &copy).expect("it is copied");
        let raw = rusqlite::Connection::open(&copy).expect("it opens");
        let row = format!("(SELECT row FROM runs WHERE id = '{}')", runs[0]);
        let sql = sql.replace("{one}", &row).replace("{row}", "row");
        raw.execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}")).expect("it is changed");
        drop(raw);
        assert_found(&folder, "sqlite:copy.db", (name, says), &runs[0]);
        if name.contains("consistently") {
            let alone = folder.run(&["audit", "verify", "--store", "sqlite:copy.db"]);
            assert_eq!(alone.code, Some(0), "a store by itself cannot show it: {alone:?}");
        }
        std::fs::remove_file(copy).expect("it is removed");
    }
}

#[test]
fn runs_that_were_continued_and_threads_that_were_deleted_are_not_reported() {
    let (folder, runs) = with_two_runs(&[]);
    export(&folder, "sqlite:holdpoint.db");
    let server = Server::start(folder.path(), &["serve"]);
    let thread =
        server.get(&format!("/v1/runs/{}", runs[0])).1["thread_id"].as_str().expect("a thread").to_owned();
    let bearer = open_bearer(server.address()).expect("the server's token");
    let headers = [("authorization", bearer.as_str())];
    let deleted = call(server.address(), "DELETE", &format!("/v1/threads/{thread}"), &headers, "");
    assert_eq!(deleted.0, 204, "{deleted:?}");
    server.begin("clerk", "write more");
    server.until("/v1/audit", |found| found.to_string().contains("thread.deleted"));
    server.kill();
    let verified = verify(&folder, "sqlite:holdpoint.db", PUBLIC);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.out.contains("1 runs are as they were exported, 1 were deleted since"), "{verified:?}");
}

#[test]
fn altered_lines_of_runs_and_another_signature_are_refused() {
    let (folder, _) = with_two_runs(&[]);
    export(&folder, "sqlite:holdpoint.db");
    let good = std::fs::read_to_string(folder.path().join("export.jsonl")).expect("the export");
    let alone = |key: &str| folder.run(&["audit", "verify", "export.jsonl", "--public-key", key, "--json"]);
    assert_eq!(alone(PUBLIC).code, Some(0), "{:?}", alone(PUBLIC));
    assert_eq!(
        verify(&folder, "sqlite:holdpoint.db", OTHER).code,
        Some(1),
        "{:?}",
        verify(&folder, "sqlite:holdpoint.db", OTHER)
    );
    let lines: Vec<&str> = good.lines().collect();
    let end =
        lines.iter().position(|line| line.starts_with("{\"runs\":")).expect("the line that covers all runs");
    for (altered, code) in [
        (good.replace("\"run_id\":\"run_", "\"run_id\":\"run_0"), "EXPORT_UNREADABLE"),
        (good.replace(lines[end - 1], ""), "EXPORT_UNREADABLE"),
        (lines[..end].join("\n"), "EXPORT_UNREADABLE"),
        (format!("{good}{}\n", lines[end - 1]), "EXPORT_UNREADABLE"),
        (good.replace("\"runs\":{\"at\":\"2", "\"runs\":{\"at\":\"3"), "HEAD_NOT_SIGNED"),
    ] {
        assert_ne!(altered, good);
        write(&folder, "export.jsonl", &altered);
        assert_eq!(alone(PUBLIC).error()["code"], code, "{altered}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_end_of_a_run_in_a_database_is_found_against_an_export() {
    let server = Database::start();
    let url = format!("postgres://holdpoint@localhost:{}/postgres", server.port);
    drop(PostgresStore::open(&url).await.expect("the store opens"));
    let (folder, runs) = with_two_runs(&["--store", &url]);
    export(&folder, &url);
    let verified = verify(&folder, &url, PUBLIC);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let psql = |sql: &str| {
        server.load(&format!("SET search_path = holdpoint; SET session_replication_role = replica; {sql}"));
    };
    psql("CREATE TABLE good_commits AS TABLE commits; CREATE TABLE good_runs AS TABLE runs");
    for (name, sql, says) in CHANGES {
        let row = format!("(SELECT run FROM runs WHERE id = '{}')", runs[0]);
        psql(&sql.replace("{one}", &row).replace("{row}", "run"));
        assert_found(&folder, &url, (name, says), &runs[0]);
        psql(
            "DELETE FROM commits; INSERT INTO commits SELECT * FROM good_commits;
            DELETE FROM runs; INSERT INTO runs OVERRIDING SYSTEM VALUE SELECT * FROM good_runs",
        );
    }
    assert_eq!(verify(&folder, &url, PUBLIC).code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_from_a_dump_is_recorded_and_not_mistaken_for_tampering() {
    let database = Database::start();
    let url = format!("postgres://holdpoint@localhost:{}/postgres", database.port);
    drop(PostgresStore::open(&url).await.expect("the store opens"));
    let (folder, runs) = with_two_runs(&["--store", &url]);
    let dump = database.dump("holdpoint");
    let restart = || {
        let server = Server::start(folder.path(), &["serve", "--store", &url]);
        let found =
            server.until("/v1/audit?action=configuration.loaded", |found| found["records"][0].is_object());
        let restored = server.get("/v1/audit?action=store.restored").1["records"].clone();
        let one = server.get(&format!("/v1/runs/{}", runs[0])).1;
        server.kill();
        (found, restored, one)
    };
    assert_eq!(restart().1, serde_json::json!([]), "a start is no restore");
    let server = Server::start(folder.path(), &["serve", "--store", &url]);
    let later = server.begin("clerk", "write more");
    server.run_with(&later, "waiting_approval");
    assert_eq!(server.post_nothing(&format!("/v1/runs/{later}/interrupt")).0, 202);
    server.until("/v1/audit?action=run.interrupted", |found| found["records"][0].is_object());
    server.kill();
    let exported = folder.run(&["audit", "export", "--runs", "--store", &url]);
    write(&folder, "later.jsonl", &exported.out);
    database.say("DROP SCHEMA holdpoint CASCADE");
    database.load(&dump);
    let (_, restored, one) = restart();
    assert_eq!(one["status"], "completed");
    let [record] = restored.as_array().expect("records").as_slice() else { panic!("{restored}") };
    assert_eq!(
        (record["by"].as_str(), &record["detail"]["head_seq"]),
        (Some("system"), &3.into()),
        "{record}"
    );
    assert_eq!(restart().1, restored, "it is recorded once");
    let verified = folder.run(&["audit", "verify", "--store", &url]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let compared = folder.run(&["audit", "verify", "--store", &url, "--against", "later.jsonl"]);
    assert_eq!(compared.code, Some(1), "{compared:?}");
    for says in [
        "this store was restored from a backup",
        &format!("run {later} of tenant default: BROKEN: it is missing"),
    ] {
        assert!(compared.out.contains(says), "{compared:?}");
    }
}
