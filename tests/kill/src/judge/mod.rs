//! What must be true of everything that is left, whoever was killed when.

mod acts;
mod charges;
mod company;
mod doubts;
mod logs;
mod promises;

use std::fmt;

pub(crate) use promises::decision_of;

use crate::evidence::Evidence;
use crate::people::People;

/// What must hold, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// What was accepted is stored, heard once, and answered as a repeat for ever.
    AcceptedIsKept,
    /// What was refused, or never said, is nowhere in the log.
    NothingIsMadeUp,
    /// A tool acts only in an attempt whose start is stored, and once in each.
    ActsOnlyAsStored,
    /// A write acts by an approval of its own, or because somebody in doubt wished for a repeat.
    WriteHasItsApproval,
    /// What was not lost is not repeated, and a repeat has the same key and arguments.
    RepeatsOnlyWhatWasLost,
    /// What a call came to agrees with what it did.
    ResultAgreesWithActs,
    /// Whoever charges with a call's key charges once.
    ChargedOnce,
    /// A charge whose answer was lost, late or told nothing is in doubt; an error says that nothing was charged.
    LostChargeIsInDoubt,
    /// What the log says was done is what was charged.
    ChargesAgreeWithTheLog,
    /// A lost write is in doubt, and only a person, its own late answer or the end of its run settles that.
    DoubtIsSettledByRight,
    /// In doubt is offered no earlier than one lease time after the run was taken over.
    DoubtHasItsTime,
    /// What others have taken over is not sent any more.
    NothingIsSentTooLate,
    /// What a tool has answered is stored, whatever its siblings do.
    ResultIsStoredAtOnce,
    /// Every run ends, and every call of it.
    NothingIsStuck,
    NoCallIsLeftResuming,
    FoldIsControl,
    TranscriptIsValid,
    /// A held call keeps the id and the words that people saw, and is asked about once.
    ApprovalsStay,
    SeqIsDense,
    /// The simulator's books object to the log.
    LogIsLegal,
    /// What was shown as settled stays so.
    SettledStays,
    /// Every run ends as its story does, and every call as somebody wished.
    EndsAsItsStory,
    /// Of nodes that share a store, whoever holds a run is the only one that stores what becomes of it.
    OnlyTheHolderStores,
    /// Nobody complained to the operator, and no process ended by itself.
    NobodyComplains,
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
    /// A process was killed, and the next one has not begun.
    Between,
    /// Everything has ended.
    End,
}

/// Objections, collected.
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
    for run in &evidence.runs {
        logs::judge(evidence, run, moment, &mut objections);
        acts::judge(evidence, &people.story, run, moment, &mut objections);
        doubts::judge(run, &mut objections);
        charges::judge(evidence, run, moment, &mut objections);
    }
    acts::judge_strangers(evidence, &mut objections);
    promises::judge(evidence, people, moment, &mut objections);
    for complaint in &evidence.complaints {
        let expected = evidence.company.as_ref().is_some_and(|company| company.expects(complaint));
        objections.ensure(expected, Rule::NobodyComplains, || {
            format!("process {}: {}", complaint.process, complaint.words)
        });
    }
    if let Some(company) = &evidence.company {
        company::judge(evidence, company, &mut objections);
    }
    objections.0
}
