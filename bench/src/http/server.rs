//! The real program as another process, with a configuration and a database file of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::bytes_on_disk::Folder;
use crate::failure::Failure;

/// Steps of a run whose stream never stops delivering.
const BUSY_STEPS: usize = 20;

/// Characters of each delta of the long answer, and the pause before the next one.
pub(crate) const DELTA_CHARS: usize = 16;
const DELTA_DELAY_MS: u64 = 40;

/// A tenant may have about a thousand streams, so there are several tenants, each with the SHA-256 of its token.
pub(crate) const TENANTS: [(&str, &str); 4] = [
    ("north", "d96f4a72d13c26466a4ac94aa5bcecea2f17c6c0d74756ce2a1c90eb9dfca7f2"),
    ("east", "50ec4208cb38701f9e064c353d41a3c449bad007266142e7f50b3fb2142c1dc4"),
    ("south", "cc629ea0d8c9d08e924a27ec1f6580be94490e6bdc2d8595769a62b766ab2c85"),
    ("west", "85bb0b555b3a9a8911a0da70701e641aaf1859303d55807e1f20d968079d7cba"),
];

/// The token that the tenant's clients send.
pub(crate) fn token(tenant: usize) -> String {
    format!("token-{}", TENANTS[tenant % TENANTS.len()].0)
}

/// The server's address and process id.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) address: String,
    pub(crate) process: u32,
}

pub(crate) struct HttpServer {
    child: Child,
    site: Site,
    _folder: Folder,
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl HttpServer {
    pub(crate) fn start(program: &Path, parent: &Path) -> Result<Self, Failure> {
        Self::start_with(program, parent, 1)
    }

    /// Its model answers `deltas` with this many.
    pub(crate) fn start_with(program: &Path, parent: &Path, delta_count: usize) -> Result<Self, Failure> {
        let folder = Folder::within(parent)?;
        fs::write(folder.file("holdpoint.toml"), configuration())?;
        fs::write(folder.file("script.json"), script(delta_count))?;
        let mut command = Command::new(program);
        command.args(["serve", "--config"]).arg(folder.file("holdpoint.toml"));
        command
            .current_dir(folder.file(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stderr = child.stderr.take().ok_or_else(|| Failure::new("a process without pipes"))?;
        let address = listening(stderr)?;
        let site = Site { address, process: child.id() };
        Ok(Self { child, site, _folder: folder })
    }

    pub(crate) fn site(&self) -> Site {
        self.site.clone()
    }

    /// Fails if the server has already exited.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Failure::new(format!("the server exited before it was stopped: {status}"))),
        }
    }
}

/// The address that the server prints. All later output is read and discarded, so that the server never blocks.
fn listening(stderr: ChildStderr) -> Result<String, Failure> {
    let mut lines = BufReader::new(stderr).lines();
    let mut said = Vec::new();
    while let Some(line) = lines.next().transpose()? {
        if let Some((_, address)) = line.split_once("listening on http://") {
            let address = address.chars().take_while(|letter| !matches!(letter, '"' | ' ')).collect();
            thread::spawn(move || lines.for_each(drop));
            return Ok(address);
        }
        said.push(line);
    }
    Err(Failure::new(format!("the server does not listen; it printed: {}", said.join("; "))))
}

fn configuration() -> String {
    let mut text = r#"[server]
listen = "127.0.0.1:0"
max_running_runs = 4096

[models.script]
provider = "scripted"
script = "script.json"

[tools.echo]
kind = "builtin"

[tools.add]
kind = "builtin"
approval = "ask"

[tools.pick]
kind = "client"
description = "Lets the user pick"
parameters = { type = "object" }

[agents.clerk]
model = "script"
tools = ["echo", "add", "pick"]
stop = [ { type = "max_rounds", rounds = 100000 } ]
"#
    .to_owned();
    for (tenant, sha256) in TENANTS {
        text += &format!(
            "\n[[auth.keys]]\nname = \"{tenant}\"\ntenant = \"{tenant}\"\nsha256 = \"{sha256}\"\n\
             roles = [\"run\", \"approve\"]\n"
        );
    }
    text
}

/// Each delta of the long answer is different, so that a reader notices a gap.
pub(crate) fn deltas_text(count: usize) -> String {
    (0..count).map(|number| format!("{number:>width$} ", width = DELTA_CHARS - 1)).collect()
}

/// The message determines what an agent does.
fn script(delta_count: usize) -> String {
    let text = "x".repeat(64);
    let echo = |id: &str| json!({"id": id, "name": "echo", "arguments": {"text": text}});
    let talk = |calls: &[Value]| json!({"text": text.repeat(2), "delta_chars": 16, "delay_ms": 200, "tool_calls": calls});
    // A conversation that only grows would use more and more memory by itself.
    let busy: Vec<Value> = (0..BUSY_STEPS).map(|_| talk(&[echo("")])).chain([talk(&[])]).collect();
    json!({"rules": [
        // A tool round.
        {"when": "^round$", "replies": [{"tool_calls": [echo("call_0"), echo("call_1")]}, {"text": text}]},
        // Streams all the time, five deltas a second, and calls a tool every two seconds. Another run follows it.
        {"when": "^busy$", "replies": busy},
        // Waits for approval.
        {"when": "^held$", "replies": [
            {"tool_calls": [{"id": "call_0", "name": "add", "arguments": {"a": 1, "b": 2}}]}, {"text": text}]},
        // One long answer.
        {"when": "^deltas$", "replies": [
            {"text": deltas_text(delta_count), "delta_chars": DELTA_CHARS, "delay_ms": DELTA_DELAY_MS}]},
        // Waits for the front end.
        {"when": "^pick$", "replies": [{"tool_calls": [{"id": "call_0", "name": "pick"}]}, {"text": text}]},
    ]})
    .to_string()
}
