//! Implements the store's contract by dispatching each call to the module that serves it.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use engine::store::{
    Append, Appended, ApprovalFilter, AutoApproval, BoxFuture, Claim, Claimed, ClusterStore, Countable,
    Create, Created, Deleted, Deletion, GrantFilter, GrantView, Lease, Listed, Loaded, LogEntry,
    MessageOrder, MessagePosition, MessageView, Page, ResponseStore, RunCounts, RunFilter, RunStore, RunView,
    StateView, StoreError, StoreMetrics, StoredResponse, SuspensionView, Tenant, ThreadView, ViewStore,
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
use rusqlite::Connection;
use serde_json::Value;

use super::claim::{Claims, Released};
use super::create::Creation;
use super::errors::SqliteError;
use super::lease_handover::{Handover, HandoverGuard};
use super::{
    SqliteStore, append, approvals, chain, claim, create, grants, inboxes, keys, messages, retention,
    revisions, stored_run, thread, undecoded, views,
};
use crate::encoded_commit::{EncodedCommit, EncodedItem, EndingSource};
use crate::read_permits::POINT_READ_EVENT_COUNT_MAX;

impl SqliteStore {
    fn with_claims<T>(
        &self,
        work: impl FnOnce(&Claims<'_>) -> Result<T, SqliteError>,
    ) -> Result<T, StoreError> {
        let now = self.now();
        self.read_point(|connection| {
            let shared = &self.shared;
            work(&Claims { connection, leases: &shared.leases, turn: &shared.turn, now })
        })
    }

    /// A read for the worker that holds the run.
    fn read_leased<T>(
        &self,
        lease: &Lease,
        read: impl FnOnce(&Connection, i64) -> Result<T, SqliteError>,
    ) -> Result<T, StoreError> {
        if !self.may_send(lease) {
            return Err(StoreError::Fenced);
        }
        self.read_point(|connection| read(connection, lease.row))
    }
}

pub(super) fn ready_task<'a, T: Send + 'a>(
    result: Result<T, StoreError>,
) -> BoxFuture<'a, Result<T, StoreError>> {
    Box::pin(std::future::ready(result))
}

impl RunStore for SqliteStore {
    fn now(&self) -> Timestamp {
        (self.shared.clock)()
    }

    fn grants_for(&self, lease: &Lease, tool: &ToolName) -> BoxFuture<'_, Result<Vec<Grant>, StoreError>> {
        ready_task(self.read_leased(lease, |connection, run| grants::for_tool(connection, run, tool)))
    }

    fn put_revision(&self, digest: &Digest, text: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let (digest, text) = (*digest, text.to_owned());
        Box::pin(self.writer_handle.send(move |tx| revisions::put(tx, &digest, &text)))
    }

    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> BoxFuture<'_, Result<Option<String>, StoreError>> {
        ready_task(self.read_point(|connection| revisions::for_thread(connection, tenant, thread, digest)))
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>> {
        match Creation::from_create(create) {
            Ok(creation) => Box::pin(async move {
                let handover = Handover::default();
                let guard = HandoverGuard::new(&self.writer_handle, handover.clone());
                let created =
                    self.writer_handle.send(move |tx| create::create(tx, &creation, &handover)).await;
                guard.complete();
                created
            }),
            Err(refused) => ready_task(Err(refused)),
        }
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, StoreError>> {
        // Claims only once the future is polled: a run must not be claimed for a caller that does not wait.
        Box::pin(async move { self.with_claims(|claims| claims.claim(&claim)) })
    }

    fn load(&self, lease: &Lease) -> BoxFuture<'_, Result<Loaded, StoreError>> {
        ready_task(self.read_point(|connection| claim::load(connection, &self.shared.leases, lease)))
    }

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        // If a worker lost its run, the encoding of its commit does not matter.
        if !self.may_send(lease) {
            return ready_task(Err(StoreError::Fenced));
        }
        let lease = lease.clone();
        let expected_seq = append.expected_seq;
        match EncodedCommit::from_append(lease.tenant.as_str(), append) {
            Ok(commit) => Box::pin(self.writer_handle.send(move |tx| append::append(tx, &lease, &commit))),
            // A fenced worker gets that error first, whatever is wrong with its commit.
            Err(refused) => ready_task(
                self.read_point(|connection| append::check_seq(connection, lease.row, expected_seq))
                    .and(Err(refused)),
            ),
        }
    }

    fn end_undecoded(&self, lease: &Lease) -> BoxFuture<'_, Result<Appended, StoreError>> {
        if !self.may_send(lease) {
            return ready_task(Err(StoreError::Fenced));
        }
        let lease = lease.clone();
        Box::pin(async move {
            let by_control = lease.clone();
            match self
                .writer_handle
                .send(move |tx| undecoded::end(tx, &by_control, EndingSource::Control))
                .await
            {
                // The rows contradict the control, so only the columns count.
                Err(StoreError::Impossible(_)) => {
                    self.writer_handle.send(move |tx| undecoded::end(tx, &lease, EndingSource::Columns)).await
                }
                ended => ended,
            }
        })
    }

    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<bool, StoreError>> {
        let lease = lease.clone();
        Box::pin(async move {
            let released =
                self.read_point(|connection| claim::release(connection, &self.shared.leases, &lease))?;
            match released {
                Released::Yes => Ok(true),
                Released::No => Ok(false),
                Released::NeedsCommit => {
                    self.writer_handle.send(move |tx| claim::release_unfinished(tx, &lease)).await
                }
            }
        })
    }

    fn may_send(&self, lease: &Lease) -> bool {
        self.shared.leases.is_current(lease)
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> BoxFuture<'_, Result<Verdict, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        match EncodedItem::encode(item) {
            Ok(encoded) => {
                Box::pin(self.writer_handle.send(move |tx| inboxes::submit(tx, &tenant, &run, &encoded)))
            }
            Err(refused) => ready_task(Err(refused)),
        }
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>, StoreError>> {
        ready_task(self.with_claims(|claims| claims.next_wake()))
    }

    fn event(&self, lease: &Lease, seq: u64) -> BoxFuture<'_, Result<Arc<Event>, StoreError>> {
        ready_task(self.read_leased(lease, |connection, run| stored_run::event_at(connection, run, seq)))
    }

    fn taken_call_ids(
        &self,
        lease: &Lease,
        asked: &[String],
    ) -> BoxFuture<'_, Result<BTreeSet<CallId>, StoreError>> {
        ready_task(self.read_leased(lease, |connection, run| views::taken_call_ids(connection, run, asked)))
    }

    fn plugin_state(&self, lease: &Lease) -> BoxFuture<'_, Result<Vec<StateRow>, StoreError>> {
        ready_task(self.read_leased(lease, views::plugin_state))
    }
}

impl ViewStore for SqliteStore {
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
        Box::pin(
            self.writer_handle.send(move |tx| thread::put_thread(tx, tenant.as_str(), &thread, &metadata)),
        )
    }

    fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> BoxFuture<'_, Result<ThreadView, StoreError>> {
        ready_task(self.read_point(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let view = thread::thread_view(connection, tenant.as_str(), thread)?;
            drop(snapshot);
            Ok(view)
        }))
    }

    fn threads(&self, tenant: &Tenant, page: &Page) -> BoxFuture<'_, Result<Listed<ThreadView>, StoreError>> {
        let (tenant, page) = (tenant.clone(), page.clone());
        Box::pin(self.list(move |connection| views::threads(connection, &tenant, &page)))
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
        Box::pin(
            self.writer_handle
                .send(move |tx| grants::set_auto_approve(tx, &tenant, &thread, given.as_ref(), &actor)),
        )
    }

    fn grant(&self, tenant: &Tenant, id: &GrantId) -> BoxFuture<'_, Result<Option<GrantView>, StoreError>> {
        ready_task(self.read_point(|connection| grants::one(connection, tenant, id)))
    }

    fn grants(
        &self,
        tenant: &Tenant,
        filter: &GrantFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<GrantView>, StoreError>> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        Box::pin(self.list(move |connection| grants::list(connection, &tenant, &filter, &page)))
    }

    fn revoke_grant(
        &self,
        tenant: &Tenant,
        id: &GrantId,
        actor: &Actor,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (tenant, id, actor) = (tenant.clone(), id.clone(), actor.clone());
        Box::pin(self.writer_handle.send(move |tx| grants::revoke(tx, &tenant, &id, &actor)))
    }

    fn delete_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        deletion: &Deletion,
    ) -> BoxFuture<'_, Result<Deleted, StoreError>> {
        let (tenant, thread, deletion) = (tenant.clone(), thread.clone(), deletion.clone());
        Box::pin(self.writer_handle.send(move |tx| retention::delete_family(tx, &tenant, &thread, &deletion)))
    }

    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> BoxFuture<'_, Result<Option<Decision>, StoreError>> {
        ready_task(self.read_point(|connection| views::decision(connection, tenant, run, id)))
    }

    fn run(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Option<RunView>, StoreError>> {
        ready_task(self.read_point(|connection| views::run(connection, tenant, run)))
    }

    fn chain_head(
        &self,
        tenant: &Tenant,
        run: &RunId,
    ) -> BoxFuture<'_, Result<Option<ChainHead>, StoreError>> {
        ready_task(self.read_point(|connection| chain::chain_head(connection, tenant, run)))
    }

    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<RunView>, StoreError>> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        Box::pin(self.list(move |connection| views::runs(connection, &tenant, &filter, &page)))
    }

    fn runs_of_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        after: Option<&RunId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<RunId>, StoreError>> {
        let (tenant, thread, after) = (tenant.clone(), thread.clone(), after.cloned());
        Box::pin(self.list(move |connection| {
            views::runs_of_thread(connection, &tenant, &thread, after.as_ref(), limit)
        }))
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        let read = move |connection: &Connection| {
            let row = views::find_row(connection, &tenant, &run)?.ok_or(StoreError::NotFound)?;
            stored_run::events_after(connection, row, after, limit)
        };
        if limit <= POINT_READ_EVENT_COUNT_MAX {
            ready_task(self.read_point(read))
        } else {
            Box::pin(self.log(read))
        }
    }

    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> BoxFuture<'_, Result<Option<MessagePosition>, StoreError>> {
        ready_task(self.read_point(|connection| views::message(connection, tenant, thread, message)))
    }

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        order: MessageOrder,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<MessageView>, StoreError>> {
        let (tenant, thread, page) = (tenant.clone(), thread.clone(), page.clone());
        Box::pin(self.list(move |connection| messages::messages(connection, &tenant, &thread, order, &page)))
    }

    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<(RunId, Digest)>, StoreError>> {
        ready_task(self.read_point(|connection| keys::posted(connection, tenant.as_str(), thread, scope)))
    }

    fn state(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Vec<StateView>, StoreError>> {
        ready_task(self.read_point(|connection| {
            let row = views::find_row(connection, tenant, run)?.ok_or(StoreError::NotFound)?;
            views::state(connection, row)
        }))
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> BoxFuture<'_, Result<Option<SuspensionView>, StoreError>> {
        ready_task(self.read_point(|connection| approvals::suspension(connection, tenant, id)))
    }

    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<SuspensionView>, StoreError>> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        Box::pin(self.list(move |connection| approvals::approvals(connection, &tenant, &filter, &page)))
    }

    fn count_up_to(
        &self,
        tenant: &Tenant,
        what: Countable,
        max: u64,
    ) -> BoxFuture<'_, Result<u64, StoreError>> {
        let tenant = tenant.clone();
        Box::pin(self.list(move |connection| views::count_up_to(connection, &tenant, what, max)))
    }

    fn has_other_agents(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        agents: &BTreeSet<AgentName>,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        ready_task(self.read_point(|connection| views::has_other_agents(connection, tenant, thread, agents)))
    }

    fn run_counts(&self) -> BoxFuture<'_, Result<RunCounts, StoreError>> {
        Box::pin(self.list(views::run_counts))
    }

    fn metrics(&self) -> StoreMetrics {
        self.shared.counters.counts()
    }
}

impl ClusterStore for SqliteStore {
    fn callback_keys(
        &self,
        drawn: Option<CallbackKey>,
    ) -> BoxFuture<'_, Result<Option<StoredCallbackKeys>, StoreError>> {
        Box::pin(self.writer_handle.send(move |tx| keys::callback_keys(tx, drawn)))
    }

    fn rotate_callback_key(&self, drawn: CallbackKey) -> BoxFuture<'_, Result<KeyRotation, StoreError>> {
        Box::pin(self.writer_handle.send(move |tx| keys::rotate_callback_key(tx, drawn)))
    }

    fn remove_callback_keys(&self, which: KeysToRemove) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.writer_handle.send(move |tx| keys::remove_callback_keys(tx, which)))
    }
}

impl ResponseStore for SqliteStore {
    fn store_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: StoredResponse,
    ) -> BoxFuture<'_, Result<StoredResponse, StoreError>> {
        if let Err(refused) = answer.check(scope) {
            return ready_task(Err(refused));
        }
        let (tenant, run, scope) = (tenant.clone(), run.clone(), scope.to_owned());
        Box::pin(self.writer_handle.send(move |tx| keys::store_response(tx, &tenant, &run, &scope, answer)))
    }

    fn stored_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<StoredResponse>, StoreError>> {
        ready_task(self.read_point(|connection| keys::stored_response(connection, tenant, run, scope)))
    }
}
