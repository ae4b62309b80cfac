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
    Next { limit: usize, pass_over: Option<PassOver> },
    /// As many as this, of those alone that are interrupted or due, in the same order.
    Pressing { limit: usize },
}

impl Claim {
    #[must_use]
    pub const fn pass_over(&self) -> Option<&PassOver> {
        match self {
            Self::Next { pass_over, .. } => pass_over.as_ref(),
            Self::Run { .. } | Self::Pressing { .. } => None,
        }
    }
}

/// A tenant whose runs are not claimed: those that have not begun, and with `woken` all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassOver {
    pub tenant: Tenant,
    pub woken: bool,
}
