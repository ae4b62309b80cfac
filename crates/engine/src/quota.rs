//! What one tenant may have in the store. Over a quota nothing new is accepted; existing runs continue.

use std::fmt;

use crate::store::{Countable, Store, StoreError, Tenant};

/// None: no limit. Checked when a message or a thread arrives: concurrent requests may each pass the check, and exceed
/// a quota by their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Including the threads of delegated runs.
    pub threads_max: Option<u64>,
    /// Approvals, questions and calls in doubt that a person has to answer.
    pub pending_approvals_max: Option<u64>,
}

/// The tenant has the maximum number of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaReached {
    pub what: Countable,
    pub max: u64,
}

impl fmt::Display for QuotaReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, max } = self;
        write!(f, "the tenant has {max} {}, which is all that it may have", what.as_str())
    }
}

impl Quotas {
    pub(crate) async fn thread(
        &self,
        store: &dyn Store,
        tenant: &Tenant,
    ) -> Result<Option<QuotaReached>, StoreError> {
        reached(store, tenant, Countable::Threads, self.threads_max).await
    }

    /// Checks a message, on a new or an existing thread.
    pub(crate) async fn message(
        &self,
        store: &dyn Store,
        tenant: &Tenant,
        thread_is_new: bool,
    ) -> Result<Option<QuotaReached>, StoreError> {
        if thread_is_new && let Some(over) = self.thread(store, tenant).await? {
            return Ok(Some(over));
        }
        reached(store, tenant, Countable::PendingApprovals, self.pending_approvals_max).await
    }
}

async fn reached(
    store: &dyn Store,
    tenant: &Tenant,
    what: Countable,
    max: Option<u64>,
) -> Result<Option<QuotaReached>, StoreError> {
    let Some(max) = max else { return Ok(None) };
    let count = store.count_up_to(tenant, what, max).await?;
    Ok((count >= max).then_some(QuotaReached { what, max }))
}
