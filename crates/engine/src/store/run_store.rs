//! What the engine needs to create runs, to hold them and to commit to them.

use std::collections::BTreeSet;
use std::sync::Arc;

use machine::Timestamp;
use machine::event::Event;
use machine::grant::Grant;
use machine::id::{CallId, Digest, RunId, ThreadId, ToolName};
use machine::inbox::{Item, Verdict};
use machine::projection_rows::StateRow;

use super::{
    Append, Appended, BoxFuture, Claim, Claimed, Create, Created, Lease, Loaded, StoreError, Tenant,
};
use crate::clock::Clock;

/// Creates, claims and commits runs.
pub trait RunStore: Send + Sync + 'static {
    /// The store's own clock, which decides what is due.
    fn now(&self) -> Timestamp;

    /// The run's grants for this tool: the one for every tool, then the newest; at most [`GRANTS_READ_MAX`](super::GRANTS_READ_MAX) in all.
    fn grants_for(&self, lease: &Lease, tool: &ToolName) -> BoxFuture<'_, Result<Vec<Grant>, StoreError>>;

    /// Stores a frozen agent of the configuration under the digest of its text. Storing it again changes nothing.
    fn put_revision(&self, digest: &Digest, text: &str) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The frozen agent of a run of this thread: the thread's inline agent, or one from [`Self::put_revision`].
    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> BoxFuture<'_, Result<Option<String>, StoreError>>;

    /// Creates a run. With `lease` the same commit gives the caller its lease, but only if the run holds its thread.
    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>>;

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, StoreError>>;

    /// The run as it is stored, for a worker whose append was refused. [`StoreError::Fenced`] if the lease is lost.
    fn load(&self, lease: &Lease) -> BoxFuture<'_, Result<Loaded, StoreError>>;

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>>;

    /// Ends a run whose interrupt was accepted, for the worker that holds it and cannot load it. Decodes nothing. In
    /// one commit the run ends, its held calls and inbox are closed, its thread passes to the next queued run, its
    /// children are interrupted and its parent is notified. [`StoreError::Stale`] if no interrupt was accepted.
    fn end_undecoded(&self, lease: &Lease) -> BoxFuture<'_, Result<Appended, StoreError>>;

    /// True if the run was released; false while its inbox holds an item.
    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Whether an attempt may still be sent under this lease. Workers check this right before sending; does not block.
    fn may_send(&self, lease: &Lease) -> bool;

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> BoxFuture<'_, Result<Verdict, StoreError>>;

    /// When the next run that no worker holds falls due.
    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>, StoreError>>;

    fn event(&self, lease: &Lease, seq: u64) -> BoxFuture<'_, Result<Arc<Event>, StoreError>>;

    /// Taken call ids of the thread that equal one of `asked`, or one of them followed by `~` and more. An id is taken
    /// if it was used, or if its message `msg_CALL` belongs to something else.
    fn taken_call_ids(
        &self,
        lease: &Lease,
        asked: &[String],
    ) -> BoxFuture<'_, Result<BTreeSet<CallId>, StoreError>>;

    /// Plugin state of the run and of its thread, for the worker.
    fn plugin_state(&self, lease: &Lease) -> BoxFuture<'_, Result<Vec<StateRow>, StoreError>>;

    /// The clock by which an engine on this store decides what is due, if it is not this machine's clock.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }
}
