//! The actions that the audit record names.

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditAction {
    ApprovalApproved,
    ApprovalRejected,
    ApprovalExpired,
    /// The tool changed after its approval was requested or given.
    ApprovalVoided,
    /// A question, a call in doubt, or a call of a client or an external service got its answer.
    SuspensionAnswered,
    SuspensionCancelled,
    SuspensionExpired,
    /// An approval also applies to later calls.
    GrantGiven,
    /// By `system`: the giver may no longer approve.
    GrantRevoked,
    AutoApproveOn,
    AutoApproveOff,
    /// A message made fewer calls wait than the agent's own policy.
    PolicyLoosened,
    RunInterrupted,
    ThreadDeleted,
    ThreadPruned,
    /// The server started with a configuration.
    ConfigurationLoaded,
    ConfigurationReloaded,
    /// Nothing changed. It is recorded again before older records are deleted.
    ConfigurationRestated,
    KeyAdded,
    KeyRemoved,
    KeyChanged,
    /// The key that signs callback tokens was replaced, and the one before it stays valid until it is removed.
    CallbackKeyRotated,
    CallbackKeyRemoved,
    RequestRefused,
    /// The store was started from a backup. What happened after the backup is not in it.
    StoreRestored,
    /// Records that were kept long enough were deleted.
    AuditPruned,
}

impl AuditAction {
    pub const ALL: [Self; 26] = [
        Self::ApprovalApproved,
        Self::ApprovalRejected,
        Self::ApprovalExpired,
        Self::ApprovalVoided,
        Self::SuspensionAnswered,
        Self::SuspensionCancelled,
        Self::SuspensionExpired,
        Self::GrantGiven,
        Self::GrantRevoked,
        Self::AutoApproveOn,
        Self::AutoApproveOff,
        Self::PolicyLoosened,
        Self::RunInterrupted,
        Self::ThreadDeleted,
        Self::ThreadPruned,
        Self::ConfigurationLoaded,
        Self::ConfigurationReloaded,
        Self::ConfigurationRestated,
        Self::KeyAdded,
        Self::KeyRemoved,
        Self::KeyChanged,
        Self::CallbackKeyRotated,
        Self::CallbackKeyRemoved,
        Self::RequestRefused,
        Self::StoreRestored,
        Self::AuditPruned,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalApproved => "approval.approved",
            Self::ApprovalRejected => "approval.rejected",
            Self::ApprovalExpired => "approval.expired",
            Self::ApprovalVoided => "approval.voided",
            Self::SuspensionAnswered => "suspension.answered",
            Self::SuspensionCancelled => "suspension.cancelled",
            Self::SuspensionExpired => "suspension.expired",
            Self::GrantGiven => "grant.given",
            Self::GrantRevoked => "grant.revoked",
            Self::AutoApproveOn => "auto_approve.on",
            Self::AutoApproveOff => "auto_approve.off",
            Self::PolicyLoosened => "policy.loosened",
            Self::RunInterrupted => "run.interrupted",
            Self::ThreadDeleted => "thread.deleted",
            Self::ThreadPruned => "thread.pruned",
            Self::ConfigurationLoaded => "configuration.loaded",
            Self::ConfigurationReloaded => "configuration.reloaded",
            Self::ConfigurationRestated => "configuration.restated",
            Self::KeyAdded => "key.added",
            Self::KeyRemoved => "key.removed",
            Self::KeyChanged => "key.changed",
            Self::CallbackKeyRotated => "callback_key.rotated",
            Self::CallbackKeyRemoved => "callback_key.removed",
            Self::RequestRefused => "request.refused",
            Self::StoreRestored => "store.restored",
            Self::AuditPruned => "audit.pruned",
        }
    }

    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }
}
