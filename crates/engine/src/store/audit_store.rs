//! The audit record of each tenant: what stores keep of it, and how it is read, sealed and pruned.

use machine::Timestamp;
use machine::audit::{Actor, AuditAction, AuditChain, AuditEntry, SealedRecord};
use machine::id::Principal;

use super::{BoxFuture, StoreError, Tenant};

/// Records that one call seals or returns at most.
pub const AUDIT_RECORDS_MAX: usize = 1_000;

/// The audit record. A commit adds its own records ([`ProjectionRows::audit`](machine::projection_rows::ProjectionRows)).
pub trait AuditStore: Send + Sync + 'static {
    /// Adds a record of a change that is not in the store.
    fn record_audit(&self, tenant: &Tenant, entry: &AuditEntry) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Puts records that are not in the chain of their tenant yet at its end, a bounded number. Returns how many.
    fn seal_audit(&self) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Sealed records after the one with the number `after`, oldest first, at most [`AUDIT_RECORDS_MAX`].
    fn audit(
        &self,
        tenant: &Tenant,
        filter: &AuditFilter,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SealedRecord>, StoreError>>;

    /// The chain of every tenant that has one, by tenant.
    fn audit_chains(&self) -> BoxFuture<'_, Result<Vec<TenantChain>, StoreError>>;

    /// Deletes the oldest sealed records of every chain up to the first one that is not older than this, a bounded
    /// number, and records that. Returns how many. What is left can still be verified.
    fn prune_audit(&self, older_than: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>>;
}

/// Selects records. Fields that are not set match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub since: Option<Timestamp>,
    /// Exclusive.
    pub until: Option<Timestamp>,
    pub by: Option<Principal>,
    pub action: Option<AuditAction>,
}

/// The chain of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantChain {
    pub tenant: Tenant,
    /// The end of what was pruned: the first record that is kept follows it.
    pub pruned: AuditChain,
    pub head: AuditChain,
}

/// Who deletes a thread, and what may go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub actor: Actor,
    /// Otherwise a thread with decided approvals is not deleted.
    pub decided_approvals: bool,
}

impl Deletion {
    /// Deletes a thread whatever it contains.
    #[must_use]
    pub const fn with_everything(actor: Actor) -> Self {
        Self { actor, decided_approvals: true }
    }
}

/// What a request to delete a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    Thread,
    /// Nothing: approvals of the thread, or of a thread below it, were decided.
    Nothing,
}

impl From<&str> for Deletion {
    fn from(by: &str) -> Self {
        Self::with_everything(Actor::from(by))
    }
}
