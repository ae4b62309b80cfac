//! `[audit]`: records are sent to a sink, heads are signed, nothing is decided while a required sink is down, and old
//! records are deleted.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use engine::store::{AuditStore, Tenant, seal_all};
use machine::Timestamp;
use machine::audit::{Actor, AuditAction, AuditEntry};
use serde_json::{Value, json};
use stores::sqlite::SqliteStore;

use crate::fake_tool::accept_connections;
use crate::postgres_server;
use crate::program::Folder;
use crate::server::{CONFIGURATION, STUCK_AFTER, Server, configured, write};

/// Of RFC 8032, test 1.
const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

fn folder(audit: &str) -> Folder {
    let call = json!({"id": "c", "name": "write_file", "arguments": {"path": "a.txt", "text": "a"}});
    let folder = configured(
        &json!({"rules": [{"when": ".*", "replies": [{"tool_calls": [call]}, {"text": "Done."}]}]}),
    );
    write(&folder, "holdpoint.toml", &format!("{CONFIGURATION}\n[audit]\n{audit}\n"));
    folder
}

/// A run that waits, and the id of its approval.
fn held(server: &Server) -> (String, String) {
    let run = server.begin("clerk", "write it");
    let shown = server.run_with(&run, "waiting_approval");
    let approval = shown["pending"][0]["approval_id"].as_str().expect("an approval").to_owned();
    (run, approval)
}

fn approve(server: &Server, approval: &str) -> (u16, Value) {
    server.post_nothing(&format!("/v1/approvals/{approval}/approve"))
}

/// The line may come before or after the one that says that the server listens.
#[track_caller]
fn logged(server: &mut Server, text: &str) {
    if server.log_lines().iter().all(|line| !line.contains(text)) {
        server.wait_for(text);
    }
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < STUCK_AFTER, "{what}");
        std::thread::yield_now();
    }
}

fn records(text: &str) -> Vec<(u64, String)> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a whole line"));
    let records = lines.filter(|line| line.get("head").is_none());
    records
        .map(|line| {
            (line["seq"].as_u64().expect("a number"), line["action"].as_str().expect("an action").to_owned())
        })
        .collect()
}

#[test]
fn a_file_gets_every_record_once_over_restarts_and_its_heads_are_signed() {
    let folder = folder("sink = { file = \"sink.jsonl\" }\nsigning_key_env = \"AUDIT_KEY\"");
    let key = [("AUDIT_KEY", OsStr::new(SECRET))];
    let file = folder.path().join("sink.jsonl");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    for start in 1..=2 {
        let server = Server::start_with(folder.path(), &["serve"], &key);
        let (run, approval) = held(&server);
        assert_eq!(approve(&server, &approval).0, 200);
        server.run_with(&run, "completed");
        until("the decision is delivered", || read().matches("approval.approved").count() == start);
        server.kill();
    }
    let found = records(&read());
    let numbers: Vec<u64> = found.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, (1..=4).collect::<Vec<_>>(), "{found:?}");
    for arguments in [
        &["audit", "verify", "--against", "sink.jsonl"][..],
        &["audit", "verify", "--against", "sink.jsonl", "--public-key", PUBLIC],
    ] {
        let said = folder.run(arguments);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let other = folder.run(&["audit", "verify", "--against", "sink.jsonl", "--public-key", SECRET, "--json"]);
    assert_eq!((other.code, other.error()["code"].as_str()), (Some(1), Some("HEAD_NOT_SIGNED")));
    // The store is set back, and nothing in it shows that.
    let raw = rusqlite::Connection::open(folder.store()).expect("the file opens");
    raw.execute_batch(
        "DELETE FROM audit WHERE seq > 1;
         UPDATE audit_chains SET seq = 1, hash = (SELECT hash FROM audit WHERE seq = 1)",
    )
    .expect("it is changed");
    drop(raw);
    assert_eq!(folder.run(&["audit", "verify"]).code, Some(0));
    let said = folder.run(&["audit", "verify", "--against", "sink.jsonl", "--public-key", PUBLIC]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("the end was cut off"), "{}", said.out);
    let mut server = Server::start_with(folder.path(), &["serve"], &key);
    logged(&mut server, "the store was restored or changed");
    assert_eq!(records(&read()).len(), 4, "nothing is written behind it");
}

/// An address that keeps what it gets, while it works.
fn http_sink() -> (String, Arc<AtomicBool>, Arc<Mutex<String>>) {
    let (works, kept) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<String>>::default());
    let (is_up, keeps) = (works.clone(), kept.clone());
    let address = accept_connections(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
            head.push_str(&line.to_lowercase());
            line.clear();
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        let whole = reader.read_exact(&mut body).is_ok() && head.contains("authorization: bearer sink-token");
        let status = if whole && is_up.load(Ordering::SeqCst) {
            keeps.lock().expect("no panic").push_str(&String::from_utf8_lossy(&body));
            "200 OK"
        } else {
            "503 Service Unavailable"
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(answer.as_bytes());
    });
    (address, works, kept)
}

#[test]
fn nothing_is_approved_while_a_required_sink_is_down_and_it_recovers_by_itself() {
    judge_required_sink("sqlite:holdpoint.db");
}

#[test]
fn nothing_is_approved_on_a_database_while_a_required_sink_is_down() {
    let database = postgres_server::Server::start();
    judge_required_sink(&format!("postgres://holdpoint@localhost:{}/postgres", database.port));
}

fn judge_required_sink(url: &str) {
    let (address, works, kept) = http_sink();
    let sink = format!("sink = {{ url = \"http://{address}/in\", required = true, token_env = \"SINK\" }}");
    let folder = folder(&sink);
    let token = [("SINK", OsStr::new("sink-token"))];
    let mut server = Server::start_with(folder.path(), &["serve", "--store", url], &token);
    logged(&mut server, "no decision is accepted until it does");
    let (run, approval) = held(&server);
    let (code, body) = approve(&server, &approval);
    assert_eq!((code, &body["error"]["code"]), (503, &json!("AUDIT_SINK_DOWN")), "{body}");
    let path = format!("/v1/runs/{run}/decisions");
    let decision = json!({"decisions": [{"call_id": "c", "action": "resume"}]});
    let (code, body) = server.post(&path, &decision);
    assert_eq!((code, &body["error"]["code"]), (503, &json!("AUDIT_SINK_DOWN")), "{body}");
    server.run_with(&run, "waiting_approval");

    works.store(true, Ordering::SeqCst);
    server.wait_for("the sink of the audit record works");
    assert_eq!(approve(&server, &approval).0, 200);
    server.run_with(&run, "completed");
    let has_it = || kept.lock().expect("no panic").contains("approval.approved");
    until("the decision is delivered", has_it);

    // What is recorded while the sink is down is sent later, also by the next process.
    works.store(false, Ordering::SeqCst);
    let (other, _) = held(&server);
    assert_eq!(server.post_nothing(&format!("/v1/runs/{other}/interrupt")).0, 202);
    server.wait_for("the sink of the audit record does not work");
    server.kill();
    works.store(true, Ordering::SeqCst);
    let mut server = Server::start_with(folder.path(), &["serve", "--store", url], &token);
    logged(&mut server, "the sink of the audit record works");
    let found = records(&kept.lock().expect("no panic"));
    let numbers: Vec<u64> = found.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "{found:?}");
    assert!(found.iter().any(|(_, action)| action == "run.interrupted"), "{found:?}");
}

#[tokio::test]
async fn old_records_are_deleted_while_the_server_runs_and_keys_are_not_new_afterwards() {
    let folder = folder("retention = \"30d\"");
    let store = SqliteStore::open(folder.store()).expect("the store opens");
    for at in 1..=1_500 {
        let entry = AuditEntry::new(Timestamp(at), AuditAction::ApprovalApproved, Actor::from("ann"));
        store.record_audit(&Tenant::default(), &entry).await.expect("it is recorded");
    }
    seal_all(&store).await.expect("they are sealed");
    drop(store);
    let mut server = Server::start(folder.path(), &["serve"]);
    logged(&mut server, "deleted=1500");
    let (_, listed) = server.get("/v1/audit");
    let actions: Vec<&str> = listed["records"]
        .as_array()
        .expect("records")
        .iter()
        .filter_map(|one| one["action"].as_str())
        .collect();
    assert_eq!(actions, ["configuration.loaded", "audit.pruned", "audit.pruned"]);
    server.kill();
    assert_eq!(folder.run(&["audit", "verify"]).code, Some(0));
}

#[test]
fn a_wrong_key_or_token_stops_the_start_and_names_the_variable() {
    for (audit, says) in [
        ("signing_key_env = \"HOLDPOINT_NO_KEY\"", "HOLDPOINT_NO_KEY has to hold a key"),
        (
            "sink = { url = \"https://x.example\", token_env = \"HOLDPOINT_NO_TOKEN\" }",
            "HOLDPOINT_NO_TOKEN has to hold a token",
        ),
    ] {
        let folder = folder(audit);
        let said = folder.run(&["serve"]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(says), "{said:?}");
    }
}

#[test]
fn a_key_pair_is_drawn_and_an_export_is_signed_and_verified_with_it() {
    let folder = folder("");
    Server::start(folder.path(), &["serve"]).kill();
    let pair = folder.run(&["audit", "key", "--json"]).json();
    let (secret, public) =
        (pair["secret"].as_str().expect("a key"), pair["public_key"].as_str().expect("a key"));
    let export = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        let output =
            command.current_dir(folder.path()).env("KEY", secret).args(arguments).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let (plain, signed) =
        (export(&["audit", "export"]), export(&["audit", "export", "--signing-key-env", "KEY"]));
    write(&folder, "plain.jsonl", &plain);
    write(&folder, "signed.jsonl", &signed);
    write(&folder, "forged.jsonl", &signed.replace("\"seq\":1,\"signature\"", "\"seq\":2,\"signature\""));
    let verify = |file: &str| folder.run(&["audit", "verify", file, "--public-key", public]);
    assert_eq!(verify("signed.jsonl").code, Some(0), "{:?}", verify("signed.jsonl"));
    assert!(verify("plain.jsonl").out.contains("its head is not signed"));
    assert_eq!(verify("forged.jsonl").code, Some(1));
    let said = folder.run(&["audit", "verify", "--public-key", public, "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("NOTHING_SIGNED")));
    let said = folder.run(&["audit", "verify", "--public-key", public, "--against", "signed.jsonl"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = folder.run(&["audit", "export", "--signing-key-env", "HOLDPOINT_NO_KEY", "--json"]);
    assert_eq!(said.error()["code"], "NO_SIGNING_KEY");
}
