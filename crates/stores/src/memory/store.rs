//! Implements the store's contract on the data in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use engine::store::{
    Append, Appended, ApprovalFilter, AutoApproval, BoxFuture, Claim, Claimed, ClusterStore, CommittedEvent,
    Countable, Create, Created, Deleted, Deletion, EVENTS_BYTES_MAX, GrantFilter, GrantView, Lease, Listed,
    Loaded, LogEntry, MessageOrder, MessagePosition, MessageView, Page, ResponseStore, RunCounts, RunFilter,
    RunStore, RunView, STORED_RESPONSES_MAX, StateView, StoreError, StoreMetrics, StoredResponse,
    SuspensionView, Tenant, ThreadView, ViewStore, too_many_stored_responses,
};
use machine::Timestamp;
use machine::audit::{Actor, AuditAction, AuditEntry};
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

use super::{MemoryStore, append, chain, create, lists, submit, undecoded};

impl RunStore for MemoryStore {
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn grants_for(&self, lease: &Lease, tool: &ToolName) -> BoxFuture<'_, Result<Vec<Grant>, StoreError>> {
        self.read(|state| Ok(state.leased_with_thread(lease)?.1.grants_for(tool)))
    }

    fn put_revision(&self, digest: &Digest, text: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(|state, _| {
            state.revisions.entry(*digest).or_insert_with(|| text.to_owned());
            Ok(())
        })
    }

    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> BoxFuture<'_, Result<Option<String>, StoreError>> {
        self.read(|state| {
            let inline_agent =
                state.find_thread(tenant, thread).and_then(|thread| thread.inline_agents.get(digest));
            Ok(inline_agent.or_else(|| state.revisions.get(digest)).cloned())
        })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>> {
        self.change(|state, now| create::create(state, &create, now))
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, StoreError>> {
        self.change(|state, now| match claim {
            Claim::Next { limit, skip_tenant: pass_over } => state.claim_next(limit, pass_over.as_ref(), now),
            Claim::Urgent { limit } => state.claim_urgent(limit, now),
            Claim::Run { tenant, run } => {
                let free = state
                    .find_row(&tenant, &run)
                    .filter(|row| state.runs.get(row).is_some_and(|run| !run.held && !run.ended()));
                free.map(|row| state.lease_run(row, now)).into_iter().collect()
            }
        })
    }

    fn load(&self, lease: &Lease) -> BoxFuture<'_, Result<Loaded, StoreError>> {
        self.read(|state| {
            state.leased(lease)?;
            state.load(lease.row)
        })
    }

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        self.change(|state, now| append::append(state, lease, &append, now))
    }

    fn end_undecoded(&self, lease: &Lease) -> BoxFuture<'_, Result<Appended, StoreError>> {
        self.change(|state, now| undecoded::end(state, lease, now))
    }

    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.change(|state, now| state.release(lease, now))
    }

    fn may_send(&self, lease: &Lease) -> bool {
        self.lock_state().is_ok_and(|state| state.leased(lease).is_ok())
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> BoxFuture<'_, Result<Verdict, StoreError>> {
        self.change(|state, now| submit::submit(state, tenant, run, &item, now))
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>, StoreError>> {
        self.read(|state| Ok(state.ready.next_wake()))
    }

    fn event(&self, lease: &Lease, seq: u64) -> BoxFuture<'_, Result<Arc<Event>, StoreError>> {
        self.read(|state| {
            let log = &state.leased(lease)?.log;
            let index = seq.checked_sub(1).and_then(|index| usize::try_from(index).ok());
            let found = index.and_then(|index| log.get(index)).ok_or(StoreError::NotFound)?;
            Ok(found.event.clone())
        })
    }

    fn taken_call_ids(
        &self,
        lease: &Lease,
        asked: &[String],
    ) -> BoxFuture<'_, Result<BTreeSet<CallId>, StoreError>> {
        self.read(|state| {
            let (_, thread) = state.leased_with_thread(lease)?;
            let waiting: Vec<&MessageId> = state.unstarted_messages(thread).collect();
            let mut taken = BTreeSet::new();
            for id in asked {
                let numbered = format!("{id}~");
                taken.extend(thread.calls.get(&CallId::from(id.as_str())).cloned());
                let behind = thread.calls.range(CallId::from(numbered.as_str())..);
                taken.extend(behind.take_while(|call| call.as_str().starts_with(&numbered)).cloned());
                // A call gets a message of its own: an id is also taken if another message already has that message id.
                let (own, numbered) = (format!("msg_{id}"), format!("msg_{numbered}"));
                let said = thread.messages.get_key_value(&MessageId::from(own.as_str()));
                let behind = thread.messages.range(MessageId::from(numbered.as_str())..);
                let behind = behind.take_while(|(message, _)| message.as_str().starts_with(&numbered));
                let promised = waiting
                    .iter()
                    .filter(|message| message.as_str() == own || message.as_str().starts_with(&numbered));
                let messages = said.into_iter().chain(behind).map(|(message, _)| message);
                taken.extend(
                    messages
                        .chain(promised.copied())
                        .filter_map(|message| message.as_str().strip_prefix("msg_").map(CallId::from)),
                );
            }
            Ok(taken)
        })
    }

    fn plugin_state(&self, lease: &Lease) -> BoxFuture<'_, Result<Vec<StateRow>, StoreError>> {
        self.read(|state| state.leased(lease).map(|run| state.plugin_rows(run)))
    }
}

impl ViewStore for MemoryStore {
    fn put_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        metadata: &Value,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.change(|state, now| {
            crate::check_metadata(metadata)?;
            Ok(state.put_thread(tenant, thread, metadata.clone(), now))
        })
    }

    fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> BoxFuture<'_, Result<ThreadView, StoreError>> {
        self.read(|state| Ok(state.thread_view(tenant, thread)))
    }

    fn threads(&self, tenant: &Tenant, page: &Page) -> BoxFuture<'_, Result<Listed<ThreadView>, StoreError>> {
        self.read(|state| state.threads(tenant, page))
    }

    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        given: Option<&AutoApproval>,
        actor: &Actor,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(|state, now| state.set_auto_approve(tenant, thread, given, actor, now))
    }

    fn grant(&self, tenant: &Tenant, id: &GrantId) -> BoxFuture<'_, Result<Option<GrantView>, StoreError>> {
        self.read(|state| Ok(state.grants_of(tenant).find(|view| view.grant.id == *id)))
    }

    fn grants(
        &self,
        tenant: &Tenant,
        filter: &GrantFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<GrantView>, StoreError>> {
        self.read(|state| state.grants(tenant, filter, page))
    }

    fn revoke_grant(
        &self,
        tenant: &Tenant,
        id: &GrantId,
        actor: &Actor,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(|state, now| state.revoke_grant(tenant, id, actor, now))
    }

    fn delete_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        deletion: &Deletion,
    ) -> BoxFuture<'_, Result<Deleted, StoreError>> {
        self.change(|state, now| state.delete_thread(tenant, thread, deletion, now))
    }

    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> BoxFuture<'_, Result<Option<Decision>, StoreError>> {
        self.read(|state| Ok(state.find_run(tenant, run).and_then(|run| run.decisions.get(id)).cloned()))
    }

    fn run(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Option<RunView>, StoreError>> {
        self.read(|state| Ok(state.find_run(tenant, run).map(lists::run_view)))
    }

    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<RunView>, StoreError>> {
        self.read(|state| state.runs(tenant, filter, page))
    }

    fn runs_of_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        after: Option<&RunId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<RunId>, StoreError>> {
        self.read(|state| state.runs_of_thread(tenant, thread, after, limit))
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>> {
        self.read(|state| {
            let log = &state.find_run(tenant, run).ok_or(StoreError::NotFound)?.log;
            let from = usize::try_from(after).unwrap_or(usize::MAX);
            let mut bytes = 0;
            let fits = |committed: &&CommittedEvent| {
                let full = bytes >= EVENTS_BYTES_MAX;
                bytes += committed.weight();
                !full
            };
            Ok(log
                .iter()
                .skip(from)
                .take(limit.max(1))
                .take_while(fits)
                .cloned()
                .map(LogEntry::Event)
                .collect())
        })
    }

    fn chain_head(
        &self,
        tenant: &Tenant,
        run: &RunId,
    ) -> BoxFuture<'_, Result<Option<ChainHead>, StoreError>> {
        self.read(|state| chain::head(state.find_run(tenant, run).ok_or(StoreError::NotFound)?))
    }

    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> BoxFuture<'_, Result<Option<MessagePosition>, StoreError>> {
        self.read(|state| {
            let thread = state.find_thread(tenant, thread);
            Ok(thread.and_then(|thread| thread.messages.get(message)).cloned())
        })
    }

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        order: MessageOrder,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<MessageView>, StoreError>> {
        self.read(|state| state.messages(tenant, thread, order, page))
    }

    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<(RunId, Digest)>, StoreError>> {
        self.read(|state| {
            Ok(state.find_thread(tenant, thread).and_then(|thread| thread.posted.get(scope)).cloned())
        })
    }

    fn state(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Vec<StateView>, StoreError>> {
        self.read(|state| {
            let run = state.find_run(tenant, run).ok_or(StoreError::NotFound)?;
            let rows = state.plugin_rows(run).into_iter();
            Ok(rows
                .map(|StateRow { plugin, scope, key, value }| StateView {
                    plugin,
                    scope,
                    key,
                    value: Some(value),
                })
                .collect())
        })
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> BoxFuture<'_, Result<Option<SuspensionView>, StoreError>> {
        self.read(|state| Ok(state.suspension(tenant, id)))
    }

    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<SuspensionView>, StoreError>> {
        self.read(|state| state.approvals(tenant, filter, page))
    }

    fn count_up_to(
        &self,
        tenant: &Tenant,
        what: Countable,
        max: u64,
    ) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.read(|state| Ok(state.count_up_to(tenant, what, max)))
    }

    fn has_other_agents(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        agents: &BTreeSet<AgentName>,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.read(|state| Ok(state.has_other_agents(tenant, thread, agents)))
    }

    fn run_counts(&self) -> BoxFuture<'_, Result<RunCounts, StoreError>> {
        self.read(|state| Ok(state.run_counts()))
    }

    /// Nothing is synced or written to disk, so both counts stay 0.
    fn metrics(&self) -> StoreMetrics {
        self.lock_state().map(|state| state.counts).unwrap_or_default()
    }
}

impl ClusterStore for MemoryStore {
    fn callback_keys(
        &self,
        drawn: Option<CallbackKey>,
    ) -> BoxFuture<'_, Result<Option<StoredCallbackKeys>, StoreError>> {
        self.change(|state, _| {
            state.callback_keys = state.callback_keys.or(drawn.map(StoredCallbackKeys::first));
            Ok(state.callback_keys)
        })
    }

    fn rotate_callback_key(&self, drawn: CallbackKey) -> BoxFuture<'_, Result<KeyRotation, StoreError>> {
        self.change(|state, now| {
            let Some(keys) = &mut state.callback_keys else { return Ok(KeyRotation::NoKey) };
            if keys.previous.is_some() {
                return Ok(KeyRotation::PreviousIsKept);
            }
            *keys = StoredCallbackKeys { current: drawn, previous: Some(keys.current) };
            let entry = AuditEntry::of_callback_key(now, AuditAction::CallbackKeyRotated);
            state.record(&Tenant::default(), &entry);
            Ok(KeyRotation::Rotated)
        })
    }

    fn remove_callback_keys(&self, which: KeysToRemove) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.change(|state, now| {
            let is_removed = match which {
                KeysToRemove::All => state.callback_keys.take().is_some(),
                KeysToRemove::Previous => {
                    state.callback_keys.as_mut().is_some_and(|keys| keys.previous.take().is_some())
                }
            };
            if is_removed {
                let entry = AuditEntry::of_callback_key(now, AuditAction::CallbackKeyRemoved);
                state.record(&Tenant::default(), &entry);
            }
            Ok(is_removed)
        })
    }
}

impl ResponseStore for MemoryStore {
    fn store_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: StoredResponse,
    ) -> BoxFuture<'_, Result<StoredResponse, StoreError>> {
        self.change(|state, _| {
            answer.check(scope)?;
            let row = state.find_row(tenant, run).ok_or(StoreError::NotFound)?;
            let run = state.runs.get_mut(&row).ok_or(StoreError::NotFound)?;
            if run.stored_responses.len() >= STORED_RESPONSES_MAX && !run.stored_responses.contains_key(scope)
            {
                return Err(too_many_stored_responses());
            }
            Ok(run.stored_responses.entry(scope.to_owned()).or_insert(answer).clone())
        })
    }

    fn stored_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<StoredResponse>, StoreError>> {
        self.read(|state| {
            Ok(state.find_run(tenant, run).and_then(|run| run.stored_responses.get(scope)).cloned())
        })
    }
}
