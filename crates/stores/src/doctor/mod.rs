//! The doctor: examines everything in a store, compares it with the logs, and changes nothing. A store only answers
//! the queries of `rows`; every comparison is made here.
//!
//! It can run beside a server. Threads are read in short transactions, each with a snapshot of its own, and rows in
//! pages, so that neither the database nor this process has to hold much.
//!
//! The log of a run is the only source of truth about it. Everything else follows from the logs, so everything else can
//! be checked: the fold of each log is the stored state, and the rows beside it are those that its events write. Data
//! that exists only in one event (the text of a message, a result) is covered by the hash chain of its run.

mod chain;
mod examination;
mod fault;
mod finding;
mod keys;
mod log;
mod rows;
mod run;
mod thread;
mod value;

pub use chain::{ChainCounts, LateChain};
pub use finding::{Finding, FindingCode, Findings};

pub(crate) use examination::{
    ExaminedStore, examine_all_threads, examine_revisions, examine_threads, record,
};
pub(crate) use fault::{ExamineError, Fault, unreadable_or_refused};
pub(crate) use log::{Commit, LogFold, SUSPENSION_COLUMNS};
pub(crate) use rows::{
    AgentRow, CommitPage, CountedTable, DecisionRow, InboxRow, PostKeyRow, RunRow, SnapshotRows, StateRow,
    StoredGrant, StoredHead, StoredResponseRow, SuspensionRow, ThreadRow,
};
pub(crate) use run::{INBOX_COLUMNS, RUN_COLUMNS};
pub(crate) use thread::MESSAGE_COLUMNS;
pub(crate) use value::ColumnValue;

/// The findings, and how much was examined.
#[derive(Clone, Debug)]
pub struct DoctorReport<Size> {
    pub findings: Findings,
    pub threads: u64,
    pub runs: u64,
    pub events: u64,
    pub chains: ChainCounts,
    /// `None` if the store is too damaged to be measured.
    pub size: Option<Size>,
}

impl<Size> Default for DoctorReport<Size> {
    fn default() -> Self {
        Self {
            findings: Findings::default(),
            threads: 0,
            runs: 0,
            events: 0,
            chains: ChainCounts::default(),
            size: None,
        }
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
#[derive(Clone, Debug, Default)]
pub(crate) struct ExaminedCounts {
    pub(crate) runs: u64,
    pub(crate) events: u64,
    pub(crate) chains: ChainCounts,
}
