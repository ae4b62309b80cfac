//! `holdpoint doctor`: checks that everything in the store agrees with the logs of its runs.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use stores::doctor::{ChainCounts, DoctorProgress, DoctorReport};
use stores::sqlite::doctor;

use super::output::{print, print_json};
use super::progress::{Amount, ProgressLine};
use super::store::StoreUrl;
use super::{CommandResult, CommandStatus, GlobalArgs, database, size};

/// Check the whole store
///
/// Checks every run: its state, approvals, messages and calls must agree with its log. In a file it also checks every
/// page and every constraint. Check the pages, indexes and constraints of a PostgreSQL database with pg_amcheck.
/// Changes nothing, and works while a server runs. Exits with 1 if it finds anything.
#[derive(Debug, Args)]
pub(super) struct Doctor {}

impl Doctor {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        let mut line = ProgressLine::default();
        let mut progress = |progress| match progress {
            DoctorProgress::Pages => line.update("looking at pages and indexes", Amount::Unknown),
            DoctorProgress::References => {
                line.update("looking at constraints and references", Amount::Unknown)
            }
            DoctorProgress::Threads { done, total } => {
                line.update("looking at threads", Amount::Part { done, total })
            }
            DoctorProgress::Size => line.update("measuring", Amount::Unknown),
        };
        if let StoreUrl::Postgres { url } = &global.store {
            let report = database::examine(url, &mut progress)?;
            return show(global, &report, database::as_json, database::summary_line);
        }
        let report = doctor::examine(global.store.require_file("")?, progress)?;
        show(global, &report, size::as_json, size::summary_line)
    }
}

fn show<Size>(
    global: &GlobalArgs,
    report: &DoctorReport<Size>,
    size_as_json: impl Fn(&Size) -> Value,
    size_summary: impl Fn(&Size) -> String,
) -> CommandResult {
    if global.json {
        print_json(&as_json(global, report, report.size.as_ref().map(size_as_json)))?;
    } else {
        print(&as_text(global, report, report.size.as_ref().map(size_summary)))?;
    }
    Ok(if report.findings.is_empty() { CommandStatus::Success } else { CommandStatus::Failure })
}

fn as_json<Size>(global: &GlobalArgs, report: &DoctorReport<Size>, size: Option<Value>) -> Value {
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
        "store": global.store.to_string(),
        "healthy": report.findings.is_empty(),
        "threads": report.threads,
        "runs": report.runs,
        "events": report.events,
        "chains": chains_as_json(&report.chains),
        "findings": findings,
        "counts": counts,
        "size": size,
    })
}

fn as_text<Size>(global: &GlobalArgs, report: &DoctorReport<Size>, size: Option<String>) -> String {
    let DoctorReport { findings, threads, runs, events, chains, size: _ } = report;
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
    let _ = writeln!(text, "{}: {threads} threads, {runs} runs, {events} events", global.store);
    write_chains(&mut text, chains);
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

fn chains_as_json(chains: &ChainCounts) -> Value {
    let late = chains.late_chains.iter();
    let late: Vec<Value> =
        late.map(|late| json!({"where": late.place, "starts_at": late.starts_at})).collect();
    json!({"whole": chains.whole, "late": chains.late, "none": chains.none, "late_chains": late})
}

/// Nothing if every run has a chain that covers its whole log.
fn write_chains(text: &mut String, chains: &ChainCounts) {
    for late in &chains.late_chains {
        let _ = writeln!(text, "The hash chain of {} starts at event {}.", late.place, late.starts_at);
    }
    let unnamed = chains.late.saturating_sub(chains.late_chains.len() as u64);
    if unnamed > 0 {
        let _ = writeln!(text, "The hash chains of {unnamed} more runs start after their first event.");
    }
    if chains.none > 0 {
        let _ = writeln!(
            text,
            "{} runs have no hash chain: an earlier version wrote all of their events.",
            chains.none
        );
    }
}
