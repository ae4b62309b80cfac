//! A store in front of another one, which implements only the methods in which it differs.

use std::collections::BTreeSet;
use std::sync::Arc;

use machine::Timestamp;
use machine::audit::{Actor, AuditEntry, SealedRecord};
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

use super::{
    Append, Appended, ApprovalFilter, AuditFilter, AuditStore, AutoApproval, BoxFuture, Claim, Claimed,
    ClusterStore, ConfigurationRecord, Countable, Create, Created, Deleted, Deletion, GrantFilter, GrantView,
    Lease, Listed, LiveUpdate, Loaded, LogEntry, MessageOrder, MessagePosition, MessageView, Notification,
    Page, ResponseStore, RunCounts, RunFilter, RunStore, RunView, Sealed, StateView, Store, StoreError,
    StoreMetrics, StoredResponse, SuspensionView, Tenant, TenantChain, ThreadView, ViewStore,
};
use crate::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use crate::clock::Clock;

/// Generates, from the signatures of the parts of [`Store`], the trait [`Wrapper`], whose methods call the inner store
/// by default, and an implementation of every part for every wrapper.
macro_rules! wrapper_of_store {
    ($($part:ident { $(fn $method:ident(&self $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)* })*) => {
        /// A store in front of another one. It implements the methods in which it differs; all others call the store
        /// that [`inner`](Self::inner) returns.
        pub trait Wrapper: Send + Sync + 'static {
            fn inner(&self) -> &dyn Store;

            $($(fn $method(&self $(, $argument: $type)*) $(-> $answer)? {
                self.inner().$method($($argument),*)
            })*)*
        }

        $(
            // A method with a default body would run that body here instead of calling the inner store.
            #[deny(clippy::missing_trait_methods)]
            impl<W: Wrapper> $part for W {
                $(fn $method(&self $(, $argument: $type)*) $(-> $answer)? {
                    Wrapper::$method(self $(, $argument)*)
                })*
            }
        )*
    };
}

wrapper_of_store! {
    RunStore {
        fn now(&self) -> Timestamp;
        fn grants_for(&self, lease: &Lease, tool: &ToolName) -> BoxFuture<'_, Result<Vec<Grant>, StoreError>>;
        fn put_revision(&self, digest: &Digest, text: &str) -> BoxFuture<'_, Result<(), StoreError>>;
        fn revision(
            &self, tenant: &Tenant, thread: &ThreadId, digest: &Digest
        ) -> BoxFuture<'_, Result<Option<String>, StoreError>>;
        fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>>;
        fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, StoreError>>;
        fn load(&self, lease: &Lease) -> BoxFuture<'_, Result<Loaded, StoreError>>;
        fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>>;
        fn end_undecoded(&self, lease: &Lease) -> BoxFuture<'_, Result<Appended, StoreError>>;
        fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<bool, StoreError>>;
        fn may_send(&self, lease: &Lease) -> bool;
        fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> BoxFuture<'_, Result<Verdict, StoreError>>;
        fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>, StoreError>>;
        fn event(&self, lease: &Lease, seq: u64) -> BoxFuture<'_, Result<Arc<Event>, StoreError>>;
        fn taken_call_ids(&self, lease: &Lease, asked: &[String]) -> BoxFuture<'_, Result<BTreeSet<CallId>, StoreError>>;
        fn plugin_state(&self, lease: &Lease) -> BoxFuture<'_, Result<Vec<StateRow>, StoreError>>;
        fn clock(&self) -> Option<Arc<dyn Clock>>;
    }
    ViewStore {
        fn put_thread(
            &self, tenant: &Tenant, thread: &ThreadId, metadata: &Value
        ) -> BoxFuture<'_, Result<bool, StoreError>>;
        fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> BoxFuture<'_, Result<ThreadView, StoreError>>;
        fn threads(&self, tenant: &Tenant, page: &Page) -> BoxFuture<'_, Result<Listed<ThreadView>, StoreError>>;
        fn count_up_to(&self, tenant: &Tenant, what: Countable, max: u64) -> BoxFuture<'_, Result<u64, StoreError>>;
        fn has_other_agents(
            &self, tenant: &Tenant, thread: &ThreadId, agents: &BTreeSet<AgentName>
        ) -> BoxFuture<'_, Result<bool, StoreError>>;
        fn set_auto_approve(
            &self, tenant: &Tenant, thread: &ThreadId, given: Option<&AutoApproval>, actor: &Actor
        ) -> BoxFuture<'_, Result<(), StoreError>>;
        fn grant(&self, tenant: &Tenant, id: &GrantId) -> BoxFuture<'_, Result<Option<GrantView>, StoreError>>;
        fn grants(
            &self, tenant: &Tenant, filter: &GrantFilter, page: &Page
        ) -> BoxFuture<'_, Result<Listed<GrantView>, StoreError>>;
        fn revoke_grant(
            &self, tenant: &Tenant, id: &GrantId, actor: &Actor
        ) -> BoxFuture<'_, Result<(), StoreError>>;
        fn delete_thread(
            &self, tenant: &Tenant, thread: &ThreadId, deletion: &Deletion
        ) -> BoxFuture<'_, Result<Deleted, StoreError>>;
        fn decision(
            &self, tenant: &Tenant, run: &RunId, id: &DecisionId
        ) -> BoxFuture<'_, Result<Option<Decision>, StoreError>>;
        fn run(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Option<RunView>, StoreError>>;
        fn runs(
            &self, tenant: &Tenant, filter: &RunFilter, page: &Page
        ) -> BoxFuture<'_, Result<Listed<RunView>, StoreError>>;
        fn runs_of_thread(
            &self, tenant: &Tenant, thread: &ThreadId, after: Option<&RunId>, limit: usize
        ) -> BoxFuture<'_, Result<Vec<RunId>, StoreError>>;
        fn events(
            &self, tenant: &Tenant, run: &RunId, after: u64, limit: usize
        ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>>;
        fn chain_head(
            &self, tenant: &Tenant, run: &RunId
        ) -> BoxFuture<'_, Result<Option<ChainHead>, StoreError>>;
        fn message(
            &self, tenant: &Tenant, thread: &ThreadId, message: &MessageId
        ) -> BoxFuture<'_, Result<Option<MessagePosition>, StoreError>>;
        fn messages(
            &self, tenant: &Tenant, thread: &ThreadId, order: MessageOrder, page: &Page
        ) -> BoxFuture<'_, Result<Listed<MessageView>, StoreError>>;
        fn posted(
            &self, tenant: &Tenant, thread: &ThreadId, scope: &str
        ) -> BoxFuture<'_, Result<Option<(RunId, Digest)>, StoreError>>;
        fn state(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Vec<StateView>, StoreError>>;
        fn suspension(
            &self, tenant: &Tenant, id: &SuspensionId
        ) -> BoxFuture<'_, Result<Option<SuspensionView>, StoreError>>;
        fn approvals(
            &self, tenant: &Tenant, filter: &ApprovalFilter, page: &Page
        ) -> BoxFuture<'_, Result<Listed<SuspensionView>, StoreError>>;
        fn metrics(&self) -> StoreMetrics;
        fn run_counts(&self) -> BoxFuture<'_, Result<RunCounts, StoreError>>;
    }
    ClusterStore {
        fn callback_keys(
            &self, drawn: Option<CallbackKey>
        ) -> BoxFuture<'_, Result<Option<StoredCallbackKeys>, StoreError>>;
        fn rotate_callback_key(&self, drawn: CallbackKey) -> BoxFuture<'_, Result<KeyRotation, StoreError>>;
        fn remove_callback_keys(&self, which: KeysToRemove) -> BoxFuture<'_, Result<bool, StoreError>>;
        fn is_shared(&self) -> bool;
        fn next_notification(&self) -> BoxFuture<'_, Notification>;
        fn request_live(&self, run: &RunId);
        fn publish_live(&self, run: &RunId, after: u64, updates: Vec<LiveUpdate>);
        fn release_all(&self) -> BoxFuture<'_, Result<(), StoreError>>;
    }
    ResponseStore {
        fn store_response(
            &self, tenant: &Tenant, run: &RunId, scope: &str, answer: StoredResponse
        ) -> BoxFuture<'_, Result<StoredResponse, StoreError>>;
        fn stored_response(
            &self, tenant: &Tenant, run: &RunId, scope: &str
        ) -> BoxFuture<'_, Result<Option<StoredResponse>, StoreError>>;
    }    AuditStore {
        fn record_audit(&self, tenant: &Tenant, entry: &AuditEntry) -> BoxFuture<'_, Result<(), StoreError>>;
        fn record_configuration(
            &self, records: &[ConfigurationRecord]
        ) -> BoxFuture<'_, Result<(), StoreError>>;
        fn seal_audit(&self) -> BoxFuture<'_, Result<Sealed, StoreError>>;
        fn audit(
            &self, tenant: &Tenant, filter: &AuditFilter, after: u64, limit: usize
        ) -> BoxFuture<'_, Result<Vec<SealedRecord>, StoreError>>;
        fn audit_chains(&self) -> BoxFuture<'_, Result<Vec<TenantChain>, StoreError>>;
        fn sink_progress(&self, sink: &Digest, tenant: &Tenant) -> BoxFuture<'_, Result<u64, StoreError>>;
        fn set_sink_progress(
            &self, sink: &Digest, tenant: &Tenant, seq: u64
        ) -> BoxFuture<'_, Result<(), StoreError>>;
        fn prune_audit(&self, older_than: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>>;
    }
}
