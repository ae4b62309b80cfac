//! The record of what really happened: a separate process that writes and syncs every act before it confirms the act to
//! the tool.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use machine::id::{CallId, RunId, ToolName};
use machine::tool::EffectClass;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::payment_server::ChargeRecord;

/// One act of a tool, or one request to the payment service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Act {
    /// The process whose tool acted.
    pub process: u32,
    pub run: RunId,
    pub call: CallId,
    pub tool: ToolName,
    pub effect: EffectClass,
    pub attempt: u32,
    pub key: String,
    pub arguments: Value,
    /// What the payment service did, if the act was a request to it.
    pub charge_record: Option<ChargeRecord>,
}

/// A request to the ledger. It handles one request at a time, in the order in which they were sent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LedgerRequest {
    /// Writes an act to the file of its world.
    Write { file: PathBuf, act: Act },
    /// Confirms that everything sent before is written.
    Answer,
}

const DONE: &[u8] = b"done\n";

/// Sends an act to the ledger, and waits until it is written.
pub fn record(socket: &Path, file: &Path, act: Act) -> io::Result<()> {
    send(socket, &LedgerRequest::Write { file: file.to_owned(), act })
}

/// Waits until the ledger has written what a dead process had sent.
pub fn catch_up(socket: &Path) -> io::Result<()> {
    send(socket, &LedgerRequest::Answer)
}

fn send(socket: &Path, request: &LedgerRequest) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let mut request = serde_json::to_vec(request)?;
    request.push(b'\n');
    stream.write_all(&request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer == DONE { Ok(()) } else { Err(io::Error::other("the ledger did not write")) }
}

/// The file with a world's acts.
#[must_use]
pub fn in_folder(folder: &Path) -> PathBuf {
    folder.join("acts")
}

/// The acts of one world, in the order in which they were written. An incomplete last line is ignored.
pub fn read(file: &Path) -> io::Result<Vec<Act>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    whole.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}

/// The ledger's process. It prints a line when it listens, and exits when its parent does.
pub fn serve(socket: &Path) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    println!("listening");
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    for stream in listener.incoming() {
        if let Err(error) = handle_request(stream?) {
            eprintln!("an act is not written: {error}");
        }
    }
    Ok(())
}

/// A tool killed while it sends has not acted; one killed before it receives the confirmation has.
fn handle_request(mut stream: UnixStream) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Ok(());
    }
    match serde_json::from_str(&line)? {
        LedgerRequest::Write { file, act } => {
            let mut act = serde_json::to_vec(&act)?;
            act.push(b'\n');
            let mut file: File = OpenOptions::new().create(true).append(true).open(&file)?;
            file.write_all(&act)?;
            file.sync_data()?;
        }
        LedgerRequest::Answer => {}
    }
    // The tool may be dead by now, but its act is written.
    let _ = stream.write_all(DONE);
    Ok(())
}
