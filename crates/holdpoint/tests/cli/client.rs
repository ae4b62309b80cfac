//! The program as a client of a server: one command, a command that keeps running, and a server with canned responses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{CommandOutput, state_home};
use crate::server::{CONFIGURATION, Server};

/// No test step takes this long; one that does is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Runs client commands against one server.
pub(crate) struct Client {
    url: String,
    token: Option<String>,
}

impl Client {
    pub(crate) fn for_server(server: &Server) -> Self {
        Self::at(&format!("http://{}", server.address()))
    }

    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), token: None }
    }

    pub(crate) fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.args(arguments).env("HOLDPOINT_URL", &self.url).env_remove("HOLDPOINT_TOKEN");
        command.env("XDG_STATE_HOME", state_home());
        if let Some(token) = &self.token {
            command.env("HOLDPOINT_TOKEN", token);
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::capture(&mut self.command(arguments))
    }

    /// The standard output of a command that succeeds.
    #[track_caller]
    pub(crate) fn shows(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said.out
    }

    /// The digest of the held arguments, which a script has to send with its approval.
    #[track_caller]
    pub(crate) fn digest(&self, approval: &str) -> String {
        let shown = self.shows(&["approvals", "show", approval, "--json"]);
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        shown["arguments_digest"].as_str().expect("a digest").to_owned()
    }

    /// Approves a held call.
    #[track_caller]
    pub(crate) fn approve(&self, approval: &str) -> String {
        let digest = self.digest(approval);
        self.shows(&["approvals", "approve", approval, "--yes", "--expect-digest", &digest])
    }

    /// The error of a command that fails with this exit code.
    #[track_caller]
    pub(crate) fn fails(&self, arguments: &[&str], code: i32) -> String {
        let said = self.run(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(code), ""), "{arguments:?}: {said:?}");
        let as_json = self.run(&[arguments, &["--json"]].concat());
        assert_eq!((as_json.code, as_json.out.as_str()), (Some(code), ""), "{arguments:?}: {as_json:?}");
        let error = as_json.error();
        assert!(said.err.starts_with(&format!("{}: ", error["code"].as_str().unwrap_or("?"))), "{said:?}");
        assert!(error["next"].is_string() && said.err.contains("\n  next: "), "{said:?}");
        said.err
    }

    /// Starts a command that keeps running.
    pub(crate) fn begin(&self, arguments: &[&str]) -> RunningCommand {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let out = lines(child.stdout.take().expect("it has a standard output"));
        let err = lines(child.stderr.take().expect("it has a standard error"));
        RunningCommand { child, out, err, stdout_lines: Vec::new() }
    }
}

/// A process that is killed with the test.
pub(crate) struct RunningCommand {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    /// Its standard output so far.
    pub(crate) stdout_lines: Vec<String>,
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RunningCommand {
    /// Waits for a line on standard output that contains this.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        loop {
            let Ok(line) = self.out.recv_timeout(STUCK_AFTER) else {
                let err: Vec<String> = self.err.try_iter().collect();
                panic!("it never printed {text:?}: {:#?} {err:#?}", self.stdout_lines)
            };
            self.stdout_lines.push(line.clone());
            if line.contains(text) {
                return;
            }
        }
    }

    /// The same on standard error.
    #[track_caller]
    pub(crate) fn wait_for_stderr(&self, text: &str) {
        loop {
            let line = self.err.recv_timeout(STUCK_AFTER);
            let line = line.unwrap_or_else(|_| panic!("it never printed {text:?}: {:#?}", self.stdout_lines));
            if line.contains(text) {
                return;
            }
        }
    }

    /// Its exit code, after all of its output was read.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let until = Instant::now() + STUCK_AFTER;
        // The pipe closes when the process ends.
        while let Ok(line) = self.out.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.stdout_lines.push(line);
        }
        assert!(Instant::now() < until, "it does not end: {:#?}", self.stdout_lines);
        self.child.wait().expect("it can be waited for").code()
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// A server that answers requests with canned responses, in order, and records the requests.
pub(crate) struct CannedServer {
    pub(crate) address: String,
    asked: Receiver<String>,
}

impl CannedServer {
    /// Each answer is a complete response, including its head.
    pub(crate) fn answering(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (sender, asked) = mpsc::channel();
        std::thread::spawn(move || {
            for answer in answers {
                let Ok((mut stream, _)) = listener.accept() else { return };
                let _ = sender.send(request(&stream));
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { address, asked }
    }

    /// The next request.
    pub(crate) fn next_request(&self) -> String {
        self.asked.recv_timeout(STUCK_AFTER).expect("a request arrives")
    }
}

/// The head and the body of a request.
fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") && reader.read_line(&mut request).is_ok_and(|count| count > 0) {}
    let length = request.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or_default()];
    let _ = reader.read_exact(&mut body);
    request + &String::from_utf8_lossy(&body)
}

/// A JSON response.
pub(crate) fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// The usual configuration, with a tool that asks questions, and `more` at the end.
pub(crate) fn configuration(more: &str) -> String {
    let known = CONFIGURATION.replace("\"sleep\", ", "\"sleep\", \"ask_user\", ");
    format!("{known}\n[tools.ask_user]\nkind = \"builtin\"\n{more}")
}

/// Asserts that the text contains no control characters that a terminal would act on.
#[track_caller]
pub(crate) fn assert_plain(text: &str) {
    let obeyed = |c: &char| c.is_control() && *c != '\n';
    assert_eq!(text.chars().find(obeyed), None, "{text:?}");
}

/// The id of the first approval of a run.
#[track_caller]
pub(crate) fn approval(run: &Value) -> String {
    run["pending"][0]["approval_id"].as_str().unwrap_or_else(|| panic!("nothing is held: {run}")).to_owned()
}
