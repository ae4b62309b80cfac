//! Which runs a worker asks for.

use machine::id::RunId;

use super::Tenant;

/// Which runs a worker wants to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This one, if it has not ended and nobody holds it. A queued run that does not hold its thread is given out
    /// too: an interrupt may be waiting for it.
    Run { tenant: Tenant, run: RunId },
    /// As many as this, in the order of rule 7, without the runs of a tenant that has as many as it may have.
    Next { limit: usize, skip_tenant: Option<SkipTenant> },
    /// As many as this, of those alone that are interrupted or due, in the same order.
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

/// A tenant whose runs are not claimed: those that have not begun, and with `woken` all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipTenant {
    pub tenant: Tenant,
    pub woken: bool,
}
