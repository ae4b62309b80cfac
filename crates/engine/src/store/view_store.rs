//! What callers read and change without holding a run: threads, messages, grants, runs, logs and approvals.

use std::collections::BTreeSet;

use machine::audit::Actor;
use machine::chain::ChainHead;
use machine::decision::Decision;
use machine::id::{AgentName, DecisionId, Digest, GrantId, MessageId, RunId, SuspensionId, ThreadId};
use serde_json::Value;

use super::{
    ApprovalFilter, AutoApproval, BoxFuture, Countable, Deleted, Deletion, GrantFilter, GrantView, Listed,
    LogEntry, MessageOrder, MessagePosition, MessageView, Page, RunCounts, RunFilter, RunView, StateView,
    StoreError, StoreMetrics, SuspensionView, Tenant, ThreadView,
};

/// Threads, messages, grants, runs, logs and approvals, for callers without a lease.
pub trait ViewStore: Send + Sync + 'static {
    /// Creates a thread; true if it is new. An existing thread is left unchanged.
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

    /// How many of these the tenant has, counted by an index and only up to `max`.
    fn count_up_to(
        &self,
        tenant: &Tenant,
        what: Countable,
        max: u64,
    ) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Whether the thread has a run of an agent that is not in `agents`. Does not load whole runs.
    fn has_other_agents(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        agents: &BTreeSet<AgentName>,
    ) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Grants every tool of a thread, replacing an earlier such grant. None revokes every grant of the thread.
    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        given: Option<&AutoApproval>,
        actor: &Actor,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// A grant, unless it was revoked.
    fn grant(&self, tenant: &Tenant, id: &GrantId) -> BoxFuture<'_, Result<Option<GrantView>, StoreError>>;

    /// All grants that were not revoked, newest first.
    fn grants(
        &self,
        tenant: &Tenant,
        filter: &GrantFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<GrantView>, StoreError>>;

    /// [`StoreError::NotFound`] if the tenant has no such grant, or if it was already revoked.
    fn revoke_grant(
        &self,
        tenant: &Tenant,
        id: &GrantId,
        actor: &Actor,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Removes a thread with its runs, logs and approvals, and recursively the threads of the runs they delegated to.
    /// [`StoreError::Stale`] while a run of any of them has not ended.
    fn delete_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        deletion: &Deletion,
    ) -> BoxFuture<'_, Result<Deleted, StoreError>>;

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

    /// The runs of a thread in the order in which they were admitted, which is also the order of the thread's queue: at
    /// most `limit` after the run `after`, or from the first one on. A later run never precedes an earlier one, whatever
    /// the clocks of their processes say. [`StoreError::NotFound`] if the tenant has no such thread, or the thread no
    /// such run.
    fn runs_of_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        after: Option<&RunId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<RunId>, StoreError>>;

    /// The events after `after`, oldest first: at least one if there is one, at most about `limit`, and no more than
    /// rule 18 allows.
    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>>;

    /// The head of the run's hash chain. `None` if an earlier version wrote all of its commits. [`StoreError::NotFound`] if
    /// the tenant has no such run.
    fn chain_head(
        &self,
        tenant: &Tenant,
        run: &RunId,
    ) -> BoxFuture<'_, Result<Option<ChainHead>, StoreError>>;

    /// The position of a message in the logs of its thread.
    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> BoxFuture<'_, Result<Option<MessagePosition>, StoreError>>;

    /// The messages of a thread in the order in which they joined it, or in the reverse order. A message that joins
    /// between two pages is on no further page of [`MessageOrder::NewestFirst`], and moves none of the others.
    /// [`StoreError::NotFound`] if the tenant has no such thread.
    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        order: MessageOrder,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<MessageView>, StoreError>>;

    /// The run that a message with this key started in the thread, and the digest of the posted body.
    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<(RunId, Digest)>, StoreError>>;

    /// Plugin state of the run and of its thread, for callers without a lease. [`StoreError::NotFound`] if the tenant
    /// has no such run.
    fn state(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Vec<StateView>, StoreError>>;

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

    /// The cost grows with the number of runs that have not ended, so do not call it on every request.
    fn run_counts(&self) -> BoxFuture<'_, Result<RunCounts, StoreError>>;
}
