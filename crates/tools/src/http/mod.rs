//! A tool reached over HTTP: each attempt is one POST. The response determines the outcome, or the outcome is unknown.
//!
//! | response | meaning |
//! |---|---|
//! | 2xx | the call succeeded; the body is the result, parsed if its content type is JSON |
//! | 2xx with `Holdpoint-Warning` | the call succeeded, and the model reads the warning too |
//! | 202 | the result will be reported later: the call is held |
//! | 3xx | an error: redirects are not followed |
//! | 4xx | an error; the model reads the body. For a repeatable tool, 408, 425 and 429 are treated like 503 |
//! | 5xx, lost or late, repeatable tool | the attempt is retried |
//! | 5xx, lost or late, writing tool | failed if it is 500 or 501 or nothing was sent; otherwise the call is in doubt |

mod answer;
#[cfg(test)]
mod answer_tests;
mod masked;
mod resolver;
#[cfg(test)]
mod resolver_tests;
mod signature;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::store::BoxFuture;
use engine::tool::{ApprovedBy, Callback, EffectClass, Outcome, Resumed, Tool, ToolDefinition, ToolRequest};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, InvalidHeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use serde::Serialize;
use serde_json::Value;

use self::masked::without_token;
use self::resolver::GuardedResolver;
pub use self::signature::SigningSecret;

/// Default limit for the size of one response.
pub const RESPONSE_BYTES_MAX: usize = 1024 * 1024;
/// Limit for establishing a connection. If the whole attempt may take less, half of that applies.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Shorter than the keep-alive of common servers: a connection that is closed while being reused leaves a call in
/// doubt.
const IDLE_MAX: Duration = Duration::from_secs(1);
const IDLE_COUNT_MAX: usize = 64;

/// Where a tool is, and how to call it. None of this is part of its definition.
#[derive(Clone)]
pub struct HttpSettings {
    pub url: String,
    /// Sent as a bearer token. It is shown nowhere else.
    pub bearer: Option<String>,
    /// Signs every request, so that the tool can verify that it comes from here and was not changed.
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

/// Why the tool cannot be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpToolError {
    /// Not `http://` or `https://` with a host, or it contains a user or a password.
    BadUrl,
    /// The token has characters that are not allowed in a header.
    BadBearer,
    /// This machine has no list of trusted CA certificates.
    NoTrustedRoots,
}

impl fmt::Display for HttpToolError {
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

impl Error for HttpToolError {}

impl From<InvalidHeaderValue> for HttpToolError {
    fn from(_: InvalidHeaderValue) -> Self {
        Self::BadBearer
    }
}

/// A tool that is called with POST.
pub struct HttpTool {
    definition: Arc<ToolDefinition>,
    url: Uri,
    bearer: Option<HeaderValue>,
    /// The same without `Bearer `, so that it can be masked if the tool echoes it.
    token: Option<String>,
    signing_secret: Option<SigningSecret>,
    response_bytes_max: usize,
    client: Client<HttpsConnector<HttpConnector<GuardedResolver>>, Full<Bytes>>,
}

impl HttpTool {
    pub fn new(definition: ToolDefinition, settings: &HttpSettings) -> Result<Self, HttpToolError> {
        let url: Uri = settings.url.parse().map_err(|_| HttpToolError::BadUrl)?;
        let secure = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(HttpToolError::BadUrl),
        };
        let Some(host) = url.host().filter(|host| !host.is_empty()) else {
            return Err(HttpToolError::BadUrl);
        };
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(HttpToolError::BadUrl);
        }
        let resolver = GuardedResolver::for_host(host, settings.private_network);
        let mut connector = HttpConnector::new_with_resolver(resolver);
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_MAX.min(definition.timeout / 2)));
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
            definition: Arc::new(definition),
            url,
            bearer: settings.bearer.as_deref().map(bearer).transpose()?,
            token: settings.bearer.clone().filter(|token| !token.is_empty()),
            signing_secret: settings.signing_secret.clone(),
            response_bytes_max: settings.response_bytes_max,
            client,
        })
    }

    async fn attempt(&self, asked: ToolRequest) -> Outcome {
        let request = match self.request(&asked) {
            Ok(request) => request,
            Err(why) => return Outcome::NotSent { why, retry_after_ms: None },
        };
        if !self.repeatable() {
            // Lets the client process what has already arrived: a connection that the server has closed in the meantime
            // is then not reused, and leaves no doubt.
            tokio::task::yield_now().await;
        }
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => {
                let why = format!("the tool could not be reached: {}", root_cause(&error));
                return Outcome::NotSent { why, retry_after_ms: None };
            }
            Err(error) => return lost_connection(&error),
        };
        answer::outcome(response, self.repeatable(), self.response_bytes_max).await
    }

    fn request(&self, asked: &ToolRequest) -> Result<Request<Full<Bytes>>, String> {
        let body = serde_json::to_vec(&ToolCallBody::new(asked)).map_err(|error| error.to_string())?;
        let mut request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("holdpoint/", env!("CARGO_PKG_VERSION")))
            .header("idempotency-key", &asked.idempotency_key);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        if let Some(secret) = &self.signing_secret {
            // Each attempt is its own message, so that a tool which drops repeated messages still receives the next
            // attempt.
            let id = format!("{}_{}", asked.idempotency_key, asked.attempt);
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let timestamp = now.map_err(|error| error.to_string())?.as_secs();
            request = request
                .header("webhook-id", &id)
                .header("webhook-timestamp", timestamp)
                .header("webhook-signature", secret.sign(&id, timestamp, &body));
        }
        request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())
    }

    fn repeatable(&self) -> bool {
        match self.definition.effect {
            EffectClass::Read | EffectClass::Idempotent => true,
            EffectClass::Write => false,
        }
    }
}

impl Tool for HttpTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        let cancelled = request.cancelled.clone();
        Box::pin(async move {
            tokio::select! {
                outcome = self.attempt(request) => match &self.token {
                    Some(token) => without_token(outcome, token),
                    None => outcome,
                },
                () = cancelled.cancelled() => {
                    Outcome::Unknown { why: "the call was cancelled before the answer arrived".into(), retry_after_ms: None }
                }
            }
        })
    }

    fn wants_approval(&self) -> bool {
        true
    }
}

fn tls_config(secure: bool) -> Result<ClientConfig, HttpToolError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(|_| HttpToolError::NoTrustedRoots)?;
    // The system's CA certificates are loaded only if the address needs them.
    let config = if secure {
        config.with_native_roots().map_err(|_| HttpToolError::NoTrustedRoots)?
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

fn lost_connection(error: &dyn Error) -> Outcome {
    let why = format!("the connection was lost before the tool had answered: {}", root_cause(error));
    Outcome::Unknown { why, retry_after_ms: None }
}

/// The innermost cause: the layers above only report that something below them failed.
fn root_cause(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// The body that is sent to the tool.
#[derive(Serialize)]
struct ToolCallBody<'a> {
    tool: &'a str,
    /// Ids of threads, runs and calls are unique only within a tenant.
    tenant: &'a str,
    call_id: &'a str,
    run_id: &'a str,
    thread_id: &'a str,
    step: u32,
    attempt: u32,
    arguments: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalSent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<Resume<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<CallbackSent<'a>>,
}

/// Who approved the call, and with which arguments.
#[derive(Serialize)]
struct ApprovalSent<'a> {
    id: &'a str,
    by: &'a str,
    digest: String,
}

/// Where the tool may report its result later, and with which token.
#[derive(Serialize)]
struct CallbackSent<'a> {
    url: &'a str,
    token: &'a str,
}

/// The state that the tool had stored for itself, and the answer to its suspension.
#[derive(Serialize)]
struct Resume<'a> {
    state: Option<&'a Value>,
    answer: Option<&'a Value>,
    by: &'a str,
}

impl<'a> ToolCallBody<'a> {
    fn new(asked: &'a ToolRequest) -> Self {
        let resume = |resumed: &'a Resumed| Resume {
            state: resumed.state.as_deref(),
            answer: resumed.answer.as_deref(),
            by: resumed.by.as_str(),
        };
        let approval = |approved: &'a ApprovedBy| ApprovalSent {
            id: approved.approval.as_str(),
            by: approved.by.as_str(),
            digest: approved.arguments.to_string(),
        };
        let callback =
            |callback: &'a Callback| CallbackSent { url: &callback.url, token: callback.token.as_str() };
        Self {
            tool: asked.tool.as_str(),
            tenant: asked.tenant.as_str(),
            call_id: asked.call.as_str(),
            run_id: asked.run.as_str(),
            thread_id: asked.thread.as_str(),
            step: asked.step,
            attempt: asked.attempt,
            arguments: &asked.arguments,
            approval: asked.approval.as_ref().map(approval),
            resume: asked.resume.as_ref().map(resume),
            callback: asked.callback.as_ref().map(callback),
        }
    }
}
