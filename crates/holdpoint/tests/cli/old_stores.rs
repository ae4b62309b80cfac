//! Stores that an earlier version wrote: this version opens them, shows all of their runs and continues those that wait.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::fake_tool::CalledTool;
use crate::postgres_server;
use crate::program::Folder;
use crate::server::{STUCK_AFTER, Server, call, write};

const CONFIGURATION: &str = include_str!("fixtures/1ae1317/holdpoint.toml");
const SCRIPT: &str = include_str!("fixtures/1ae1317/script.json");
const DATABASE: &str = include_str!("fixtures/1ae1317/store.sql");
const SENT: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\nconnection: close\r\n\r\n{\"sent\":1}";

#[test]
fn an_sqlite_file_written_by_commit_1ae1317_opens_and_its_runs_continue() {
    let folder = Folder::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/fixtures/1ae1317/store.db");
    std::fs::copy(file, folder.store()).expect("the fixture can be copied");
    continue_every_run(&folder, "sqlite:holdpoint.db");
}

#[test]
fn a_database_written_by_commit_1ae1317_opens_and_its_runs_continue() {
    let database = postgres_server::Server::start();
    database.load(DATABASE);
    let store = format!("postgres://holdpoint@localhost:{}/postgres", database.port);
    continue_every_run(&Folder::new(), &store);
}

fn continue_every_run(folder: &Folder, store: &str) {
    let tool = CalledTool::answering(vec![SENT]);
    write(folder, "script.json", SCRIPT);
    write(folder, "holdpoint.toml", &CONFIGURATION.replace("SERVICE", &format!("http://{}", tool.address)));
    let client =
        Client(Server::start(folder.path(), &["serve", "--listen", "127.0.0.1:0", "--store", store]));

    for (thread, status) in [
        ("thr_ended", "completed"),
        ("thr_rejected", "completed"),
        ("thr_denied", "completed"),
        ("thr_edited", "completed"),
        ("thr_auto", "completed"),
        ("thr_failed", "failed"),
        ("thr_interrupted", "interrupted"),
        ("thr_question", "waiting_approval"),
        ("thr_client", "waiting_tool"),
        ("thr_external", "waiting_tool"),
        ("thr_doubt", "waiting_approval"),
        ("thr_parent", "waiting_tool"),
    ] {
        assert_eq!(client.run(thread)["status"], status, "{thread}");
    }
    client.every_log_is_whole();
    assert!(tool.rest().is_empty(), "opening a store executes nothing");

    let held = client.get("/v1/approvals?thread_id=thr_held")["approvals"].take();
    for approval in held.as_array().expect("a list") {
        client.post(&format!("/v1/approvals/{}/approve", text(&approval["id"])), &json!({}));
    }
    // The newest run of the thread is the one that was queued after it.
    client.until("thr_held", "completed");
    client.answer("thr_question", &json!({"result": "the second"}));
    client.decide("thr_client", "call_pick", &json!({"path": "a.txt"}));
    client.decide("thr_external", "call_order", &json!({"day": "Monday"}));
    client.answer("thr_doubt", &json!({"choice": "retry"}));
    let child = client.approvals(&client.get("/v1/approvals?status=pending")["approvals"][0]["run_id"]);
    assert_eq!(child[0]["agent"], "clerk", "the call of the child run is the last one held");
    client.post(&format!("/v1/approvals/{}/approve", text(&child[0]["id"])), &json!({}));
    for thread in ["thr_question", "thr_client", "thr_external", "thr_doubt", "thr_parent"] {
        client.until(thread, "completed");
    }
    // What executed when the old server was killed is in doubt now, and no worker repeated it.
    client.until("thr_lost", "waiting_approval");
    client.answer("thr_lost", &json!({"choice": "give_up"}));
    client.until("thr_lost", "completed");
    client.every_log_is_whole();

    let sent: Vec<Value> = tool.rest().into_iter().map(|asked| asked.body["call_id"].clone()).collect();
    let mut calls: Vec<&str> = sent.iter().filter_map(Value::as_str).collect();
    calls.sort_unstable();
    assert_eq!(calls, ["call_a", "call_c", "call_doubt", "call_pay"]);

    client.0.signal("TERM");
    assert_eq!(client.0.ended().0, Some(0));
    chains_start_with_this_version(folder, store);
}

/// The runs that continued have a chain from their next commit on, the others have none, and this is no finding.
fn chains_start_with_this_version(folder: &Folder, store: &str) {
    let examined = folder.run(&["doctor", "--store", store, "--json"]);
    assert_eq!(examined.code, Some(0), "{examined:?}");
    let chains = &examined.json()["chains"];
    assert_eq!((&chains["whole"], &chains["late"], &chains["none"]), (&json!(0), &json!(9), &json!(9)));
    let late = chains["late_chains"].as_array().expect("a list");
    assert!(late.iter().all(|late| late["starts_at"].as_u64().is_some_and(|seq| seq > 1)), "{late:?}");
    let held = late.iter().filter(|late| text(&late["where"]).ends_with(" on thread thr_held of default"));
    assert_eq!(held.count(), 2, "{late:?}");
    let examined = folder.run(&["doctor", "--store", store]);
    assert_eq!(examined.code, Some(0), "{examined:?}");
    let says =
        format!("The hash chain of {} starts at event {}.", text(&late[0]["where"]), late[0]["starts_at"]);
    assert!(examined.out.contains(&says), "{says}: {examined:?}");
    assert!(
        examined.out.contains("9 runs have no hash chain: an earlier version wrote all of their events.")
    );
}

/// Calls the server with the key of the fixture.
struct Client(Server);

impl Client {
    #[track_caller]
    fn send(&self, method: &str, path: &str, body: &str) -> Value {
        let headers = [("authorization", "Bearer fixture"), ("content-type", "application/json")];
        let (code, answer) = call(self.0.address(), method, path, &headers, body);
        assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
        answer
    }

    #[track_caller]
    fn get(&self, path: &str) -> Value {
        self.send("GET", path, "")
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        self.send("POST", path, &body.to_string())
    }

    /// The newest run of the thread.
    #[track_caller]
    fn run(&self, thread: &str) -> Value {
        self.get(&format!("/v1/runs?thread_id={thread}"))["runs"][0].clone()
    }

    #[track_caller]
    fn approvals(&self, run: &Value) -> Vec<Value> {
        let found = self.get(&format!("/v1/approvals?run_id={}", text(run)));
        found["approvals"].as_array().expect("a list").clone()
    }

    #[track_caller]
    fn answer(&self, thread: &str, answer: &Value) {
        let approvals = self.approvals(&self.run(thread)["id"]);
        self.post(&format!("/v1/approvals/{}/answer", text(&approvals[0]["id"])), answer);
    }

    #[track_caller]
    fn decide(&self, thread: &str, call: &str, result: &Value) {
        let run = self.run(thread);
        let decision = json!({"decisions": [{"call_id": call, "action": "resume", "result": result}]});
        let decided = self.post(&format!("/v1/runs/{}/decisions", text(&run["id"])), &decision);
        assert_eq!(decided["results"][0]["outcome"], "applied", "{decided}");
    }

    #[track_caller]
    fn until(&self, thread: &str, status: &str) {
        let until = Instant::now() + STUCK_AFTER;
        while self.run(thread)["status"] != status {
            assert!(Instant::now() < until, "{thread} never was {status}: {}", self.run(thread));
            std::thread::yield_now();
        }
    }

    /// Every event of every run can be read, and none is missing.
    #[track_caller]
    fn every_log_is_whole(&self) {
        let runs = self.get("/v1/runs?limit=1000")["runs"].as_array().expect("a list").clone();
        assert_eq!(runs.len(), 18);
        for run in runs {
            let log = self.get(&format!("/v1/runs/{}/events?limit=1000", text(&run["id"])));
            let seqs: Vec<u64> = log["events"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(|event| event["seq"].as_u64())
                .collect();
            let last = log["last_seq"].as_u64().expect("a number");
            assert_eq!(seqs, (1..=last).collect::<Vec<_>>(), "{run}");
        }
    }
}

#[track_caller]
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}
