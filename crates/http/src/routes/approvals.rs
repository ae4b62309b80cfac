//! Approvals: what people have to answer, and their answers.

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
use machine::policy::Policy;
use machine::projection_rows::ApprovalStatus as Standing;

use crate::access::Caller;
use crate::approval_stream;
use crate::body::{Answer, Approve, Reject};
use crate::error::ApiError;
use crate::paging::Filling;
use crate::received::{ApprovalPath, Asked, Received};
use crate::repeats::Repeat;
use crate::routes::runs;
use crate::server::Server;
use crate::settling::settle;
use crate::shown::{shown, shown_if_there};
use crate::streaming;
use crate::wire::approval::Approval;
use crate::wire::page::{Approvals, page};
use crate::wire::words::ApprovalStatus;

/// Approvals that are read at once.
const ROWS_MAX: usize = 16;

/// List approvals, oldest first; the pending ones unless another status is asked for
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", operation_id = "list_approvals",
    params(("status" = Option<ApprovalStatus>, Query), ("run_id" = Option<String>, Query),
        ("thread_id" = Option<String>, Query), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "One page", body = Approvals)))]
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    caller: Caller,
    parts: Parts,
) -> Result<Json<Approvals>, ApiError> {
    let asked = Asked::of(&parts, &["status", "run_id", "thread_id", "limit", "cursor"])?;
    let status = asked.word::<ApprovalStatus>("status")?.map_or(Standing::Pending, Into::into);
    let filter = ApprovalFilter {
        status: Some(status),
        run: asked.text("run_id").map(RunId::from),
        thread: asked.text("thread_id").map(ThreadId::from),
        changed_after: 0,
    };
    let mut filling = Filling::of(page(asked.text("limit"), asked.text("cursor"))?, ROWS_MAX);
    let mut approvals = Vec::new();
    loop {
        let rows = filling.rows();
        let mut listed = server.engine.approvals(&caller.tenant, &filter, &rows).await?;
        let mut read = 0;
        for view in &listed.items {
            read += 1;
            if !caller.sees(&view.agent) {
                filling.hide();
                continue;
            }
            if let Some(approval) = shown_if_there(&server, view).await? {
                filling.add(&approval);
                approvals.push(approval);
            }
            if filling.is_full() {
                break;
            }
        }
        if read < listed.items.len() {
            let some = Page { limit: read, ..rows };
            listed.next = server.engine.approvals(&caller.tenant, &filter, &some).await?.next;
        }
        if let ControlFlow::Break(next_cursor) = filling.turn(read, listed.next) {
            return Ok(Json(Approvals { approvals, next_cursor }));
        }
    }
}

/// Show an approval
#[utoipa::path(get, path = "/v1/approvals/{id}", tag = "approvals", operation_id = "show_approval",
    params(("id" = String, Path)),
    responses((status = 200, description = "The approval", body = Approval)))]
pub(crate) async fn show(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ApprovalPath(id): ApprovalPath,
) -> Result<Json<Approval>, ApiError> {
    Ok(Json(shown(&server, &found(&server, &caller, &id).await?).await?))
}

/// Every change of the tenant's approvals, the pending ones first
///
/// Each frame has the event `approval` and no id: whoever reconnects starts over.
#[utoipa::path(get, path = "/v1/approvals/stream", tag = "approvals", operation_id = "stream_approvals",
    responses((status = 200, description = "A stream", body = String, content_type = "text/event-stream")))]
pub(crate) async fn stream(
    State(server): State<Arc<Server>>,
    caller: Caller,
    parts: Parts,
) -> Result<Response, ApiError> {
    Asked::of(&parts, &[])?;
    let frames = approval_stream::open(&server, &caller)?;
    Ok(streaming::respond(&server, frames))
}

/// Yes: the call runs
#[utoipa::path(post, path = "/v1/approvals/{id}/approve", tag = "approvals", operation_id = "approve",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = Approve,
    responses((status = 200, description = "The approval as it stands now", body = Approval)))]
pub(crate) async fn approve(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ApprovalPath(id): ApprovalPath,
    received: Received,
) -> Result<Response, ApiError> {
    let asked: Approve = received.strict_or_empty().await?;
    let held = found(&server, &caller, &id).await?;
    let decide = asked.into_decide(&held, caller.principal.clone());
    decided(&server, &caller, &received, held, decide).await
}

/// No: the call does not run
#[utoipa::path(post, path = "/v1/approvals/{id}/reject", tag = "approvals", operation_id = "reject",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = Reject,
    responses((status = 200, description = "The approval as it stands now", body = Approval)))]
pub(crate) async fn reject(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ApprovalPath(id): ApprovalPath,
    received: Received,
) -> Result<Response, ApiError> {
    let asked: Reject = received.strict_or_empty().await?;
    let held = found(&server, &caller, &id).await?;
    let run = runs::found(&server, &caller, &held.run).await?;
    let policy = match &run.control {
        // Its approvals are closed, whatever its policy was.
        None if run.status.ended() => Policy::default(),
        Some(_) | None => run.decoded()?.policy,
    };
    let decide = asked.into_decide(&held, &policy, caller.principal.clone());
    decided(&server, &caller, &received, held, decide).await
}

/// The answer to a question, or what became of a call in doubt
#[utoipa::path(post, path = "/v1/approvals/{id}/answer", tag = "approvals", operation_id = "answer",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = Answer,
    responses((status = 200, description = "The approval as it stands now", body = Approval)))]
pub(crate) async fn answer(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ApprovalPath(id): ApprovalPath,
    received: Received,
) -> Result<Response, ApiError> {
    let asked: Answer = received.strict().await?;
    let held = found(&server, &caller, &id).await?;
    caller.may_decide(held.kind, &server)?;
    let decide = asked.into_decide(&held, caller.principal.clone());
    decided(&server, &caller, &received, held, decide).await
}

/// Gives the decision to the run, unless this very request was answered before.
async fn decided(
    server: &Arc<Server>,
    caller: &Caller,
    received: &Received,
    held: SuspensionView,
    decide: Result<Decide, ApiError>,
) -> Result<Response, ApiError> {
    let store = server.engine.store().clone();
    let repeat = Repeat::of(&*store, caller, received, &held.run).await;
    if let Some(answer) = repeat.answer().await? {
        return Ok(answer);
    }
    let mut decide = decide?;
    decide.id = repeat.decision_id(0);
    let settled = settle(server, &caller.place, held, decide).await?;
    repeat.keep(StatusCode::OK, &shown(server, &settled).await?).await
}

/// The approval of this name, if the caller's tenant has one, and the caller is shown those of its agent. What no person
/// answers is none.
async fn found(server: &Server, caller: &Caller, id: &SuspensionId) -> Result<SuspensionView, ApiError> {
    let view = server.engine.approval(&caller.tenant, id).await?;
    view.filter(|view| view.kind.needs_person() && caller.sees(&view.agent))
        .ok_or_else(|| ApiError::no_approval(id.as_str()))
}
