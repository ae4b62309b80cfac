//! The audit record that a server writes: decisions, permissions, keys, reloads and deletions, on both stores.

use std::time::Instant;

use machine::id::Digest;
use serde_json::{Value, json};

use crate::postgres_server;
use crate::program::Folder;
use crate::server::{CONFIGURATION, STUCK_AFTER, Server, call, configured, write};

const TOKENS: [&str; 2] = ["first-token-0000", "second-token-0000"];

/// The name of a key, its token and its roles.
type KeyTable = (&'static str, &'static str, &'static str);

const FIRST: KeyTable = ("first", TOKENS[0], "\"admin\", \"operator\"");
const FIRST_CHANGED: KeyTable = ("first", TOKENS[0], "\"admin\", \"operator\", \"approve\"");
const SECOND: KeyTable = ("second", TOKENS[1], "\"admin\", \"operator\"");

/// Returns the digest of the file.
fn configure(folder: &Folder, keys: &[KeyTable]) -> String {
    let mut text = CONFIGURATION.to_owned();
    for (name, token, roles) in keys {
        let sha256 = Digest::sha256(token.as_bytes());
        text += &format!("\n[[auth.keys]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\nroles = [{roles}]\n");
    }
    write(folder, "holdpoint.toml", &text);
    Digest::sha256(text.as_bytes()).to_string()
}

fn ask(server: &Server, token: &str, method: &str, path: &str, body: &Value) -> Value {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (code, answer) = call(server.address(), method, path, &headers, &body);
    assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
    answer
}

/// Asks until the answer is right: a run continues, and records are sealed, in the background.
fn until(server: &Server, token: &str, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + STUCK_AFTER;
    loop {
        let found = ask(server, token, "GET", path, &Value::Null);
        if is_right(&found) {
            return found;
        }
        assert!(Instant::now() < end, "{path} stays {found}");
        std::thread::yield_now();
    }
}

fn post(server: &Server, token: &str, policy: &Value) -> String {
    let thread = ask(server, token, "POST", "/v1/threads", &json!({}));
    let path = format!("/v1/threads/{}/messages", thread["id"].as_str().expect("it has an id"));
    let message = json!({"agent": "clerk", "text": "Write.", "policy": policy});
    let posted = ask(server, token, "POST", &path, &message);
    format!("/v1/runs/{}", posted["run_id"].as_str().expect("it has an id"))
}

/// Plays everything that is recorded, up to a prune and a new start. Returns what the records must say, in order.
fn play(folder: &Folder, server: &Server, loaded: &str) -> Vec<Value> {
    let reload = |token| ask(server, token, "POST", "/v1/admin/reload", &Value::Null);
    let run = post(server, TOKENS[0], &json!({}));
    until(server, TOKENS[0], &run, |run| run["status"] == "waiting_approval");
    let approvals = ask(server, TOKENS[0], "GET", "/v1/approvals", &Value::Null);
    let approval = approvals["approvals"][0]["id"].as_str().expect("it is listed").to_owned();
    ask(server, TOKENS[0], "POST", &format!("/v1/approvals/{approval}/approve"), &json!({}));
    until(server, TOKENS[0], &run, |run| run["status"] == "completed");
    let added = configure(folder, &[FIRST, SECOND]);
    reload(TOKENS[0]);
    let changed = configure(folder, &[FIRST_CHANGED, SECOND]);
    reload(TOKENS[0]);
    let removed = configure(folder, &[SECOND]);
    reload(TOKENS[1]);
    let loose = post(server, TOKENS[1], &json!({"approval": "never"}));
    until(server, TOKENS[1], &loose, |run| run["status"] == "completed");
    vec![
        json!(["configuration.loaded", "system", loaded]),
        json!(["key.added", "system", "first"]),
        json!(["approval.approved", "first", approval]),
        json!(["configuration.reloaded", "first", added]),
        json!(["key.added", "first", "second"]),
        json!(["configuration.reloaded", "first", changed]),
        json!(["key.changed", "first", "first"]),
        json!(["configuration.reloaded", "second", removed]),
        json!(["key.removed", "second", "first"]),
        json!(["policy.loosened", "second", null]),
        json!(["thread.pruned", "system", 1]),
        json!(["thread.pruned", "system", 1]),
        json!(["configuration.loaded", "system", removed]),
    ]
}

/// What was done, by whom, and to what.
fn summary(record: &Value) -> Value {
    let detail = &record["detail"];
    let named = [&record["suspension_id"], &detail["sha256"], &detail["key"], &detail["run_count"]];
    let named = named.into_iter().find(|value| !value.is_null());
    json!([record["action"], record["by"], named])
}

/// Every action is recorded once, with its principal and its object, and the commands verify and export the record.
fn judge(url: &str) -> (Folder, usize) {
    let call =
        json!({"tool_calls": [{"id": "a", "name": "write_file", "arguments": {"path": "a", "text": "b"}}]});
    let folder = configured(&json!({"rules": [{"when": ".*", "replies": [call, {"text": "Done."}]}]}));
    let loaded = configure(&folder, &[FIRST]);
    let server = Server::start(folder.path(), &["serve", "--store", url]);
    let expected = play(&folder, &server, &loaded);
    // A file belongs to one process at a time.
    server.kill();
    let pruned = folder.run(&["prune", "--older-than", "0s", "--store", url]);
    assert_eq!(pruned.code, Some(0), "{pruned:?}");
    let server = Server::start(folder.path(), &["serve", "--store", url]);
    let count = expected.len();
    // The last record is that of the new start.
    let is_last =
        |record: &Value| record["seq"].as_u64() > Some(2) && record["action"] == "configuration.loaded";
    let all = |page: &Value| page["records"].as_array().is_some_and(|records| records.iter().any(is_last));
    let page = until(&server, TOKENS[1], "/v1/audit", all);
    let records: Vec<Value> = page["records"].as_array().expect("a list").iter().map(summary).collect();
    assert_eq!(records, expected);
    let said = folder.run(&["audit", "verify", "--store", url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with(&format!("default: {count} records, head {count} ")), "{}", said.out);
    let exported = folder.run(&["audit", "export", "--store", url]);
    assert_eq!((exported.code, exported.out.lines().count()), (Some(0), count + 2), "{exported:?}");
    write(&folder, "audit.jsonl", &exported.out);
    for arguments in [
        &["audit", "verify", "audit.jsonl"][..],
        &["audit", "verify", "--store", url, "--against", "audit.jsonl"],
    ] {
        let said = folder.run(arguments);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    (folder, count)
}

#[test]
fn a_server_on_a_file_records_every_change_once_and_the_record_is_verified() {
    judge("sqlite:holdpoint.db");
}

#[test]
fn a_server_on_a_database_records_every_change_once_and_the_record_is_verified() {
    let database = postgres_server::Server::start();
    let url = format!("postgres://holdpoint@localhost:{}/postgres", database.port);
    let (folder, count) = judge(&url);
    // What is altered or cut off in the database is found.
    let verify = |arguments: &[&str], at: &str| {
        let said = folder.run(&[&["audit", "verify", "--store", &url], arguments].concat());
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.out.contains(at), "{at}: {}", said.out);
    };
    database.say(&format!(
        "DELETE FROM holdpoint.audit WHERE seq = {count}; UPDATE holdpoint.audit_chains SET seq = seq - 1, \
         hash = (SELECT hash FROM holdpoint.audit WHERE seq = {count} - 1)"
    ));
    assert_eq!(folder.run(&["audit", "verify", "--store", &url]).code, Some(0), "the chain cannot show it");
    verify(&["--against", "audit.jsonl"], &format!("default: BROKEN at record {count}"));
    database.say(
        "UPDATE holdpoint.audit SET body = replace(body, '\"by\":\"first\"', '\"by\":\"eve\"') WHERE seq = 3",
    );
    verify(&[], "default: BROKEN at record 3");
}
