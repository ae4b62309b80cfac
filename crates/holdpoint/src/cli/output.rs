//! Data on standard output, as text or as one JSON object; everything else on standard error.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use super::client::escaped;
use super::problem::{Exit, Problem};

pub(super) fn print(text: &str) -> Result<(), Problem> {
    write_stdout(text).map(|_| ())
}

/// The same at once, also where the line has no end yet. False where nobody reads it any more.
pub(super) fn write_stdout(text: &str) -> Result<bool, Problem> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read it has seen enough.
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

/// One line of JSON as somebody else wrote it, byte by byte. On a terminal, what would move the cursor is written as its
/// number, which is the same JSON. False where nobody reads it any more.
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

/// Nobody is left to tell if it cannot be said, and the work goes on without.
pub(super) fn print_stderr(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// As a person reads it.
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
