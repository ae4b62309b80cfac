//! A doctor's finding: a code, a place, what is wrong there, and what to do about it.

use std::collections::BTreeMap;

/// Findings kept of each code; further ones are only counted.
const KEPT_COUNT_MAX: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingCode {
    /// The database itself reports that it cannot read back what it wrote.
    FileDamaged,
    /// A row exists that violates a constraint of its table.
    ConstraintBroken,
    /// A stored value cannot be decoded.
    Unreadable,
    /// A row belongs to something that does not exist.
    Orphan,
    /// Events are missing, duplicated, or contradict earlier ones.
    LogBroken,
    /// A commit does not match its hash, or the last one is not the head of its run's chain.
    ChainBroken,
    /// The stored state of a run is not the fold of its log.
    ControlDiffers,
    /// A column of a run differs from its log.
    RunDiffers,
    SuspensionDiffers,
    MessageDiffers,
    CallDiffers,
    DecisionDiffers,
    InboxDiffers,
    /// The head, the holder, the grants or the plugin state of a thread differ from its logs.
    ThreadDiffers,
    /// A run waits for a child that will never answer.
    ChildLost,
    /// A frozen agent is missing, or is not the one that its digest names.
    RevisionDiffers,
    /// A sealed audit record was altered, removed or moved.
    AuditBroken,
}

impl FindingCode {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FileDamaged => "FILE_DAMAGED",
            Self::ConstraintBroken => "CONSTRAINT_BROKEN",
            Self::Unreadable => "UNREADABLE",
            Self::Orphan => "ORPHAN",
            Self::LogBroken => "LOG_BROKEN",
            Self::ChainBroken => "CHAIN_BROKEN",
            Self::ControlDiffers => "CONTROL_DIFFERS",
            Self::RunDiffers => "RUN_DIFFERS",
            Self::SuspensionDiffers => "SUSPENSION_DIFFERS",
            Self::MessageDiffers => "MESSAGE_DIFFERS",
            Self::CallDiffers => "CALL_DIFFERS",
            Self::DecisionDiffers => "DECISION_DIFFERS",
            Self::InboxDiffers => "INBOX_DIFFERS",
            Self::ThreadDiffers => "THREAD_DIFFERS",
            Self::ChildLost => "CHILD_LOST",
            Self::RevisionDiffers => "REVISION_DIFFERS",
            Self::AuditBroken => "AUDIT_BROKEN",
        }
    }

    /// What the operator should do next.
    #[must_use]
    pub const fn next_step(self) -> &'static str {
        match self {
            Self::FileDamaged | Self::Unreadable => {
                "Stop every process that uses the store, keep a copy of it and look at the disk; \
                 then go on with the last backup that the doctor finds nothing in."
            }
            Self::LogBroken => {
                "The log is the only truth about a run, and this one cannot be trusted: \
                 keep a copy of the store and go on with the last backup that the doctor finds nothing in."
            }
            Self::ChainBroken => {
                "The log was changed after it was written, by another program or by the disk, and no longer proves what \
                 happened. Keep a copy of the store, find out who wrote to it, and compare the run with a backup. \
                 If its last commit does not match, the run is halted until you interrupt it."
            }
            Self::ControlDiffers | Self::RunDiffers | Self::SuspensionDiffers => {
                "Stop the server before the run acts on it; the log is the truth. \
                 Keep a copy of the store and go on with the last backup that the doctor finds nothing in."
            }
            Self::MessageDiffers | Self::CallDiffers | Self::ThreadDiffers => {
                "The log is the truth. Post nothing to the thread; \
                 keep a copy of the store and go on with the last backup that the doctor finds nothing in."
            }
            Self::DecisionDiffers => {
                "A repeat of this decision would be taken for another one: do not send it again; \
                 go on with the last backup that the doctor finds nothing in."
            }
            Self::InboxDiffers => {
                "Something that was accepted may never be processed: look at the run, \
                 and interrupt it if it does not go on."
            }
            Self::ConstraintBroken | Self::Orphan => {
                "This software writes no such row. Keep a copy of the store, find out who else writes to it, \
                 and go on with the last backup that the doctor finds nothing in."
            }
            Self::ChildLost => "The call will never be answered: interrupt the run.",
            Self::RevisionDiffers => {
                "The run cannot go on without its frozen agent: interrupt it, or go on with a backup that has it."
            }
            Self::AuditBroken => {
                "The audit record of this tenant was tampered with, or the disk is damaged: keep a copy of the store, \
                 and compare it with an export or a backup by `holdpoint audit verify --against`."
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub code: FindingCode,
    pub place: String,
    pub what: String,
}

impl Finding {
    #[must_use]
    pub const fn next_step(&self) -> &'static str {
        self.code.next_step()
    }
}

/// The first findings of each code, and the total number of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    kept: Vec<Finding>,
    counts: BTreeMap<FindingCode, u64>,
}

impl Findings {
    pub(crate) fn add(&mut self, code: FindingCode, place: impl Into<String>, what: impl Into<String>) {
        let count = self.counts.entry(code).or_default();
        *count += 1;
        if usize::try_from(*count).is_ok_and(|count| count <= KEPT_COUNT_MAX) {
            self.kept.push(Finding { code, place: place.into(), what: what.into() });
        }
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// In the order in which they were found, a bounded number of each code.
    #[must_use]
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }

    /// The number of findings of each code, the kept ones included.
    #[must_use]
    pub const fn counts(&self) -> &BTreeMap<FindingCode, u64> {
        &self.counts
    }
}

/// Findings at one place.
pub(crate) struct PlaceFindings<'f> {
    pub(crate) place: &'f str,
    pub(crate) findings: &'f mut Findings,
}

impl PlaceFindings<'_> {
    pub(crate) fn add(&mut self, code: FindingCode, what: impl Into<String>) {
        self.findings.add(code, self.place, what);
    }
}
