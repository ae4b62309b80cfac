//! Callbacks: a tool that answered 202 reports the outcome of its call. While a call is under way, its tool may also
//! send logs and progress.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use engine::callback::{AttemptState, ReportedAttempt};
use engine::deciding::{Answer, Decide, Resumption};
use engine::feed::FeedItem;
use engine::live::ToolNoteBody;
use engine::store::StoreError;
use engine::tool::ToolAnswer;
use machine::call::Call;
use machine::decision::Payload;
use machine::id::{DecisionId, Digest, Principal, SuspensionId, ToolName};
use machine::inbox::{Refusal, Verdict};
use tokio::time::Instant;

use crate::body::{DERIVED_ID_PREFIX, Report, ReportContent, ReportOutcome};
use crate::callback_auth::CallbackCaller;
use crate::error::{ApiError, ReportRefusal};
use crate::extract::RequestBody;
use crate::server::Server;
use crate::wire::decision::{DecisionResult, Outcome};

/// Report the outcome of a tool call that was answered with 202, or its progress
///
/// Logs and progress are shown to the watchers of the run while the call is under way. They are not stored.
/// The callback address and its token come with the tool call. An API key is neither needed nor accepted.
#[utoipa::path(post, path = "/v1/callbacks/{callback}", tag = "callbacks", operation_id = "report",
    params(("callback" = String, Path)), request_body = Report,
    responses((status = 200, description = "The outcome is stored, and the run continues; or the note is shown to the watchers of the run", body = DecisionResult)))]
pub(crate) async fn report(
    State(server): State<Arc<Server>>,
    CallbackCaller { about, permit }: CallbackCaller,
    received: RequestBody,
) -> Result<Json<DecisionResult>, ApiError> {
    let outcome = match received.parse::<Report>().await?.into_content()? {
        ReportContent::Outcome(outcome) => outcome,
        ReportContent::Note(note) => return show_note(&server, &about, note).await,
    };
    let began = Instant::now();
    let until = began + server.limits.decision_timeout;
    let mut continues = true;
    let verdict = loop {
        let Some(run) = server.engine.view(&about.tenant, &about.run).await? else {
            return Err(ApiError::report_refused(ReportRefusal::NoLongerHeld, &about, None));
        };
        match about.attempt_state(run.decoded()?) {
            AttemptState::Held { suspension, tool } => {
                break server.engine.decide(decision(&about, suspension, &tool, outcome.clone())).await;
            }
            AttemptState::InDoubt { step } => {
                break server.engine.settle_doubt(&about, step, late_answer(outcome.clone())).await;
            }
            // The callback may arrive before the tool's own 202.
            AttemptState::InFlight if continues && Instant::now() < until => {
                let next = next_commit(&server, &about, run.seq);
                if let Ok(next) = permit.release_while(tokio::time::timeout_at(until, next)).await {
                    continues = next?;
                }
            }
            AttemptState::InFlight => {
                let status = run.decoded()?.call(&about.call).map(Call::status);
                return Err(ApiError::report_refused(ReportRefusal::InFlight, &about, status));
            }
            AttemptState::NotAwaited => return Err(callback_spent(&server, &about).await?),
        }
    };
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(StoreError::NotFound) => {
            return Err(ApiError::report_refused(ReportRefusal::NoLongerHeld, &about, None));
        }
        Err(refused) => return Err(refused.into()),
    };
    server.metrics.record_decision(&verdict, began.elapsed());
    match &verdict {
        Verdict::Accepted => Ok(Json(DecisionResult::from_verdict(about.call.as_str(), None, &verdict))),
        Verdict::Refused(Refusal::Invalid(why)) => Err(ApiError::invalid_report(why)),
        Verdict::Refused(
            Refusal::IdUsed
            | Refusal::NotHeld
            | Refusal::Answered
            | Refusal::Expired
            | Refusal::RunOver
            | Refusal::DigestMismatch
            | Refusal::SuspensionNotNamed
            | Refusal::UnknownCall
            | Refusal::Forbidden(_),
        )
        | Verdict::AlreadyApplied
        | Verdict::ToolChanged => Err(callback_spent(&server, &about).await?),
    }
}

/// Diagnostics for watchers. They change nothing, so they need not wait for the tool's own 202.
async fn show_note(
    server: &Server,
    about: &ReportedAttempt,
    note: ToolNoteBody,
) -> Result<Json<DecisionResult>, ApiError> {
    let Some(run) = server.engine.view(&about.tenant, &about.run).await? else {
        return Err(ApiError::report_refused(ReportRefusal::NoLongerHeld, about, None));
    };
    let control = run.decoded()?;
    let call = match (about.attempt_state(control), control.call(&about.call)) {
        (AttemptState::Held { .. } | AttemptState::InDoubt { .. } | AttemptState::InFlight, Some(call)) => {
            call
        }
        (_, None) | (AttemptState::NotAwaited, _) => return Err(callback_spent(server, about).await?),
    };
    server.engine.show_tool_note(about, &call.tool, call.step, run.seq, note);
    let message = "it is shown to the watchers of the run, and is not stored";
    Ok(Json(DecisionResult::new(about.call.as_str(), None, Outcome::Applied, message)))
}

fn decision(
    about: &ReportedAttempt,
    suspension: SuspensionId,
    tool: &ToolName,
    outcome: ReportOutcome,
) -> Decide {
    let payload = match outcome {
        ReportOutcome::Result(value) => Payload::Result(Arc::new(value)),
        ReportOutcome::Error(text) => Payload::Error(text),
    };
    Decide {
        tenant: about.tenant.clone(),
        run: about.run.clone(),
        call: about.call.clone(),
        suspension: Some(suspension),
        id: Some(decision_id(about)),
        by: Principal::from(format!("tool:{tool}")),
        kinds: None,
        answer: Answer::Resume(Resumption { payload, ..Resumption::default() }),
    }
}

/// The decision id for any report about this attempt. A report is applied once, and a later one can be recognised.
fn decision_id(about: &ReportedAttempt) -> DecisionId {
    let digest = Digest::sha256(format!("{} {}", about.attempt, about.call).as_bytes());
    DecisionId::from(format!("{DERIVED_ID_PREFIX}callback_{digest}"))
}

fn late_answer(outcome: ReportOutcome) -> ToolAnswer {
    match outcome {
        ReportOutcome::Result(value) => ToolAnswer::Success { value: Arc::new(value), warning: None },
        ReportOutcome::Error(message) => ToolAnswer::Error { message },
    }
}

/// True when the run has committed something after `seq`; false if its feed has ended.
async fn next_commit(server: &Server, about: &ReportedAttempt, seq: u64) -> Result<bool, StoreError> {
    let mut subscription = server.engine.subscribe(&about.tenant, &about.run, seq);
    while let Some(item) = subscription.next().await.transpose()? {
        match item {
            FeedItem::Event(committed) if committed.checkpoint.is_some() => return Ok(true),
            FeedItem::Event(_) | FeedItem::Unreadable(_) | FeedItem::Live(_) => {}
        }
    }
    Ok(false)
}

/// The refusal for a report that the call no longer waits for: whether an earlier report was taken, and the call's
/// status.
async fn callback_spent(server: &Server, about: &ReportedAttempt) -> Result<ApiError, ApiError> {
    let (tenant, run) = (&about.tenant, &about.run);
    let heard = server.engine.store().decision(tenant, run, &decision_id(about)).await?.is_some();
    let run = server.engine.view(tenant, run).await?;
    let status = run.and_then(|run| run.control?.call(&about.call).map(Call::status));
    let why = if heard { ReportRefusal::AlreadyTaken } else { ReportRefusal::NoLongerHeld };
    Ok(ApiError::report_refused(why, about, status))
}
