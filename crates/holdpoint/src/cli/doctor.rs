//! `holdpoint doctor`: is everything in the store as its logs say?

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use stores::sqlite::doctor::{self, Progress, Report};

use super::output::{print, print_json};
use super::progress::{Amount, ProgressLine};
use super::{Done, Everywhere, Outcome, size};

const IN_POSTGRES: &str = "Check a PostgreSQL database with pg_amcheck; see docs/postgresql.md.";

/// Check the whole store
///
/// Looks at every page, every constraint and every run: the log of a run is the truth, and its state, its approvals,
/// messages and calls must be what the log says. Changes nothing, and works while a server runs.
/// Exits with 1 if it finds anything.
#[derive(Debug, Args)]
pub(super) struct Doctor {}

impl Doctor {
    pub(super) fn run(&self, everywhere: &Everywhere) -> Outcome {
        let mut line = ProgressLine::default();
        let report = doctor::examine(everywhere.store.file(IN_POSTGRES)?, |progress| match progress {
            Progress::Pages => line.say("looking at pages and indexes", Amount::Unknown),
            Progress::References => line.say("looking at constraints and references", Amount::Unknown),
            Progress::Threads { done, total } => line.say("looking at threads", Amount::Part { done, total }),
            Progress::Size => line.say("measuring", Amount::Unknown),
        })?;
        if everywhere.json {
            print_json(&as_json(everywhere, &report))?;
        } else {
            print(&as_text(everywhere, &report))?;
        }
        Ok(if report.findings.is_empty() { Done::Well } else { Done::Found })
    }
}

fn as_json(everywhere: &Everywhere, report: &Report) -> Value {
    let findings: Vec<Value> = report
        .findings
        .kept()
        .iter()
        .map(|finding| {
            json!({
                "code": finding.code.as_str(),
                "where": finding.place,
                "what": finding.what,
                "next": finding.next_step(),
            })
        })
        .collect();
    let counts: serde_json::Map<String, Value> = report
        .findings
        .counts()
        .iter()
        .map(|(code, count)| (code.as_str().to_owned(), json!(count)))
        .collect();
    json!({
        "store": everywhere.store.to_string(),
        "healthy": report.findings.is_empty(),
        "threads": report.threads,
        "runs": report.runs,
        "events": report.events,
        "findings": findings,
        "counts": counts,
        "size": report.size.as_ref().map(size::as_json),
    })
}

fn as_text(everywhere: &Everywhere, report: &Report) -> String {
    let Report { findings, threads, runs, events, size } = report;
    let mut text = String::new();
    for finding in findings.kept() {
        let _ = writeln!(text, "{} at {}", finding.code.as_str(), finding.place);
        let _ = writeln!(text, "  {}\n  next: {}", finding.what, finding.next_step());
    }
    let kept = |code| findings.kept().iter().filter(|finding| finding.code == code).count() as u64;
    for (code, count) in findings.counts() {
        if *count > kept(*code) {
            let _ = writeln!(text, "{}: {} more", code.as_str(), count - kept(*code));
        }
    }
    let _ = writeln!(text, "{}: {threads} threads, {runs} runs, {events} events", everywhere.store);
    if let Some(size) = size {
        let _ = writeln!(text, "{}", size::in_a_line(size));
    }
    let total: u64 = findings.counts().values().sum();
    let _ = match total {
        0 => writeln!(text, "Nothing is wrong."),
        1 => writeln!(text, "1 thing is wrong."),
        _ => writeln!(text, "{total} things are wrong."),
    };
    text
}
