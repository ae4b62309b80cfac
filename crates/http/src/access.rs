//! The credentials of a server: its keys with their holders, and the origins that may call.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::http::{HeaderMap, Uri, header};
use engine::store::Tenant;
use machine::id::Principal;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use crate::browser_token::{Claims, looks_like_token};
use crate::caller::AuthMode;
use crate::capacity::{Capacity, TenantCapacity};
use crate::cors::allowed_origin;
use crate::error::{ApiError, Code};
use crate::limits::{Limits, TokenBucket};
use crate::open_token::OpenToken;
use crate::origin::{WebOrigin, is_loopback, is_loopback_host, origin_parts};
use crate::setup::{ANONYMOUS, AgentScope, Auth, Key, Origins, Role, Roles};

/// A longer token is never valid. A browser token contains names, each with up to 128 characters.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The credentials of a server.
pub(crate) struct Access {
    credentials: RwLock<Arc<Credentials>>,
    capacity: Mutex<Capacity>,
    listen: SocketAddr,
    public_url: Option<String>,
    allow_origins: RwLock<Arc<[WebOrigin]>>,
}

enum Credentials {
    Open(Box<OpenCredentials>),
    Keys(Vec<Holder>),
}

/// A server without keys: every local caller may read and post. The server's token allows the rest.
#[derive(Clone)]
struct OpenCredentials {
    without_token: Holder,
    with_token: Holder,
}

/// The holder of a key, with its rate limit and its share of the server's capacity.
#[derive(Clone)]
pub(crate) struct Holder {
    /// Digest of the key, or of the server's token if there are no keys.
    pub(crate) sha256: [u8; 32],
    pub(crate) principal: Principal,
    pub(crate) tenant: Tenant,
    pub(crate) roles: Roles,
    pub(crate) agents: Arc<AgentScope>,
    pub(crate) acts_for: bool,
    pub(crate) bucket: Arc<TokenBucket>,
    pub(crate) capacity: TenantCapacity,
    pub(crate) revoked: CancellationToken,
}

impl Holder {
    fn is_same_as(&self, other: &Self) -> bool {
        self.sha256 == other.sha256
            && self.principal == other.principal
            && self.tenant == other.tenant
            && self.roles == other.roles
            && self.agents == other.agents
            && self.acts_for == other.acts_for
    }
}

impl Credentials {
    fn new(auth: Auth, capacity: &mut Capacity, limits: &Limits) -> Self {
        let mut holder = |key: Key| Holder {
            sha256: key.sha256,
            principal: Principal::from(key.name),
            capacity: capacity.for_tenant(&key.tenant, limits),
            tenant: key.tenant,
            roles: key.roles,
            agents: Arc::new(key.agents),
            acts_for: key.acts_for,
            bucket: Arc::new(TokenBucket::new(limits)),
            revoked: CancellationToken::new(),
        };
        match auth {
            Auth::Open { token_sha256 } => {
                let anonymous = |roles| Key {
                    name: ANONYMOUS.to_owned(),
                    sha256: token_sha256,
                    tenant: Tenant::default(),
                    roles,
                    agents: AgentScope::All,
                    acts_for: false,
                };
                Self::Open(Box::new(OpenCredentials {
                    without_token: holder(anonymous(Roles::from_list(&[Role::Run]))),
                    with_token: holder(anonymous(Roles::ALL)),
                }))
            }
            Auth::Keys(keys) => Self::Keys(keys.into_iter().map(holder).collect()),
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
                for old in known {
                    match holders.iter_mut().find(|holder| holder.is_same_as(old)) {
                        Some(same) => *same = old.clone(),
                        None => gone.push(old.revoked.clone()),
                    }
                }
                gone
            }
            (Self::Keys(_), Self::Open(known)) => {
                vec![known.without_token.revoked.clone(), known.with_token.revoked.clone()]
            }
            (Self::Open(_), Self::Keys(known)) => known.iter().map(|old| old.revoked.clone()).collect(),
        }
    }
}

impl Access {
    pub(crate) fn new(auth: Auth, origins: Origins, limits: &Limits) -> Self {
        let mut capacity = Capacity::new(limits);
        let credentials = Credentials::new(auth, &mut capacity, limits);
        let Origins { listen, public_url, allow_origins } = origins;
        Self {
            credentials: RwLock::new(Arc::new(credentials)),
            capacity: Mutex::new(capacity),
            listen,
            public_url,
            allow_origins: RwLock::new(allow_origins.into()),
        }
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

    /// The address on which the server listens.
    pub(crate) const fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// The origins whose pages may call, beside our own.
    pub(crate) fn allow_origins(&self) -> Arc<[WebOrigin]> {
        self.allow_origins.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace_origins(&self, origins: Vec<WebOrigin>) {
        *self.allow_origins.write().unwrap_or_else(PoisonError::into_inner) = origins.into();
    }

    /// Finds the key's holder. Compares every key, each in constant time, so that the timing reveals nothing. Without
    /// keys a wrong token counts like a missing one: it grants nothing, and reading needs none.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Option<(AuthMode, Holder)> {
        let digest = bearer_token(headers).map(|token| <[u8; 32]>::from(Sha256::digest(token)));
        match &*self.credentials() {
            Credentials::Open(open) => {
                let OpenCredentials { without_token, with_token } = &**open;
                let (token, holder) = match digest {
                    Some(digest) if bool::from(with_token.sha256.ct_eq(&digest)) => {
                        (OpenToken::Valid, with_token)
                    }
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
                for holder in holders {
                    if bool::from(holder.sha256.ct_eq(&digest)) {
                        found = Some(holder);
                    }
                }
                found.map(|holder| (AuthMode::Key, holder.clone()))
            }
        }
    }

    /// The holder of the key with which a browser token was made, if the server still has it.
    pub(crate) fn issuer(&self, claims: &Claims) -> Option<Holder> {
        match (&*self.credentials(), &claims.key) {
            (Credentials::Open(open), None) => {
                let tenant_fits = open.with_token.tenant.as_str() == claims.tenant;
                tenant_fits.then(|| open.with_token.clone())
            }
            (Credentials::Keys(holders), Some(name)) => holders
                .iter()
                .find(|holder| holder.principal.as_str() == name && holder.tenant.as_str() == claims.tenant)
                .cloned(),
            (Credentials::Open(_), Some(_)) | (Credentials::Keys(_), None) => None,
        }
    }

    /// Without keys, only callers on this machine are allowed, and no page of another site: such a page can send
    /// requests to this machine, but it cannot hide its origin.
    pub(crate) fn check_origin(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
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
        if ours || allowed_origin(headers, &self.allow_origins()).is_some() {
            return Ok(());
        }
        Err(refused_origin(
            "this request comes from a page of another site",
            "if the page is yours, add its origin to server.allow_origins, or send the request from your own backend",
        ))
    }

    fn is_ours(&self, origin: &str) -> bool {
        let Some((scheme, host, port)) = origin_parts(origin) else { return false };
        let here = scheme == "http" && is_loopback(&host) && port == self.listen.port();
        let public = self.public_url.as_deref().and_then(origin_parts);
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

pub(crate) fn unauthorized(headers: &HeaderMap) -> ApiError {
    let what = if bearer_token(headers).is_some_and(looks_like_token) {
        "the browser token that was sent is not valid, has expired, or its key was changed, and the request was not \
         processed; get another one from POST /v1/tokens"
    } else if headers.contains_key(header::AUTHORIZATION) {
        "the token that was sent is not a valid key of this server, and the request was not processed; check the token, \
         or ask the operator for a key, and send it as `Authorization: Bearer TOKEN`"
    } else {
        "no key was sent, and the request was not processed; send `Authorization: Bearer TOKEN`"
    };
    ApiError::new(Code::Unauthorized, what)
}

pub(crate) fn forbidden(roles: &[Role]) -> ApiError {
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
        let origins =
            Origins { listen, public_url: public_url.map(str::to_owned), allow_origins: Vec::new() };
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
            acts_for: false,
        };
        let keys = vec![key("a", "token-a", &[Role::Run]), key("b", "token-b", &[Role::Approve])];
        let origins = Origins {
            listen: "127.0.0.1:1".parse().expect("an address"),
            public_url: None,
            allow_origins: Vec::new(),
        };
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
