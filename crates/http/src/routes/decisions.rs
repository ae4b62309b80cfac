//! Decisions on the calls of one run: a list whose entries are judged independently.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use engine::deciding::Decide;
use machine::id::RunId;
use machine::inbox::{Refusal, Verdict};
use serde_json::Value;

use crate::body::{DecisionEntry, Decisions};
use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::extract::{RequestBody, RunPath};
use crate::idempotency::IdempotentRequest;
use crate::refused_requests::RefusedCaller;
use crate::routes::runs::find_run;
use crate::server::{Server, needs_sink};
use crate::submit_decision::decide;
use crate::wire::decision::{DecisionResult, DecisionResults, Outcome};

/// Decide held calls of a run
///
/// Each decision is judged independently of the others.
#[utoipa::path(post, path = "/v1/runs/{id}/decisions", tag = "runs", operation_id = "decide",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = Decisions,
    responses((status = 200, description = "One outcome per decision, in the same order", body = DecisionResults)))]
pub(crate) async fn decisions(
    State(server): State<Arc<Server>>,
    caller: Caller,
    RunPath(run): RunPath,
    received: RequestBody,
) -> Result<Response, ApiError> {
    let request: Decisions = received.parse().await?;
    find_run(&server, &caller, &run).await?;
    let store = server.engine.store().clone();
    let idempotent = IdempotentRequest::new(&*store, &caller, &received, &run).await;
    if let Some(answer) = idempotent.stored_response().await? {
        return Ok(answer);
    }
    let sink = server.check_sink(&caller.tenant);
    let mut kinds = caller.decidable_kinds(&server);
    kinds.retain(|kind| sink.is_ok() || !needs_sink(*kind));
    let mut results = Vec::with_capacity(request.decisions.len());
    for (ordinal, entry) in request.decisions.into_iter().enumerate() {
        let result = match entry_decision(&caller, &run, entry) {
            Ok((ids, mut decision)) => {
                decision.kinds = Some(kinds.clone());
                let derived = decision.id.is_none();
                if derived {
                    decision.id = idempotent.decision_id(ordinal);
                }
                let verdict = decide(&server, &decision).await?.verdict;
                if let (Verdict::Refused(Refusal::Forbidden(kind)), Err(down)) = (&verdict, &sink)
                    && caller.may_decide(*kind, &server).is_ok()
                {
                    return Err(down.clone());
                }
                if matches!(verdict, Verdict::Refused(Refusal::Forbidden(_))) {
                    note_refusal(&server, &caller);
                }
                as_applied(entry_result(&server, &caller, &ids, &verdict), derived)
            }
            Err(invalid) => invalid,
        };
        results.push(result);
    }
    idempotent.store_and_respond(StatusCode::OK, &DecisionResults { results }).await
}

/// The response is a success, because the other entries were judged.
fn note_refusal(server: &Server, caller: &Caller) {
    let refused = RefusedCaller::new(&caller.tenant, &caller.principal);
    server.refused_requests.note(Some(&refused), Code::Forbidden, &Method::POST, "/v1/runs/{id}/decisions");
}

/// The ids of an entry as they were sent.
struct EntryIds {
    call: String,
    decision: Option<String>,
}

/// What an entry asks the engine to do; an entry that asks for nothing possible is `invalid`.
fn entry_decision(caller: &Caller, run: &RunId, entry: Value) -> Result<(EntryIds, Decide), DecisionResult> {
    let entry = DecisionEntry::read(entry)?;
    let ids = EntryIds {
        call: entry.call_id.to_string(),
        decision: entry.decision_id.as_deref().map(str::to_owned),
    };
    Ok((ids, entry.into_decide(&caller.tenant, run, &caller.principal)?))
}

fn entry_result(server: &Server, caller: &Caller, ids: &EntryIds, verdict: &Verdict) -> DecisionResult {
    let result = DecisionResult::from_verdict(&ids.call, ids.decision.as_deref(), verdict);
    match verdict {
        Verdict::Refused(Refusal::Forbidden(kind)) => match caller.may_decide(*kind, server) {
            Err(denial) => DecisionResult { message: denial.message, ..result },
            Ok(()) => result,
        },
        Verdict::Accepted | Verdict::AlreadyApplied | Verdict::ToolChanged | Verdict::Refused(_) => result,
    }
}

/// If the id was derived from the request, this same request applied the decision earlier, and its response was lost.
fn as_applied(mut result: DecisionResult, derived: bool) -> DecisionResult {
    if derived && result.outcome == Outcome::AlreadyApplied {
        result.outcome = Outcome::Applied;
    }
    result
}
