//! A started process and the lines it prints, each with the number of the process in its world.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command as Start, Stdio};
use std::sync::mpsc::Sender;

use crate::node::Node;
use crate::wire::{Command, Line};

/// A line from a process, with the process's number.
#[derive(Debug)]
pub struct ProcessOutput {
    pub process: u32,
    pub output: Output,
}

#[derive(Debug)]
pub enum Output {
    Line(Line),
    /// Not a line of the protocol.
    Malformed(io::Error),
    /// The process closed its output.
    Closed,
}

pub struct Process {
    child: Child,
    stdin: ChildStdin,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

impl Process {
    /// Starts the program as a node. Everything that it prints goes to `listener`, up to its last line.
    pub fn start(
        program: &Path,
        node: &Node,
        complaints: &Path,
        listener: Sender<ProcessOutput>,
    ) -> io::Result<Self> {
        let complaints = File::options().create(true).append(true).open(complaints)?;
        let mut start = Start::new(program);
        start.args(node.command_line());
        let mut child = start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the process has no pipes"));
        };
        let process = node.process;
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let line = line.and_then(|line| serde_json::from_str(&line).map_err(io::Error::from));
                let output = line.map_or_else(Output::Malformed, Output::Line);
                if listener.send(ProcessOutput { process, output }).is_err() {
                    return;
                }
            }
            let _ = listener.send(ProcessOutput { process, output: Output::Closed });
        });
        Ok(Self { child, stdin })
    }

    pub fn send_command(&mut self, command: &Command) {
        // A failed write means that the process is dead, which its closed output will show.
        let _ = serde_json::to_string(command).map(|text| writeln!(self.stdin, "{text}"));
    }

    /// Kills the process and waits until it is gone. What it printed before can still be received.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill().and_then(|()| self.child.wait().map(drop))
    }

    /// Stops the process with all its threads (SIGSTOP) until `Process::resume`.
    pub fn pause(&self) -> io::Result<()> {
        self.signal("-STOP")
    }

    pub fn resume(&self) -> io::Result<()> {
        self.signal("-CONT")
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        let mut shell = Start::new("sh");
        shell.args(["-c", "kill \"$0\" \"$1\"", name]).arg(self.child.id().to_string());
        if shell.status()?.success() { Ok(()) } else { Err(io::Error::other("the signal was not sent")) }
    }

    /// How the process ended, if it ended by itself.
    pub fn wait(&mut self) -> String {
        format!("{:?}", self.child.wait())
    }
}
