//! Implements the store's contract by delegating each call to its module.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use engine::clock::Clock;
use engine::store::{
    Append, Appended, ApprovalFilter, AutoApproval, BoxFuture, Claim, Claimed, Countable, Create, Created,
    Deleted, Deletion, GrantFilter, GrantView, Lease, Listed, Loaded, LogEntry, MessageOrder,
    MessagePosition, MessageView, Page, ResponseStore, RunCounts, RunFilter, RunStore, RunView, StateView,
    StoreError, StoreMetrics, StoredResponse, SuspensionView, Tenant, ThreadView, ViewStore,
};
use machine::Timestamp;
use machine::audit::Actor;
use machine::chain::ChainHead;
use machine::decision::Decision;
use machine::event::Event;
use machine::grant::Grant;
use machine::id::{
    AgentName, CallId, DecisionId, Digest, GrantId, MessageId, RunId, SuspensionId, ThreadId, ToolName,
};
use machine::inbox::{Item, Verdict};
use machine::projection_rows::StateRow;
use serde_json::Value;

use super::connection::Connections;
use super::errors::PostgresError;
use super::nul_escape::{escape, unescape};
use super::{
    PostgresShared, PostgresStore, approvals, chain, grants, keys, messages, stored_run, thread, views,
};
use crate::read_permits::{POINT_READ_EVENT_COUNT_MAX, ReadPermits};

/// Lazy: starts only when polled, so that no run is claimed for a caller that is gone.
pub(super) fn task<'a, T: Send + 'a>(
    work: impl Future<Output = Result<T, PostgresError>> + Send + 'a,
) -> BoxFuture<'a, Result<T, StoreError>> {
    Box::pin(async move { work.await.map_err(|PostgresError(refused)| refused) })
}

impl PostgresStore {
    /// Reads a page of a list.
    pub(super) fn list<T: Send + 'static, F>(
        &self,
        read: impl FnOnce(Arc<PostgresShared>) -> F + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>>
    where
        F: Future<Output = Result<T, PostgresError>> + Send + 'static,
    {
        self.read_slowly(|connections| &connections.lists, read)
    }

    /// Reads a part of a log.
    fn log<T: Send + 'static, F>(
        &self,
        read: impl FnOnce(Arc<PostgresShared>) -> F + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>>
    where
        F: Future<Output = Result<T, PostgresError>> + Send + 'static,
    {
        self.read_slowly(|connections| &connections.logs, read)
    }

    /// Reads in a task of its own: the database continues a query even if the caller is gone, and a connection returned
    /// to the pool before that would make its next user wait.
    fn read_slowly<T: Send + 'static, F>(
        &self,
        which: fn(&Connections) -> &ReadPermits,
        read: impl FnOnce(Arc<PostgresShared>) -> F + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>>
    where
        F: Future<Output = Result<T, PostgresError>> + Send + 'static,
    {
        Box::pin(async move {
            let connections = &self.shared.connections;
            let (permitted, pending) = connections.acquire_read(which(connections)).await?;
            let shared = self.shared.clone();
            tokio::spawn(async move {
                if !permitted.is_abandoned() {
                    permitted.finish(read(shared).await.map_err(|PostgresError(refused)| refused));
                }
            });
            pending.result().await
        })
    }
}

impl PostgresShared {
    /// Only the holder of the run gets further information about it.
    fn check_lease(&self, lease: &Lease) -> Result<(), PostgresError> {
        if self.leases.is_current(lease) { Ok(()) } else { Err(StoreError::Fenced.into()) }
    }
}

impl RunStore for PostgresStore {
    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn grants_for(&self, lease: &Lease, tool: &ToolName) -> BoxFuture<'_, Result<Vec<Grant>, StoreError>> {
        let (lease, tool) = (lease.clone(), tool.clone());
        task(async move {
            self.shared.check_lease(&lease)?;
            grants::for_tool(&self.shared.connections, &lease, &tool).await
        })
    }

    fn put_revision(&self, digest: &Digest, text: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let (digest, text) = (digest.0, text.to_owned());
        task(async move {
            let sql = "INSERT INTO revisions (digest, text) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            self.shared.change(sql, &[&digest.as_slice(), &escape(&text)]).await?;
            Ok(())
        })
    }

    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> BoxFuture<'_, Result<Option<String>, StoreError>> {
        let (tenant, thread, digest) = (tenant.clone(), thread.clone(), digest.0);
        task(async move {
            let rows = self
                .shared
                .connections
                .read(
                    include_str!("sql/revision.sql"),
                    &[&escape(tenant.as_str()), &escape(thread.as_str()), &digest.as_slice()],
                )
                .await?;
            Ok(rows.first().map(|row| row.try_get(0)).transpose()?.map(unescape))
        })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>> {
        task(async move { self.shared.create(create).await })
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, StoreError>> {
        task(async move { self.shared.claim(claim).await })
    }

    fn load(&self, lease: &Lease) -> BoxFuture<'_, Result<Loaded, StoreError>> {
        let lease = lease.clone();
        task(async move { self.shared.load(&lease).await })
    }

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let lease = lease.clone();
        task(async move { self.shared.append(&lease, append).await })
    }

    fn end_undecoded(&self, lease: &Lease) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let lease = lease.clone();
        task(async move { self.shared.end_undecoded(&lease).await })
    }

    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<bool, StoreError>> {
        let lease = lease.clone();
        task(async move { self.shared.release(&lease).await })
    }

    fn may_send(&self, lease: &Lease) -> bool {
        self.shared.leases.may_send(lease)
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> BoxFuture<'_, Result<Verdict, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        task(async move { self.shared.submit(&tenant, &run, item).await })
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>, StoreError>> {
        task(self.shared.next_wake())
    }

    fn event(&self, lease: &Lease, seq: u64) -> BoxFuture<'_, Result<Arc<Event>, StoreError>> {
        let lease = lease.clone();
        task(async move {
            self.shared.check_lease(&lease)?;
            stored_run::event_at(&self.shared.connections, lease.row, seq).await
        })
    }

    fn taken_call_ids(
        &self,
        lease: &Lease,
        asked: &[String],
    ) -> BoxFuture<'_, Result<BTreeSet<CallId>, StoreError>> {
        let (lease, asked) = (lease.clone(), asked.to_vec());
        task(async move {
            self.shared.check_lease(&lease)?;
            self.shared.taken_call_ids(lease, asked).await
        })
    }

    fn plugin_state(&self, lease: &Lease) -> BoxFuture<'_, Result<Vec<StateRow>, StoreError>> {
        let lease = lease.clone();
        task(async move {
            self.shared.check_lease(&lease)?;
            views::plugin_state(&self.shared.connections, &lease).await
        })
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        Some(Arc::new(self.shared.clock.clone()))
    }
}

impl ViewStore for PostgresStore {
    fn put_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        metadata: &Value,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        if let Err(refused) = crate::check_metadata(metadata) {
            return Box::pin(std::future::ready(Err(refused)));
        }
        let (tenant, thread, metadata) = (tenant.clone(), thread.clone(), metadata.to_string());
        task(async move { self.shared.put_thread(&tenant, &thread, &metadata).await })
    }

    fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> BoxFuture<'_, Result<ThreadView, StoreError>> {
        let (tenant, thread) = (tenant.clone(), thread.clone());
        task(async move { thread::view(&self.shared.connections, &tenant, &thread).await })
    }

    fn threads(&self, tenant: &Tenant, page: &Page) -> BoxFuture<'_, Result<Listed<ThreadView>, StoreError>> {
        let (tenant, page) = (tenant.clone(), page.clone());
        self.list(move |shared| async move { thread::views(&shared.connections, &tenant, &page).await })
    }

    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        given: Option<&AutoApproval>,
        actor: &Actor,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (tenant, thread, given) = (tenant.clone(), thread.clone(), given.cloned());
        let actor = actor.clone();
        task(async move { self.shared.set_auto_approve(&tenant, &thread, given.as_ref(), &actor).await })
    }

    fn grant(&self, tenant: &Tenant, id: &GrantId) -> BoxFuture<'_, Result<Option<GrantView>, StoreError>> {
        let (tenant, id) = (tenant.clone(), id.clone());
        task(async move { grants::one(&self.shared.connections, &tenant, &id).await })
    }

    fn grants(
        &self,
        tenant: &Tenant,
        filter: &GrantFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<GrantView>, StoreError>> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        self.list(
            move |shared| async move { grants::list(&shared.connections, &tenant, &filter, &page).await },
        )
    }

    fn revoke_grant(
        &self,
        tenant: &Tenant,
        id: &GrantId,
        actor: &Actor,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (tenant, id, actor) = (tenant.clone(), id.clone(), actor.clone());
        task(async move { self.shared.revoke_grant(&tenant, &id, &actor).await })
    }

    fn delete_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        deletion: &Deletion,
    ) -> BoxFuture<'_, Result<Deleted, StoreError>> {
        let (tenant, thread, deletion) = (tenant.clone(), thread.clone(), deletion.clone());
        task(async move { self.shared.delete_thread(&tenant, &thread, &deletion).await })
    }

    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> BoxFuture<'_, Result<Option<Decision>, StoreError>> {
        let (tenant, run, id) = (tenant.clone(), run.clone(), id.clone());
        task(async move { views::decision(&self.shared.connections, &tenant, &run, &id).await })
    }

    fn run(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Option<RunView>, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        task(async move { views::run(&self.shared.connections, &tenant, &run).await })
    }

    fn chain_head(
        &self,
        tenant: &Tenant,
        run: &RunId,
    ) -> BoxFuture<'_, Result<Option<ChainHead>, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        task(async move { chain::chain_head(&self.shared.connections, &tenant, &run).await })
    }

    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<RunView>, StoreError>> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        self.list(
            move |shared| async move { views::runs(&shared.connections, &tenant, &filter, &page).await },
        )
    }

    fn runs_of_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        after: Option<&RunId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<RunId>, StoreError>> {
        let (tenant, thread, after) = (tenant.clone(), thread.clone(), after.cloned());
        self.list(move |shared| async move {
            let found =
                views::runs_of_thread(&shared.connections, &tenant, &thread, after.as_ref(), limit).await?;
            shared.record_thread_reader(tenant, thread, &found, limit);
            Ok(found.runs)
        })
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        let read = move |shared: Arc<PostgresShared>| async move {
            let connections = &shared.connections;
            let (number, events, is_all) =
                stored_run::events_of(connections, &tenant, &run, after, limit).await?;
            shared.record_run_reader(number, &run, after, &events, is_all);
            Ok(events)
        };
        if limit <= POINT_READ_EVENT_COUNT_MAX { task(read(self.shared.clone())) } else { self.log(read) }
    }

    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> BoxFuture<'_, Result<Option<MessagePosition>, StoreError>> {
        let (tenant, thread, message) = (tenant.clone(), thread.clone(), message.clone());
        task(async move { views::message(&self.shared.connections, &tenant, &thread, &message).await })
    }

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        order: MessageOrder,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<MessageView>, StoreError>> {
        let (tenant, thread, page) = (tenant.clone(), thread.clone(), page.clone());
        self.list(move |shared| async move {
            messages::messages(&shared.connections, &tenant, &thread, order, &page).await
        })
    }

    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<(RunId, Digest)>, StoreError>> {
        let (tenant, thread, scope) = (tenant.clone(), thread.clone(), scope.to_owned());
        task(async move { keys::posted(&self.shared.connections, &tenant, &thread, &scope).await })
    }

    fn state(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Vec<StateView>, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        task(async move { views::state(&self.shared.connections, &tenant, &run).await })
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> BoxFuture<'_, Result<Option<SuspensionView>, StoreError>> {
        let (tenant, id) = (tenant.clone(), id.clone());
        task(async move { approvals::suspension(&self.shared.connections, &tenant, &id).await })
    }

    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<SuspensionView>, StoreError>> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        // One run has few approvals, and streams ask for them whenever it changes.
        if filter.run.is_some() {
            return task(async move {
                approvals::approvals(&self.shared.connections, &tenant, &filter, &page).await
            });
        }
        self.list(move |shared| async move {
            approvals::approvals(&shared.connections, &tenant, &filter, &page).await
        })
    }

    fn count_up_to(
        &self,
        tenant: &Tenant,
        what: Countable,
        max: u64,
    ) -> BoxFuture<'_, Result<u64, StoreError>> {
        let tenant = tenant.clone();
        self.list(
            move |shared| async move { views::count_up_to(&shared.connections, &tenant, what, max).await },
        )
    }

    fn has_other_agents(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        agents: &BTreeSet<AgentName>,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        let (tenant, thread, agents) = (tenant.clone(), thread.clone(), agents.clone());
        task(
            async move { views::has_other_agents(&self.shared.connections, &tenant, &thread, &agents).await },
        )
    }

    fn run_counts(&self) -> BoxFuture<'_, Result<RunCounts, StoreError>> {
        self.list(move |shared| async move { views::run_counts(&shared.connections).await })
    }

    fn metrics(&self) -> StoreMetrics {
        self.shared.counts()
    }
}

impl ResponseStore for PostgresStore {
    fn store_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: StoredResponse,
    ) -> BoxFuture<'_, Result<StoredResponse, StoreError>> {
        let (tenant, run, scope) = (tenant.clone(), run.clone(), scope.to_owned());
        task(async move { self.shared.store_response(&tenant, &run, &scope, &answer).await })
    }

    fn stored_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<StoredResponse>, StoreError>> {
        let (tenant, run, scope) = (tenant.clone(), run.clone(), scope.to_owned());
        task(async move { keys::stored_response(&self.shared.connections, &tenant, &run, &scope).await })
    }
}
