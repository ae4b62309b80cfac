//! The audit record of each tenant: what stores keep of it, and how it is read, sealed and pruned.

use machine::Timestamp;
use machine::audit::{Actor, AuditAction, AuditChain, AuditEntry, SealedRecord};
use machine::id::{Digest, Principal};

use super::{BoxFuture, StoreError, Tenant};

/// Records that one call seals or returns at most.
pub const AUDIT_RECORDS_MAX: usize = 1_000;

/// The audit record. A commit adds its own records ([`ProjectionRows::audit`](machine::projection_rows::ProjectionRows)).
pub trait AuditStore: Send + Sync + 'static {
    /// Adds a record of a change that is not in the store.
    fn record_audit(&self, tenant: &Tenant, entry: &AuditEntry) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Adds records of the configuration, all of them or none. [`StoreError::Behind`] if one of the tenants has a newer
    /// record of its configuration than the caller knows: then another node has recorded the same change.
    fn record_configuration(&self, records: &[ConfigurationRecord]) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Puts records that are not in the chain of their tenant yet at its end, a bounded number.
    fn seal_audit(&self) -> BoxFuture<'_, Result<Sealed, StoreError>>;

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

    /// The number of the last record of a tenant that this sink has taken, 0 if it has taken none.
    fn sink_progress(&self, sink: &Digest, tenant: &Tenant) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// The sink has taken everything up to this record. The number never decreases.
    fn set_sink_progress(
        &self,
        sink: &Digest,
        tenant: &Tenant,
        seq: u64,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes the oldest sealed records of every chain up to the first one that is not older than this, a bounded
    /// number, and records that. Returns how many. What is left can still be verified.
    fn prune_audit(&self, older_than: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>>;
}

/// What is recorded of the configuration for one tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigurationRecord {
    pub tenant: Tenant,
    /// The number of the newest record of the tenant's configuration that the caller has read, 0 if there is none. None:
    /// the tenant's records cannot be sealed, and are added whatever is there.
    pub known: Option<u64>,
    pub entries: Vec<AuditEntry>,
}

/// What one call sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    pub records: u64,
    /// Tenants whose records were left unsealed, because rows follow the stored head of their chain. It is unknown
    /// which of them belong there. Other tenants are not affected.
    pub stopped: Vec<Tenant>,
}

/// Seals every record that can be sealed. Returns the tenants whose records cannot.
pub async fn seal_all(store: &(impl AuditStore + ?Sized)) -> Result<Vec<Tenant>, StoreError> {
    loop {
        let sealed = store.seal_audit().await?;
        if sealed.records == 0 {
            return Ok(sealed.stopped);
        }
    }
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
