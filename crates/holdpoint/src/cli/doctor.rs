//! `holdpoint doctor`: is everything in the store as its logs say?

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use stores::doctor::{DoctorProgress, DoctorReport};
use stores::sqlite::doctor;

use super::output::{print, print_json};
use super::progress::{Amount, ProgressLine};
use super::store::StoreUrl;
use super::{Done, Everywhere, Outcome, database, size};

/// Check the whole store
///
/// Looks at every run: the log of a run is the truth, and its state, its approvals, messages and calls must be what the
/// log says. Of a file it looks at every page and every constraint too; the pages, indexes and constraints of a
/// PostgreSQL database are checked with pg_amcheck. Changes nothing, and works while a server runs.
/// Exits with 1 if it finds anything.
#[derive(Debug, Args)]
pub(super) struct Doctor {}

impl Doctor {
    pub(super) fn run(&self, everywhere: &Everywhere) -> Outcome {
        let mut line = ProgressLine::default();
        let mut progress = |progress| match progress {
            DoctorProgress::Pages => line.say("looking at pages and indexes", Amount::Unknown),
            DoctorProgress::References => line.say("looking at constraints and references", Amount::Unknown),
            DoctorProgress::Threads { done, total } => {
                line.say("looking at threads", Amount::Part { done, total })
            }
            DoctorProgress::Size => line.say("measuring", Amount::Unknown),
        };
        if let StoreUrl::Postgres { url } = &everywhere.store {
            let report = database::examine(url, &mut progress)?;
            return show(everywhere, &report, database::as_json, database::in_a_line);
        }
        let report = doctor::examine(everywhere.store.file("")?, progress)?;
        show(everywhere, &report, size::as_json, size::in_a_line)
    }
}

fn show<Size>(
    everywhere: &Everywhere,
    report: &DoctorReport<Size>,
    size_as_json: impl Fn(&Size) -> Value,
    size_in_a_line: impl Fn(&Size) -> String,
) -> Outcome {
    if everywhere.json {
        print_json(&as_json(everywhere, report, report.size.as_ref().map(size_as_json)))?;
    } else {
        print(&as_text(everywhere, report, report.size.as_ref().map(size_in_a_line)))?;
    }
    Ok(if report.findings.is_empty() { Done::Well } else { Done::Found })
}

fn as_json<Size>(everywhere: &Everywhere, report: &DoctorReport<Size>, size: Option<Value>) -> Value {
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
        "size": size,
    })
}

fn as_text<Size>(everywhere: &Everywhere, report: &DoctorReport<Size>, size: Option<String>) -> String {
    let DoctorReport { findings, threads, runs, events, size: _ } = report;
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
        let _ = writeln!(text, "{size}");
    }
    let total: u64 = findings.counts().values().sum();
    let _ = match total {
        0 => writeln!(text, "Nothing is wrong."),
        1 => writeln!(text, "1 thing is wrong."),
        _ => writeln!(text, "{total} things are wrong."),
    };
    text
}
