//! Shared by the doctors of all stores: findings, the fold of a log, and the rows that follow from a log.
//!
//! The log of a run is the only source of truth about it. Everything else follows from the logs, so everything else can
//! be checked: the fold of each log is the stored state, and the rows beside it are those that its events write. Data
//! that exists only in one event (the text of a message, a result) can only be checked for its form.

mod fault;
mod finding;
mod grants;
mod log;
mod run;
mod value;

pub use finding::{Finding, FindingCode, Findings};

pub(crate) use fault::{Fault, new_fault};
pub(crate) use grants::compare_grant;
pub(crate) use log::{Commit, ExpectedRun, LogFold, SUSPENSION_COLUMNS};
pub(crate) use run::{
    INBOX_COLUMNS, RUN_COLUMNS, awaited_children, control_fault, decision_fault, inbox_columns, run_columns,
};
pub(crate) use value::{ColumnValue, differences, integer, text};

/// The findings, and how much was examined.
#[derive(Clone, Debug)]
pub struct DoctorReport<Size> {
    pub findings: Findings,
    pub threads: u64,
    pub runs: u64,
    pub events: u64,
    /// `None` if the store is too damaged to be measured.
    pub size: Option<Size>,
}

impl<Size> Default for DoctorReport<Size> {
    fn default() -> Self {
        Self { findings: Findings::default(), threads: 0, runs: 0, events: 0, size: None }
    }
}

/// How far an examination is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoctorProgress {
    /// Pages, indexes and constraints; the only part that cannot report how far it is.
    Pages,
    References,
    Threads {
        done: u64,
        total: u64,
    },
    Size,
}

/// How much of a thread was examined.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExaminedCounts {
    pub(crate) runs: u64,
    pub(crate) events: u64,
}
