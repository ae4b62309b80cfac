//! The contract of a store. The conformance suite refers to these rules by number.
//!
//! 1. [`RunStore::append`] is one transaction and the only way to commit to a run: events, run row, calls, suspensions,
//!    messages, plugin state and wake-up change together or not at all. An append whose sequence number or epoch
//!    differs from the stored one is refused ([`StoreError::Fenced`]) and changes nothing.
//! 2. `consumed` names the inbox rows that these events answer; the commit removes them from the inbox. `accepted`
//!    holds items that were submitted to the worker directly; the commit accepts and consumes them without an inbox
//!    row. Either way a decision with an id is remembered forever ([`ViewStore::decision`]), and a second one under that id
//!    is not accepted: an append that contains one is refused ([`StoreError::Behind`]).
//! 3. Each run has a version. Every item that is accepted for the run raises it, by whichever path the item arrives,
//!    and so does every commit. A worker receives the version when it loads, creates or appends, and names it in its
//!    next append. An append with another version is refused ([`StoreError::Behind`]) and changes nothing: the worker
//!    has not seen some accepted item. The store compares numbers; only the machine decides what may overtake what
//!    ([`judge_item`](machine::inbox::judge_item),
//!    [`overrides_accepted_answer`](machine::inbox::overrides_accepted_answer)). A consumed row answers and ends
//!    nothing.
//! 4. [`RunStore::release`] is refused while the inbox holds an item, so no wake-up is lost. Inbox rows are returned in
//!    order of arrival.
//! 5. `spawn` creates child runs and `deliver` fills other inboxes in the same transaction. A delivery to a run that
//!    has ended is dropped, and so is a second interrupt.
//! 6. Everything belongs to a tenant. A read with another tenant finds nothing. Lists are ordered by creation time and
//!    id, in pages, with an opaque cursor. A status filter compares with the status that is shown
//!    ([`RunView::shown_status`]).
//! 7. [`RunStore::claim`] first hands out runs that were woken, interrupted, fell due or lost their worker, then queued
//!    runs that hold their thread, alternating between tenants. It never hands out more than requested, nor a run that
//!    a worker holds. Runs of the tenant to skip ([`SkipTenant`]) keep their position in that order. [`Claim::Urgent`]
//!    hands out only the runs among them that have a waiting interrupt or fell due.
//! 8. Commits are counted ([`ViewStore::metrics`]). Creation, claim and start are one commit; in an embedded store a claim
//!    by itself is not a commit.
//! 9. One run holds a thread. [`RunStore::create`] admits a run ([`admit`](machine::thread::admit)) according to the
//!    thread's state inside the transaction, or refuses it ([`StoreError::Busy`]). A superseding run interrupts the
//!    runs that [`to_supersede`](machine::thread::to_supersede) names in the same commit. The append that ends the
//!    holder makes another run the holder ([`promote`](machine::thread::promote)).
//! 10. [`RunStore::submit`] judges the item, marks the suspension answered, inserts the row and wakes the run in one
//!     transaction; the caller receives its verdict. An item that is not taken changes nothing. An answered suspension
//!     is not pending: no list of pending suspensions contains it. It is shown and listed as its answer says
//!     ([`SuspensionView::answered_by`]) until the run has processed the answer.
//! 11. A call id is used once in a thread, and so is a message id. Messages that are still to join the thread count:
//!     the message of a run that has not started, and the message `msg_CALL` that each call gets. An append or creation
//!     that breaks this is refused ([`StoreError::Impossible`]) and changes nothing; [`RunStore::taken_call_ids`] names
//!     ids that are taken in either way.
//! 12. Acknowledged writes survive a crash of the process and, in a store on disk, of the machine.
//! 13. [`ViewStore::messages`] lists the messages of a thread in the order in which they joined it, oldest first. A message
//!     still to join is not listed. Texts are stored only in the logs: each message is shown as its event has it.
//! 14. The key of a posted message is bound in the commit that creates its run, once per thread. A creation whose key
//!     is taken is refused ([`StoreError::Stale`]), so that the caller looks again. A refused creation binds no key.
//!     [`ViewStore::posted`] finds the run.
//! 15. [`ResponseStore::store_response`] keeps the first answer under a scope of a run and returns the one that is kept. It is
//!     not a commit of the run.
//! 16. [`ViewStore::state`] shows plugin state to callers without a lease, just as [`RunStore::plugin_state`] shows it to the
//!     worker: first the run's state, then its thread's, each ordered by plugin and key.
//! 17. Keys and stored answers have a maximum size ([`SCOPE_BYTES_MAX`], [`ANSWER_BYTES_MAX`]); larger ones are refused
//!     ([`StoreError::Impossible`]). They are deleted with their thread, like everything else in it. A run keeps about
//!     [`STORED_RESPONSES_MAX`] answers; one more is refused in the same way.
//! 18. [`ViewStore::events`] stops with the event that reaches [`EVENTS_BYTES_MAX`] bytes, however many events were
//!     requested. The reader continues after the last event it received; an empty page means the end of the log.
//! 19. [`ViewStore::run_counts`] counts, over all tenants, the runs that have not ended, each by the status that is shown,
//!     and the items that are accepted but not processed, and the approvals among those. Ended runs add no cost.
//! 20. [`ClusterStore::callback_keys`] keeps the first key it is offered until [`ClusterStore::remove_callback_keys`], and returns
//!     that key to every process, so all recognise each other's callbacks. [`ClusterStore::rotate_callback_key`] replaces it
//!     and keeps it as the previous key. It changes nothing if there is no key, or already a previous one.
//! 21. An agent that came with a message ([`Create::inline_agent`]) is stored in the commit that creates its run, for
//!     the run's thread, and is deleted with it. A refused creation stores nothing of it. A creation whose inline agent
//!     is not the one its run is pinned to is refused ([`StoreError::Impossible`]). [`RunStore::revision`] finds an inline
//!     agent only for its own thread. One from [`RunStore::put_revision`] is found for every thread, and stays.
//! 22. A creation on a thread that the caller has seen never creates that thread again: it is refused if the thread is
//!     gone ([`StoreError::NotFound`]) or if another thread has its id by now ([`StoreError::Stale`]). A creation on a
//!     thread that the caller has seen to be absent is refused if the thread exists by now ([`StoreError::Stale`]).
//! 23. A grant applies to its own thread until it is revoked, and is deleted with the thread.
//! 24. A row that cannot be decoded hides no other row. Lists and logs show what its plain columns contain, and report
//!     it as unreadable. A run that cannot be loaded is still handed out ([`Claimed::loaded`]), so that it does not
//!     block others. Interrupting it, ending it ([`RunStore::end_undecoded`]) and deleting its thread require no decoding.
//! 25. Every commit with events extends the hash chain of its run ([`chain`](machine::chain)), and every store computes
//!     the same hashes ([`ViewStore::chain_head`]). A run whose last commit does not match its head is treated as one
//!     that cannot be loaded, and [`ViewStore::run`] shows it without its state. A run that an earlier version created
//!     has a chain from its next commit on.
//! 26. Every change that the audit record names is recorded in the transaction that makes it: a refused change adds no
//!     record. [`AuditStore::seal_audit`] gives each record its place in the chain of its tenant, without gaps. A sealed
//!     record never changes. Commits never wait for a chain.

mod append;
mod audit_store;
mod claim;
mod cluster_store;
mod error;
mod idempotency;
mod response_store;
mod run_store;
mod view_store;
mod views;
mod wrapper;

pub use append::{Append, Appended, Create, Created, InlineAgent, NewChildRun};
pub use audit_store::{
    AUDIT_RECORDS_MAX, AuditFilter, AuditStore, ConfigurationRecord, Deleted, Deletion, Sealed, TenantChain,
    seal_all,
};
pub use claim::{Claim, SkipTenant};
pub use cluster_store::ClusterStore;
pub use error::{StoreError, StoreFailure};
pub use idempotency::{
    ANSWER_BYTES_MAX, PostKey, SCOPE_BYTES_MAX, STORED_RESPONSES_MAX, StoredResponse,
    too_many_stored_responses,
};
pub use response_store::ResponseStore;
pub use run_store::RunStore;
pub use view_store::ViewStore;
pub use views::{
    ApprovalFilter, AutoApproval, CommittedEvent, Countable, GRANTS_READ_MAX, GrantFilter, GrantView, Listed,
    LogEntry, MessageOrder, MessagePosition, MessageView, Page, PathEntry, RunFilter, RunView, StateView,
    SuspensionView, ThreadView, TimedMessage, UnreadableEvent, decoded,
};
pub use wrapper::Wrapper;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use machine::id::{MessageId, RunId, ThreadId};
use machine::inbox::{Item, Ticket};
use machine::projection_rows::PublicRunStatus;
use machine::{Control, Timestamp};

use crate::live::{Delta, ToolNote};
use crate::metrics::HistogramSnapshot;

/// [`ViewStore::events`] stops after this many stored bytes; the last event, of any size, may exceed it.
pub const EVENTS_BYTES_MAX: usize = 1024 * 1024;

/// A boxed future, for trait objects. Dropping it cancels the work.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The owner of threads, runs and everything in them. No tenant ever sees another tenant's data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tenant(Arc<str>);

impl Tenant {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Tenant {
    fn from(name: &str) -> Self {
        Self(Arc::from(name))
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self::from("default")
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The right to append to a run. A later claim of the same run has a higher epoch and invalidates this lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub tenant: Tenant,
    pub thread: ThreadId,
    pub run: RunId,
    pub epoch: u64,
    /// The store's internal row number of the run.
    pub row: i64,
}

/// A run that was just claimed, as it was loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    pub lease: Lease,
    /// The error if a stored part of the run cannot be decoded.
    pub loaded: Result<Loaded, StoreFailure>,
    /// From this time on, an attempt that the previous worker started and lost may be offered as in doubt.
    pub doubt_at: Timestamp,
}

/// A run as it is stored, with its unprocessed inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    pub control: Control,
    pub inbox: Vec<(Ticket, Item)>,
    /// The run's version, including this inbox.
    pub version: u64,
    /// The run holds its thread, so it may start.
    pub holds_thread: bool,
    /// The message after which the run begins if it starts now.
    pub begins_after: Option<MessageId>,
}

/// An event in another process that may concern this one. A hint: it may be duplicated, late or spurious.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// The inbox of this run may hold an item.
    Run { tenant: Tenant, run: RunId },
    /// There may be runs to claim.
    Ready,
    /// Another process has stored events of this run.
    Committed { run: RunId },
    /// In another process a suspension of this run was opened or closed.
    Approvals { tenant: Tenant, run: RunId },
    /// Suspensions of any run may have changed without a notification.
    ApprovalsMissed,
    /// Another process has created a run of this thread, or the thread may have changed without a notification.
    Thread { tenant: Tenant, thread: ThreadId },
    /// A watcher in another process wants the live updates of this run.
    LiveRequested { run: RunId },
    /// Live updates from the process that holds this run. They follow the event with sequence number `after`.
    Live { run: RunId, after: u64, updates: Vec<LiveUpdate> },
}

/// A live update of a run, sent from one process to another and never stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveUpdate {
    Delta(Delta),
    Note(ToolNote),
}

/// Counters since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreMetrics {
    /// Transactions on runs: creations, appends and submitted items that changed something.
    pub commits: u64,
    /// Number of syncs to disk; commits that arrive together share one.
    pub syncs: u64,
    /// Bytes of events, controls and rows handed to the storage, without the storage's own overhead.
    pub bytes: u64,
    /// Commits per sync, for every sync that had any.
    pub batches: HistogramSnapshot,
    /// Duration of each sync in microseconds, including the round trip to the database if there is one.
    pub sync_us: HistogramSnapshot,
    pub failures: FailureCounts,
}

/// Failed store operations by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureCounts {
    pub unavailable: u64,
    pub full: u64,
    pub corrupt: u64,
}

/// Runs and their unprocessed items, over all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Runs that have not ended. A status without runs may be missing.
    pub runs: BTreeMap<PublicRunStatus, u64>,
    /// Items that were accepted but not yet processed by their run.
    pub inbox: u64,
    /// Those of them that approve a call, which therefore has not started yet.
    pub approved: u64,
}

/// Stores runs, following the rules of this module. Every type that implements its parts is a store.
pub trait Store: RunStore + ViewStore + ClusterStore + ResponseStore + AuditStore {}

impl<S: RunStore + ViewStore + ClusterStore + ResponseStore + AuditStore> Store for S {}
