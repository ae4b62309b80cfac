//! Revokes grants whose giver may no longer approve, so that a later key of the same name does not revive them.

use engine::store::{GrantFilter, Page, StoreError, Tenant, seal_all};
use machine::audit::Actor;

use crate::routes::grants::agent_of;
use crate::server::Server;

/// Revokes them in every tenant that has a key or an audit record: a tenant whose last key was removed has a record of
/// that. Returns the number of grants that were revoked.
pub(crate) async fn revoke_lapsed(server: &Server) -> Result<u64, StoreError> {
    let store = server.engine.store();
    seal_all(&**store).await?;
    let mut tenants = server.approvers.tenants();
    tenants.extend(store.audit_chains().await?.into_iter().map(|chain| chain.tenant));
    let mut revoked = 0;
    for tenant in tenants {
        revoked += revoke_lapsed_of(server, &tenant).await?;
    }
    Ok(revoked)
}

async fn revoke_lapsed_of(server: &Server, tenant: &Tenant) -> Result<u64, StoreError> {
    let store = server.engine.store();
    let mut rows = Page { cursor: None, limit: Page::LIMIT_MAX };
    let mut revoked = 0;
    loop {
        let listed = store.grants(tenant, &GrantFilter { by: None }, &rows).await?;
        for view in &listed.items {
            if server.approvers.may_approve(tenant, &view.grant.by, agent_of(view)) {
                continue;
            }
            match store.revoke_grant(tenant, &view.grant.id, &Actor::system()).await {
                Ok(()) => revoked += 1,
                // A request, or another node, revoked it first.
                Err(StoreError::NotFound) => {}
                Err(refused) => return Err(refused),
            }
        }
        match listed.next {
            Some(next) => rows.cursor = Some(next),
            None => return Ok(revoked),
        }
    }
}
