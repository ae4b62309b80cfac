//! Nodes that share a store. A node that was away stores and sends nothing that others have taken over. No person is
//! asked about a call while the node that sends it may still trust its lease.

use std::collections::BTreeMap;

use machine::Timestamp;
use machine::event::Fact;
use machine::id::{CallId, RunId};
use machine::suspension::Held;

use super::{Objections, Rule};
use crate::evidence::{Attempt, Complaint, Evidence, Pause, RunEvidence, SharedStoreEvidence};
use crate::store_at::LEASE;

pub(super) fn judge(evidence: &Evidence, shared_store: &SharedStoreEvidence, objections: &mut Objections) {
    for pause in shared_store.pauses.iter().filter(|pause| pause.before_sending) {
        judge_pause(evidence, pause, objections);
    }
    for run in &evidence.runs {
        judge_doubts(run, shared_store, objections);
    }
    judge_stored(shared_store, objections);
}

/// After a pause before sending, the node must not send an attempt that others had found lost by the time it resumed.
fn judge_pause(evidence: &Evidence, pause: &Pause, objections: &mut Objections) {
    for act in evidence.acts.iter().skip(pause.acts_before).filter(|act| act.process == pause.process) {
        let attempt = Attempt { run: act.run.clone(), call: act.call.clone(), number: act.attempt };
        objections.ensure(!pause.lost.contains(&attempt), Rule::NothingIsSentTooLate, || {
            format!("process {} continued after others had taken over, and did {act:?}", pause.process)
        });
    }
}

/// A lost node kept its lease for a while, and the node that takes over waits for one more lease time.
fn judge_doubts(run: &RunEvidence, shared_store: &SharedStoreEvidence, objections: &mut Objections) {
    let mut due: BTreeMap<(&CallId, u32), Timestamp> = BTreeMap::new();
    for event in &run.log {
        if let Fact::RunRecovered { lost, doubt_at, .. } = &event.fact {
            due.extend(lost.iter().map(|lost| ((&lost.call_id, lost.attempt), *doubt_at)));
            // A recovery before the first strike was caused by a slow machine.
            let first_loss = shared_store.first_loss.filter(|at| !lost.is_empty() && *at <= event.at);
            let early = first_loss.filter(|at| *doubt_at < at.plus_ms(lease_ms()));
            objections.ensure(early.is_none(), Rule::DoubtHasItsTime, || {
                format!(
                    "{} may be in doubt from {doubt_at:?} on, and the first loss was at {early:?}",
                    run.view.id
                )
            });
        }
        if let Fact::ToolSuspended(opened) = &event.fact
            && let Held::InDoubt { attempt } = opened.held
        {
            // If no worker was lost, the sender itself reports that the outcome is unknown.
            let early = due.get(&(&opened.call_id, attempt)).filter(|due| **due > event.at);
            objections.ensure(early.is_none(), Rule::DoubtHasItsTime, || {
                format!("{} is in doubt at {:?}, before {early:?}", opened.call_id, event.at)
            });
        }
    }
}

fn lease_ms() -> u64 {
    u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX)
}

/// The epochs rise along each log, and the store accepts nothing from a node that was replaced before it asked.
fn judge_stored(shared_store: &SharedStoreEvidence, objections: &mut Objections) {
    let mut logs: BTreeMap<&RunId, BTreeMap<u64, u64>> = BTreeMap::new();
    for stored in &shared_store.stored {
        objections.ensure(stored.overtaken_by.is_none(), Rule::OnlyTheHolderStores, || {
            format!("others had claimed the run before it was asked for, and taken was {stored:?}")
        });
        let before = logs.entry(&stored.holding.run).or_default().insert(stored.seq, stored.holding.epoch);
        objections.ensure(before.is_none(), Rule::OnlyTheHolderStores, || {
            format!("epoch {before:?} had stored the same events as {stored:?}")
        });
    }
    for (run, epochs) in logs {
        objections.ensure(epochs.values().is_sorted(), Rule::OnlyTheHolderStores, || {
            format!("along the log of {run} events were stored by the epochs {epochs:?}")
        });
    }
}

/// What nodes log when a lease runs out. Leases depend on real time: a busy machine may keep a node from renewing
/// one, and the log line is then correct. The consequences are judged all the same.
const OF_LEASES: [&str; 6] = [
    "WARN: another node is gone; other nodes continue its runs, freed ",
    "ERROR: this node lost its lease; other nodes continue its runs, node ",
    "WARN: this node's heartbeat failed; retrying, refused the store cannot be reached: the database is too slow for the lease of this node",
    "WARN: this node's heartbeat failed; retrying, refused the store cannot be reached: the database did not answer within ",
    "WARN: LISTEN/NOTIFY is not delivering; this node falls back to polling.",
    "ERROR: cannot claim runs; trying again, trouble the store cannot be reached: the lease of this node has run out and is not renewed yet",
];

/// What a node logs if it cannot reach its server, or was away so long that the answers are too old.
const OF_OUTAGES: [&str; 9] = [
    "WARN: this node's heartbeat failed; retrying, refused the store cannot be reached: ",
    "ERROR: cannot claim runs; trying again, trouble the store cannot be reached: ",
    "ERROR: some ready runs could not be claimed, refused the store cannot be reached: ",
    "WARN: the response to a claim was lost; releasing its runs, count ",
    "WARN: NOTIFY failed; other nodes will pick this up by polling, refused the store cannot be reached: ",
    "WARN: the database refuses NOTIFY; nodes fall back to polling, refused the store cannot be reached: ",
    // Logged by the connection pool.
    "WARN: Connection error: ",
    "WARN: Connection could not be recycled: ",
    // The last log line of a process that did not reach its server at startup.
    "ERROR: the store cannot be reached: ",
];
/// The same, for a single run.
const OF_A_RUN: [&str; 2] =
    ["ERROR: the store is in trouble; the run waits, run ", "ERROR: the run cannot be loaded, run "];
const UNREACHABLE: &str = ", trouble the store cannot be reached: ";
/// What a node logs if it was away while another node ended its run and the thread was deleted.
const GONE: &str = " is not in the log";
const LAPSED: &str = "the lease of this node has run out and is not renewed yet";

impl SharedStoreEvidence {
    pub(super) fn expects(&self, complaint: &Complaint, is_deleted: bool) -> bool {
        if self.is_undisturbed {
            return false;
        }
        let was_away = self.pauses.iter().any(|pause| pause.process == complaint.process);
        let is_gone = was_away && is_deleted && complaint.words.ends_with(GONE);
        is_gone
            || is_of_leases(&complaint.words)
            || ((self.was_cut_off || was_away) && is_of_outages(&complaint.words))
    }
}

fn is_of_leases(words: &str) -> bool {
    let of_a_run = OF_A_RUN.iter().any(|begin| words.starts_with(begin));
    OF_LEASES.iter().any(|begin| words.starts_with(begin)) || (of_a_run && words.ends_with(LAPSED))
}

fn is_of_outages(words: &str) -> bool {
    let of_a_run = OF_A_RUN.iter().any(|begin| words.starts_with(begin));
    OF_OUTAGES.iter().any(|begin| words.starts_with(begin)) || (of_a_run && words.contains(UNREACHABLE))
}
