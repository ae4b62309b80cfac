//! One request and its response. Covers every way in which a server can fail to answer, and never waits without a
//! limit.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::address::{ServerUrl, Token, Tokens};
use super::api_error::ApiError;
use super::first_bytes::{FirstBytes, Protocol, RecordingConnector};
use super::sse::SseStream;
use super::terminal_text::escaped;
use crate::cli::problem::{Exit, Problem};

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time limit for the complete response. Longer than a server waits for a run to process a decision.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Larger than any page of a list.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Sends requests to one server.
pub(super) struct Connection {
    client: Client<HttpsConnector<RecordingConnector>, Full<Bytes>>,
    server_url: ServerUrl,
    tokens: Tokens,
    first_bytes: FirstBytes,
}

/// Why there is no response.
pub(super) enum RequestError {
    /// No response, or an incomplete one.
    NoAnswer(Problem),
    /// The server does not speak the scheme of the request (HTTP or HTTPS).
    WrongScheme(Problem),
    /// The server, or a proxy in front of it, refused the request.
    Refused { status: StatusCode, problem: Problem },
}

impl RequestError {
    /// Whether the same request may succeed a little later.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::NoAnswer(_) => true,
            Self::WrongScheme(_) => false,
            Self::Refused { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
        }
    }
}

impl From<RequestError> for Problem {
    fn from(failed: RequestError) -> Self {
        match failed {
            RequestError::NoAnswer(problem)
            | RequestError::WrongScheme(problem)
            | RequestError::Refused { problem, .. } => problem,
        }
    }
}

impl Connection {
    /// Loads the system's CA certificates only for an `https` address.
    pub(super) fn new(server_url: ServerUrl, tokens: Tokens) -> Result<Self, Problem> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = versions.map_err(|_| no_ca_certificates())?;
        let config = if server_url.is_secure {
            config.with_native_roots().map_err(|_| no_ca_certificates())?
        } else {
            config.with_root_certificates(RootCertStore::empty())
        };
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_MAX));
        http.set_nodelay(true);
        let first_bytes = FirstBytes::default();
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(config.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .wrap_connector(RecordingConnector::new(http, first_bytes.clone()));
        let client = Client::builder(TokioExecutor::new()).build(https);
        Ok(Self { client, server_url, tokens, first_bytes })
    }

    pub(super) async fn get(&self, path: &str) -> Result<String, RequestError> {
        let until = Instant::now() + ANSWER_MAX;
        let request = self.request(Method::GET, path, self.tokens.from_env.as_ref());
        let request = request.header(ACCEPT, "application/json");
        let response = self.send(request.body(Full::default()), until, RETRY_HINT).await?;
        self.read_body(response, until, RETRY_HINT).await
    }

    /// For requests that a server without `[auth]` allows to every local caller.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<String, RequestError> {
        self.post_with(path, body, self.tokens.from_env.as_ref()).await
    }

    /// For requests that need the token of a server without `[auth]`. No other request carries the token from the file.
    pub(super) async fn post_decision(&self, path: &str, body: &Value) -> Result<String, RequestError> {
        self.post_with(path, body, self.tokens.from_env.as_ref().or(self.tokens.from_file.as_ref())).await
    }

    async fn post_with(
        &self,
        path: &str,
        body: &Value,
        token: Option<&Token>,
    ) -> Result<String, RequestError> {
        let until = Instant::now() + ANSWER_MAX;
        let request = self.request(Method::POST, path, token).header(CONTENT_TYPE, "application/json");
        let request = request.header(ACCEPT, "application/json").body(Full::from(body.to_string()));
        let response = self.send(request, until, CHECK_FIRST_HINT).await?;
        self.read_body(response, until, CHECK_FIRST_HINT).await
    }

    /// Streams the events after `after`. None if the run has ended and there are no more events.
    pub(super) async fn follow(&self, path: &str, after: u64) -> Result<Option<SseStream>, RequestError> {
        let until = Instant::now() + ANSWER_MAX;
        let request = self.request(Method::GET, path, self.tokens.from_env.as_ref());
        let mut request = request.header(ACCEPT, "text/event-stream");
        if after > 0 {
            request = request.header("last-event-id", after);
        }
        let response = self.send(request.body(Full::default()), until, RETRY_HINT).await?;
        match response.status() {
            StatusCode::OK => Ok(Some(SseStream::new(response.into_body()))),
            StatusCode::NO_CONTENT => Ok(None),
            _ => Err(match self.read_body(response, until, RETRY_HINT).await {
                Err(failed) => failed,
                Ok(text) => RequestError::NoAnswer(self.not_holdpoint(&text)),
            }),
        }
    }

    fn request(&self, method: Method, path: &str, token: Option<&Token>) -> hyper::http::request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server_url.base))
            .header(USER_AGENT, concat!("holdpoint/", env!("CARGO_PKG_VERSION")));
        match token {
            Some(token) => request.header(AUTHORIZATION, token.header()),
            None => request,
        }
    }

    async fn send(
        &self,
        request: hyper::http::Result<Request<Full<Bytes>>>,
        until: Instant,
        next: &str,
    ) -> Result<Response<Incoming>, RequestError> {
        let request =
            request.map_err(|why| RequestError::NoAnswer(self.no_answer(&why.to_string(), next)))?;
        match timeout_at(until, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(match self.other_scheme() {
                Some(problem) => RequestError::WrongScheme(problem),
                None if error.is_connect() => RequestError::NoAnswer(self.unreachable(&root_cause(&error))),
                None => RequestError::NoAnswer(self.no_answer(&root_cause(&error), next)),
            }),
            Err(_) => {
                Err(RequestError::NoAnswer(self.no_answer(&format!("no answer within {ANSWER_MAX:?}"), next)))
            }
        }
    }

    /// The body of a successful response.
    async fn read_body(
        &self,
        response: Response<Incoming>,
        until: Instant,
        next: &str,
    ) -> Result<String, RequestError> {
        let status = response.status();
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        loop {
            match timeout_at(until, body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                }
                Ok(Some(Err(error))) => {
                    return Err(RequestError::NoAnswer(self.no_answer(&root_cause(&error), next)));
                }
                Ok(None) => break,
                Err(_) => {
                    return Err(RequestError::NoAnswer(
                        self.no_answer(&format!("no end within {ANSWER_MAX:?}"), next),
                    ));
                }
            }
            if bytes.len() > ANSWER_BYTES_MAX {
                return Err(RequestError::NoAnswer(self.not_holdpoint("")));
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status.is_success() {
            return Ok(text);
        }
        let problem = match ApiError::read(&text, &|text: &str| self.masked(text)) {
            Some(error) => Problem::Api(error.with_token_file(self.could_use_token_file())),
            None => self.unexpected_status(status),
        };
        Err(RequestError::Refused { status, problem })
    }

    fn masked(&self, text: &str) -> String {
        self.tokens.masked(text)
    }

    /// HOLDPOINT_TOKEN is sent; without it, the token from the file would be.
    fn could_use_token_file(&self) -> bool {
        self.tokens.from_env.is_some() && self.server_url.has_open_token_file()
    }

    fn unreachable(&self, why: &str) -> Problem {
        Problem::new(
            "UNREACHABLE",
            format!("no connection to {}: {}", self.server_url.base, escaped(why)),
            "Start a server with holdpoint serve, or name another one with --url or HOLDPOINT_URL.",
            Exit::Other,
        )
    }

    /// Some if the first bytes of the response belong to the other scheme. Other bytes that are not HTTP may come from
    /// a proxy after the server has processed the request.
    fn other_scheme(&self) -> Option<Problem> {
        match (self.server_url.is_secure, self.first_bytes.protocol()) {
            (true, Some(Protocol::PlainHttp)) => Some(self.wrong_scheme("https", "plain HTTP", "http")),
            (false, Some(Protocol::Tls)) => Some(self.wrong_scheme("http", "TLS", "https")),
            (true, Some(Protocol::Tls) | None) | (false, Some(Protocol::PlainHttp) | None) => None,
        }
    }

    /// The server has processed nothing, because it does not speak the scheme of the request.
    fn wrong_scheme(&self, asked: &str, speaks: &str, instead: &str) -> Problem {
        Problem::new(
            "WRONG_SCHEME",
            format!("{} was asked with {asked}, and the server there speaks {speaks}", self.server_url.base),
            format!("Write {instead}:// in --url or HOLDPOINT_URL."),
            Exit::Configuration,
        )
    }

    fn no_answer(&self, why: &str, next: &str) -> Problem {
        Problem::new("NO_ANSWER", format!("{}: {}", self.server_url.base, escaped(why)), next, Exit::Other)
    }

    /// For a response that a Holdpoint server never sends.
    pub(super) fn not_holdpoint(&self, text: &str) -> Problem {
        const SHOWN_CHARS_MAX: usize = 80;
        let begin: String = self.masked(text).chars().take(SHOWN_CHARS_MAX).collect();
        self.not_holdpoint_problem(&format!(
            "answers something that no Holdpoint server says: {:?}",
            escaped(&begin)
        ))
    }

    fn unexpected_status(&self, status: StatusCode) -> Problem {
        self.not_holdpoint_problem(&format!("answers {status}, without an error of Holdpoint"))
    }

    fn not_holdpoint_problem(&self, what: &str) -> Problem {
        Problem::new(
            "NOT_HOLDPOINT",
            format!("{} {what}", self.server_url.base),
            "Check --url and HOLDPOINT_URL, and any proxy between you and the server.",
            Exit::Other,
        )
    }
}

const RETRY_HINT: &str = "Try again.";
/// The client cannot know whether the server has received the decision.
const CHECK_FIRST_HINT: &str = "It may have been received: check with holdpoint approvals list or holdpoint runs show first. A \
    second decision on the same approval is refused.";

fn no_ca_certificates() -> Problem {
    Problem::new(
        "NO_CERTIFICATES",
        "this machine has no certificates to trust, so https cannot be used",
        "Install ca-certificates.",
        Exit::Other,
    )
}

/// The innermost error, without the layers that wrap it.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// Encodes arbitrary user input as a part of a path or a query.
pub(super) fn percent_encoded(text: &str) -> String {
    let mut percent_encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'~' => {
                percent_encoded.push(char::from(byte));
            }
            _ => percent_encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    percent_encoded
}

#[test]
fn reserved_characters_are_percent_encoded() {
    assert_eq!(percent_encoded("run_1~2.a"), "run_1~2.a");
    assert_eq!(percent_encoded("../x?y=1&z é"), "..%2Fx%3Fy%3D1%26z%20%C3%A9");
}
