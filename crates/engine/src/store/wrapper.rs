//! A store in front of another one, which says only where it differs.

use std::collections::BTreeSet;
use std::sync::Arc;

use machine::Timestamp;
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
    Append, Appended, ApprovalFilter, AutoApproval, Census, Claim, Claimed, Countable, Counts, Create,
    Created, GrantFilter, GrantView, Lease, Listed, Loaded, Logged, MessagePlace, MessageView, Page, Refused,
    Remembered, Ring, RunFilter, RunView, Said, StateView, Store, SuspensionView, Task, Tenant, ThreadView,
};
use crate::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use crate::clock::Clock;

/// From the signatures of [`Store`]: a [`Wrapper`] of which each method asks the store behind it, and the [`Store`] that
/// every wrapper is.
macro_rules! wrapper_of_store {
    ($(fn $method:ident(&self $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)*) => {
        /// A store in front of another one. It writes the methods in which it differs, and is the store
        /// [`behind`](Self::behind) it in all others.
        pub trait Wrapper: Send + Sync + 'static {
            fn behind(&self) -> &dyn Store;

            $(fn $method(&self $(, $argument: $type)*) $(-> $answer)? {
                self.behind().$method($($argument),*)
            })*
        }

        // A method that `Store` has a body for would be the store's own here, and not that of the store behind it.
        #[deny(clippy::missing_trait_methods)]
        impl<W: Wrapper> Store for W {
            $(fn $method(&self $(, $argument: $type)*) $(-> $answer)? {
                Wrapper::$method(self $(, $argument)*)
            })*
        }
    };
}

wrapper_of_store! {
    fn now(&self) -> Timestamp;
    fn put_thread(
        &self, tenant: &Tenant, thread: &ThreadId, metadata: &Value
    ) -> Task<'_, Result<bool, Refused>>;
    fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<ThreadView, Refused>>;
    fn threads(&self, tenant: &Tenant, page: &Page) -> Task<'_, Result<Listed<ThreadView>, Refused>>;
    fn count_up_to(&self, tenant: &Tenant, what: Countable, max: u64) -> Task<'_, Result<u64, Refused>>;
    fn has_other_agents(
        &self, tenant: &Tenant, thread: &ThreadId, agents: &BTreeSet<AgentName>
    ) -> Task<'_, Result<bool, Refused>>;
    fn set_auto_approve(
        &self, tenant: &Tenant, thread: &ThreadId, given: Option<&AutoApproval>
    ) -> Task<'_, Result<(), Refused>>;
    fn grants_for(&self, lease: &Lease, tool: &ToolName) -> Task<'_, Result<Vec<Grant>, Refused>>;
    fn grant(&self, tenant: &Tenant, id: &GrantId) -> Task<'_, Result<Option<GrantView>, Refused>>;
    fn grants(
        &self, tenant: &Tenant, filter: &GrantFilter, page: &Page
    ) -> Task<'_, Result<Listed<GrantView>, Refused>>;
    fn revoke_grant(&self, tenant: &Tenant, id: &GrantId) -> Task<'_, Result<(), Refused>>;
    fn delete_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<(), Refused>>;
    fn put_revision(&self, digest: &Digest, text: &str) -> Task<'_, Result<(), Refused>>;
    fn revision(
        &self, tenant: &Tenant, thread: &ThreadId, digest: &Digest
    ) -> Task<'_, Result<Option<String>, Refused>>;
    fn callback_keys(
        &self, drawn: Option<CallbackKey>
    ) -> Task<'_, Result<Option<StoredCallbackKeys>, Refused>>;
    fn rotate_callback_key(&self, drawn: CallbackKey) -> Task<'_, Result<KeyRotation, Refused>>;
    fn remove_callback_keys(&self, which: KeysToRemove) -> Task<'_, Result<bool, Refused>>;

    fn create(&self, create: Create) -> Task<'_, Result<Created, Refused>>;
    fn claim(&self, claim: Claim) -> Task<'_, Result<Vec<Claimed>, Refused>>;
    fn load(&self, lease: &Lease) -> Task<'_, Result<Loaded, Refused>>;
    fn append(&self, lease: &Lease, append: Append) -> Task<'_, Result<Appended, Refused>>;
    fn end_undecoded(&self, lease: &Lease) -> Task<'_, Result<Appended, Refused>>;
    fn release(&self, lease: &Lease) -> Task<'_, Result<bool, Refused>>;
    fn may_send(&self, lease: &Lease) -> bool;
    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> Task<'_, Result<Verdict, Refused>>;
    fn next_wake(&self) -> Task<'_, Result<Option<Timestamp>, Refused>>;

    fn decision(
        &self, tenant: &Tenant, run: &RunId, id: &DecisionId
    ) -> Task<'_, Result<Option<Decision>, Refused>>;
    fn run(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Option<RunView>, Refused>>;
    fn runs(
        &self, tenant: &Tenant, filter: &RunFilter, page: &Page
    ) -> Task<'_, Result<Listed<RunView>, Refused>>;
    fn events(
        &self, tenant: &Tenant, run: &RunId, after: u64, limit: usize
    ) -> Task<'_, Result<Vec<Logged>, Refused>>;
    fn event(&self, lease: &Lease, seq: u64) -> Task<'_, Result<Arc<Event>, Refused>>;
    fn message(
        &self, tenant: &Tenant, thread: &ThreadId, message: &MessageId
    ) -> Task<'_, Result<Option<MessagePlace>, Refused>>;
    fn messages(
        &self, tenant: &Tenant, thread: &ThreadId, page: &Page
    ) -> Task<'_, Result<Listed<MessageView>, Refused>>;
    fn posted(
        &self, tenant: &Tenant, thread: &ThreadId, scope: &str
    ) -> Task<'_, Result<Option<(RunId, Digest)>, Refused>>;
    fn remember(
        &self, tenant: &Tenant, run: &RunId, scope: &str, answer: Remembered
    ) -> Task<'_, Result<Remembered, Refused>>;
    fn remembered(
        &self, tenant: &Tenant, run: &RunId, scope: &str
    ) -> Task<'_, Result<Option<Remembered>, Refused>>;
    fn state(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Vec<StateView>, Refused>>;
    fn taken_call_ids(&self, lease: &Lease, asked: &[String]) -> Task<'_, Result<BTreeSet<CallId>, Refused>>;
    fn plugin_state(&self, lease: &Lease) -> Task<'_, Result<Vec<StateRow>, Refused>>;
    fn suspension(
        &self, tenant: &Tenant, id: &SuspensionId
    ) -> Task<'_, Result<Option<SuspensionView>, Refused>>;
    fn approvals(
        &self, tenant: &Tenant, filter: &ApprovalFilter, page: &Page
    ) -> Task<'_, Result<Listed<SuspensionView>, Refused>>;
    fn counts(&self) -> Counts;
    fn census(&self) -> Task<'_, Result<Census, Refused>>;

    fn is_shared(&self) -> bool;
    fn rung(&self) -> Task<'_, Ring>;
    fn watch(&self, run: &RunId);
    fn tell(&self, run: &RunId, after: u64, said: Vec<Said>);
    fn hand_over(&self) -> Task<'_, Result<(), Refused>>;
    fn clock(&self) -> Option<Arc<dyn Clock>>;
}
