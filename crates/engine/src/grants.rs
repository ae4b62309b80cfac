//! Grants: who may give them, and auto-approval of a thread.

use std::sync::Arc;

use machine::audit::Actor;
use machine::id::{AgentName, GrantId, Principal, ThreadId};

use crate::engine::Engine;
use crate::posting::new_id;
use crate::store::{AutoApproval, StoreError, Tenant};

/// Whether a principal of a tenant may approve calls of an agent now. A grant applies only while its giver may.
pub type Approvers = Arc<dyn Fn(&Tenant, &Principal, &AgentName) -> bool + Send + Sync>;

/// Every giver may: the embedder decides who can reach the engine.
pub(crate) fn anyone_may_approve() -> Approvers {
    Arc::new(|_, _, _| true)
}

impl Engine {
    /// Approves later calls of a thread that would wait, in the name of the actor. Off revokes every grant of the thread.
    /// [`StoreError::NotFound`] if the tenant has no such thread.
    pub async fn auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        is_on: bool,
        actor: &Actor,
    ) -> Result<(), StoreError> {
        let id = || GrantId::from(new_id("grt", self.store().now()));
        let given = is_on.then(|| AutoApproval { id: id(), by: actor.principal() });
        self.store().set_auto_approve(tenant, thread, given.as_ref(), actor).await
    }
}
