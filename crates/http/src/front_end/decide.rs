//! The answers of a front end to the held calls of one run, checked against what is stored.

use std::sync::Arc;

use engine::deciding::{Answer, Decide, Resumption};
use engine::store::{RunView, StoreError, SuspensionView};
use machine::decision::Payload;
use machine::id::{CallId, SuspensionId};
use machine::inbox::{Refusal, Verdict};
use machine::suspension::SuspensionKind;
use serde_json::Value;

use crate::body::REASON_CHARS_MAX;
use crate::caller::Caller;
use crate::error::{ApiError, Code, bad_field};
use crate::server::Server;
use crate::submit_decision::decide;

/// Finds an approval, a question or a call in doubt that a client names. Nothing that belongs to another run is found.
pub(crate) async fn find_held(
    server: &Server,
    caller: &Caller,
    run: &RunView,
    id: &str,
) -> Result<Option<SuspensionView>, ApiError> {
    let found = server.engine.approval(&caller.tenant, &SuspensionId::from(id)).await?;
    Ok(found.filter(|held| held.run == run.id && held.kind.needs_person()))
}

/// The same, also in the runs that this run delegated to, as far as the caller may read their approvals.
pub(crate) async fn find_held_in_tree(
    server: &Server,
    caller: &Caller,
    run: &RunView,
    id: &str,
) -> Result<Option<SuspensionView>, ApiError> {
    let found = server.engine.approval(&caller.tenant, &SuspensionId::from(id)).await?;
    let is_in_tree =
        |held: &SuspensionView| held.run == run.id || (held.passes(&run.id) && caller.can_read(held));
    Ok(found.filter(|held| is_in_tree(held) && held.kind.needs_person()))
}

/// A reason is as long as one over REST.
pub(crate) fn check_reason(field: &str, reason: Option<String>) -> Result<Option<String>, ApiError> {
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
        let why = format!(
            "a reason has more than {REASON_CHARS_MAX} characters, and nothing was decided; shorten it"
        );
        return Err(bad_field(field, &why));
    }
    Ok(reason)
}

/// Submits the answer. True if the run has processed one, or will. A decision that another approver took first stays in
/// effect, and the stream shows it.
pub(crate) async fn answer_held(
    server: &Server,
    caller: &Caller,
    held: &SuspensionView,
    answer: Answer,
) -> Result<bool, ApiError> {
    let decision = Decide {
        tenant: held.tenant.clone(),
        run: held.run.clone(),
        call: held.call.clone(),
        suspension: Some(held.id.clone()),
        id: None,
        by: caller.principal.clone(),
        kinds: Some(vec![held.kind]),
        answer,
    };
    match submit(server, &decision).await? {
        Verdict::Refused(refusal @ Refusal::Invalid(_)) => Err(ApiError::decision_refused(&refusal, held)),
        Verdict::Refused(refusal) => Ok(is_answered(&refusal)),
        Verdict::Accepted | Verdict::AlreadyApplied | Verdict::ToolChanged => Ok(true),
    }
}

/// An answer to a call that is not held any more may have been the second of two that arrived together.
const fn is_answered(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Answered | Refusal::NotHeld)
}

/// Submits the result of a tool that the front end executed, or the text of its error. False if the call is not held
/// for the front end.
pub(crate) async fn answer_client_tool(
    server: &Server,
    caller: &Caller,
    run: &RunView,
    call: &str,
    result: Result<Value, String>,
) -> Result<bool, ApiError> {
    let pending = run.control.as_ref().map(machine::Control::pending).unwrap_or_default();
    let held = pending
        .iter()
        .find(|pending| pending.call_id.as_str() == call && pending.kind == SuspensionKind::ClientTool);
    let Some(held) = held else { return Ok(false) };
    let payload = match result {
        Ok(value) => Payload::Result(Arc::new(value)),
        Err(text) => Payload::Error(text),
    };
    let decision = Decide {
        tenant: caller.tenant.clone(),
        run: run.id.clone(),
        call: CallId::from(call),
        suspension: Some(held.suspension_id.clone()),
        id: None,
        by: caller.principal.clone(),
        kinds: Some(vec![SuspensionKind::ClientTool]),
        answer: Answer::Resume(Resumption { payload, ..Resumption::default() }),
    };
    match submit(server, &decision).await? {
        Verdict::Refused(Refusal::Invalid(why)) => Err(ApiError::new(
            Code::InvalidArguments,
            format!("the result of `{call}` was not accepted: {why}; the call is still held"),
        )),
        Verdict::Refused(refusal) => Ok(is_answered(&refusal)),
        Verdict::Accepted | Verdict::AlreadyApplied | Verdict::ToolChanged => Ok(true),
    }
}

async fn submit(server: &Server, decision: &Decide) -> Result<Verdict, ApiError> {
    match decide(server, decision).await {
        Ok(decided) => Ok(decided.verdict),
        Err(StoreError::NotFound) => Err(ApiError::no_run(decision.run.as_str())),
        Err(refused) => Err(refused.into()),
    }
}
