//! Authenticates and authorizes requests, before anything is looked up, and reads their bodies.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use engine::store::Tenant;
use machine::Timestamp;
use machine::id::Principal;
use tokio::time::Instant;

use crate::access::{Holder, bearer_token, draining_error, forbidden, unauthorized};
use crate::acting;
use crate::browser_token::{self, Reach, VerifiedToken};
use crate::caller::{AuthMode, Caller, Validity};
use crate::capacity::{RequestPermit, TenantCapacity};
use crate::connection::PeerAddress;
use crate::error::{ApiError, Code};
use crate::extract::{BodyCheck, bad_query, body_size_hint, read_body};
use crate::limits::rate_limited;
use crate::open_token::OpenToken;
use crate::refused_requests::RefusedCaller;
use crate::response_budget::budget_response;
use crate::server::Server;
use crate::setup::Role;
use crate::streaming::accepts_event_stream;

/// The name of a browser token in the query of a stream.
const ACCESS_TOKEN: &str = "access_token";

/// Refuses pages of other sites on every route, even if the route needs no key.
pub(crate) async fn origin_guard(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Response {
    match server.access.check_origin(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

/// Which callers a route admits.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) server: Arc<Server>,
    /// A key needs one of these roles. If the list is empty, any key is enough.
    pub(crate) roles: &'static [Role],
    pub(crate) without_keys: WithoutKeys,
    pub(crate) for_reach: ForReach,
    /// Whether the route is a stream, which also takes a browser token in its query.
    pub(crate) is_stream: bool,
}

/// What a route requires if the server has no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutKeys {
    /// Any caller on this machine.
    Free,
    /// The token that the server generated: an agent's tool on this machine must not be able to call this route.
    Token,
}

/// Which browser tokens a route admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForReach {
    /// Also those for one thread or one run. The route looks up whether they can reach what the request names.
    Part,
    /// Only those for the whole tenant: the route reads or changes what belongs to no single thread.
    Tenant,
}

impl Guard {
    fn admits(&self, caller: &Authenticated) -> Result<(), ApiError> {
        let Authenticated { mode, holder: Holder { roles, .. }, reach, .. } = caller;
        let admitted = match (*mode, self.without_keys) {
            (AuthMode::Key | AuthMode::Token, WithoutKeys::Free | WithoutKeys::Token) => {
                let admitted = self.roles.is_empty() || self.roles.iter().any(|role| roles.has(*role));
                if admitted { Ok(()) } else { Err(forbidden(self.roles)) }
            }
            (AuthMode::Open(_), WithoutKeys::Free)
            | (AuthMode::Open(OpenToken::Valid), WithoutKeys::Token) => Ok(()),
            (AuthMode::Open(sent @ (OpenToken::Missing | OpenToken::Wrong)), WithoutKeys::Token) => {
                Err(sent.refusal(self.server.access.listen()))
            }
        };
        admitted?;
        match self.for_reach {
            ForReach::Tenant if !reach.is_tenant() => Err(out_of_reach()),
            ForReach::Tenant | ForReach::Part => Ok(()),
        }
    }
}

/// Who sent a request, as far as its headers say.
struct Authenticated {
    mode: AuthMode,
    /// Of the key. For a browser token, its roles are those that both the token and its key have.
    holder: Holder,
    /// The person for whom the key acts, or the key itself.
    principal: Principal,
    reach: Reach,
    expires_at: Option<Timestamp>,
}

/// A request that was refused while its sender was determined.
struct RefusedRequest {
    error: ApiError,
    /// None if it has no valid key.
    caller: Option<RefusedCaller>,
}

impl RefusedRequest {
    fn of(error: ApiError, tenant: &Tenant, principal: &Principal) -> Self {
        Self { error, caller: Some(RefusedCaller::new(tenant, principal)) }
    }

    fn into_response(self) -> Response {
        let response = self.error.into_response();
        match self.caller {
            Some(caller) => caller.mark(response),
            None => response,
        }
    }
}

impl From<ApiError> for RefusedRequest {
    fn from(error: ApiError) -> Self {
        Self { error, caller: None }
    }
}

impl From<RefusedRequest> for ApiError {
    fn from(refused: RefusedRequest) -> Self {
        refused.error
    }
}

impl Authenticated {
    /// The keys may have changed since the token was verified.
    fn read(
        server: &Server,
        headers: &HeaderMap,
        token: Option<&VerifiedToken>,
        now: Timestamp,
    ) -> Result<Self, RefusedRequest> {
        let named = acting::read_header(headers);
        let Some(token) = token else {
            let (mode, holder) = server.access.authenticate(headers).ok_or_else(|| unauthorized(headers))?;
            let principal = match named {
                Ok(None) => holder.principal.clone(),
                Ok(Some(_)) | Err(_) if !holder.acts_for => {
                    return Err(RefusedRequest::of(may_not_act(), &holder.tenant, &holder.principal));
                }
                Ok(Some(name)) => Principal::acting(name, holder.principal.as_str()),
                Err(refused) => return Err(refused.into()),
            };
            return Ok(Self { mode, holder, principal, reach: Reach::Tenant, expires_at: None });
        };
        let VerifiedToken { claims, key_sha256 } = token;
        let issuer = server.access.issuer(claims).filter(|issuer| issuer.sha256 == *key_sha256);
        let issuer = issuer.filter(|_| !claims.has_expired(now)).ok_or_else(|| unauthorized(headers))?;
        let principal = match &claims.acting_for {
            None => issuer.principal.clone(),
            Some(name) if issuer.acts_for => Principal::acting(name, issuer.principal.as_str()),
            Some(_) => return Err(unauthorized(headers).into()),
        };
        if !matches!(named, Ok(None)) {
            return Err(RefusedRequest::of(may_not_act(), &issuer.tenant, &principal));
        }
        Ok(Self {
            mode: AuthMode::Token,
            principal,
            reach: claims.reach.clone(),
            expires_at: Some(Timestamp(claims.expires_at_ms)),
            holder: Holder { roles: claims.roles.and(issuer.roles), ..issuer },
        })
    }

    fn into_caller(self, permit: &Arc<RequestPermit>, request: &Request, now: Timestamp) -> Caller {
        let Self { mode, holder, principal, reach, expires_at } = self;
        let Holder { sha256, tenant, roles, agents, acts_for, revoked, .. } = holder;
        let expires = expires_at.map(|at| {
            let left = Duration::from_millis(at.0.saturating_sub(now.0));
            (at, Instant::now() + left)
        });
        Caller {
            principal,
            tenant,
            roles,
            agents,
            mode,
            reach,
            key_sha256: sha256,
            acts_for,
            address: request.extensions().get::<PeerAddress>().map(|peer| peer.0),
            permit: permit.clone(),
            validity: Validity { revoked, expires },
        }
    }
}

/// The browser token of a request, if it sent one and no key. A text that looks like a token and is none is refused even
/// if the server has no keys: its sender expects to be limited.
async fn read_token(server: &Server, headers: &HeaderMap) -> Result<Option<VerifiedToken>, ApiError> {
    let Some(bearer) = bearer_token(headers).filter(|bearer| browser_token::looks_like_token(bearer)) else {
        return Ok(None);
    };
    match server.access.authenticate(headers) {
        Some((AuthMode::Key | AuthMode::Open(OpenToken::Valid), _)) => return Ok(None),
        Some((AuthMode::Token | AuthMode::Open(OpenToken::Missing | OpenToken::Wrong), _)) | None => {}
    }
    let issuer = |claims: &browser_token::Claims| Some(server.access.issuer(claims)?.sha256);
    let verified = browser_token::verify(server, bearer, issuer).await;
    verified.map(Some).ok_or_else(|| unauthorized(headers))
}

/// Moves a browser token from the query of a stream to the headers, so that nothing that sees the query later sees it.
fn take_access_token(request: &mut Request, is_stream: bool) -> Result<(), ApiError> {
    let Ok(Query(pairs)) = Query::<Vec<(String, String)>>::try_from_uri(request.uri()) else { return Ok(()) };
    let (mut tokens, others): (Vec<_>, Vec<_>) =
        pairs.into_iter().partition(|(name, _)| name == ACCESS_TOKEN);
    let Some((_, token)) = tokens.pop() else { return Ok(()) };
    if !is_stream || *request.method() != Method::GET {
        return Err(bad_query(
            ACCESS_TOKEN,
            "only event streams accept it; send the token as `Authorization: Bearer TOKEN`",
        ));
    }
    if !tokens.is_empty() {
        return Err(bad_query(ACCESS_TOKEN, "sent more than once"));
    }
    if request.headers().contains_key(header::AUTHORIZATION) {
        return Err(bad_query(
            ACCESS_TOKEN,
            "the request also has an `Authorization` header; send one of the two",
        ));
    }
    // A key in an address would be written into logs and histories, and it does not expire.
    let value = HeaderValue::from_str(&format!("Bearer {token}")).ok();
    let value = value.filter(|_| browser_token::looks_like_token(token.as_bytes()));
    let Some(mut value) = value else {
        return Err(ApiError::new(
            Code::Unauthorized,
            "`access_token` is not a token from POST /v1/tokens, and the request was not processed; a key is not accepted \
             here",
        ));
    };
    value.set_sensitive(true);
    *request.uri_mut() = uri_without_token(request.uri(), &others);
    request.headers_mut().insert(header::AUTHORIZATION, value);
    Ok(())
}

fn uri_without_token(uri: &Uri, others: &[(String, String)]) -> Uri {
    let plain = |text: &str| -> String {
        text.bytes()
            .map(|byte| match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    char::from(byte).to_string()
                }
                _ => format!("%{byte:02X}"),
            })
            .collect()
    };
    let query: Vec<String> =
        others.iter().map(|(name, value)| format!("{}={}", plain(name), plain(value))).collect();
    let separator = if query.is_empty() { "" } else { "?" };
    let text = format!("{}{separator}{}", uri.path(), query.join("&"));
    text.parse().unwrap_or_default()
}

pub(crate) async fn guard(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let server = &guard.server;
    let is_stream = guard.is_stream && is_stream_request(&request);
    let token = match take_access_token(&mut request, is_stream) {
        Ok(()) => read_token(server, request.headers()).await,
        Err(refused) => Err(refused),
    };
    let token = token.map_err(RefusedRequest::from);
    let store = server.engine.store();
    let caller = token.and_then(|token| {
        Ok((Authenticated::read(server, request.headers(), token.as_ref(), store.now())?, token))
    });
    let (caller, token) = match caller {
        Ok(caller) => caller,
        Err(refused) => return refused.into_response(),
    };
    if !caller.holder.bucket.try_take() {
        return rate_limited("this key sends too many requests").into_response();
    }
    let refused_caller = RefusedCaller::new(&caller.holder.tenant, &caller.principal);
    if let Err(refused) = guard.admits(&caller) {
        return refused_caller.mark(refused.into_response());
    }
    let admit = |permit: &Arc<RequestPermit>, request: &mut Request| {
        // The key may have been removed, or have lost its role, while the body was arriving.
        let now = store.now();
        let caller = Authenticated::read(server, request.headers(), token.as_ref(), now)?;
        guard.admits(&caller)?;
        let caller = caller.into_caller(permit, request, now);
        request.extensions_mut().insert(caller);
        Ok(())
    };
    let answered = process_request(server, &caller.holder.capacity, request, next, admit).await;
    refused_caller.mark(answered.unwrap_or_else(IntoResponse::into_response))
}

/// The events of a run are a stream only if the request asks for one.
fn is_stream_request(request: &Request) -> bool {
    let is_page = request.uri().path().starts_with("/v1/runs/") && !accepts_event_stream(request.headers());
    !is_page
}

fn may_not_act() -> ApiError {
    ApiError::new(
        Code::Forbidden,
        "this key may not act for others, and nothing was changed; leave out `Holdpoint-Acting-For`, or use a key with \
         acts_for = true",
    )
}

fn out_of_reach() -> ApiError {
    ApiError::new(
        Code::Forbidden,
        "this token is for one thread or one run, and nothing was changed; this route concerns the whole tenant and needs a \
         key, or a token without thread_id and run_id",
    )
}

/// Reads the body first, so that a slow client holds no request permit. A draining server waits for no body, and
/// answers every request that it has accepted.
pub(crate) async fn process_request(
    server: &Server,
    capacity: &TenantCapacity,
    request: Request,
    next: Next,
    admit: impl FnOnce(&Arc<RequestPermit>, &mut Request) -> Result<(), ApiError>,
) -> Result<Response, ApiError> {
    let is_read_only = matches!(*request.method(), Method::GET | Method::HEAD);
    let buffered = tokio::select! {
        biased;
        () = server.draining.cancelled(), if !is_read_only => return Err(draining_error()),
        buffered = BufferedRequest::read(server, capacity, request) => buffered?,
    };
    let BufferedRequest { mut request, permit } = buffered;
    let in_flight = if is_read_only { None } else { Some(server.track_request()?) };
    let permit = Arc::new(permit);
    admit(&permit, &mut request)?;
    let response = next.run(request).await;
    permit.release_body();
    drop(in_flight);
    budget_response(capacity, permit, is_read_only, response).await
}

/// A request whose body has arrived, with the permits that it needs.
struct BufferedRequest {
    request: Request,
    permit: RequestPermit,
}

impl BufferedRequest {
    async fn read(server: &Server, capacity: &TenantCapacity, request: Request) -> Result<Self, ApiError> {
        let Some(body_permit) =
            capacity.reserve_body(body_size_hint(&request, server.limits.body_bytes_max)).await
        else {
            return Err(rate_limited("too many request bodies are in transit"));
        };
        let request = read_body(request, &server.limits, &server.json_threads, capacity).await?;
        let memory = request.extensions().get::<BodyCheck>().and_then(BodyCheck::memory_bytes);
        let values = match memory {
            Some(bytes) => match capacity.reserve_values(bytes).await {
                Some(permit) => Some(permit),
                None => return Err(rate_limited("too many large JSON values are being processed")),
            },
            None => None,
        };
        let Some(permit) = capacity.acquire_request().await else {
            return Err(rate_limited("too many requests are being processed"));
        };
        permit.keep_body([body_permit].into_iter().chain(values));
        Ok(Self { request, permit })
    }
}
