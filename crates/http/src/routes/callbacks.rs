//! Callbacks: a tool that answered 202 says what became of its call.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use engine::callback::{AttemptState, ReportedAttempt};
use engine::deciding::{Answer, Decide, Resumption};
use engine::feed::FeedItem;
use engine::store::StoreError;
use engine::tool::ToolAnswer;
use machine::call::Call;
use machine::decision::Payload;
use machine::id::{DecisionId, Digest, Principal, SuspensionId, ToolName};
use machine::inbox::{Refusal, Verdict};
use tokio::time::Instant;

use crate::body::{DERIVED_ID_PREFIX, Report, ReportSaid};
use crate::error::{ApiError, Unheard};
use crate::received::Received;
use crate::reporting::Reporter;
use crate::server::Server;
use crate::wire::decision::DecisionResult;

/// A tool that answered 202 says what became of its call
///
/// The address and its token came with the call. No key is needed, and none helps.
#[utoipa::path(post, path = "/v1/callbacks/{callback}", tag = "callbacks", operation_id = "report",
    params(("callback" = String, Path)), request_body = Report,
    responses((status = 200, description = "It is stored, and the run goes on", body = DecisionResult)))]
pub(crate) async fn report(
    State(server): State<Arc<Server>>,
    Reporter { about, place }: Reporter,
    received: Received,
) -> Result<Json<DecisionResult>, ApiError> {
    let said = received.strict::<Report>().await?.said()?;
    let began = Instant::now();
    let until = began + server.limits.decided_time;
    let mut goes_on = true;
    let verdict = loop {
        let Some(run) = server.engine.view(&about.tenant, &about.run).await? else {
            return Err(ApiError::not_reported(Unheard::Over, &about, None));
        };
        match about.attempt_state(run.decoded()?) {
            AttemptState::Held { suspension, tool } => {
                break server.engine.decide(decision(&about, suspension, &tool, said.clone())).await;
            }
            AttemptState::InDoubt { step } => {
                break server.engine.settle_doubt(&about, step, late_answer(said.clone())).await;
            }
            // A tool may be faster than its own 202.
            AttemptState::InFlight if goes_on && Instant::now() < until => {
                let next = next_commit(&server, &about, run.seq);
                if let Ok(next) = place.away(tokio::time::timeout_at(until, next)).await {
                    goes_on = next?;
                }
            }
            AttemptState::InFlight => {
                let status = run.decoded()?.call(&about.call).map(Call::status);
                return Err(ApiError::not_reported(Unheard::UnderWay, &about, status));
            }
            AttemptState::NotAwaited => return Err(spent(&server, &about).await?),
        }
    };
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(StoreError::NotFound) => return Err(ApiError::not_reported(Unheard::Over, &about, None)),
        Err(refused) => return Err(refused.into()),
    };
    server.metrics.decided(&verdict, began.elapsed());
    match &verdict {
        Verdict::Accepted => Ok(Json(DecisionResult::judged(about.call.as_str(), None, &verdict))),
        Verdict::Refused(Refusal::Invalid(why)) => Err(ApiError::report_unfit(why)),
        Verdict::Refused(
            Refusal::IdUsed
            | Refusal::NotHeld
            | Refusal::Answered
            | Refusal::Expired
            | Refusal::RunOver
            | Refusal::DigestMismatch
            | Refusal::SuspensionNotNamed,
        )
        | Verdict::AlreadyApplied
        | Verdict::ToolChanged => Err(spent(&server, &about).await?),
    }
}

fn decision(about: &ReportedAttempt, suspension: SuspensionId, tool: &ToolName, said: ReportSaid) -> Decide {
    let payload = match said {
        ReportSaid::Result(value) => Payload::Result(Arc::new(value)),
        ReportSaid::Error(text) => Payload::Error(text),
    };
    Decide {
        tenant: about.tenant.clone(),
        run: about.run.clone(),
        call: about.call.clone(),
        suspension: Some(suspension),
        id: Some(decision_id(about)),
        by: Principal::from(format!("tool:{tool}")),
        answer: Answer::Resume(Resumption { payload, ..Resumption::default() }),
    }
}

/// Of whatever is reported about this attempt: it counts once, and it can be said later that it did.
fn decision_id(about: &ReportedAttempt) -> DecisionId {
    let digest = Digest::sha256(format!("{} {}", about.attempt, about.call).as_bytes());
    DecisionId::from(format!("{DERIVED_ID_PREFIX}callback_{digest}"))
}

fn late_answer(said: ReportSaid) -> ToolAnswer {
    match said {
        ReportSaid::Result(value) => ToolAnswer::Success { value: Arc::new(value), warning: None },
        ReportSaid::Error(message) => ToolAnswer::Error { message },
    }
}

/// True when the run has gone on behind this event; false where nothing more is said about it.
async fn next_commit(server: &Server, about: &ReportedAttempt, seq: u64) -> Result<bool, StoreError> {
    let mut watched = server.engine.subscribe(&about.tenant, &about.run, seq);
    while let Some(item) = watched.next().await.transpose()? {
        match item {
            FeedItem::Event(committed) if committed.checkpoint.is_some() => return Ok(true),
            FeedItem::Event(_) | FeedItem::Unreadable(_) | FeedItem::Live(_) => {}
        }
    }
    Ok(false)
}

/// Nobody waits for it any more: whether that is because it was heard before, and how the call stands.
async fn spent(server: &Server, about: &ReportedAttempt) -> Result<ApiError, ApiError> {
    let (tenant, run) = (&about.tenant, &about.run);
    let heard = server.engine.store().decision(tenant, run, &decision_id(about)).await?.is_some();
    let run = server.engine.view(tenant, run).await?;
    let status = run.and_then(|run| run.control?.call(&about.call).map(Call::status));
    let why = if heard { Unheard::HeardBefore } else { Unheard::Over };
    Ok(ApiError::not_reported(why, about, status))
}
