//! Decisions on the calls of one run: a list whose entries are judged independently.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use engine::deciding::Decide;
use engine::store::RunView;
use machine::call::Call;
use machine::decision::Decision;
use machine::id::{CallId, tool_message_id};
use machine::inbox::{Refusal, Verdict, target_suspension};
use serde_json::Value;

use crate::access::Caller;
use crate::body::{DecisionEntry, Decisions};
use crate::error::ApiError;
use crate::extract::{RequestBody, RunPath};
use crate::idempotency::IdempotentRequest;
use crate::routes::runs::find_run;
use crate::server::Server;
use crate::submit_decision::is_void;
use crate::wire::decision::{DecisionResult, DecisionResults, Outcome};

/// Decide on held calls of a run, each alone
#[utoipa::path(post, path = "/v1/runs/{id}/decisions", tag = "runs", operation_id = "decide",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = Decisions,
    responses((status = 200, description = "What became of each, in the same order", body = DecisionResults)))]
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
    let mut results = Vec::with_capacity(request.decisions.len());
    for (ordinal, entry) in request.decisions.into_iter().enumerate() {
        // Read again for each entry, because the previous one may have changed the run.
        let view = find_run(&server, &caller, &run).await?;
        results.push(decide_one(&server, &caller, &view, entry, &idempotent, ordinal).await?);
    }
    idempotent.store_and_respond(StatusCode::OK, &DecisionResults { results }).await
}

async fn decide_one(
    server: &Server,
    caller: &Caller,
    run: &RunView,
    entry: Value,
    idempotent: &IdempotentRequest<'_>,
    ordinal: usize,
) -> Result<DecisionResult, ApiError> {
    let entry = match DecisionEntry::read(entry) {
        Ok(entry) => entry,
        Err(invalid) => return Ok(invalid),
    };
    let (call, id) = (entry.call_id.to_string(), entry.decision_id.as_deref().map(str::to_owned));
    let seen = entry.expect_digest;
    let mut decide = match entry.into_decide(&caller.tenant, &run.id, &caller.principal) {
        Ok(decide) => decide,
        Err(invalid) => return Ok(invalid),
    };
    let derived = decide.id.is_none();
    if derived {
        decide.id = idempotent.decision_id(ordinal);
    }
    if is_ended_and_unreadable(run) {
        return Ok(DecisionResult::from_verdict(&call, id.as_deref(), &Verdict::Refused(Refusal::RunOver)));
    }
    let control = run.decoded()?;
    let known = control.call(&decide.call);
    let earlier = earlier_decision(server, &decide).await?;
    let open = known.and_then(Call::suspension);
    let meant = earlier.as_ref().map(|earlier| &earlier.suspension).or(open.map(|open| &open.id));
    let is_other = decide.suspension.is_some() && decide.suspension.as_ref() != meant;
    if earlier.is_some() {
        // A repeat, or the id of another decision: either way nothing is applied, so nothing more is checked.
        if is_other {
            let refused = Verdict::Refused(Refusal::IdUsed);
            return Ok(DecisionResult::from_verdict(&call, id.as_deref(), &refused));
        }
    } else if let Some(open) = open {
        if let Err(refused) = caller.may_decide(open.held.kind(), server) {
            return Ok(DecisionResult::new(&call, id.as_deref(), Outcome::Forbidden, &refused.message));
        }
        if is_other {
            return Ok(DecisionResult::wrong_suspension(&call, id.as_deref()));
        }
        // The arguments cannot change while this suspension is open.
        if seen.is_some_and(|seen| known.is_some_and(|call| call.arguments != seen)) {
            let refused = Verdict::Refused(Refusal::DigestMismatch);
            return Ok(DecisionResult::from_verdict(&call, id.as_deref(), &refused));
        }
        // This suspension and no later one: whether the caller may decide a later one was not checked.
        match target_suspension(control, &decide.call, decide.suspension.as_ref()) {
            Ok(suspension) => decide.suspension = Some(suspension),
            Err(refusal) => {
                let refused = Verdict::Refused(refusal);
                return Ok(DecisionResult::from_verdict(&call, id.as_deref(), &refused));
            }
        }
    } else {
        let refused = Verdict::Refused(if run.status.ended() { Refusal::RunOver } else { Refusal::NotHeld });
        return Ok(if known.is_some() || had_call(server, caller, run, &decide.call).await? {
            DecisionResult::from_verdict(&call, id.as_deref(), &refused)
        } else {
            DecisionResult::not_found(&call, id.as_deref())
        });
    }
    let verdict = submit(server, decide, earlier.as_ref()).await?;
    Ok(as_applied(DecisionResult::from_verdict(&call, id.as_deref(), &verdict), derived))
}

/// If the id was derived from the request, this same request applied the decision earlier, and its response was lost.
fn as_applied(mut result: DecisionResult, derived: bool) -> DecisionResult {
    if derived && result.outcome == Outcome::AlreadyApplied {
        result.outcome = Outcome::Applied;
    }
    result
}

/// Such a run does not say which calls it had.
const fn is_ended_and_unreadable(run: &RunView) -> bool {
    run.control.is_none() && run.status.ended()
}

/// The decision that was accepted under this id. Whether it is the same one is for the run to say.
async fn earlier_decision(server: &Server, decide: &Decide) -> Result<Option<Decision>, ApiError> {
    let Some(id) = &decide.id else { return Ok(None) };
    Ok(server.engine.store().decision(&decide.tenant, &decide.run, id).await?)
}

async fn submit(server: &Server, decide: Decide, earlier: Option<&Decision>) -> Result<Verdict, ApiError> {
    let (began, tenant) = (Instant::now(), decide.tenant.clone());
    let verdict = server.engine.decide(decide).await?;
    server.metrics.record_decision(&verdict, began.elapsed());
    let Some(earlier) = earlier.filter(|_| verdict == Verdict::AlreadyApplied) else { return Ok(verdict) };
    // If the tool had changed, nothing was applied, and a repeat gets the same verdict.
    let settled = server.engine.approval(&tenant, &earlier.suspension).await?;
    Ok(if settled.as_ref().is_some_and(is_void) { Verdict::ToolChanged } else { verdict })
}

/// A call of an earlier step is no longer in the control state, but its message is stored.
async fn had_call(server: &Server, caller: &Caller, run: &RunView, call: &CallId) -> Result<bool, ApiError> {
    let message = tool_message_id(call);
    let place = server.engine.store().message(&caller.tenant, &run.thread, &message).await?;
    Ok(place.is_some_and(|place| place.run == run.id))
}
