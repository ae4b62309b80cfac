//! A fault in a configuration: its line, its key, and what to do about it.

use std::fmt;

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Fault {
    /// The line number, starting at 1.
    pub(in crate::cli) line: usize,
    /// The dotted key, such as `agents.clerk.rules[0].then`.
    pub(in crate::cli) key: String,
    /// What is wrong and what to do about it, in one line.
    pub(in crate::cli) what: String,
}

/// An unusable file, with all of its faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct ConfigFaults {
    /// The path as the user named it.
    pub(in crate::cli) file: String,
    /// Sorted by line.
    pub(in crate::cli) faults: Vec<Fault>,
}

impl ConfigFaults {
    /// One line for each fault, as `FILE:LINE: KEY: what and what to do`.
    pub(in crate::cli) fn lines(&self) -> impl Iterator<Item = String> {
        self.faults.iter().map(|Fault { line, key, what }| format!("{}:{line}: {key}: {what}", self.file))
    }

    pub(in crate::cli) fn as_json(&self) -> Value {
        let faults: Vec<Value> = self
            .faults
            .iter()
            .map(|Fault { line, key, what }| json!({"file": self.file, "line": line, "key": key, "what": what}))
            .collect();
        let count = self.faults.len();
        let cause = format!("{} has {count} {}", self.file, if count == 1 { "error" } else { "errors" });
        json!({
            "code": "CONFIGURATION",
            "cause": cause,
            "next": "Correct the file, and run holdpoint check.",
            "faults": faults,
        })
    }
}

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().collect::<Vec<_>>().join("\n"))
    }
}
