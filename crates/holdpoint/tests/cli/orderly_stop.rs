//! SIGTERM while decisions arrive: every request that was sent gets a response, and the response is correct.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::postgres_server;
use crate::server::{STUCK_AFTER, Server, configured, open_bearer};

/// How often each store is tried; `make test-long` sets more.
const TRIALS: &str = "HOLDPOINT_STOP_TRIALS";
const TRIALS_DEFAULT: usize = 3;
const DECISIONS: usize = 24;

/// An approval whose last byte is not sent yet.
struct Approving {
    approval: String,
    stream: TcpStream,
}

impl Approving {
    fn begin(server: &Server, approval: String) -> Self {
        let token = open_bearer(server.address()).expect("a server without [auth] has a token");
        let head = format!(
            "POST /v1/approvals/{approval}/approve HTTP/1.1\r\nhost: {}\r\nauthorization: {token}\r\n\
             content-type: application/json\r\ncontent-length: 2\r\n\r\n{{",
            server.address()
        );
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_read_timeout(Some(STUCK_AFTER)).expect("a timeout");
        stream.write_all(head.as_bytes()).expect("it reads");
        Self { approval, stream }
    }

    fn send_rest(&mut self) {
        // A server that has refused the request may not read the rest.
        let _ = self.stream.write_all(b"}");
    }

    /// The whole response, until the server closes the connection.
    fn answer(&mut self) -> String {
        let mut answer = Vec::new();
        let read = self.stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(read.is_ok() && !answer.is_empty(), "{}: {read:?} {answer:?}", self.approval);
        answer
    }
}

fn held_approvals(server: &Server) -> Vec<String> {
    let runs: Vec<String> = (0..DECISIONS).map(|_| server.begin("clerk", "Write it.")).collect();
    let held = runs.iter().map(|run| server.run_with(run, "waiting_approval"));
    held.map(|run| run["pending"][0]["approval_id"].as_str().expect("an approval").to_owned()).collect()
}

/// Stops the server after some of the approvals were sent. Returns whether each was accepted.
fn stop_in_the_middle(server: Server, approvals: Vec<String>, sent_before: usize) -> Vec<(String, bool)> {
    let mut requests: Vec<Approving> =
        approvals.into_iter().map(|approval| Approving::begin(&server, approval)).collect();
    let (before, after) = requests.split_at_mut(sent_before);
    before.iter_mut().for_each(Approving::send_rest);
    std::thread::scope(|scope| {
        scope.spawn(|| server.signal("TERM"));
        after.iter_mut().for_each(Approving::send_rest);
    });
    let judged = requests.iter_mut().map(|request| {
        let answer = request.answer();
        let accepted = match answer.split(' ').nth(1) {
            Some("200") => true,
            Some("503") if answer.contains("\"DRAINING\"") => false,
            _ => panic!("neither accepted nor refused because of the stop: {answer}"),
        };
        (request.approval.clone(), accepted)
    });
    let judged = judged.collect();
    let (code, said) = server.ended();
    assert_eq!(code, Some(0), "{said:#?}");
    judged
}

fn answers_are_true(folder: &Path, arguments: &[&str]) {
    let trials = std::env::var(TRIALS).ok().and_then(|trials| trials.parse().ok()).unwrap_or(TRIALS_DEFAULT);
    for trial in 0..trials {
        let server = Server::start(folder, arguments);
        let approvals = held_approvals(&server);
        let judged = stop_in_the_middle(server, approvals, DECISIONS * trial / trials);
        let again = Server::start(folder, arguments);
        for (approval, accepted) in judged {
            let (code, shown) = again.get(&format!("/v1/approvals/{approval}"));
            assert_eq!(code, 200, "{shown}");
            let status = if accepted { "approved" } else { "pending" };
            assert_eq!(shown["status"], status, "accepted: {accepted}; {shown}");
        }
        again.signal("TERM");
        assert_eq!(again.ended().0, Some(0));
    }
}

fn one_file() -> Value {
    let arguments = json!({"path": "a.txt", "text": "A line.\n"});
    json!({"rules": [{"when": ".*", "replies": [
        {"tool_calls": [{"id": "call_1", "name": "write_file", "arguments": arguments}]},
        {"text": "Done."},
    ]}]})
}

#[test]
fn a_stop_in_the_middle_of_decisions_answers_each_truly_on_sqlite() {
    let folder = configured(&one_file());
    answers_are_true(folder.path(), &["serve"]);
}

#[test]
fn a_stop_in_the_middle_of_decisions_answers_each_truly_on_postgresql() {
    let folder = configured(&one_file());
    let database = postgres_server::Server::start();
    let url = format!("postgres://holdpoint@localhost:{}/postgres", database.port);
    answers_are_true(folder.path(), &["serve", "--store", &url]);
}
