//! What must be true of the stored data and the ledger, no matter which process was killed when.

mod acts;
mod audit;
mod charges;
mod doubts;
mod hooks;
mod logs;
mod promises;
mod shared_store;

use std::fmt;

pub(crate) use promises::decision_of;

use crate::evidence::Evidence;
use crate::people::People;

/// The rules by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// What was accepted is stored and processed once, and every later repeat is answered as a repeat.
    AcceptedIsKept,
    /// What was refused, or never sent, is nowhere in the log.
    NothingIsMadeUp,
    /// A tool acts only in an attempt whose start is stored, and once in each.
    ActsOnlyAsStored,
    /// A write acts because of its own approval, or because a person decided to retry a call in doubt.
    WriteHasItsApproval,
    /// What was not lost is not repeated, and a repeat has the same key and arguments.
    RepeatsOnlyWhatWasLost,
    /// A call's result agrees with what it did.
    ResultAgreesWithActs,
    /// A call's key is charged once.
    ChargedOnce,
    /// A charge whose answer was lost, late or inconclusive is in doubt. An error means that nothing was charged.
    LostChargeIsInDoubt,
    /// What the log says was done is what was charged.
    ChargesAgreeWithTheLog,
    /// A lost write is in doubt, and only a person, its own late answer or the end of its run settles that.
    DoubtIsSettledByRight,
    /// A call is offered as in doubt no earlier than one lease time after the run was taken over.
    DoubtHasItsTime,
    /// What others have taken over is not sent any more.
    NothingIsSentTooLate,
    /// A tool's answer is stored, whatever its sibling calls do.
    ResultIsStoredAtOnce,
    /// Every run ends, and every call in it.
    NothingIsStuck,
    NoCallIsLeftResuming,
    FoldIsControl,
    TranscriptIsValid,
    /// A held call keeps the suspension id and the text that people saw, and is asked about once.
    ApprovalsStay,
    SeqIsDense,
    /// The simulator's ledger accepts the log.
    LogIsLegal,
    /// What was shown as settled stays settled.
    SettledStays,
    /// Every run ends as its story says, and every call as a person wanted.
    EndsAsItsStory,
    /// When nodes share a store, only the node that holds a run stores its events.
    OnlyTheHolderStores,
    /// The audit record has what happened, once and in order, and nothing else.
    AuditIsExact,
    /// Every audit record is as it was sealed.
    AuditChainHolds,
    /// A hook's answer is recorded once, is not asked for again, and takes effect.
    HookAnswerIsKept,
    /// Nothing was logged for the operator, and no process ended by itself.
    NoErrorIsReported,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// When the judge looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A process was killed, and the next one has not started.
    Between,
    /// Everything has ended.
    End,
}

/// The objections collected so far.
#[derive(Debug, Default)]
struct Objections(Vec<Violation>);

impl Objections {
    fn ensure(&mut self, holds: bool, rule: Rule, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation { rule, what: what() });
        }
    }
}

#[must_use]
pub fn judge(evidence: &Evidence, people: &People, moment: Moment) -> Vec<Violation> {
    let mut objections = Objections::default();
    if people.has_deleted() && evidence.runs.is_empty() {
        audit::judge_deleted(evidence, people, &mut objections);
    } else {
        judge_runs(evidence, people, moment, &mut objections);
    }
    judge_complaints(evidence, people, &mut objections);
    if let Some(shared_store) = &evidence.shared_store {
        shared_store::judge(evidence, shared_store, &mut objections);
    }
    objections.0
}

fn judge_runs(evidence: &Evidence, people: &People, moment: Moment, objections: &mut Objections) {
    for run in &evidence.runs {
        logs::judge(evidence, run, moment, objections);
        acts::judge(evidence, &people.story, run, moment, objections);
        doubts::judge(run, objections);
        charges::judge(evidence, run, moment, objections);
        hooks::judge(evidence, run, moment, objections);
    }
    acts::judge_strangers(evidence, objections);
    hooks::judge_strangers(evidence, objections);
    promises::judge(evidence, people, moment, objections);
    audit::judge(evidence, people, objections);
}

fn judge_complaints(evidence: &Evidence, people: &People, objections: &mut Objections) {
    for complaint in &evidence.complaints {
        let is_deleted = people.has_deleted();
        let expected = evidence
            .shared_store
            .as_ref()
            .is_some_and(|shared_store| shared_store.expects(complaint, is_deleted));
        objections.ensure(expected, Rule::NoErrorIsReported, || {
            format!("process {}: {}", complaint.process, complaint.words)
        });
    }
}
