//! What must be true of everything that is left, whoever was killed when.

mod acts;
mod doubts;
mod logs;
mod promises;

use std::fmt;

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
    /// A lost write is in doubt, and only a person, its own late answer or the end of its run settles that.
    DoubtIsSettledByRight,
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
        acts::judge(evidence, run, moment, &mut objections);
        doubts::judge(run, &mut objections);
    }
    acts::judge_strangers(evidence, &mut objections);
    promises::judge(evidence, people, moment, &mut objections);
    for complaint in evidence.complaints.lines().filter(|line| !line.is_empty()) {
        objections.ensure(false, Rule::NobodyComplains, || complaint.to_owned());
    }
    objections.0
}
