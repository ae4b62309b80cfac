//! Authenticates and authorizes callers, before anything is looked up.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use engine::store::Tenant;
use machine::audit::Actor;
use machine::id::{AgentName, Principal};
use machine::suspension::SuspensionKind;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use crate::capacity::{Capacity, RequestPermit, TenantCapacity};
use crate::error::{ApiError, Code};
use crate::extract::{BodyCheck, body_size_hint, read_body};
use crate::limits::{Limits, TokenBucket, rate_limited};
use crate::open_token::OpenToken;
use crate::origin::{is_loopback, is_loopback_host, origin_parts};
use crate::refused_requests::RefusedCaller;
use crate::response_budget::budget_response;
use crate::server::Server;
use crate::setup::{ANONYMOUS, AgentScope, AgentShown, Auth, Key, Origins, Role, Roles};

/// A longer token is never valid.
const TOKEN_BYTES_MAX: usize = 1024;

/// The caller of a request, identified by its key. None of this is ever taken from a body.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    pub(crate) tenant: Tenant,
    pub(crate) roles: Roles,
    agents: Arc<AgentScope>,
    mode: AuthMode,
    /// The permit under which the request is processed.
    pub(crate) permit: Arc<RequestPermit>,
    /// Cancelled once the key is no longer valid, which ends whatever still runs in its name.
    pub(crate) revoked: CancellationToken,
}

/// How the caller was authenticated. A refusal uses it to say what the caller lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuthMode {
    /// The server has no keys.
    Open(OpenToken),
    /// The caller sent a valid key.
    Key,
}

impl Caller {
    /// The refusal for a caller who has none of these roles. Without keys, the caller lacks the server's token.
    pub(crate) fn denial(&self, roles: &[Role], server: &Server) -> ApiError {
        match self.mode {
            AuthMode::Key => forbidden(roles),
            AuthMode::Open(token) => token.refusal(server.access.origins.listen),
        }
    }

    /// The caller as the audit record names it.
    pub(crate) fn actor(&self) -> Actor {
        Actor::from(self.principal.clone())
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.mode, AuthMode::Open(_))
    }

    /// Whether the caller may see the runs of this agent and their approvals.
    pub(crate) fn may_see(&self, agent: &AgentName) -> bool {
        self.agents.includes(agent)
    }

    /// The agents that the key is limited to. None if it is for all agents.
    pub(crate) fn agents(&self) -> Option<&BTreeSet<AgentName>> {
        match &*self.agents {
            AgentScope::All => None,
            AgentScope::Only(agents) => Some(agents),
        }
    }

    /// Whether the caller may start runs of this agent: both the key and the agent's tenants must allow it.
    pub(crate) fn may_use(&self, agent: &AgentShown) -> bool {
        self.may_see(&AgentName::from(agent.name.as_str())) && agent.tenants.include(&self.tenant)
    }

    /// Whether the caller may decide a call that is held for this reason.
    pub(crate) fn may_decide(&self, kind: SuspensionKind, server: &Server) -> Result<(), ApiError> {
        let roles: &[Role] = match kind {
            SuspensionKind::Approval | SuspensionKind::InDoubt => &[Role::Approve],
            SuspensionKind::ClientTool | SuspensionKind::External => &[Role::Run],
            // Only the child run answers a `ChildRun`; the decision itself is refused later.
            SuspensionKind::Question | SuspensionKind::ChildRun => &[Role::Run, Role::Approve],
        };
        if roles.iter().any(|role| self.roles.has(*role)) { Ok(()) } else { Err(self.denial(roles, server)) }
    }

    /// The kinds of suspension that the caller may decide.
    pub(crate) fn decidable_kinds(&self, server: &Server) -> Vec<SuspensionKind> {
        SuspensionKind::ALL.into_iter().filter(|kind| self.may_decide(*kind, server).is_ok()).collect()
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // A route without a guard has no caller, so it cannot show any tenant's data.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| unauthorized(&parts.headers))
    }
}

/// The credentials of a server.
pub(crate) struct Access {
    credentials: RwLock<Arc<Credentials>>,
    capacity: Mutex<Capacity>,
    origins: Origins,
}

enum Credentials {
    Open(Box<OpenCredentials>),
    Keys(Vec<([u8; 32], Holder)>),
}

/// A server without keys: every local caller may read and post. The server's token allows the rest.
#[derive(Clone)]
struct OpenCredentials {
    token_sha256: [u8; 32],
    without_token: Holder,
    with_token: Holder,
}

/// The holder of a key, with its rate limit and its share of the server's capacity.
#[derive(Clone)]
struct Holder {
    principal: Principal,
    tenant: Tenant,
    roles: Roles,
    agents: Arc<AgentScope>,
    bucket: Arc<TokenBucket>,
    capacity: TenantCapacity,
    revoked: CancellationToken,
}

impl Holder {
    fn is_same_as(&self, other: &Self) -> bool {
        self.principal == other.principal
            && self.tenant == other.tenant
            && self.roles == other.roles
            && self.agents == other.agents
    }
}

impl Credentials {
    fn new(auth: Auth, capacity: &mut Capacity, limits: &Limits) -> Self {
        let mut holder = |name: &str, tenant: Tenant, roles: Roles, agents: AgentScope| Holder {
            principal: Principal::from(name),
            capacity: capacity.for_tenant(&tenant, limits),
            tenant,
            roles,
            agents: Arc::new(agents),
            bucket: Arc::new(TokenBucket::new(limits)),
            revoked: CancellationToken::new(),
        };
        match auth {
            Auth::Open { token_sha256 } => Self::Open(Box::new(OpenCredentials {
                token_sha256,
                without_token: holder(
                    ANONYMOUS,
                    Tenant::default(),
                    Roles::from_list(&[Role::Run]),
                    AgentScope::All,
                ),
                with_token: holder(ANONYMOUS, Tenant::default(), Roles::ALL, AgentScope::All),
            })),
            Auth::Keys(keys) => Self::Keys(
                keys.into_iter()
                    .map(|Key { name, sha256, tenant, roles, agents }| {
                        (sha256, holder(&name, tenant, roles, agents))
                    })
                    .collect(),
            ),
        }
    }

    /// Unchanged holders keep their state, including what their rate limit has counted. Returns the revocation tokens
    /// of the holders that are gone.
    fn carry_over(&mut self, before: &Self) -> Vec<CancellationToken> {
        match (self, before) {
            (Self::Open(open), Self::Open(known)) => {
                *open = known.clone();
                Vec::new()
            }
            (Self::Keys(holders), Self::Keys(known)) => {
                let mut gone = Vec::new();
                for (key, old) in known {
                    match holders.iter_mut().find(|(new, holder)| new == key && holder.is_same_as(old)) {
                        Some((_, same)) => *same = old.clone(),
                        None => gone.push(old.revoked.clone()),
                    }
                }
                gone
            }
            (Self::Keys(_), Self::Open(known)) => {
                vec![known.without_token.revoked.clone(), known.with_token.revoked.clone()]
            }
            (Self::Open(_), Self::Keys(known)) => known.iter().map(|(_, old)| old.revoked.clone()).collect(),
        }
    }
}

impl Access {
    pub(crate) fn new(auth: Auth, origins: Origins, limits: &Limits) -> Self {
        let mut capacity = Capacity::new(limits);
        let credentials = Credentials::new(auth, &mut capacity, limits);
        Self { credentials: RwLock::new(Arc::new(credentials)), capacity: Mutex::new(capacity), origins }
    }

    /// Replaces the credentials. Holders of an unchanged key are not affected.
    pub(crate) fn replace_auth(&self, auth: Auth, limits: &Limits) {
        let mut credentials =
            Credentials::new(auth, &mut self.capacity.lock().unwrap_or_else(PoisonError::into_inner), limits);
        let mut current = self.credentials.write().unwrap_or_else(PoisonError::into_inner);
        let gone = credentials.carry_over(&current);
        *current = Arc::new(credentials);
        drop(current);
        // Only after the replacement, so that work which an old key started in the meantime ends too.
        gone.iter().for_each(CancellationToken::cancel);
    }

    /// The tenant's share of the server's capacity, whichever key is used.
    pub(crate) fn capacity_for(&self, tenant: &Tenant, limits: &Limits) -> TenantCapacity {
        self.capacity.lock().unwrap_or_else(PoisonError::into_inner).for_tenant(tenant, limits)
    }

    fn credentials(&self) -> Arc<Credentials> {
        self.credentials.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Finds the key's holder. Compares every key, each in constant time, so that the timing reveals nothing. Without
    /// keys a wrong token counts like a missing one: it grants nothing, and reading needs none.
    fn authenticate(&self, headers: &HeaderMap) -> Option<(AuthMode, Holder)> {
        let digest = bearer_token(headers).map(|token| <[u8; 32]>::from(Sha256::digest(token)));
        match &*self.credentials() {
            Credentials::Open(open) => {
                let OpenCredentials { token_sha256, without_token, with_token } = &**open;
                let (token, holder) = match digest {
                    Some(digest) if bool::from(token_sha256.ct_eq(&digest)) => (OpenToken::Valid, with_token),
                    Some(_) | None if headers.contains_key(header::AUTHORIZATION) => {
                        (OpenToken::Wrong, without_token)
                    }
                    Some(_) | None => (OpenToken::Missing, without_token),
                };
                Some((AuthMode::Open(token), holder.clone()))
            }
            Credentials::Keys(holders) => {
                let digest = digest?;
                let mut found = None;
                for (sha256, holder) in holders {
                    if bool::from(sha256.ct_eq(&digest)) {
                        found = Some(holder);
                    }
                }
                found.map(|holder| (AuthMode::Key, holder.clone()))
            }
        }
    }

    /// Without keys, only callers on this machine are allowed, and no page of another site: such a page can send
    /// requests to this machine, but it cannot hide its origin.
    fn check_origin(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        if matches!(*self.credentials(), Credentials::Keys(_)) {
            return Ok(());
        }
        let mut hosts = headers.get_all(header::HOST).iter();
        let named = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().is_ok_and(is_loopback_host),
            (Some(_), Some(_)) | (None, _) => false,
        };
        let absolute = uri.authority().is_none_or(|authority| is_loopback(authority.host()));
        if !named || !absolute {
            return Err(refused_origin(
                "the Host header of this request does not name this machine",
                "use the address that the server prints, or configure [auth]",
            ));
        }
        let ours = headers
            .get_all(header::ORIGIN)
            .iter()
            .all(|origin| origin.to_str().is_ok_and(|origin| self.is_ours(origin)));
        if ours {
            return Ok(());
        }
        Err(refused_origin(
            "this request comes from a page of another site",
            "send it from your own backend, or serve the page and this API under one origin and set server.public_url to it",
        ))
    }

    fn is_ours(&self, origin: &str) -> bool {
        let Some((scheme, host, port)) = origin_parts(origin) else { return false };
        let here = scheme == "http" && is_loopback(&host) && port == self.origins.listen.port();
        let public = self.origins.public_url.as_deref().and_then(origin_parts);
        here || public.is_some_and(|public| public == (scheme, host, port))
    }
}

pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let fits = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_BYTES_MAX;
    fits.then_some(token.as_bytes())
}

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
}

/// What a route requires if the server has no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutKeys {
    /// Any caller on this machine.
    Free,
    /// The token that the server generated: an agent's tool on this machine must not be able to call this route.
    Token,
}

impl Guard {
    fn admits(&self, mode: AuthMode, roles: Roles) -> Result<(), ApiError> {
        match (mode, self.without_keys) {
            (AuthMode::Key, WithoutKeys::Free | WithoutKeys::Token) => {
                let admitted = self.roles.is_empty() || self.roles.iter().any(|role| roles.has(*role));
                if admitted { Ok(()) } else { Err(forbidden(self.roles)) }
            }
            (AuthMode::Open(_), WithoutKeys::Free)
            | (AuthMode::Open(OpenToken::Valid), WithoutKeys::Token) => Ok(()),
            (AuthMode::Open(sent @ (OpenToken::Missing | OpenToken::Wrong)), WithoutKeys::Token) => {
                Err(sent.refusal(self.server.access.origins.listen))
            }
        }
    }
}

pub(crate) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let server = &guard.server;
    let Some((mode, holder)) = server.access.authenticate(request.headers()) else {
        return unauthorized(request.headers()).into_response();
    };
    if !holder.bucket.try_take() {
        return rate_limited("this key sends too many requests").into_response();
    }
    let caller = RefusedCaller::new(&holder.tenant, &holder.principal);
    if let Err(refused) = guard.admits(mode, holder.roles) {
        return caller.mark(refused.into_response());
    }
    let admit = |permit: &Arc<RequestPermit>, request: &mut Request| {
        // The key may have been removed, or have lost its role, while the body was arriving.
        let (mode, holder) =
            server.access.authenticate(request.headers()).ok_or_else(|| unauthorized(request.headers()))?;
        guard.admits(mode, holder.roles)?;
        request.extensions_mut().insert(Caller {
            principal: holder.principal.clone(),
            tenant: holder.tenant.clone(),
            roles: holder.roles,
            agents: holder.agents.clone(),
            mode,
            permit: permit.clone(),
            revoked: holder.revoked.clone(),
        });
        Ok(())
    };
    let answered = process_request(server, &holder.capacity, request, next, admit).await;
    caller.mark(answered.unwrap_or_else(IntoResponse::into_response))
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

fn unauthorized(headers: &HeaderMap) -> ApiError {
    let what = if headers.contains_key(header::AUTHORIZATION) {
        "the token that was sent is not a valid key of this server, and the request was not processed; check the token, \
         or ask the operator for a key, and send it as `Authorization: Bearer TOKEN`"
    } else {
        "no key was sent, and the request was not processed; send `Authorization: Bearer TOKEN`"
    };
    ApiError::new(Code::Unauthorized, what)
}

fn forbidden(roles: &[Role]) -> ApiError {
    let names: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
    ApiError::new(
        Code::Forbidden,
        format!(
            "this key may not do this, and nothing was changed; it needs the role {}",
            names.join(" or ")
        ),
    )
    .with("roles", names)
}

/// The refusal for a request whose key was removed while the request was waiting.
pub(crate) fn revoked_error() -> ApiError {
    ApiError::new(
        Code::Unauthorized,
        "the key of this request was removed while the request waited; what was done before stays done; ask the operator \
         for a key",
    )
}

pub(crate) fn draining_error() -> ApiError {
    ApiError::new(
        Code::Draining,
        "this server is stopping and did not process the request; send it again to another server, or after the restart",
    )
}

fn refused_origin(why: &str, next: &str) -> ApiError {
    ApiError::new(Code::OriginRefused, format!("{why}, and nothing was done; {next}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(public_url: Option<&str>) -> Access {
        let listen = "127.0.0.1:8787".parse().expect("an address");
        let origins = Origins { listen, public_url: public_url.map(str::to_owned) };
        Access::new(Auth::open("drawn"), origins, &Limits::default())
    }

    fn is_allowed(access: &Access, host: Option<&str>, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(header::HOST, host.parse().expect("a header"));
        }
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().expect("a header"));
        }
        access.check_origin(&Uri::from_static("/v1/runs"), &headers).is_ok()
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let access = access(None);
        for good in ["127.0.0.1:8787", "localhost", "LOCALHOST:1", "[::1]:8787", "127.9.9.9"] {
            assert!(is_allowed(&access, Some(good), None), "{good}");
        }
        let bad =
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]", ""];
        for bad in bad.into_iter().chain(["a@localhost", "127.0.0.1@evil.example", "localhost evil"]) {
            assert!(!is_allowed(&access, Some(bad), None), "{bad}");
        }
        assert!(!is_allowed(&access, None, None), "no Host at all");
    }

    #[test]
    fn only_our_own_pages_may_ask() {
        let access = access(Some("https://hold.example/"));
        let host = Some("localhost:8787");
        for good in [
            "http://127.0.0.1:8787",
            "http://localhost:8787",
            "https://hold.example",
            "https://HOLD.example:443",
        ] {
            assert!(is_allowed(&access, host, Some(good)), "{good}");
        }
        let bad = ["null", "http://evil.example", "http://localhost:3000", "https://localhost:8787", ""];
        for bad in bad.into_iter().chain([
            "http://hold.example",
            "https://hold.example:8443",
            "http://ann@127.0.0.1:8787",
            "http://ann:sesame@localhost:8787",
            "https://hold.example@hold.example",
        ]) {
            assert!(!is_allowed(&access, host, Some(bad)), "{bad}");
        }
    }

    #[test]
    fn a_key_is_known_by_its_digest_and_in_no_other_form() {
        let key = |name: &str, token: &str, roles: &[Role]| Key {
            name: name.into(),
            sha256: Sha256::digest(token).into(),
            tenant: Tenant::from(name),
            roles: Roles::from_list(roles),
            agents: AgentScope::All,
        };
        let keys = vec![key("a", "token-a", &[Role::Run]), key("b", "token-b", &[Role::Approve])];
        let origins = Origins { listen: "127.0.0.1:1".parse().expect("an address"), public_url: None };
        let access = Access::new(Auth::Keys(keys), origins, &Limits::default());
        let name = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().expect("a header"));
            access.authenticate(&headers).map(|(_, holder)| holder.principal.to_string())
        };
        assert_eq!(name("Bearer token-b").as_deref(), Some("b"));
        assert_eq!(name("bearer token-a").as_deref(), Some("a"));
        for bad in
            ["token-a", "Basic token-a", "Bearer", "Bearer ", "Bearer token-c", "Bearer token-a token-b"]
        {
            assert_eq!(name(bad), None, "{bad}");
        }
        assert!(access.authenticate(&HeaderMap::new()).is_none());
    }
}
