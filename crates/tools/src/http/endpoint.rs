//! One address that receives POST requests: which hosts are allowed, and how a request is authenticated, signed and
//! sent. Tools and hooks share it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, InvalidHeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};

use super::resolver::GuardedResolver;
use super::signature::SigningSecret;

/// Default limit for the size of one response.
pub const RESPONSE_BYTES_MAX: usize = 1024 * 1024;
/// Limit for establishing a connection. If the whole request may take less, half of that applies.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Shorter than the keep-alive of common servers: a connection that is closed while being reused leaves a call in
/// doubt.
const IDLE_MAX: Duration = Duration::from_secs(1);
const IDLE_COUNT_MAX: usize = 64;

/// Where a tool or a hook is, and how to call it. None of this is part of a tool's definition.
#[derive(Clone)]
pub struct HttpSettings {
    pub url: String,
    /// Sent as a bearer token. It is shown nowhere else.
    pub bearer: Option<String>,
    /// Signs every request, so that the receiver can verify that it comes from here and was not changed.
    pub signing_secret: Option<SigningSecret>,
    pub response_bytes_max: usize,
    /// The host name may resolve to a private network. An address that is written as a number, or as `localhost`, is
    /// always allowed.
    pub private_network: bool,
}

impl HttpSettings {
    #[must_use]
    pub fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            bearer: None,
            signing_secret: None,
            response_bytes_max: RESPONSE_BYTES_MAX,
            private_network: false,
        }
    }
}

/// Why the settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointError {
    /// Not `http://` or `https://` with a host, or it contains a user or a password.
    BadUrl,
    /// The token has characters that are not allowed in a header.
    BadBearer,
    /// This machine has no list of trusted CA certificates.
    NoTrustedRoots,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUrl => f.write_str(
                "the address is no http:// or https:// address with a host and without a password",
            ),
            Self::BadBearer => {
                f.write_str("the token has characters that no header can carry; are there line ends in it?")
            }
            Self::NoTrustedRoots => f.write_str(
                "no trusted certificates were found on this machine; install its package of CA certificates",
            ),
        }
    }
}

impl Error for EndpointError {}

impl From<InvalidHeaderValue> for EndpointError {
    fn from(_: InvalidHeaderValue) -> Self {
        Self::BadBearer
    }
}

/// Why a request has no response. The texts name the innermost cause.
pub(super) enum SendError {
    NotConnected(String),
    /// The receiver may have processed the request.
    Lost(String),
}

pub(super) struct Endpoint {
    url: Uri,
    bearer: Option<HeaderValue>,
    /// The same without `Bearer `, so that it can be masked if the receiver echoes it.
    token: Option<String>,
    signing_secret: Option<SigningSecret>,
    client: Client<HttpsConnector<HttpConnector<GuardedResolver>>, Full<Bytes>>,
}

impl Endpoint {
    /// `timeout` limits a whole request.
    pub(super) fn new(settings: &HttpSettings, timeout: Duration) -> Result<Self, EndpointError> {
        let url: Uri = settings.url.parse().map_err(|_| EndpointError::BadUrl)?;
        let secure = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(EndpointError::BadUrl),
        };
        let Some(host) = url.host().filter(|host| !host.is_empty()) else {
            return Err(EndpointError::BadUrl);
        };
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(EndpointError::BadUrl);
        }
        let resolver = GuardedResolver::for_host(host, settings.private_network);
        let mut connector = HttpConnector::new_with_resolver(resolver);
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_MAX.min(timeout / 2)));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(secure)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_COUNT_MAX)
            .build(connector);
        Ok(Self {
            url,
            bearer: settings.bearer.as_deref().map(bearer).transpose()?,
            token: settings.bearer.clone().filter(|token| !token.is_empty()),
            signing_secret: settings.signing_secret.clone(),
            client,
        })
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// A request with this JSON. `message_id` identifies it to a receiver that checks signatures.
    pub(super) fn request(&self, body: Vec<u8>, message_id: &str) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("holdpoint/", env!("CARGO_PKG_VERSION")));
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        if let Some(secret) = &self.signing_secret {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let timestamp = now.map_err(|error| error.to_string())?.as_secs();
            request = request
                .header("webhook-id", message_id)
                .header("webhook-timestamp", timestamp)
                .header("webhook-signature", secret.sign(message_id, timestamp, &body));
        }
        request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        self.client.request(request).await.map_err(|error| {
            let why = root_cause(&error);
            if error.is_connect() { SendError::NotConnected(why) } else { SendError::Lost(why) }
        })
    }
}

/// The innermost cause: the layers above only report that something below them failed.
pub(super) fn root_cause(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn tls_config(secure: bool) -> Result<ClientConfig, EndpointError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(|_| EndpointError::NoTrustedRoots)?;
    // The system's CA certificates are loaded only if the address needs them.
    let config = if secure {
        config.with_native_roots().map_err(|_| EndpointError::NoTrustedRoots)?
    } else {
        config.with_root_certificates(RootCertStore::empty())
    };
    Ok(config.with_no_client_auth())
}

fn bearer(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}
