//! Authenticates tools that report the outcome of a call: with the token of their callback, and without a key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use engine::callback::ReportedAttempt;
use engine::store::Tenant;

use crate::access::bearer_token;
use crate::capacity::RequestPermit;
use crate::error::{ApiError, Code};
use crate::guard::process_request;
use crate::limits::{Limits, TokenBucket, rate_limited};
use crate::server::Server;

/// The path of callbacks, after the server's address. One more path segment follows it.
const CALLBACKS_PATH: &str = "/v1/callbacks";

/// The callback URL to give to an engine if a server at this address receives its callbacks.
#[must_use]
pub fn callback_base_url(public_url: &str) -> String {
    format!("{}{CALLBACKS_PATH}", public_url.trim_end_matches('/'))
}

/// The calling tool, identified by its callback token. None of this is ever taken from a body.
#[derive(Clone)]
pub(crate) struct CallbackCaller {
    pub(crate) about: ReportedAttempt,
    /// The permit under which the request is processed.
    pub(crate) permit: Arc<RequestPermit>,
}

impl<S: Sync> FromRequestParts<S> for CallbackCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(invalid_callback_token)
    }
}

/// Rate limits for the tools of each tenant. There is one bucket for every tenant whose tools ever reported.
#[derive(Default)]
pub(crate) struct CallbackRateLimits {
    buckets: Mutex<BTreeMap<Tenant, Arc<TokenBucket>>>,
}

impl CallbackRateLimits {
    fn bucket(&self, tenant: &Tenant, limits: &Limits) -> Arc<TokenBucket> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.entry(tenant.clone()).or_insert_with(|| Arc::new(TokenBucket::new(limits))).clone()
    }
}

/// A tool may report about the attempt that its token was issued for. A guessed token never causes a lookup of a run.
pub(crate) async fn callback_guard(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let path = Path::<String>::from_request_parts(&mut parts, &server).await;
    let about = match path {
        Ok(Path(path)) => verify_callback(&server, &path, &parts.headers).await,
        Err(_) => None,
    };
    let Some(about) = about else { return invalid_callback_token().into_response() };
    if !server.callback_rate_limits.bucket(&about.tenant, &server.limits).try_take() {
        return rate_limited("the tools of this tenant send too many reports").into_response();
    }
    let capacity = server.access.capacity_for(&about.tenant, &server.limits);
    let request = Request::from_parts(parts, body);
    let admit = |permit: &Arc<RequestPermit>, request: &mut Request| {
        request.extensions_mut().insert(CallbackCaller { about, permit: permit.clone() });
        Ok(())
    };
    match process_request(&server, &capacity, request, next, admit).await {
        Ok(response) => response,
        Err(refused) => refused.into_response(),
    }
}

async fn verify_callback(server: &Server, path: &str, headers: &HeaderMap) -> Option<ReportedAttempt> {
    let token = std::str::from_utf8(bearer_token(headers)?).ok()?;
    server.engine.verify_callback(path, token).await
}

/// The same for a wrong token and for a callback that never existed.
fn invalid_callback_token() -> ApiError {
    ApiError::new(
        Code::Unauthorized,
        "this is not the token of this callback, and the request was not processed; send `Authorization: Bearer TOKEN` \
         with the token that came with the callback address",
    )
}
