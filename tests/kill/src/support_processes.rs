//! The processes that are never killed: the ledger, the payment service whose charges it records, and the hook.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The three processes. They exit when this is dropped.
#[derive(Debug)]
pub struct SupportProcesses {
    _payment_server: SupportProcess,
    _ledger: SupportProcess,
    _hook_server: SupportProcess,
    /// The ledger's socket.
    pub ledger: PathBuf,
    /// The payment service's port.
    pub payment_port: u16,
    /// The hook's port.
    pub hook_port: u16,
}

#[derive(Debug)]
struct SupportProcess(Child);

impl Drop for SupportProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl SupportProcesses {
    /// `program` is this very program.
    pub fn start(program: &Path, folder: &Path) -> io::Result<Self> {
        let ledger = folder.join("ledger");
        let (ledger_process, printed) = start(program, &["ledger".as_ref(), ledger.as_os_str()])?;
        if printed != "listening" {
            return Err(io::Error::other("the ledger does not listen"));
        }
        let (payment_server, printed) = start(program, &["payment-service".as_ref(), ledger.as_os_str()])?;
        let payment_port = port(&printed)?;
        let (hook_server, printed) = start(program, &["hook-service".as_ref()])?;
        Ok(Self {
            _payment_server: payment_server,
            _ledger: ledger_process,
            _hook_server: hook_server,
            ledger,
            payment_port,
            hook_port: port(&printed)?,
        })
    }
}

fn port(printed: &str) -> io::Result<u16> {
    let port = printed.strip_prefix("listening ").and_then(|port| port.parse().ok());
    port.ok_or_else(|| io::Error::other("a service does not listen"))
}

/// Starts the process, and returns it with its first line of output.
fn start(program: &Path, arguments: &[&OsStr]) -> io::Result<(SupportProcess, String)> {
    let mut start = Command::new(program);
    start.args(arguments);
    let mut child = start.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take();
    let started = SupportProcess(child);
    let mut line = String::new();
    if let Some(stdout) = stdout {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    Ok((started, line.trim_end().to_owned()))
}
