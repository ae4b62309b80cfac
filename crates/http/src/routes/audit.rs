//! The audit record of the caller's tenant.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use engine::store::{AuditFilter, seal_all};
use machine::Timestamp;
use machine::audit::AuditAction;
use machine::id::Principal;

use crate::caller::Caller;
use crate::error::{ApiError, Code, bad_field};
use crate::extract::QueryParams;
use crate::server::Server;
use crate::wire::audit::ListedAuditRecord;
use crate::wire::page::{AuditRecords, parse_page};

/// List audit records, oldest first
///
/// Each record carries the hash over the record before it and its own content, so the list can be verified.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", operation_id = "list_audit",
    params(
        ("since" = Option<String>, Query, description = "Records from this time on (RFC 3339)"),
        ("until" = Option<String>, Query, description = "Records before this time (RFC 3339)"),
        ("by" = Option<String>, Query), ("action" = Option<String>, Query),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query),
    ),
    responses((status = 200, description = "One page of records", body = AuditRecords)))]
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    caller: Caller,
    parts: Parts,
) -> Result<Json<AuditRecords>, ApiError> {
    if caller.agents().is_some() {
        return Err(ApiError::new(
            Code::Forbidden,
            "this key is limited to some agents, and the audit record is about the whole tenant; use an admin key that \
             is not limited",
        ));
    }
    let query = QueryParams::parse(&parts, &["since", "until", "by", "action", "limit", "cursor"])?;
    let filter = AuditFilter {
        since: query.text("since").map(|text| parse_time("since", text)).transpose()?,
        until: query.text("until").map(|text| parse_time("until", text)).transpose()?,
        by: query.text("by").map(Principal::from),
        action: query.text("action").map(parse_action).transpose()?,
    };
    let page = parse_page(query.text("limit"), query.text("cursor"))?;
    let after = page.cursor.as_deref().map(parse_position).transpose()?.unwrap_or(0);
    let store = server.engine.store();
    // What was recorded before this request is in the answer, sealed. If the chain of a tenant is broken, its sealed
    // records are still listed.
    seal_all(&**store).await?;
    let found = store.audit(&caller.tenant, &filter, after, page.limit).await?;
    let last = found.last().map(|last| last.seq);
    let next_cursor = match last {
        Some(last) if found.len() == page.limit => {
            let more = store.audit(&caller.tenant, &filter, last, 1).await?;
            (!more.is_empty()).then(|| format!("{last}.{CURSOR_NAME}"))
        }
        Some(_) | None => None,
    };
    let records = found.iter().map(ListedAuditRecord::from_sealed).collect();
    Ok(Json(AuditRecords { records, next_cursor }))
}

/// The second part of every cursor of this list.
const CURSOR_NAME: &str = "seq";

fn parse_position(cursor: &str) -> Result<u64, ApiError> {
    let position = cursor.split_once('.').filter(|(_, name)| *name == CURSOR_NAME);
    position.and_then(|(seq, _)| seq.parse().ok()).ok_or_else(|| {
        bad_field(
            "cursor",
            "expected `next_cursor` of the page before; leave it out to start at the first page",
        )
    })
}

fn parse_time(field: &str, text: &str) -> Result<Timestamp, ApiError> {
    let at = text.parse::<jiff::Timestamp>().ok().and_then(|at| u64::try_from(at.as_millisecond()).ok());
    at.map(Timestamp).ok_or_else(|| bad_field(field, "expected a time such as 2026-01-31T12:00:00Z"))
}

fn parse_action(name: &str) -> Result<AuditAction, ApiError> {
    AuditAction::parse(name).ok_or_else(|| {
        let names: Vec<&str> = AuditAction::ALL.into_iter().map(AuditAction::as_str).collect();
        bad_field("action", &format!("expected one of {}", names.join(", ")))
    })
}
