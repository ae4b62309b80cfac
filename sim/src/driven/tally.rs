//! How often each thing happened in engine worlds, and what never did.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::play::names::VERDICTS;

#[derive(Clone, Debug, Default)]
pub struct Tally(BTreeMap<(&'static str, &'static str), u64>);

/// What should happen in enough worlds, besides every verdict on a decision.
const POSSIBLE: &[(&str, &[&str])] = &[
    // Empty, because the command line may choose the place.
    ("place", &[]),
    ("process", &["before a commit", "after a commit", "between commits", "to another process", "drained"]),
    (
        "store",
        &[
            "unavailable before a call",
            "unavailable after a commit",
            "unavailable to an old process",
            "fenced",
            "behind",
            "stale",
            "may not send",
            "may not send, by chance",
            "release refused",
            "accepted directly",
            "accepted into the inbox",
        ],
    ),
    (
        "tool",
        &[
            "started",
            "success",
            "success with warning",
            "error",
            "pending",
            "not sent",
            "unknown",
            "panic",
            "too late",
            "stopped on request",
            "resumed with its state",
        ],
    ),
    ("model", &["started", "answer", "failure to be retried", "failure for good", "panic"]),
    (
        "hook",
        &[
            "RunStart",
            "StepStart",
            "BeforeInference",
            "AfterInference",
            "BeforeToolExecute",
            "AfterToolExecute",
            "StepEnd",
            "RunEnd",
            "silent",
            "actions",
            "failure",
            "panic",
            "too late",
        ],
    ),
    (
        "message",
        &[
            "started a run",
            "queued",
            "refused as busy",
            "refused as loosening",
            "refused as its id is taken",
            "refused as its thread is gone",
            "refused otherwise",
            "no answer",
            "begins after an earlier one",
        ],
    ),
    ("decision", VERDICTS_AND_MORE),
    ("early decision", &["Accepted", "Refused(NotHeld)"]),
    ("interrupt", &["Accepted", "AlreadyApplied", "Refused(RunOver)"]),
    ("interrupt at another process", &["Accepted", "AlreadyApplied", "Refused(RunOver)"]),
    (
        "run",
        &[
            "a child",
            "recovered",
            "recovered with a lost attempt",
            "in doubt",
            "superseded",
            "expired",
            "watched to its end",
        ],
    ),
];

const VERDICTS_AND_MORE: &[&str] = &[
    VERDICTS[0],
    VERDICTS[1],
    VERDICTS[2],
    VERDICTS[3],
    VERDICTS[4],
    VERDICTS[5],
    VERDICTS[6],
    VERDICTS[7],
    VERDICTS[8],
    VERDICTS[9],
    "no answer",
];

impl Tally {
    pub fn count(&mut self, table: &'static str, what: &'static str) {
        *self.0.entry((table, what)).or_default() += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        for (cell, count) in &other.0 {
            *self.0.entry(*cell).or_default() += count;
        }
    }

    /// The table as text, and the possible cells that were never counted.
    #[must_use]
    pub fn print(&self) -> (String, Vec<String>) {
        let mut text = String::new();
        let mut missing = Vec::new();
        for (table, rows) in POSSIBLE {
            let _ = writeln!(text, "{table}");
            let others = self.0.keys().filter(|(of, what)| of == table && !rows.contains(what));
            for row in rows.iter().copied().chain(others.map(|(_, what)| *what)) {
                let count = self.0.get(&(*table, row)).copied().unwrap_or(0);
                let _ = writeln!(text, "  {row:<32} {count:>9}");
                if count == 0 {
                    missing.push(format!("{table}: {row}"));
                }
            }
        }
        (text, missing)
    }
}
