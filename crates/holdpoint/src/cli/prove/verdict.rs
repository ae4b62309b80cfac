//! Compares the approvals in the store with the lines in the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;

use engine::store::{ApprovalFilter, Page, Tenant, ViewStore};
use machine::projection_rows::ApprovalStatus;
use machine::suspension::SuspensionKind;
use serde_json::{Value, json};
use stores::sqlite::SqliteStore;

use super::process::{Approver, CallKey};
use super::{Observations, proof_failed};
use crate::cli::problem::Problem;
use crate::cli::scratch::Scratch;

pub(super) const STORE: &str = "store.db";
pub(super) const LEDGER: &str = "ledger";
/// How many differences are shown in the text output.
const SHOWN_COUNT_MAX: usize = 5;

pub(super) struct Verdict {
    approvals: usize,
    lines: usize,
    differences: Vec<String>,
}

impl Verdict {
    /// Requires that no process has the store open any more.
    pub(super) fn read(scratch: &Scratch, approver: &Approver) -> Result<Self, Problem> {
        Ok(Self::compare(&approved(scratch)?, &ledger(scratch)?, approver.approved()))
    }

    /// `acknowledged`: calls whose approver received a confirmation that the approval is stored.
    fn compare(
        stored: &BTreeSet<CallKey>,
        done: &BTreeMap<CallKey, usize>,
        acknowledged: &BTreeSet<CallKey>,
    ) -> Self {
        let mut differences = Vec::new();
        for call @ (run, id) in stored.union(&done.keys().cloned().collect()) {
            match (stored.contains(call), done.get(call).copied().unwrap_or_default()) {
                (true, 1) => {}
                (true, count) => {
                    differences.push(format!("{id} of {run} was approved once and done {count} times"))
                }
                (false, count) => {
                    differences.push(format!("{id} of {run} was not approved and done {count} times"))
                }
            }
        }
        for (run, id) in acknowledged.difference(stored) {
            differences.push(format!("the approval of {id} of {run} was acknowledged and is lost"));
        }
        Self { approvals: stored.len(), lines: done.values().sum(), differences }
    }

    /// Something was approved, and every approved call was executed exactly once.
    pub(super) const fn holds(&self) -> bool {
        self.approvals > 0 && self.differences.is_empty()
    }

    pub(super) fn as_json(&self, seen: &Observations) -> Value {
        json!({
            "holds": self.holds(),
            "approvals": self.approvals,
            "ledger_lines": self.lines,
            "killed": seen.killed,
            "killed_after_an_act": seen.killed_after_an_act,
            "in_doubt": {"had_happened": seen.had_happened, "had_not_happened": seen.had_not_happened},
            "differences": self.differences,
        })
    }

    pub(super) fn as_text(&self, seen: &Observations) -> String {
        let Self { approvals, lines, differences } = self;
        let Observations { killed, killed_after_an_act, had_happened, had_not_happened, .. } = seen;
        let mut text = format!(
            "approvals     {approvals}\n\
             ledger lines  {lines}\n\
             killed        {killed} processes, {killed_after_an_act} of them between an act and its answer\n\
             in doubt      {} calls: {had_happened} had happened, {had_not_happened} had not\n",
            had_happened + had_not_happened
        );
        for difference in differences.iter().take(SHOWN_COUNT_MAX) {
            let _ = writeln!(text, "  {difference}");
        }
        if differences.len() > SHOWN_COUNT_MAX {
            let _ =
                writeln!(text, "  and {} more; --json lists them all", differences.len() - SHOWN_COUNT_MAX);
        }
        text.push_str(match self.holds() {
            true => "Every approval had exactly one effect.\n",
            false => "Approvals and effects differ.\n",
        });
        text
    }
}

/// How often each call was executed.
pub(super) fn ledger(scratch: &Scratch) -> Result<BTreeMap<CallKey, usize>, Problem> {
    let text = match std::fs::read_to_string(scratch.path().join(LEDGER)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(proof_failed(format!("the ledger cannot be read: {error}"))),
    };
    let mut done = BTreeMap::new();
    for line in text.lines() {
        let (run, call) = line.split_once(' ').unwrap_or((line, ""));
        *done.entry((run.to_owned(), call.to_owned())).or_default() += 1;
    }
    Ok(done)
}

/// The calls that are approved according to the store.
fn approved(scratch: &Scratch) -> Result<BTreeSet<CallKey>, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|why| proof_failed(why.to_string()))?;
    let store = SqliteStore::open(scratch.path().join(STORE))?;
    let filter = ApprovalFilter { status: Some(ApprovalStatus::Approved), ..ApprovalFilter::default() };
    let mut page = Page { cursor: None, limit: Page::LIMIT_MAX };
    let mut approved = BTreeSet::new();
    loop {
        let listed = runtime.block_on(store.approvals(&Tenant::default(), &filter, &page));
        let listed = listed.map_err(|why| proof_failed(why.to_string()))?;
        let calls = listed.items.iter().filter(|item| item.kind == SuspensionKind::Approval);
        approved.extend(calls.map(|item| (item.run.to_string(), item.call.to_string())));
        page.cursor = listed.next;
        if page.cursor.is_none() {
            return Ok(approved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> CallKey {
        ("run_1".to_owned(), id.to_owned())
    }

    #[test]
    fn only_one_line_for_each_approval_holds() {
        let both = BTreeSet::from([call("a"), call("b")]);
        let judge =
            |lines: &[(&str, usize)], stored: &BTreeSet<CallKey>, acknowledged: &BTreeSet<CallKey>| {
                let done = lines.iter().map(|(id, count)| (call(id), *count)).collect();
                let verdict = Verdict::compare(stored, &done, acknowledged);
                (verdict.holds(), verdict.differences.len())
            };
        assert_eq!(judge(&[("a", 1), ("b", 1)], &both, &both), (true, 0));
        assert_eq!(judge(&[("a", 2), ("b", 1)], &both, &both), (false, 1), "one was done twice");
        // As many lines as approvals, and still wrong.
        assert_eq!(judge(&[("a", 2)], &both, &both), (false, 2), "one twice and one never");
        assert_eq!(judge(&[("a", 1), ("c", 1)], &BTreeSet::from([call("a")]), &both), (false, 2));
        assert_eq!(judge(&[], &BTreeSet::new(), &BTreeSet::new()), (false, 0), "nothing shows nothing");
    }
}
