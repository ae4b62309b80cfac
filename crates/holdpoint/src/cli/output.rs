//! Writes data to standard output, as text or as one JSON object; everything else goes to standard error.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use super::client::escaped;
use super::problem::{Exit, Problem};

pub(super) fn print(text: &str) -> Result<(), Problem> {
    write_stdout(text).map(|_| ())
}

/// Flushes at once, even if the line is incomplete. False if the reader has closed the pipe.
pub(super) fn write_stdout(text: &str) -> Result<bool, Problem> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has closed the pipe on purpose, for example `head`.
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(Problem::new(
            "NO_OUTPUT",
            why.to_string(),
            "Give standard output a place to go.",
            Exit::Other,
        )),
        Ok(()) => Ok(true),
    }
}

/// Prints one line of JSON from another source byte for byte. On a terminal, characters that would move the cursor are
/// written as JSON escapes, which is the same JSON. False if the reader has closed the pipe.
pub(super) fn print_raw(text: &str) -> Result<bool, Problem> {
    let text = text.trim_end();
    if io::stdout().is_terminal() {
        return write_stdout(&format!("{}\n", escaped(text)));
    }
    write_stdout(&format!("{text}\n"))
}

pub(super) fn print_json(value: &Value) -> Result<(), Problem> {
    print(&format!("{value}\n"))
}

/// Ignores a failure: there is nowhere left to report it, and the work continues.
pub(super) fn print_stderr(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A human-readable size.
pub(super) fn human_bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut amount = count as f64 / 1_024.0;
    for unit in UNITS {
        if amount < 1_024.0 || unit == "TiB" {
            return if count < 1_024 { format!("{count} bytes") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1_024.0;
    }
    format!("{count} bytes")
}
