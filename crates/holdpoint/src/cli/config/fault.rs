//! What is wrong with a configuration: where, under which key, and what to do.

use std::fmt;

use serde_json::{Value, json};

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Fault {
    /// From 1.
    pub(in crate::cli) line: usize,
    /// Dotted, `agents.clerk.rules[0].then`.
    pub(in crate::cli) key: String,
    /// And what to do about it, in one line.
    pub(in crate::cli) what: String,
}

/// A file that cannot be used, with everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct ConfigFaults {
    /// As it was named.
    pub(in crate::cli) file: String,
    /// In the order of their lines.
    pub(in crate::cli) faults: Vec<Fault>,
}

impl ConfigFaults {
    /// One for each fault, as `FILE:LINE: KEY: what and what to do`.
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
