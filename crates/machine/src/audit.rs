//! The audit record: who decided, changed or deleted what, in a form that can be verified outside the store.

mod action;
mod chain;
mod check;
mod commit;
mod rfc3339;

pub use action::AuditAction;
pub use chain::{AuditChain, ChainFault, SealedRecord};
pub use check::{BrokenRecord, ChainCheck, KnownHead};
pub(crate) use commit::{ClosedCall, closing_entry, grant_entry, run_entry, unapplied_entry};

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::Serialize;
use serde_json::Value;

use crate::grant::{Grant, GrantCoverage};
use crate::id::{CallId, Digest, GrantId, Principal, RunId, SuspensionId, ThreadId};
use crate::time::Timestamp;

/// Characters of a reason or a note that are recorded. The log of the run has the whole text.
const TEXT_CHARS_MAX: usize = 1_000;

/// A time as the record writes it: RFC 3339, UTC, with milliseconds.
#[must_use]
pub fn time_text(at: Timestamp) -> String {
    rfc3339::text(at)
}

/// Who makes a change, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Its name only: `via` is apart.
    pub by: Principal,
    /// The key through which a trusted service acts for the principal.
    pub via: Option<String>,
    /// The network address of the client.
    pub address: Option<String>,
}

impl Actor {
    #[must_use]
    pub fn system() -> Self {
        Self::from(Principal::system())
    }

    /// The principal that both parts name.
    #[must_use]
    pub fn principal(&self) -> Principal {
        Principal::from_parts(self.by.name(), self.via.as_deref())
    }
}

impl From<Principal> for Actor {
    fn from(principal: Principal) -> Self {
        match principal.via() {
            Some(via) => Self { by: Principal::from(principal.name()), via: Some(via.into()), address: None },
            None => Self { by: principal, via: None, address: None },
        }
    }
}

impl From<&str> for Actor {
    fn from(by: &str) -> Self {
        Self::from(Principal::from(by))
    }
}

/// One entry of the record, before it belongs to a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub action: AuditAction,
    pub actor: Actor,
    pub thread_id: Option<ThreadId>,
    pub run_id: Option<RunId>,
    pub call_id: Option<CallId>,
    /// The approval's id, for the kinds that a person answers.
    pub suspension_id: Option<SuspensionId>,
    pub arguments_digest: Option<Digest>,
    pub detail: BTreeMap<&'static str, Value>,
}

/// An entry in its canonical form (RFC 8785): the names in order, and absent fields left out.
#[derive(Serialize)]
struct CanonicalEntry<'e> {
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_digest: Option<Digest>,
    at: String,
    by: &'e Principal,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'e CallId>,
    detail: &'e BTreeMap<&'static str, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'e RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suspension_id: Option<&'e SuspensionId>,
    tenant: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<&'e ThreadId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<&'e str>,
}

/// An entry as a store keeps it. The columns beside `body` are for searching; `body` has everything and is what the
/// chain covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    pub at: Timestamp,
    pub action: AuditAction,
    pub by: Principal,
    pub body: String,
}

impl AuditEntry {
    #[must_use]
    pub const fn new(at: Timestamp, action: AuditAction, actor: Actor) -> Self {
        Self {
            at,
            action,
            actor,
            thread_id: None,
            run_id: None,
            call_id: None,
            suspension_id: None,
            arguments_digest: None,
            detail: BTreeMap::new(),
        }
    }

    /// Adds a detail: a text, an integer, or a list of these. A fraction would have no canonical form in every language.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.detail.insert(name, value.into());
        self
    }

    /// Adds a text that a person wrote, cut to a bounded length.
    #[must_use]
    pub fn with_text(self, name: &'static str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.with(name, text.chars().take(TEXT_CHARS_MAX).collect::<String>()),
            None => self,
        }
    }

    /// The thread was deleted with everything in it. This entry is what remains of it.
    #[must_use]
    pub fn of_deleted_thread(self, thread: &DeletedThread) -> Self {
        let DeletedThread { id, runs, approvals } = thread;
        let names = |names: &[String]| -> Value {
            names.iter().take(NAMES_MAX).map(|name| Value::from(name.as_str())).collect()
        };
        let entry = Self { thread_id: Some(id.clone()), ..self };
        entry
            .with("approval_count", approvals.len())
            .with("approvals", names(approvals))
            .with("run_count", runs.len())
            .with("runs", names(runs))
    }

    /// Auto-approve of a thread was switched on with this grant, or off, which revokes every grant of the thread.
    #[must_use]
    pub fn of_auto_approve(at: Timestamp, thread: &ThreadId, given: Option<&GrantId>, actor: &Actor) -> Self {
        let action = given.map_or(AuditAction::AutoApproveOff, |_| AuditAction::AutoApproveOn);
        let entry = Self { thread_id: Some(thread.clone()), ..Self::new(at, action, actor.clone()) };
        entry.with_text("grant_id", given.map(GrantId::as_str))
    }

    /// A grant was revoked.
    #[must_use]
    pub fn of_revoked_grant(at: Timestamp, thread: &ThreadId, grant: &Grant, actor: &Actor) -> Self {
        let tool = match &grant.covers {
            GrantCoverage::Thread => None,
            GrantCoverage::Tool(granted) => Some(granted.tool.as_str()),
        };
        Self::of_ended_grant(at, thread, (grant.id.as_str(), grant.by.as_str(), tool), actor)
    }

    /// A grant was revoked: its id, its giver, and the tool unless it was for all tools.
    #[must_use]
    pub fn of_ended_grant(
        at: Timestamp,
        thread: &ThreadId,
        (id, given_by, tool): (&str, &str, Option<&str>),
        actor: &Actor,
    ) -> Self {
        let entry = Self {
            thread_id: Some(thread.clone()),
            ..Self::new(at, AuditAction::GrantRevoked, actor.clone())
        };
        let giver = Principal::from(given_by);
        let entry = entry.with("given_by", giver.name()).with_text("given_via", giver.via());
        entry.with("grant_id", id).with_text("tool", tool)
    }

    /// The oldest records of a chain were deleted, up to this one.
    #[must_use]
    pub fn of_pruned_records(at: Timestamp, through: AuditChain) -> Self {
        let entry = Self::new(at, AuditAction::AuditPruned, Actor::system());
        entry.with("through_hash", through.hash.to_string()).with("through_seq", through.seq)
    }

    /// The store was started from a backup. `head` is the end of the tenant's chain in it.
    #[must_use]
    pub fn of_restored_store(at: Timestamp, taken_at: Timestamp, head: AuditChain) -> Self {
        Self::new(at, AuditAction::StoreRestored, Actor::system())
            .with("head_hash", head.hash.to_string())
            .with("head_seq", head.seq)
            .with("taken_at", time_text(taken_at))
    }

    /// The callback key that the store keeps was replaced or removed on the command line.
    #[must_use]
    pub fn of_callback_key(at: Timestamp, action: AuditAction) -> Self {
        Self::new(at, action, Actor::system())
    }

    /// The entry of a tenant, as it is stored.
    #[must_use]
    pub fn to_record(&self, tenant: &str) -> AuditRecord {
        let canonical = CanonicalEntry {
            action: self.action.as_str(),
            address: self.actor.address.as_deref(),
            arguments_digest: self.arguments_digest,
            at: rfc3339::text(self.at),
            by: &self.actor.by,
            call_id: self.call_id.as_ref(),
            detail: &self.detail,
            run_id: self.run_id.as_ref(),
            suspension_id: self.suspension_id.as_ref(),
            tenant,
            thread_id: self.thread_id.as_ref(),
            via: self.actor.via.as_deref(),
        };
        // Names and plain values only, so that nothing can fail.
        let body = serde_json::to_string(&canonical).unwrap_or_else(|error| error.to_string());
        AuditRecord { at: self.at, action: self.action, by: self.actor.by.clone(), body }
    }

    /// The entry of a run's commit, as it is stored.
    #[must_use]
    pub fn to_record_of_run(&self, tenant: &str, thread: &ThreadId, run: &RunId) -> AuditRecord {
        let (thread_id, run_id) = (Some(thread.clone()), Some(run.clone()));
        Self { thread_id, run_id, ..self.clone() }.to_record(tenant)
    }
}

/// Runs and approvals of a deleted thread that its entry names. The entry counts all of them.
pub const NAMES_MAX: usize = 100;

/// What the record keeps of a thread that is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedThread {
    pub id: ThreadId,
    /// In the order of their ids.
    pub runs: Vec<String>,
    /// Decided approvals, in the order of their ids.
    pub approvals: Vec<String>,
}
