//! A server process, and clients that call it over plain connections.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{Folder, state_home};

/// No test step takes this long; one that does is stuck.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(60);

/// A server process. It is killed when the test ends.
pub(crate) struct Server {
    child: Child,
    address: String,
    out: Lines,
    err: Lines,
    /// Its standard error so far.
    log_lines: Vec<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Waits until it listens. If it exits before that, the test fails and prints its log.
    #[track_caller]
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, &[])
    }

    #[track_caller]
    pub(crate) fn start_with(folder: &Path, arguments: &[&str], variables: &[(&str, &OsStr)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.current_dir(folder).args(arguments).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", state_home()).envs(variables.iter().copied());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let out = lines(child.stdout.take().expect("it has a standard output"));
        let err = lines(child.stderr.take().expect("it has a standard error"));
        let mut server = Self { child, address: String::new(), out, err, log_lines: Vec::new() };
        let line = server.wait_for("listening on http://");
        let (_, address) = line.split_once("listening on http://").expect("that was waited for");
        server.address = address.chars().take_while(|c| !matches!(c, '"' | ' ')).collect();
        server
    }

    /// The next line on standard error that contains this.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        loop {
            let Ok(line) = self.err.recv_timeout(STUCK_AFTER) else {
                panic!("it never printed {text:?}: {:?} {:#?}", self.child.try_wait(), self.log_lines)
            };
            self.log_lines.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Its standard error, up to the last line that the test waited for.
    pub(crate) fn log_lines(&self) -> &[String] {
        &self.log_lines
    }

    /// The next line on standard output.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.out.recv_timeout(STUCK_AFTER).expect("it prints a line")
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Memory in bytes: `VmRSS` is the current use, `VmHWM` the peak.
    #[cfg(target_os = "linux")]
    pub(crate) fn memory_bytes(&self, field: &str) -> usize {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib =
            line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<usize>().ok());
        kib.expect("the field is there") * 1024
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().expect("kill can be run");
        assert!(sent.success(), "{name} cannot be sent to {id}");
    }

    /// Waits until it exits. Returns its exit code and its standard error.
    #[track_caller]
    pub(crate) fn ended(mut self) -> (Option<i32>, Vec<String>) {
        let until = Instant::now() + STUCK_AFTER;
        // The pipe closes when the process ends.
        while let Ok(line) = self.err.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.log_lines.push(line);
        }
        assert!(Instant::now() < until, "it does not end: {:#?}", self.log_lines);
        let status = self.child.wait().expect("it can be waited for");
        (status.code(), std::mem::take(&mut self.log_lines))
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, &[], "")
    }

    /// The body of a GET response as text.
    #[track_caller]
    pub(crate) fn text(&self, path: &str) -> String {
        let (code, text) = exchange(&self.address, "GET", path, &[], "").expect("the server answers");
        assert_eq!(code, 200, "{path}: {text}");
        text
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call("POST", path, &[("content-type", "application/json")], &body.to_string())
    }

    #[track_caller]
    pub(crate) fn post_nothing(&self, path: &str) -> (u16, Value) {
        self.call("POST", path, &[], "")
    }

    /// Sends the server's token, if it has one.
    #[track_caller]
    fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let token = open_bearer(&self.address);
        let token = token.as_deref().map(|token| ("authorization", token));
        let headers: Vec<(&str, &str)> = headers.iter().copied().chain(token).collect();
        call(&self.address, method, path, &headers, body)
    }

    /// Posts a message to a new thread. Returns the id of the run.
    #[track_caller]
    pub(crate) fn begin(&self, agent: &str, text: &str) -> String {
        let (code, thread) = self.post("/v1/threads", &serde_json::json!({}));
        assert_eq!(code, 201, "{thread}");
        let path = format!("/v1/threads/{}/messages", thread["id"].as_str().expect("it has an id"));
        let (code, posted) = self.post(&path, &serde_json::json!({"agent": agent, "text": text}));
        assert_eq!(code, 202, "{posted}");
        posted["run_id"].as_str().expect("it has an id").to_owned()
    }

    /// Waits until a run has this status. Returns the run.
    #[track_caller]
    pub(crate) fn run_with(&self, run: &str, status: &str) -> Value {
        self.until(&format!("/v1/runs/{run}"), |run| run["status"] == status)
    }

    /// Polls the path until the response meets the condition.
    #[track_caller]
    pub(crate) fn until(&self, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + STUCK_AFTER;
        loop {
            let (code, found) = self.get(path);
            if code == 200 && is_right(&found) {
                return found;
            }
            assert!(Instant::now() < until, "{path} stays {code}: {found}");
            std::thread::yield_now();
        }
    }
}

/// The authorization header for a server without `[auth]`, with the token from its token file.
pub(crate) fn open_bearer(address: &str) -> Option<String> {
    let (_, port) = address.rsplit_once(':')?;
    let path = state_home().join(format!("holdpoint/127.0.0.1-{port}.token"));
    Some(format!("Bearer {}", std::fs::read_to_string(path).ok()?.trim_end()))
}

/// The lines of a pipe as they arrive. Several threads may read them.
pub(crate) struct Lines(Mutex<Receiver<String>>);

impl Lines {
    pub(crate) fn recv_timeout(&self, timeout: Duration) -> Result<String, RecvTimeoutError> {
        self.0.lock().expect("no reader panicked").recv_timeout(timeout)
    }
}

pub(crate) fn lines(from: impl Read + Send + 'static) -> Lines {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Lines(Mutex::new(lines))
}

/// Sends one request on a new connection. Returns the status, and the body as JSON, or null if there is none.
#[track_caller]
pub(crate) fn call(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    try_call(address, method, path, headers, body)
        .unwrap_or_else(|why| panic!("{method} {path} at {address}: {why}"))
}

/// The same, but returns an error if the server is gone.
pub(crate) fn try_call(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<(u16, Value)> {
    let (code, body) = exchange(address, method, path, headers, body)?;
    let value = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&body).unwrap_or(Value::String(body))
    };
    Ok((code, value))
}

fn exchange(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(STUCK_AFTER))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8(answer).map_err(io::Error::other)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code = code.unwrap_or_else(|| panic!("no status: {head:?}"));
    // Without a length the body is chunked: every other line is the size of a chunk.
    let body: String = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        body.split("\r\n").skip(1).step_by(2).collect()
    } else {
        body.to_owned()
    };
    Ok((code, body))
}

/// A folder with a configuration: the agent `clerk` follows a script.
pub(crate) fn configured(script: &Value) -> Folder {
    let folder = Folder::new();
    write(&folder, "script.json", &script.to_string());
    write(&folder, "holdpoint.toml", CONFIGURATION);
    folder
}

pub(crate) const CONFIGURATION: &str = r#"[server]
listen = "127.0.0.1:0"
drain = "20s"

[models.script]
provider = "scripted"
script = "script.json"

[tools.write_file]
kind = "builtin"
folder = "written"

[tools.sleep]
kind = "builtin"

[tools.pick]
kind = "client"
description = "Lets the user pick a colour"
parameters = { type = "object" }

[tools.post_office]
kind = "external"
description = "A courier delivers a letter"
parameters = { type = "object" }

[agents.clerk]
model = "script"
tools = ["write_file", "sleep", "pick", "post_office"]
"#;

pub(crate) fn write(folder: &Folder, name: &str, text: &str) {
    std::fs::write(folder.path().join(name), text).expect("it is written");
}
