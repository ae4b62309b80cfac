//! The processes that are never killed: the ledger, and the till whose visits it records.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The two processes. They exit when this is dropped.
#[derive(Debug)]
pub struct Bystanders {
    _till: Bystander,
    _ledger: Bystander,
    /// The ledger's socket.
    pub ledger: PathBuf,
    /// The till's port.
    pub till: u16,
}

#[derive(Debug)]
struct Bystander(Child);

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Bystanders {
    /// `program` is this very program.
    pub fn start(program: &Path, folder: &Path) -> io::Result<Self> {
        let ledger = folder.join("ledger");
        let (books, said) = start(program, "ledger", ledger.as_os_str())?;
        if said != "listening" {
            return Err(io::Error::other("the ledger does not listen"));
        }
        let (till, said) = start(program, "till", ledger.as_os_str())?;
        let port = said.strip_prefix("listening ").and_then(|port| port.parse().ok());
        let port = port.ok_or_else(|| io::Error::other("the till does not listen"))?;
        Ok(Self { _till: till, _ledger: books, ledger, till: port })
    }
}

/// Starts the process, and returns it with its first line of output.
fn start(program: &Path, kind: &str, argument: &OsStr) -> io::Result<(Bystander, String)> {
    let mut start = Command::new(program);
    start.arg(kind).arg(argument);
    let mut child = start.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take();
    let bystander = Bystander(child);
    let mut line = String::new();
    if let Some(stdout) = stdout {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    Ok((bystander, line.trim_end().to_owned()))
}
