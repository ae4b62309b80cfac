//! Which runs a worker asks for.

use machine::id::RunId;

use super::Tenant;

/// Which runs to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This run, if it has not ended and no worker holds it. A queued run that does not hold its thread is handed out
    /// too, because an interrupt may be waiting for it.
    Run { tenant: Tenant, run: RunId },
    /// Up to `limit` runs in the order of rule 7, without the runs of a tenant that already has its maximum.
    Next { limit: usize, skip_tenant: Option<SkipTenant> },
    /// Up to `limit` runs in the same order, but only those that are interrupted or due.
    Urgent { limit: usize },
}

impl Claim {
    #[must_use]
    pub const fn skip_tenant(&self) -> Option<&SkipTenant> {
        match self {
            Self::Next { skip_tenant, .. } => skip_tenant.as_ref(),
            Self::Run { .. } | Self::Urgent { .. } => None,
        }
    }
}

/// A tenant to skip when claiming: its runs that have not begun, and with `woken` all its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipTenant {
    pub tenant: Tenant,
    pub woken: bool,
}
