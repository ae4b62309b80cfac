//! The contract of a store. The conformance suite carries the numbers of these rules.
//!
//! 1. [`Store::append`] is one transaction and the only commit of a run: events, run row, calls, suspensions,
//!    messages, plugin state and wake-up change together or not at all. Another sequence number than the stored one,
//!    or another epoch, is refused ([`StoreError::Fenced`]), and nothing changed.
//! 2. `consumed` names the inbox rows that these events answer; they leave the inbox with the commit. `accepted`
//!    holds what arrived at the worker itself, accepted and consumed in the same commit without an inbox row. Either
//!    way a decision with an id is remembered for ever ([`Store::decision`]), and a second one under that id is not
//!    accepted: an append with one is refused ([`StoreError::Behind`]).
//! 3. Each run has a version. Every item that is accepted for it raises it, whichever way the item comes, and so does
//!    every commit. A worker gets the version with what it loads, creates and appends, and names it in its next append.
//!    Another version than the stored one is refused ([`StoreError::Behind`]), and nothing changed: something was accepted
//!    that this worker has not seen. The store compares numbers; what may overtake what is decided by the machine alone
//!    ([`judge_item`](machine::inbox::judge_item), [`overrides_accepted_answer`](machine::inbox::overrides_accepted_answer)). A row that was consumed answers
//!    nothing any more, and ends nothing.
//! 4. [`Store::release`] is refused while the inbox holds an item: no wake-up is lost. Inbox rows come back in the
//!    order of arrival.
//! 5. `spawn` creates child runs and `deliver` fills other inboxes in the same transaction. A delivery to a run that
//!    has ended, and a second interrupt, is dropped.
//! 6. Everything belongs to a tenant. A read with another tenant finds nothing. Lists are ordered by time of creation
//!    and id, in pages, with an opaque cursor. A status that is asked for is the one that is shown
//!    ([`RunView::shown_status`]).
//! 7. [`Store::claim`] hands out runs that were woken, interrupted, fell due or lost their worker first, then queued
//!    runs that hold their thread, one tenant after the other; never more than asked for, never one that is held.
//!    Runs of the tenant that it is told to pass over ([`SkipTenant`]) stay where they are in that order.
//!    [`Claim::Urgent`] hands out those of them that an interrupt waits for or that fell due, and no others.
//! 8. Commits are counted ([`Store::metrics`]). Creation, claim and start are one commit; a claim by itself is none in
//!    an embedded store.
//! 9. One run holds a thread. [`Store::create`] admits a run ([`admit`](machine::thread::admit)) to the thread as it is
//!    inside the transaction, or refuses it ([`StoreError::Busy`]). A superseding run interrupts those that
//!    [`to_supersede`](machine::thread::to_supersede) names in the same commit. The append that ends the holder makes
//!    another run the holder ([`promote`](machine::thread::promote)).
//! 10. [`Store::submit`] judges, marks the suspension answered, inserts the row and wakes the run in one transaction;
//!     its verdict is what the caller gets. An item that is not taken leaves nothing behind. What is answered is not
//!     pending: no list of what is pending has it. It is shown, and listed, as its answer says
//!     ([`SuspensionView::answered_by`]) until the run has heard that.
//! 11. A call id is used once in a thread, a message id too, and what waits to join the thread counts: the message of
//!     a run that has not started, and the message `msg_CALL` that each call gets. An append or creation that breaks
//!     this is refused ([`StoreError::Impossible`]), and nothing changed; [`Store::taken_call_ids`] names ids that are
//!     taken in either way.
//! 12. What was acknowledged survives a crash of the process and, in a store on disk, of the machine.
//! 13. [`Store::messages`] lists what is in a thread in the order in which it joined, oldest first. A message that
//!     waits to join is not in it. Texts stand in the logs alone: what is listed is the message as its event has it.
//! 14. A key of a posted message is bound in the commit that creates its run, once in a thread: a creation whose key
//!     is taken is refused ([`StoreError::Stale`]), so that whoever posts looks again. A creation that is refused binds no
//!     key. [`Store::posted`] finds the run.
//! 15. [`Store::store_response`] keeps the first answer under a scope of a run and gives back what is kept. It is no commit
//!     of the run.
//! 16. [`Store::state`] shows what plugins keep to whoever has no lease, as [`Store::plugin_state`] shows it to the
//!     worker: what is kept for the run first, then what is kept for its thread, each by plugin and key.
//! 17. Keys and remembered answers have a largest size ([`SCOPE_BYTES_MAX`], [`ANSWER_BYTES_MAX`]), beyond which they
//!     are refused ([`StoreError::Impossible`]). They go with their thread, as everything of it does. A run remembers about
//!     [`STORED_RESPONSES_MAX`] answers; one more is refused in the same way.
//! 18. [`Store::events`] stops with the event that brings it to [`EVENTS_BYTES_MAX`] bytes, however many were asked for:
//!     whoever reads goes on behind the last event that they got, and is at the end where they get none.
//! 19. [`Store::run_counts`] counts the runs that have not ended, each in the status that is shown, and what is accepted and
//!     not heard, and the approvals among it, over all tenants. Runs that have ended cost it nothing.
//! 20. [`Store::callback_keys`] keeps the first key that it is offered, until [`Store::remove_callback_keys`], and gives that
//!     one to every process: a callback that one gave out is known to all of them. [`Store::rotate_callback_key`] replaces it
//!     and keeps it as the previous one. It changes nothing where no key is kept, and where a previous one is.
//! 21. What came with a message ([`Create::inline_agent`]) is kept in the commit that creates its run, for the thread of that
//!     run, and goes with the thread. A creation that is refused leaves none of it behind, and one that brings something
//!     else than what its run is pinned to is refused ([`StoreError::Impossible`]). [`Store::revision`] finds it for its own
//!     thread and for no other. An agent that was put ([`Store::put_revision`]) is found for all, and stays.
//! 22. A creation on a thread that was seen never creates that thread again: it is refused if the thread is gone
//!     ([`StoreError::NotFound`]) or if another one has its id by now ([`StoreError::Stale`]). A creation on a thread that was
//!     seen to be absent is refused if there is one by now ([`StoreError::Stale`]).
//! 23. A grant counts for its own thread until it is revoked, and goes with the thread.
//! 24. A row that cannot be decoded hides nothing else. Lists and logs show it as far as its plain columns go, and say that
//!     it is unreadable. A run that cannot be loaded is given out all the same ([`Claimed::loaded`]), so that it keeps no
//!     other from being given out. An interrupt is accepted, and [`Store::end_undecoded`] ends its run, without decoding
//!     anything; so is a thread deleted.

mod append;
mod claim;
mod error;
mod idempotency;
mod views;
mod wrapper;

pub use append::{Append, Appended, Create, Created, InlineAgent, NewChildRun};
pub use claim::{Claim, SkipTenant};
pub use error::{StoreError, StoreFailure};
pub use idempotency::{
    ANSWER_BYTES_MAX, PostKey, SCOPE_BYTES_MAX, STORED_RESPONSES_MAX, StoredResponse,
    too_many_stored_responses,
};
pub use views::{
    ApprovalFilter, AutoApproval, CommittedEvent, Countable, GRANTS_READ_MAX, GrantFilter, GrantView, Listed,
    LogEntry, MessagePosition, MessageView, Page, PathEntry, RunFilter, RunView, StateView, SuspensionView,
    ThreadView, TimedMessage, UnreadableEvent, decoded,
};
pub use wrapper::Wrapper;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use machine::decision::Decision;
use machine::event::Event;
use machine::grant::Grant;
use machine::id::{
    AgentName, CallId, DecisionId, Digest, GrantId, MessageId, RunId, SuspensionId, ThreadId, ToolName,
};
use machine::inbox::{Item, Ticket, Verdict};
use machine::projection_rows::{PublicRunStatus, StateRow};
use machine::{Control, Timestamp};
use serde_json::Value;

use crate::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use crate::clock::Clock;
use crate::live::{Delta, ToolNote};
use crate::metrics::HistogramSnapshot;

/// Events of this size, as they are stored, are read at once; with one more, which may be of any size.
pub const EVENTS_BYTES_MAX: usize = 1024 * 1024;

/// Work that is awaited behind a trait object. Dropping it cancels it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whose things these are. No tenant ever sees another's.
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

/// The right to append to a run. A later claim of the same run has a higher epoch, and this one is worth nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub tenant: Tenant,
    pub thread: ThreadId,
    pub run: RunId,
    pub epoch: u64,
    /// The store's own number for the run.
    pub row: i64,
}

/// A run that is held now, as it is loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    pub lease: Lease,
    /// Why it cannot be loaded, where something that is stored of it cannot be decoded.
    pub loaded: Result<Loaded, StoreFailure>,
    /// From here on an attempt that the last worker started and lost may be offered as in doubt.
    pub doubt_at: Timestamp,
}

/// A run as it is stored, with what waits for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    pub control: Control,
    pub inbox: Vec<(Ticket, Item)>,
    /// Of the run with this inbox.
    pub version: u64,
    /// The run holds its thread, so it may start.
    pub holds_thread: bool,
    /// The message that the run begins after if it starts now.
    pub begins_after: Option<MessageId>,
}

/// What may concern this process although it happened in another one. A hint: it may come twice, late, or for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// Something may wait in the inbox of this run.
    Run { tenant: Tenant, run: RunId },
    /// Something may be there to claim.
    Ready,
    /// Another process has stored events of this run.
    Committed { run: RunId },
    /// In another process something of this run is held, or is held no longer.
    Approvals { tenant: Tenant, run: RunId },
    /// What is held anywhere may have changed without a word.
    ApprovalsMissed,
    /// In another process somebody watches this run, and wants to hear what is said on the way.
    LiveRequested { run: RunId },
    /// The process that holds this run says this on the way, behind the event of this number.
    Live { run: RunId, after: u64, updates: Vec<LiveUpdate> },
}

/// What is said on the way of a run and not stored, from one process to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveUpdate {
    Delta(Delta),
    Note(ToolNote),
}

/// What the store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreMetrics {
    /// Transactions of runs: creations, appends and submitted items that changed something.
    pub commits: u64,
    /// Times that data was forced to disk; commits that arrive together share one.
    pub syncs: u64,
    /// Bytes of events, controls and rows handed to the storage, before it adds its own.
    pub bytes: u64,
    /// Commits that shared a sync, for every sync that had any.
    pub batches: HistogramSnapshot,
    /// What each sync took in microseconds, with the way to the database where there is one.
    pub sync_us: HistogramSnapshot,
    pub failures: FailureCounts,
}

/// What was asked of the store and met trouble, by its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureCounts {
    pub unavailable: u64,
    pub full: u64,
    pub corrupt: u64,
}

/// Runs and what waits for them, of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Those that have not ended. A status without a run may be missing.
    pub runs: BTreeMap<PublicRunStatus, u64>,
    /// Items that were accepted and that no run has heard.
    pub inbox: u64,
    /// Those of them that approve a call, which has not started for that reason.
    pub approved: u64,
}

/// Keeps runs, under the rules of this module.
pub trait Store: Send + Sync + 'static {
    /// The store's own clock: it judges what is due.
    fn now(&self) -> Timestamp;

    /// Creates a thread; true if it is new. One that exists stays as it is.
    fn put_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        metadata: &Value,
    ) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// A thread as admission sees it; [`ThreadView::absent`] if there is none.
    fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> BoxFuture<'_, Result<ThreadView, StoreError>>;

    /// Newest first.
    fn threads(&self, tenant: &Tenant, page: &Page) -> BoxFuture<'_, Result<Listed<ThreadView>, StoreError>>;

    /// How many of these the tenant has, counted by an index and no further than to `max`.
    fn count_up_to(
        &self,
        tenant: &Tenant,
        what: Countable,
        max: u64,
    ) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Whether the thread has a run of an agent that is not among these. Reads no run as a whole.
    fn has_other_agents(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        agents: &BTreeSet<AgentName>,
    ) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Gives a grant for every tool of a thread, in place of an earlier one. None revokes every grant of the thread.
    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        given: Option<&AutoApproval>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The run's grants for this tool: the one for every tool, then the newest, at most [`GRANTS_READ_MAX`] in all.
    fn grants_for(&self, lease: &Lease, tool: &ToolName) -> BoxFuture<'_, Result<Vec<Grant>, StoreError>>;

    /// One grant that was not revoked.
    fn grant(&self, tenant: &Tenant, id: &GrantId) -> BoxFuture<'_, Result<Option<GrantView>, StoreError>>;

    /// The grants that were not revoked, newest first.
    fn grants(
        &self,
        tenant: &Tenant,
        filter: &GrantFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<GrantView>, StoreError>>;

    /// [`StoreError::NotFound`] where the tenant has no such grant, or where it was revoked before.
    fn revoke_grant(&self, tenant: &Tenant, id: &GrantId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Removes a thread with its runs, logs and approvals, and the threads of the runs that they delegated to, and so on.
    /// [`StoreError::Stale`] while a run of any of them has not ended.
    fn delete_thread(&self, tenant: &Tenant, thread: &ThreadId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// A frozen agent of the configuration under the digest of its text. Writing it again changes nothing.
    fn put_revision(&self, digest: &Digest, text: &str) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The frozen agent of a run of this thread: what came with a message of the thread, or else what was put.
    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> BoxFuture<'_, Result<Option<String>, StoreError>>;

    /// Keeps this key of callbacks, unless one is kept; gives the one that is, with the one before it. Without a key it
    /// only looks.
    fn callback_keys(
        &self,
        drawn: Option<CallbackKey>,
    ) -> BoxFuture<'_, Result<Option<StoredCallbackKeys>, StoreError>>;

    /// This key is the current one from here on, and the one that was is the previous one.
    fn rotate_callback_key(&self, drawn: CallbackKey) -> BoxFuture<'_, Result<KeyRotation, StoreError>>;

    /// These keys of callbacks are gone from here on; false where none of them was kept. A process that has read them
    /// keeps using them.
    fn remove_callback_keys(&self, which: KeysToRemove) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Creates a run, and with `lease` gives it to the caller in the same commit: only where it holds its thread.
    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>>;

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, StoreError>>;

    /// The run as it is stored, for a worker whose append was refused. [`StoreError::Fenced`] if the lease is lost.
    fn load(&self, lease: &Lease) -> BoxFuture<'_, Result<Loaded, StoreError>>;

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>>;

    /// Ends a run whose interrupt was accepted, for the worker that holds it and cannot load it. Nothing that is stored has
    /// to be decoded: the run ends, its held calls and its inbox are closed, its thread passes to the next run in line, its
    /// children are interrupted and its parent is told, in one commit. [`StoreError::Stale`] where no interrupt was accepted.
    fn end_undecoded(&self, lease: &Lease) -> BoxFuture<'_, Result<Appended, StoreError>>;

    /// True if the run is let go; false while its inbox holds an item.
    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Whether an attempt may still be sent under this lease. Asked right before it is sent; does not wait.
    fn may_send(&self, lease: &Lease) -> bool;

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> BoxFuture<'_, Result<Verdict, StoreError>>;

    /// When the next run that nobody holds falls due.
    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>, StoreError>>;

    /// The first decision that was accepted under this id.
    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> BoxFuture<'_, Result<Option<Decision>, StoreError>>;

    fn run(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Option<RunView>, StoreError>>;

    /// Newest first.
    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<RunView>, StoreError>>;

    /// The events behind `after`, oldest first, at least one if there is one, at most about `limit`, and no more than
    /// rule 18 allows.
    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>>;

    fn event(&self, lease: &Lease, seq: u64) -> BoxFuture<'_, Result<Arc<Event>, StoreError>>;

    /// Where a message of a thread stands.
    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> BoxFuture<'_, Result<Option<MessagePosition>, StoreError>>;

    /// The messages of a thread in the order in which they joined it, oldest first. [`StoreError::NotFound`] where the
    /// tenant has no such thread.
    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<MessageView>, StoreError>>;

    /// The run that a message with this key has started in the thread, and what was posted.
    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<(RunId, Digest)>, StoreError>>;

    /// Keeps an answer as long as the run, unless one is kept under this scope; gives the one that is. One more than a
    /// run remembers is [`StoreError::Impossible`].
    /// [`StoreError::NotFound`] where the tenant has no such run.
    fn store_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: StoredResponse,
    ) -> BoxFuture<'_, Result<StoredResponse, StoreError>>;

    fn stored_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<StoredResponse>, StoreError>>;

    /// What plugins keep for the run and for its thread, for whoever looks. [`StoreError::NotFound`] where the tenant has
    /// no such run.
    fn state(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Vec<StateView>, StoreError>>;

    /// Call ids of the thread that equal one of these, or one of these with `~` and something behind it; used ones,
    /// and those whose message `msg_CALL` is somebody else's.
    fn taken_call_ids(
        &self,
        lease: &Lease,
        asked: &[String],
    ) -> BoxFuture<'_, Result<BTreeSet<CallId>, StoreError>>;

    /// What plugins keep for the run and for its thread, for the worker.
    fn plugin_state(&self, lease: &Lease) -> BoxFuture<'_, Result<Vec<StateRow>, StoreError>>;

    /// One suspension, open or closed.
    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> BoxFuture<'_, Result<Option<SuspensionView>, StoreError>>;

    /// Suspensions that a person answers, oldest first.
    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<SuspensionView>, StoreError>>;

    fn metrics(&self) -> StoreMetrics;

    /// Costs about as much as there are runs that have not ended: not for every request.
    fn run_counts(&self) -> BoxFuture<'_, Result<RunCounts, StoreError>>;

    /// Whether other processes may work on the same runs.
    fn is_shared(&self) -> bool {
        false
    }

    /// Comes back with what happened elsewhere. Dropping it loses no ring. The store of one process never rings.
    fn next_notification(&self) -> BoxFuture<'_, Notification> {
        Box::pin(std::future::pending())
    }

    /// Somebody here watches a run that another process may hold, and wants to hear what is said on the way: until its
    /// next commit, whoever holds it is rung ([`Notification::LiveRequested`]). Does not wait.
    fn request_live(&self, _run: &RunId) {}

    /// Brings what is said on the way of a run that is held here to whoever else watches it ([`Notification::Live`]). Does not
    /// wait, and may fail without a word: the event that follows carries the whole.
    fn publish_live(&self, _run: &RunId, _after: u64, _updates: Vec<LiveUpdate>) {}

    /// Nobody in this process works on any run from here on: other processes may go on with what it holds at once.
    /// Where leases end with the process there is nothing to do.
    fn release_all(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The clock by which an engine on this store judges what is due, where it is not this machine's.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }
}
