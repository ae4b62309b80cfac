//! Approvals: what people have to decide, and their decisions.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use engine::deciding::Decide;
use engine::store::{ApprovalFilter, Page, SuspensionView};
use machine::id::{RunId, SuspensionId, ThreadId};
use machine::projection_rows::ApprovalStatus as StoredStatus;

use crate::approval_stream;
use crate::approval_view::{build_approval, build_approval_if_exists, build_approval_with};
use crate::body::{Answer, Approve, Reject};
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{ApprovalPath, QueryParams, RequestBody};
use crate::idempotency::IdempotentRequest;
use crate::paging::PageBuilder;
use crate::server::Server;
use crate::streaming;
use crate::submit_decision::{DecidedApproval, submit_decision};
use crate::wire::approval::Approval;
use crate::wire::enums::ApprovalStatus;
use crate::wire::page::{Approvals, parse_page};

/// Approvals per read.
const ROWS_MAX: usize = 16;

/// List approvals, oldest first
///
/// Only pending approvals are listed unless `status` is given. `run_id` and `thread_id` match every element of `path`: an
/// approval of a delegated run is listed for each run above it, and for their threads.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", operation_id = "list_approvals",
    params(("status" = Option<ApprovalStatus>, Query), ("run_id" = Option<String>, Query),
        ("thread_id" = Option<String>, Query), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "One page of approvals", body = Approvals)))]
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    caller: Caller,
    parts: Parts,
) -> Result<Json<Approvals>, ApiError> {
    let query = QueryParams::parse(&parts, &["status", "run_id", "thread_id", "limit", "cursor"])?;
    let status = query.parse_value::<ApprovalStatus>("status")?.map_or(StoredStatus::Pending, Into::into);
    let filter = ApprovalFilter {
        status: Some(status),
        run: query.text("run_id").map(RunId::from).or_else(|| caller.reach.run()),
        descendants: true,
        thread: query.text("thread_id").map(ThreadId::from).or_else(|| caller.reach.thread()),
        changed_after: 0,
    };
    if !can_list(&caller, &filter) {
        return Ok(Json(Approvals { approvals: Vec::new(), next_cursor: None }));
    }
    let mut builder = PageBuilder::new(parse_page(query.text("limit"), query.text("cursor"))?, ROWS_MAX);
    let mut approvals = Vec::new();
    loop {
        let rows = builder.next_rows();
        let mut listed = server.engine.approvals(&caller.tenant, &filter, &rows).await?;
        let mut read = 0;
        for view in &listed.items {
            read += 1;
            if !caller.can_read(view) {
                builder.skip_hidden();
                continue;
            }
            if let Some(approval) = build_approval_if_exists(&server, view).await? {
                builder.add(&approval);
                approvals.push(approval);
            }
            if builder.is_full() {
                break;
            }
        }
        if read < listed.items.len() {
            let some = Page { limit: read, ..rows };
            listed.next = server.engine.approvals(&caller.tenant, &filter, &some).await?.next;
        }
        if let ControlFlow::Break(next_cursor) = builder.advance(read, listed.next) {
            return Ok(Json(Approvals { approvals, next_cursor }));
        }
    }
}

/// A token for one thread or one run lists only approvals of this thread or run. If another one is named, the page is
/// empty: a cursor would show where other approvals are.
fn can_list(caller: &Caller, filter: &ApprovalFilter) -> bool {
    let thread_fits = caller.reach.thread().is_none_or(|thread| filter.thread.as_ref() == Some(&thread));
    let run_fits = caller.reach.run().is_none_or(|run| filter.run.as_ref() == Some(&run));
    thread_fits && run_fits
}

/// Get an approval
#[utoipa::path(get, path = "/v1/approvals/{id}", tag = "approvals", operation_id = "show_approval",
    params(("id" = String, Path)),
    responses((status = 200, description = "The approval", body = Approval)))]
pub(crate) async fn show(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ApprovalPath(id): ApprovalPath,
) -> Result<Json<Approval>, ApiError> {
    Ok(Json(build_approval(&server, &find(&server, &caller, &id).await?).await?))
}

/// Stream the tenant's approvals
///
/// Sends the pending approvals first, then every approval that is opened or closed. Each frame is an event of type
/// `approval` without an id, so a client that reconnects starts over. Also takes a browser token as `?access_token=`.
#[utoipa::path(get, path = "/v1/approvals/stream", tag = "approvals", operation_id = "stream_approvals",
    responses((status = 200, description = "A stream of server-sent events. The data of each event is an approval", body = Vec<Approval>, content_type = "text/event-stream")))]
pub(crate) async fn stream(
    State(server): State<Arc<Server>>,
    caller: Caller,
    parts: Parts,
) -> Result<Response, ApiError> {
    QueryParams::parse(&parts, &[])?;
    let frames = approval_stream::open(&server, &caller)?;
    Ok(streaming::respond(&server, frames))
}

/// Approve a held call
#[utoipa::path(post, path = "/v1/approvals/{id}/approve", tag = "approvals", operation_id = "approve",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = Approve,
    responses((status = 200, description = "The approval after the decision", body = Approval)))]
pub(crate) async fn approve(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ApprovalPath(id): ApprovalPath,
    received: RequestBody,
) -> Result<Response, ApiError> {
    let request: Approve = received.parse_or_empty().await?;
    let held = find(&server, &caller, &id).await?;
    let decide = request.into_decide(&held, caller.principal.clone());
    submit(&server, &caller, &received, held, Ok(decide)).await
}

/// Reject a held call
#[utoipa::path(post, path = "/v1/approvals/{id}/reject", tag = "approvals", operation_id = "reject",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = Reject,
    responses((status = 200, description = "The approval after the decision", body = Approval)))]
pub(crate) async fn reject(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ApprovalPath(id): ApprovalPath,
    received: RequestBody,
) -> Result<Response, ApiError> {
    let request: Reject = received.parse_or_empty().await?;
    let held = find(&server, &caller, &id).await?;
    let decide = request.into_decide(&held, caller.principal.clone());
    submit(&server, &caller, &received, held, Ok(decide)).await
}

/// Answer a question, or settle a call in doubt
#[utoipa::path(post, path = "/v1/approvals/{id}/answer", tag = "approvals", operation_id = "answer",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = Answer,
    responses((status = 200, description = "The approval after the decision", body = Approval)))]
pub(crate) async fn answer(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ApprovalPath(id): ApprovalPath,
    received: RequestBody,
) -> Result<Response, ApiError> {
    let request: Answer = received.parse().await?;
    let held = find(&server, &caller, &id).await?;
    caller.may_decide(held.kind, &server)?;
    let decide = request.into_decide(&held, caller.principal.clone());
    submit(&server, &caller, &received, held, decide).await
}

/// Submits the decision to the run, unless this same request was answered before.
async fn submit(
    server: &Arc<Server>,
    caller: &Caller,
    received: &RequestBody,
    held: SuspensionView,
    decide: Result<Decide, ApiError>,
) -> Result<Response, ApiError> {
    let store = server.engine.store().clone();
    let idempotent = IdempotentRequest::new(&*store, caller, received, &held.run).await;
    if let Some(answer) = idempotent.stored_response().await? {
        return Ok(answer);
    }
    let mut decide = decide?;
    server.check_sink_for(&caller.tenant, held.kind)?;
    decide.id = idempotent.decision_id(0);
    let DecidedApproval { view, edited } = submit_decision(server, &caller.permit, held, &decide).await?;
    let approval = build_approval_with(server, &view, edited).await?;
    idempotent.store_and_respond(StatusCode::OK, &approval).await
}

/// The approval with this id, if it belongs to the caller's tenant and the caller may see its agent's approvals. A
/// suspension that no person answers is not an approval.
async fn find(server: &Server, caller: &Caller, id: &SuspensionId) -> Result<SuspensionView, ApiError> {
    let view = server.engine.approval(&caller.tenant, id).await?;
    view.filter(|view| view.kind.needs_person() && caller.can_read(view))
        .ok_or_else(|| ApiError::no_approval(id.as_str()))
}
