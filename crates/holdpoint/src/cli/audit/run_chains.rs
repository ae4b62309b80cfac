//! The hash chains of runs, which `audit verify` checks on a store: the log of a run says who decided what.

use std::fmt::Write as _;

use serde_json::{Value, json};
use stores::doctor::{DoctorReport, Finding, FindingCode};
use stores::sqlite::doctor;

use crate::cli::problem::Problem;
use crate::cli::store::StoreUrl;
use crate::cli::{GlobalArgs, database};

/// A log that cannot be read is not compared with its hashes.
const OF_LOGS: [FindingCode; 4] =
    [FindingCode::ChainBroken, FindingCode::LogBroken, FindingCode::Unreadable, FindingCode::FileDamaged];

pub(super) struct RunChains {
    pub(super) run_count: u64,
    pub(super) broken_count: u64,
    /// Some of the broken ones.
    broken: Vec<Finding>,
}

/// Reads every commit of every run.
pub(super) fn verify(global: &GlobalArgs) -> Result<RunChains, Problem> {
    Ok(match &global.store {
        StoreUrl::Postgres { url } => RunChains::from_report(&database::examine(url, |_| {})?),
        StoreUrl::Sqlite { .. } | StoreUrl::Memory => {
            RunChains::from_report(&doctor::examine(global.store.require_file("")?, |_| {})?)
        }
    })
}

impl RunChains {
    fn from_report<Size>(report: &DoctorReport<Size>) -> Self {
        let is_broken = |finding: &&Finding| OF_LOGS.contains(&finding.code);
        let counts = report.findings.counts().iter();
        Self {
            run_count: report.runs,
            broken_count: counts.filter(|(code, _)| OF_LOGS.contains(code)).map(|(_, count)| count).sum(),
            broken: report.findings.kept().iter().filter(is_broken).cloned().collect(),
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let broken: Vec<Value> =
            self.broken.iter().map(|one| json!({"where": one.place, "why": one.what})).collect();
        json!({"verified": self.run_count, "broken_count": self.broken_count, "broken": broken})
    }

    pub(super) fn write(&self, text: &mut String) {
        for Finding { place, what, .. } in &self.broken {
            let _ = writeln!(text, "{place}: BROKEN: {what}");
        }
        let more = self.broken_count.saturating_sub(self.broken.len() as u64);
        if more > 0 {
            let _ = writeln!(text, "{more} more faults; `holdpoint doctor` counts them");
        }
        let _ = writeln!(text, "{} runs", self.run_count);
    }
}
