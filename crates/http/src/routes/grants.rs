//! Grants (standing approvals): list them, revoke one, revoke all of one giver.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use engine::store::{GrantFilter, GrantView, Page, StoreError};
use machine::grant::GrantCoverage;
use machine::id::{AgentName, Principal};

use crate::caller::Caller;
use crate::error::{ApiError, bad_field};
use crate::extract::{GrantPath, QueryParams};
use crate::paging::PageBuilder;
use crate::routes::threads;
use crate::server::Server;
use crate::wire::grant::{Grant, RevokedGrants};
use crate::wire::page::{Grants, parse_page};

/// Grants per read. Little is read of each.
const ROWS_MAX: usize = 100;

/// List the tenant's grants, newest first
#[utoipa::path(get, path = "/v1/grants", tag = "grants", operation_id = "list_grants",
    params(("by" = Option<String>, Query), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "One page of grants", body = Grants)))]
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    caller: Caller,
    parts: Parts,
) -> Result<Json<Grants>, ApiError> {
    let query = QueryParams::parse(&parts, &["by", "limit", "cursor"])?;
    let filter = GrantFilter { by: query.text("by").map(Principal::from) };
    let mut builder = PageBuilder::new(parse_page(query.text("limit"), query.text("cursor"))?, ROWS_MAX);
    let mut grants = Vec::new();
    loop {
        let rows = builder.next_rows();
        let mut listed = server.engine.store().grants(&caller.tenant, &filter, &rows).await?;
        let mut read = 0;
        for view in &listed.items {
            read += 1;
            if !may_see(&server, &caller, view).await? {
                builder.skip_hidden();
                continue;
            }
            let grant = Grant::from_view(view, is_lapsed(&server, &caller, view));
            builder.add(&grant);
            grants.push(grant);
            if builder.is_full() {
                break;
            }
        }
        if read < listed.items.len() {
            let some = Page { limit: read, ..rows };
            listed.next = server.engine.store().grants(&caller.tenant, &filter, &some).await?.next;
        }
        if let ControlFlow::Break(next_cursor) = builder.advance(read, listed.next) {
            return Ok(Json(Grants { grants, next_cursor }));
        }
    }
}

/// Revoke a grant
///
/// Later calls are held again.
#[utoipa::path(delete, path = "/v1/grants/{id}", tag = "grants", operation_id = "revoke_grant",
    params(("id" = String, Path)),
    responses((status = 204, description = "The grant is revoked")))]
pub(crate) async fn revoke(
    State(server): State<Arc<Server>>,
    caller: Caller,
    GrantPath(id): GrantPath,
) -> Result<StatusCode, ApiError> {
    let store = server.engine.store();
    let view = store.grant(&caller.tenant, &id).await?;
    let Some(view) = view else { return Err(ApiError::no_grant(id.as_str())) };
    if !may_see(&server, &caller, &view).await? {
        return Err(ApiError::no_grant(id.as_str()));
    }
    match store.revoke_grant(&caller.tenant, &id, &caller.actor()).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(StoreError::NotFound) => Err(ApiError::no_grant(id.as_str())),
        Err(refused) => Err(refused.into()),
    }
}

/// Revoke all grants that a key has given
#[utoipa::path(delete, path = "/v1/grants", tag = "grants", operation_id = "revoke_grants_of",
    params(("by" = String, Query)),
    responses((status = 200, description = "The number of grants that were revoked", body = RevokedGrants)))]
pub(crate) async fn revoke_by(
    State(server): State<Arc<Server>>,
    caller: Caller,
    parts: Parts,
) -> Result<Json<RevokedGrants>, ApiError> {
    let query = QueryParams::parse(&parts, &["by"])?;
    let Some(by) = query.text("by") else {
        return Err(bad_field("by", "name the key whose grants to revoke; nothing was revoked"));
    };
    let (store, filter) = (server.engine.store(), GrantFilter { by: Some(Principal::from(by)) });
    let mut rows = Page { cursor: None, limit: Page::LIMIT_MAX };
    let mut revoked = 0;
    loop {
        let listed = store.grants(&caller.tenant, &filter, &rows).await?;
        for view in &listed.items {
            if !may_see(&server, &caller, view).await? {
                continue;
            }
            match store.revoke_grant(&caller.tenant, &view.grant.id, &caller.actor()).await {
                Ok(()) => revoked += 1,
                // Another request revoked it first.
                Err(StoreError::NotFound) => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        match listed.next {
            Some(next) => rows.cursor = Some(next),
            None => return Ok(Json(RevokedGrants { revoked })),
        }
    }
}

pub(crate) fn agent_of(view: &GrantView) -> Option<&AgentName> {
    match &view.grant.covers {
        GrantCoverage::Thread => None,
        GrantCoverage::Tool(granted) => granted.agent.as_ref(),
    }
}

/// A key that is limited to some agents may see the grants of their calls, and of threads where no other agent has run.
async fn may_see(server: &Server, caller: &Caller, view: &GrantView) -> Result<bool, ApiError> {
    match agent_of(view) {
        Some(agent) => Ok(caller.may_see(agent)),
        None => threads::may_see(server, caller, &view.thread).await,
    }
}

fn is_lapsed(server: &Server, caller: &Caller, view: &GrantView) -> bool {
    !server.approvers.may_approve(&caller.tenant, &view.grant.by, agent_of(view))
}
