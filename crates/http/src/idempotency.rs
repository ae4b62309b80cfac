//! Idempotency: a client that got no response sends the same request again, and gets the same response.
//!
//! A response is stored with its run, under the key that the client chose. If the process dies between a decision and
//! storing its response, the run itself still recognises the repeat: the decision's id is derived from the same key. An
//! interrupt has no id of its own, so it is marked as started before it is carried out.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::store::{ANSWER_BYTES_MAX, Store, StoredResponse};
use machine::id::{DecisionId, Digest, RunId};
use serde::Serialize;

use crate::body::DERIVED_ID_PREFIX;
use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::extract::RequestBody;

/// A request about a run that the client may repeat. Without a key, every request is new.
pub(crate) struct IdempotentRequest<'a> {
    store: &'a dyn Store,
    caller: &'a Caller,
    run: RunId,
    key: Option<(String, Digest)>,
}

/// The scope in which a repeat is recognised: the caller, the request's method and path, and the key.
pub(crate) fn idempotency_scope(caller: &Caller, received: &RequestBody) -> Option<String> {
    let key = received.key.as_deref()?;
    let parts = [caller.principal.as_str(), &received.method, &received.path, key];
    let mut text = Vec::new();
    for part in parts {
        // The length prefix keeps ("ab", "c") and ("a", "bc") apart.
        text.extend_from_slice(&(part.len() as u64).to_be_bytes());
        text.extend_from_slice(part.as_bytes());
    }
    Some(Digest::sha256(&text).to_string())
}

impl<'a> IdempotentRequest<'a> {
    pub(crate) async fn new(
        store: &'a dyn Store,
        caller: &'a Caller,
        received: &RequestBody,
        run: &RunId,
    ) -> Self {
        let key = match idempotency_scope(caller, received) {
            Some(scope) => Some((scope, received.digest().await)),
            None => None,
        };
        Self { store, caller, run: run.clone(), key }
    }

    /// The response that was stored for this request, if any; an error if the key was used with another body.
    pub(crate) async fn stored_response(&self) -> Result<Option<Response>, ApiError> {
        let Some((scope, body)) = &self.key else { return Ok(None) };
        match self.store.stored_response(&self.caller.tenant, &self.run, scope).await? {
            Some(kept) if kept.body == *body => Ok(Some(to_response(kept))),
            Some(_) => Err(key_conflict()),
            None => Ok(None),
        }
    }

    /// The id of the decision in this request; `ordinal` distinguishes several in one request.
    pub(crate) fn decision_id(&self, ordinal: usize) -> Option<DecisionId> {
        let (scope, _) = self.key.as_ref()?;
        Some(DecisionId::from(format!("{DERIVED_ID_PREFIX}{scope}_{ordinal}")))
    }

    /// Records that this request is about to be carried out.
    pub(crate) async fn mark_started(&self) {
        let Some((scope, body)) = &self.key else { return };
        let note =
            StoredResponse { body: *body, status: StatusCode::ACCEPTED.as_u16(), answer: String::new() };
        if let Err(refused) =
            self.store.store_response(&self.caller.tenant, &self.run, &started_scope(scope), note).await
        {
            tracing::warn!(%refused, "cannot record that a request was started; if its response is lost, a retry may be treated as a new request");
        }
    }

    /// Whether this request was started before. Asked only after `stored_response` found no response.
    pub(crate) async fn was_started(&self) -> Result<bool, ApiError> {
        let Some((scope, _)) = &self.key else { return Ok(false) };
        Ok(self.store.stored_response(&self.caller.tenant, &self.run, &started_scope(scope)).await?.is_some())
    }

    /// Stores a successful response and returns it. If a concurrent repeat stored one first, returns that one.
    pub(crate) async fn store_and_respond(
        self,
        status: StatusCode,
        answer: &impl Serialize,
    ) -> Result<Response, ApiError> {
        let Some((scope, body)) = self.key else { return Ok((status, Json(answer)).into_response()) };
        let answer = serde_json::to_string(answer).map_err(|error| {
            tracing::error!(%error, "a response cannot be serialized");
            ApiError::internal()
        })?;
        let given = StoredResponse { body, status: status.as_u16(), answer };
        if given.answer.len() > ANSWER_BYTES_MAX {
            return Ok(to_response(given));
        }
        match self.store.store_response(&self.caller.tenant, &self.run, &scope, given.clone()).await {
            Ok(kept) if kept.body == body => Ok(to_response(kept)),
            Ok(_) => Err(key_conflict()),
            // The request was carried out anyway, and the run recognises a repeat.
            Err(refused) => {
                tracing::warn!(%refused, "cannot store the response for retries; the run itself still recognises a repeated decision");
                Ok(to_response(given))
            }
        }
    }
}

/// The scope that records that a request was started.
fn started_scope(scope: &str) -> String {
    format!("{scope}_begun")
}

fn to_response(kept: StoredResponse) -> Response {
    let mut response = Response::new(Body::from(kept.answer));
    *response.status_mut() = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn key_conflict() -> ApiError {
    ApiError::new(
        Code::IdempotencyConflict,
        "this Idempotency-Key was already used with another body, and nothing was done; choose a new key",
    )
}
