//! A server whose standard error is a pipe that is not read: it still answers, and counts the lines it could not log.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::json;

use crate::program::{Folder, state_home};
use crate::server::{STUCK_AFTER, call, configured};

/// Their log lines are many times what the pipe and the queue hold.
const REQUESTS: usize = 8_000;
/// Requests that are sent before the first answer is read.
const PIPELINED: usize = 100;

struct Unread {
    child: Child,
    err: BufReader<ChildStderr>,
    address: String,
    token: String,
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Unread {
    /// Reads the log up to the address and the token, and nothing after them.
    fn start(folder: &Folder) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.current_dir(folder.path()).args(["serve", "--log-level", "debug"]).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", state_home()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut err = BufReader::new(child.stderr.take().expect("it has a standard error"));
        let mut after = |start: &str| loop {
            let mut line = String::new();
            assert_ne!(err.read_line(&mut line).expect("it writes a log line"), 0, "it ended");
            if let Some((_, rest)) = line.trim_end().split_once(start) {
                return rest.to_owned();
            }
        };
        let (address, token) = (after("listening on http://"), after("token: "));
        Self { child, err, address, token }
    }

    /// Sends requests without a key, each of which is refused and logged.
    fn flood(&self) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(STUCK_AFTER)).expect("a timeout");
        let mut answers = BufReader::new(stream.try_clone().expect("a handle"));
        let request =
            format!("DELETE /v1/threads/t HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\n\r\n", self.address);
        for _ in 0..REQUESTS / PIPELINED {
            stream.write_all(request.repeat(PIPELINED).as_bytes()).expect("it is sent");
            for _ in 0..PIPELINED {
                assert_eq!(status(&mut answers), 401);
            }
        }
    }

    fn get(&self, path: &str) -> (u16, serde_json::Value) {
        let token = format!("Bearer {}", self.token);
        call(&self.address, "GET", path, &[("authorization", &token)], "")
    }

    fn terminate(&self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &id]).status().expect("kill can be run");
        assert!(sent.success());
    }
}

/// Reads one answer to its end.
fn status(answers: &mut impl BufRead) -> u16 {
    let (mut code, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        answers.read_line(&mut line).expect("the server answers although its log is not read");
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(rest) = line.strip_prefix("http/1.1 ") {
            code = rest.split(' ').next().and_then(|code| code.parse().ok()).expect("a status");
        } else if let Some(rest) = line.strip_prefix("content-length: ") {
            length = rest.parse().expect("a length");
        } else if line.is_empty() {
            answers.read_exact(&mut vec![0; length]).expect("a body");
            return code;
        }
    }
}

#[test]
fn a_log_that_is_not_read_stops_no_request_and_the_loss_is_counted_and_reported() {
    let folder = configured(&json!({"rules": [{"when": ".*", "replies": [{"text": "Done."}]}]}));
    let mut server = Unread::start(&folder);
    server.flood();
    assert_eq!(server.get("/healthz").0, 200);
    let (_, metrics) = server.get("/metrics");
    let metrics = metrics.as_str().expect("text");
    let counted = metrics.lines().find_map(|line| line.strip_prefix("holdpoint_log_lines_dropped_total "));
    let counted: usize = counted.expect("the metric is there").parse().expect("a number");
    assert!(counted > 0, "{metrics}");

    // As soon as the log is read again, the server reports the lost lines and continues to log.
    let mut said = String::new();
    while !said.contains(" log lines were dropped") {
        server.err.read_line(&mut said).expect("text");
    }
    server.terminate();
    server.err.read_to_string(&mut said).expect("text");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    let dropped =
        |line: &str| line.split_once(" log lines were dropped")?.0.rsplit(' ').next()?.parse::<usize>().ok();
    let reported: usize = said.lines().filter_map(dropped).sum();
    assert!(reported >= counted, "{reported} of {counted}");
    let refused = said.lines().filter(|line| line.contains("status=401")).count();
    assert!(refused + reported >= REQUESTS, "every line was written or counted: {refused} and {reported}");
    assert!(said.trim_end().ends_with("stopped"), "the last line is written too");
}

#[test]
fn a_server_whose_log_is_not_read_stops_on_a_signal() {
    let folder = configured(&json!({"rules": [{"when": ".*", "replies": [{"text": "Done."}]}]}));
    let mut server = Unread::start(&folder);
    server.flood();
    server.terminate();
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
}
