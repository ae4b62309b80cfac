//! A row that cannot be decoded, in each column that holds encoded data, on a file and on a database: the program starts,
//! every list and stream shows the rest, the doctor finds the row, an interrupt ends the run, and its thread can be deleted.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::postgres_server::Server as Database;
use crate::program::Folder;
use crate::server::{STUCK_AFTER, Server, call, configured, open_bearer};

/// An earlier version turned `{"a":1,"$serde_json::private::RawValue":"1"}` into this, stored it, and could not read it
/// again.
const POISON: &str = r#"{"$serde_json::private::RawValue":"1","a":1}"#;

/// Columns with encoded data. A case for each of them is below.
const ENCODED: [&str; 10] = [
    "threads.metadata",
    "runs.control",
    "commits.body",
    "inbox.item",
    "decisions.decision",
    "plugin_state.value",
    "revisions.text",
    "brought.text",
    "grants.reasons",
    "audit.body",
];

/// Columns with names, words, digests and plain text, by table. A remembered response is passed on unchanged. Every new
/// table has to be added here or above.
const PLAIN: [(&str, &str); 19] = [
    ("threads", "tenant id head"),
    ("runs", "tenant id agent parent_call begins_after promised status chain_head"),
    ("commits", "tenant checkpoint hash"),
    ("inbox", "tenant kind call arguments"),
    ("suspensions", "tenant id call kind status arguments decided_by reason note"),
    ("decisions", "tenant id"),
    ("messages", "tenant id role"),
    ("call_ids", "tenant id"),
    ("grants", "tenant id tool agent definition given_by"),
    ("plugin_state", "tenant plugin key"),
    ("post_keys", "tenant scope body seal"),
    ("remembered", "tenant scope body seal answer"),
    ("revisions", "digest"),
    ("brought", "tenant digest"),
    // PostgreSQL has a column for the previous key, SQLite a table.
    ("callback_key", "key previous"),
    ("previous_callback_key", "key"),
    ("audit", "tenant action actor hash"),
    ("audit_chains", "tenant hash pruned_hash"),
    ("audit_sinks", "sink tenant"),
];

/// Tables for nodes and migrations, which no tenant sees.
const PLAIN_OF_A_DATABASE: [(&str, &str); 1] = [("nodes", "name")];

/// One row that cannot be decoded, and the responses that report it for the victim.
struct Case {
    column: &'static str,
    /// `{run}` and `{thread}` are the row numbers of the victim, `{blob}` is a few bytes without a known version,
    /// `{digest}` is any digest, `{poison}` is `POISON`.
    sql: &'static str,
    says_so: &'static [&'static str],
}

const CASES: [Case; 13] = [
    Case {
        column: "threads.metadata",
        sql: "UPDATE threads SET metadata = '{poison}' WHERE id = 'victim'",
        says_so: &["thread"],
    },
    Case {
        column: "runs.control",
        sql: "UPDATE runs SET control = {blob} WHERE {of_run}",
        says_so: &["run", "state"],
    },
    // All events but the first, among them the one with the held call.
    Case {
        column: "commits.body",
        sql: "UPDATE commits SET body = 'broken' WHERE run = {run} AND first_seq > 1",
        says_so: &["approval", "messages", "events", "calls", "state"],
    },
    Case {
        column: "commits.body",
        sql: "UPDATE commits SET body = '' WHERE run = {run}",
        says_so: &["approval", "messages", "events", "calls", "state"],
    },
    // The arguments, in every event that contains them.
    Case {
        column: "commits.body",
        sql: "UPDATE commits SET body = replace(body, '{\"path\":\"note.txt\",\"text\":\"hi\"}', '{poison}') WHERE run = {run}",
        says_so: &["approval", "events", "calls", "state"],
    },
    Case {
        column: "inbox.item",
        sql: "INSERT INTO inbox (tenant, run, kind, item) VALUES ('default', {run}, 'late_answer', 'broken'); \
              UPDATE runs SET ready = 1, ready_at = 1 WHERE {of_run}",
        says_so: &[],
    },
    // An accepted answer that cannot be decoded: no approver can decide again, and the run can never process it.
    Case {
        column: "inbox.item",
        sql: "INSERT INTO inbox (tenant, run, kind, item) VALUES ('default', {run}, 'decision', \
              '{\"decision\":{\"payload\":{poison}}}'); \
              UPDATE suspensions SET answered_by = (SELECT max(ticket) FROM inbox) WHERE run = {run} AND status = 'pending'; \
              UPDATE runs SET ready = 1, ready_at = 1 WHERE {of_run}",
        says_so: &["approval"],
    },
    Case { column: "decisions.decision", sql: "UPDATE decisions SET decision = '{poison}'", says_so: &[] },
    Case {
        column: "plugin_state.value",
        sql: "INSERT INTO plugin_state (tenant, thread, run, plugin, key, value) \
              VALUES ('default', {thread}, {run}, 'notes', 'k', '{poison}')",
        says_so: &["state"],
    },
    Case { column: "revisions.text", sql: "UPDATE revisions SET text = 'broken'", says_so: &[] },
    Case { column: "brought.text", sql: "UPDATE brought SET text = 'broken'", says_so: &[] },
    Case {
        column: "grants.reasons",
        sql: "INSERT INTO grants (tenant, id, thread, tool, definition, reasons, given_by, since) \
              VALUES ('default', 'grt_1', {thread}, 'write_file', {digest}, '{poison}', 'anonymous', 1)",
        says_so: &["grants"],
    },
    Case {
        column: "audit.body",
        sql: "UPDATE audit SET body = 'broken' WHERE place = (SELECT min(place) FROM audit)",
        says_so: &["audit"],
    },
];

/// A store that the test can damage while the server uses it.
enum Store {
    File(Folder),
    Database(Folder, Database),
}

impl Store {
    fn folder(&self) -> &Folder {
        match self {
            Self::File(folder) | Self::Database(folder, _) => folder,
        }
    }

    fn url(&self) -> String {
        match self {
            Self::File(_) => "sqlite:holdpoint.db".into(),
            Self::Database(_, database) => {
                format!("postgres://holdpoint@localhost:{}/postgres", database.port)
            }
        }
    }

    fn start(&self) -> Server {
        Server::start(self.folder().path(), &["serve", "--store", &self.url()])
    }

    /// Runs SQL on the store. On SQLite, foreign keys are not enforced.
    fn plant(&self, sql: &str, run: &str) {
        let sql = sql.replace("{poison}", POISON).replace("{of_run}", &format!("id = '{run}'"));
        match self {
            Self::File(folder) => {
                let sql = sql
                    .replace("{run}", &format!("(SELECT row FROM runs WHERE id = '{run}')"))
                    .replace("{thread}", "(SELECT row FROM threads WHERE id = 'victim')")
                    .replace("{digest}", "zeroblob(32)")
                    .replace("{blob}", "x'ffffff'");
                let raw = Connection::open(folder.store()).expect("the file opens");
                raw.execute_batch("PRAGMA foreign_keys = OFF").expect("the pragma is set");
                raw.execute_batch(&sql).unwrap_or_else(|why| panic!("{sql}: {why}"));
                assert!(raw.total_changes() > 0, "{sql} changes nothing");
            }
            Self::Database(_, database) => {
                let sql = sql
                    .replace("{run}", &format!("(SELECT run FROM runs WHERE id = '{run}')"))
                    .replace("{thread}", "(SELECT thread FROM threads WHERE id = 'victim')")
                    .replace("{digest}", "decode(repeat('00', 32), 'hex')")
                    .replace("{blob}", "'\\xffffff'");
                database.say(&format!("SET search_path = holdpoint; {sql}"));
            }
        }
    }

    /// Asserts that every column of the schema is in one of the lists.
    fn knows_every_column(&self) {
        let plain = PLAIN.iter().chain(&PLAIN_OF_A_DATABASE);
        let plain = plain
            .flat_map(|(table, columns)| columns.split(' ').map(move |column| format!("{table}.{column}")));
        let known: Vec<String> = plain.chain(ENCODED.map(str::to_owned)).collect();
        match self {
            Self::File(folder) => {
                let raw = Connection::open(folder.store()).expect("the file opens");
                let sql = "SELECT m.name || '.' || p.name FROM sqlite_master m, pragma_table_info(m.name) p \
                           WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND p.type IN ('TEXT', 'BLOB')";
                let mut statement = raw.prepare(sql).expect("it can be asked");
                let columns = statement.query_map([], |row| row.get::<_, String>(0)).expect("it is asked");
                let columns: Vec<String> = columns.map(|column| column.expect("it is read")).collect();
                let unknown: Vec<&String> = columns.iter().filter(|column| !known.contains(column)).collect();
                assert!(columns.len() > 30 && unknown.is_empty(), "{unknown:?} have no case in this test");
            }
            Self::Database(_, database) => {
                let known = known.join("', '");
                database.say(&format!(
                    "DO $$ DECLARE unknown text; BEGIN \
                     SELECT string_agg(c.table_name || '.' || c.column_name, ', ') INTO unknown \
                     FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name) \
                     WHERE c.table_schema = 'holdpoint' AND t.table_type = 'BASE TABLE' \
                     AND c.data_type IN ('text', 'bytea', 'json', 'jsonb', 'ARRAY') \
                     AND c.table_name !~ '^commits_[0-9]$' \
                     AND c.table_name || '.' || c.column_name <> ALL (ARRAY['{known}']); \
                     IF unknown IS NOT NULL THEN RAISE EXCEPTION '% have no case in this test', unknown; END IF; \
                     END $$"
                ));
            }
        }
    }
}

fn script() -> Value {
    let hold = json!([
        {"tool_calls": [{"id": "call_0", "name": "write_file", "arguments": {"path": "note.txt", "text": "hi"}}]},
        {"text": "Done."}
    ]);
    json!({"rules": [{"when": "hold", "replies": hold}, {"when": ".*", "replies": [{"text": "Hello."}]}]})
}

/// The runs of the test.
struct StoredRuns {
    victim: String,
    /// The approval of the call that holds the victim.
    held: Value,
    /// The run that is queued after the victim.
    behind: String,
    other: String,
}

fn post(server: &Server, thread: &str, body: &Value) -> String {
    let (code, posted) = server.post(&format!("/v1/threads/{thread}/messages"), body);
    assert_eq!(code, 202, "{posted}");
    posted["run_id"].as_str().expect("it has an id").to_owned()
}

fn approve(server: &Server, run: &str) {
    let pending = server.get(&format!("/v1/approvals?run_id={run}")).1;
    let id = pending["approvals"][0]["id"].as_str().unwrap_or_else(|| panic!("{pending}")).to_owned();
    let bearer = open_bearer(server.address()).expect("it has a token");
    let headers = [("authorization", bearer.as_str()), ("idempotency-key", "once")];
    let (code, said) = call(server.address(), "POST", &format!("/v1/approvals/{id}/approve"), &headers, "");
    assert_eq!(code, 200, "{said}");
}

/// A thread with a run that has ended, one that is held and one that is queued, and another thread with a held run.
fn begun(server: &Server) -> StoredRuns {
    for (id, metadata) in [("victim", json!({"a": 1})), ("other", json!({"b": 2}))] {
        let (code, thread) = server.post("/v1/threads", &json!({"id": id, "metadata": metadata}));
        assert_eq!(code, 201, "{thread}");
    }
    let ended = post(server, "victim", &json!({"agent": "clerk", "text": "hold"}));
    server.run_with(&ended, "waiting_approval");
    approve(server, &ended);
    server.run_with(&ended, "completed");
    let tools = json!([{"name": "colour", "description": "Picks", "parameters": {"type": "object"}}]);
    let victim = post(server, "victim", &json!({"agent": "clerk", "text": "hold", "tools": tools}));
    server.run_with(&victim, "waiting_approval");
    let held = server.get(&format!("/v1/approvals?run_id={victim}")).1["approvals"][0].clone();
    let behind = post(server, "victim", &json!({"agent": "clerk", "text": "next", "on_busy": "enqueue"}));
    let other = post(server, "other", &json!({"agent": "clerk", "text": "hold"}));
    server.run_with(&other, "waiting_approval");
    StoredRuns { victim, held, behind, other }
}

fn read(server: &Server, path: &str, case: &Case) -> Value {
    let (code, found) = server.get(path);
    assert_eq!(code, 200, "{}: {path}: {found}", case.column);
    found
}

/// The item of a list with this id.
fn find<'v>(list: &'v Value, key: &str, id: &str) -> &'v Value {
    let found = list.as_array().and_then(|list| list.iter().find(|one| one[key] == id));
    found.unwrap_or_else(|| panic!("{id} is not in {list}"))
}

/// Every list is complete, and exactly the expected responses report the victim as unreadable.
fn lists_are_whole(server: &Server, story: &StoredRuns, case: &Case) {
    let (victim, other) = (&story.victim, &story.other);
    let threads = read(server, "/v1/threads", case);
    let runs = read(server, "/v1/runs", case);
    let pending = read(server, "/v1/approvals?status=pending", case);
    for status in ["approved", "rejected", "expired", "answered"] {
        read(server, &format!("/v1/approvals?status={status}"), case);
    }
    let of_victim = read(server, &format!("/v1/approvals?run_id={victim}"), case);
    let messages = read(server, "/v1/threads/victim/messages", case);
    let events = read(server, &format!("/v1/runs/{victim}/events?limit=1000"), case);
    let calls = read(server, &format!("/v1/runs/{victim}/calls"), case);
    let state = read(server, &format!("/v1/runs/{victim}/state"), case);
    let grants = read(server, "/v1/grants", case);
    let audit = read(server, "/v1/audit", case);
    let all_events = events["events"].as_array().expect("they are listed");
    let seqs: Vec<u64> = all_events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<u64>>(), "{}", case.column);
    assert_eq!(messages["messages"].as_array().map(Vec::len), Some(6), "{}: {messages}", case.column);
    let is = |shown: &Value| shown["unreadable"] == json!(true);
    let any = |list: &Value| list.as_array().is_some_and(|list| list.iter().any(is));
    // An answered approval is not pending, whether or not its answer can be decoded.
    let approval =
        pending["approvals"].as_array().and_then(|list| list.iter().find(|one| one["run_id"] == **victim));
    let approval = approval.cloned().unwrap_or_else(|| {
        let id = of_victim["approvals"][0]["id"].as_str().map(str::to_owned);
        id.map_or_else(
            || held_approval(server, victim),
            |id| read(server, &format!("/v1/approvals/{id}"), case),
        )
    });
    let says_so = [
        ("thread", is(find(&threads["threads"], "id", "victim"))),
        ("run", is(find(&runs["runs"], "id", victim))),
        ("approval", is(&approval)),
        ("messages", any(&messages["messages"])),
        ("events", any(&events["events"])),
        ("calls", is(&calls)),
        ("state", is(&state)),
        ("grants", any(&grants["grants"])),
        ("audit", any(&audit["records"])),
    ];
    let says_so: Vec<&str> = says_so.iter().filter(|(_, is)| *is).map(|(what, _)| *what).collect();
    assert_eq!(says_so, case.says_so, "{} {}", case.column, case.sql);
    assert_eq!(approval["run_id"], **victim);
    assert_eq!(find(&runs["runs"], "id", victim)["status"], "waiting_approval");
    assert!(!is(find(&threads["threads"], "id", "other")) && !is(find(&runs["runs"], "id", other)));
    let held = find(&pending["approvals"], "run_id", other);
    assert!(!is(held) && held["arguments"]["path"] == "note.txt", "{held}");
    assert!(["200", "500"].contains(&&*server.get(&format!("/v1/runs/{victim}/transcript")).0.to_string()));
    assert!(server.text("/metrics").contains("holdpoint_"), "{}", case.column);
    let printed = approvals_stream_text(server);
    assert!(printed.contains(&**other), "{}: {printed}", case.column);
}

/// An answered approval is not listed as pending; its id is taken from the run.
fn held_approval(server: &Server, run: &str) -> Value {
    let pending = server.get(&format!("/v1/runs/{run}")).1["pending"].clone();
    let id = pending[0]["approval_id"].as_str().unwrap_or_else(|| panic!("{pending}")).to_owned();
    let (code, found) = server.get(&format!("/v1/approvals/{id}"));
    assert_eq!(code, 200, "{found}");
    found
}

/// The stream of approvals up to and including the approval of the other run, which was held last.
fn approvals_stream_text(server: &Server) -> String {
    let mut stream = TcpStream::connect(server.address()).expect("the server is there");
    stream.set_read_timeout(Some(STUCK_AFTER)).expect("it has a time");
    let bearer = open_bearer(server.address()).expect("it has a token");
    let request = format!(
        "GET /v1/approvals/stream HTTP/1.1\r\nhost: {}\r\nauthorization: {bearer}\r\naccept: text/event-stream\r\n\r\n",
        server.address()
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut printed = String::new();
    for line in BufReader::new(stream).lines() {
        let line = line.expect("the stream stays open");
        printed.push_str(&line);
        if line.starts_with("data:") && line.contains("\"thread_id\":\"other\"") {
            break;
        }
    }
    printed
}

/// Asserts that the stream of a run that has ended delivers every event once and then ends.
fn stream_is_whole(server: &Server, run: &str, case: &Case) {
    let bearer = open_bearer(server.address()).expect("it has a token");
    let headers = [("authorization", bearer.as_str()), ("accept", "text/event-stream")];
    let (code, frames) = call(server.address(), "GET", &format!("/v1/runs/{run}/events"), &headers, "");
    let frames = frames.as_str().unwrap_or_default().to_owned();
    let ids: Vec<u64> =
        frames.lines().filter_map(|line| line.strip_prefix("id:")?.trim().parse().ok()).collect();
    assert_eq!((code, &ids), (200, &(1..=ids.len() as u64).collect()), "{}: {frames}", case.column);
    assert!(
        frames.contains("event: run.interrupted") || frames.contains("event:run.interrupted"),
        "{frames}"
    );
}

fn interrupt(server: &Server, run: &str, case: &Case) {
    let (code, said) = server.post_nothing(&format!("/v1/runs/{run}/interrupt"));
    assert!(matches!(code, 200 | 202), "{}: {code} {said}", case.column);
}

fn upkeep_works(store: &Store, story: &StoredRuns, case: &Case) {
    let (folder, url) = (store.folder(), store.url());
    let said = folder.run(&["doctor", "--store", &url, "--json"]);
    let report = said.json();
    assert_eq!((said.code, &report["healthy"]), (Some(1), &json!(false)), "{}: {said:?}", case.column);
    let places = report["findings"].to_string();
    let names = [story.victim.as_str(), "victim", "digest", "revision", "frozen", "audit"];
    assert!(names.iter().any(|name| places.contains(name)), "{}: {places}", case.column);
    let said = folder.run(&["check", "--store", &url, "--json"]);
    assert_eq!(said.code, Some(0), "{}: {said:?}", case.column);
    let said = folder.run(&["prune", "--older-than", "1h", "--dry-run", "--store", &url]);
    assert_eq!(said.code, Some(0), "{}: {said:?}", case.column);
    if let Store::File(_) = store {
        let said = folder.run(&["backup", "copy.db", "--store", &url]);
        assert_eq!(said.code, Some(0), "{}: {said:?}", case.column);
    }
}

/// Decisions on a run that has ended get a conflict, whether its state can be decoded or not.
fn decisions_are_refused(server: &Server, StoredRuns { victim: run, held, .. }: &StoredRuns, case: &Case) {
    let bearer = open_bearer(server.address()).expect("it has a token");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let post = |path: &str, body: &Value| call(server.address(), "POST", path, &headers, &body.to_string());
    let decision = json!({"call_id": held["call_id"], "action": "resume"});
    let (code, said) = post(&format!("/v1/runs/{run}/decisions"), &json!({"decisions": [decision]}));
    assert_eq!((code, &said["results"][0]["outcome"]), (200, &json!("conflict")), "{}: {said}", case.column);
    let id = held["id"].as_str().expect("an approval");
    for answer in ["approve", "reject"] {
        let (code, said) = post(&format!("/v1/approvals/{id}/{answer}"), &json!({}));
        assert_eq!(code, 409, "{}: {said}", case.column);
    }
}

fn run_case(store: &Store, case: &Case) {
    let server = store.start();
    let story = begun(&server);
    store.knows_every_column();
    server.kill();
    store.plant(case.sql, &story.victim);
    upkeep_works(store, &story, case);
    let server = store.start();
    lists_are_whole(&server, &story, case);
    // Other runs continue.
    approve(&server, &story.other);
    server.run_with(&story.other, "completed");
    let (code, said) = call(
        server.address(),
        "DELETE",
        "/v1/threads/victim",
        &[("authorization", &open_bearer(server.address()).expect("it has a token"))],
        "",
    );
    assert_eq!((code, &said["error"]["code"]), (409, &json!("ACTIVE_RUN_EXISTS")), "{}", case.column);
    interrupt(&server, &story.victim, case);
    server.run_with(&story.victim, "interrupted");
    stream_is_whole(&server, &story.victim, case);
    decisions_are_refused(&server, &story, case);
    let pending = read(&server, "/v1/approvals", case);
    assert_eq!(pending["approvals"], json!([]), "{}", case.column);
    // The queued run becomes active. If the log before it cannot be decoded it is halted, and can be interrupted too.
    server.until("/v1/threads/victim", |thread| thread["active_run_id"] != *story.victim);
    interrupt(&server, &story.behind, case);
    server.until(&format!("/v1/runs/{}", story.behind), |run| {
        ["completed", "interrupted"].iter().any(|status| run["status"] == *status)
    });
    let bearer = open_bearer(server.address()).expect("it has a token");
    let (code, said) =
        call(server.address(), "DELETE", "/v1/threads/victim", &[("authorization", &bearer)], "");
    assert_eq!(code, 204, "{}: {said}", case.column);
    server.kill();
    // A frozen agent and the audit record remain.
    if !["revisions.text", "audit.body"].contains(&case.column) {
        let said = store.folder().run(&["doctor", "--store", &store.url(), "--json"]);
        assert_eq!(said.code, Some(0), "{}: the deleted thread left rows: {said:?}", case.column);
    }
}

/// A decodable change of the victim's last commit: only the hash chain shows it.
const CHANGED: Case = Case {
    column: "commits.body",
    sql: "UPDATE commits SET body = replace(body, '\"text\":\"hi\"', '\"text\":\"ho\"') \
          WHERE run = {run} AND last_seq = (SELECT seq FROM runs WHERE {of_run})",
    says_so: &["state"],
};

/// The run with the changed commit is halted and shown as such; the other one continues.
fn changed_commit_halts_only_its_run(store: &Store) {
    let server = store.start();
    let story = begun(&server);
    server.kill();
    store.plant(CHANGED.sql, &story.victim);
    let report = store.folder().run(&["doctor", "--store", &store.url(), "--json"]).json();
    let findings = report["findings"].as_array().expect("a list");
    let broken = findings.iter().find(|finding| finding["code"] == "CHAIN_BROKEN").expect("it is found");
    assert!(broken["where"].as_str().is_some_and(|place| place.contains(&story.victim)), "{broken}");
    assert!(broken["what"].as_str().is_some_and(|what| what.contains("the commit of events")), "{broken}");
    let server = store.start();
    let shown = |run: &str| server.get(&format!("/v1/runs/{run}")).1["unreadable"].clone();
    assert_eq!((shown(&story.victim), shown(&story.other)), (json!(true), Value::Null));
    approve(&server, &story.other);
    server.run_with(&story.other, "completed");
    interrupt(&server, &story.victim, &CHANGED);
    server.run_with(&story.victim, "interrupted");
    server.kill();
}

#[test]
fn a_changed_commit_of_a_file_halts_only_its_run() {
    changed_commit_halts_only_its_run(&Store::File(configured(&script())));
}

#[test]
fn a_changed_commit_of_a_database_halts_only_its_run() {
    changed_commit_halts_only_its_run(&Store::Database(configured(&script()), Database::start()));
}

#[test]
fn every_encoded_column_has_a_case() {
    for column in ENCODED {
        assert!(CASES.iter().any(|case| case.column == column), "{column} has no case");
    }
}

#[test]
fn a_row_of_a_file_that_cannot_be_decoded_hides_nothing_and_its_run_can_be_ended() {
    for case in &CASES {
        run_case(&Store::File(configured(&script())), case);
    }
}

#[test]
fn a_row_of_a_database_that_cannot_be_decoded_hides_nothing_and_its_run_can_be_ended() {
    let mut database = Database::start();
    for case in &CASES {
        let store = Store::Database(configured(&script()), database);
        run_case(&store, case);
        let Store::Database(_, used) = store else { panic!("it is a database") };
        used.say("DROP SCHEMA holdpoint CASCADE");
        database = used;
    }
}
