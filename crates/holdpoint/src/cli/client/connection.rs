//! One request and its answer: every way in which a server can be away, and none in which it is waited for without end.

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

use super::address::{Place, Token, Tokens};
use super::first_bytes::{FirstBytes, Protocol, RecordingConnector};
use super::frames::Frames;
use super::plain::plain;
use super::refusal::Refusal;
use crate::cli::problem::{Exit, Problem};

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Until the answer is whole. Longer than a server waits for the run that has to hear a decision.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Longer than any page of a list.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A server to ask.
pub(super) struct Connection {
    client: Client<HttpsConnector<RecordingConnector>, Full<Bytes>>,
    place: Place,
    tokens: Tokens,
    first_bytes: FirstBytes,
}

/// Why there is no answer.
pub(super) enum Failed {
    /// Nobody answered, or not to the end.
    Away(Problem),
    /// The server does not speak what it was asked with.
    WrongScheme(Problem),
    /// The server, or whoever stands before it, said no.
    Refused { status: StatusCode, problem: Problem },
}

impl Failed {
    /// The same may be answered a little later.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Away(_) => true,
            Self::WrongScheme(_) => false,
            Self::Refused { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
        }
    }
}

impl From<Failed> for Problem {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Away(problem) | Failed::WrongScheme(problem) | Failed::Refused { problem, .. } => problem,
        }
    }
}

impl Connection {
    /// Whom this machine trusts is asked only where it matters.
    pub(super) fn new(place: Place, tokens: Tokens) -> Result<Self, Problem> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = versions.map_err(|_| nobody_to_trust())?;
        let config = if place.is_secure {
            config.with_native_roots().map_err(|_| nobody_to_trust())?
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
        Ok(Self { client, place, tokens, first_bytes })
    }

    pub(super) async fn get(&self, path: &str) -> Result<String, Failed> {
        let until = Instant::now() + ANSWER_MAX;
        let request = self.request(Method::GET, path, self.tokens.named.as_ref());
        let request = request.header(ACCEPT, "application/json");
        let response = self.send(request.body(Full::default()), until, LOOK_AGAIN).await?;
        self.whole(response, until, LOOK_AGAIN).await
    }

    /// For what a server without `[auth]` allows every local caller.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<String, Failed> {
        self.post_with(path, body, self.tokens.named.as_ref()).await
    }

    /// For what needs the token of a server without `[auth]`: no other request carries the kept token.
    pub(super) async fn post_decision(&self, path: &str, body: &Value) -> Result<String, Failed> {
        self.post_with(path, body, self.tokens.named.as_ref().or(self.tokens.kept.as_ref())).await
    }

    async fn post_with(&self, path: &str, body: &Value, token: Option<&Token>) -> Result<String, Failed> {
        let until = Instant::now() + ANSWER_MAX;
        let request = self.request(Method::POST, path, token).header(CONTENT_TYPE, "application/json");
        let request = request.header(ACCEPT, "application/json").body(Full::from(body.to_string()));
        let response = self.send(request, until, LOOK_FIRST).await?;
        self.whole(response, until, LOOK_FIRST).await
    }

    /// The events behind `after` as they happen. None where the run has ended and nothing is left.
    pub(super) async fn follow(&self, path: &str, after: u64) -> Result<Option<Frames>, Failed> {
        let until = Instant::now() + ANSWER_MAX;
        let request = self.request(Method::GET, path, self.tokens.named.as_ref());
        let mut request = request.header(ACCEPT, "text/event-stream");
        if after > 0 {
            request = request.header("last-event-id", after);
        }
        let response = self.send(request.body(Full::default()), until, LOOK_AGAIN).await?;
        match response.status() {
            StatusCode::OK => Ok(Some(Frames::of(response.into_body()))),
            StatusCode::NO_CONTENT => Ok(None),
            _ => Err(match self.whole(response, until, LOOK_AGAIN).await {
                Err(failed) => failed,
                Ok(text) => Failed::Away(self.not_holdpoint(&text)),
            }),
        }
    }

    fn request(&self, method: Method, path: &str, token: Option<&Token>) -> hyper::http::request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.place.base))
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
    ) -> Result<Response<Incoming>, Failed> {
        let request = request.map_err(|why| Failed::Away(self.lost(&why.to_string(), next)))?;
        match timeout_at(until, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(match self.other_scheme() {
                Some(problem) => Failed::WrongScheme(problem),
                None if error.is_connect() => Failed::Away(self.unreachable(&root(&error))),
                None => Failed::Away(self.lost(&root(&error), next)),
            }),
            Err(_) => Err(Failed::Away(self.lost(&format!("no answer within {ANSWER_MAX:?}"), next))),
        }
    }

    /// The text of a success.
    async fn whole(
        &self,
        response: Response<Incoming>,
        until: Instant,
        next: &str,
    ) -> Result<String, Failed> {
        let status = response.status();
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        loop {
            match timeout_at(until, body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                }
                Ok(Some(Err(error))) => return Err(Failed::Away(self.lost(&root(&error), next))),
                Ok(None) => break,
                Err(_) => {
                    return Err(Failed::Away(self.lost(&format!("no end within {ANSWER_MAX:?}"), next)));
                }
            }
            if bytes.len() > ANSWER_BYTES_MAX {
                return Err(Failed::Away(self.not_holdpoint("")));
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status.is_success() {
            return Ok(text);
        }
        let problem = match Refusal::read(&text, &|text: &str| self.masked(text)) {
            Some(refusal) => Problem::Refused(refusal.with_kept_token(self.could_use_kept_token())),
            None => self.not_ours(status),
        };
        Err(Failed::Refused { status, problem })
    }

    fn masked(&self, text: &str) -> String {
        self.tokens.masked(text)
    }

    /// HOLDPOINT_TOKEN is sent, and without it the kept token would be.
    fn could_use_kept_token(&self) -> bool {
        self.tokens.named.is_some() && self.place.keeps_open_token()
    }

    fn unreachable(&self, why: &str) -> Problem {
        Problem::new(
            "UNREACHABLE",
            format!("no connection to {}: {}", self.place.base, plain(why)),
            "Start a server with holdpoint serve, or name another one with --url or HOLDPOINT_URL.",
            Exit::Other,
        )
    }

    /// Where the first bytes of the answer are of the other scheme. Other bytes that are no HTTP may come from a proxy after
    /// the server has processed the request.
    fn other_scheme(&self) -> Option<Problem> {
        match (self.place.is_secure, self.first_bytes.protocol()) {
            (true, Some(Protocol::PlainHttp)) => Some(self.wrong_scheme("https", "plain HTTP", "http")),
            (false, Some(Protocol::Tls)) => Some(self.wrong_scheme("http", "TLS", "https")),
            (true, Some(Protocol::Tls) | None) | (false, Some(Protocol::PlainHttp) | None) => None,
        }
    }

    /// The server has processed nothing: it does not speak what it was asked with.
    fn wrong_scheme(&self, asked: &str, speaks: &str, instead: &str) -> Problem {
        Problem::new(
            "WRONG_SCHEME",
            format!("{} was asked with {asked}, and the server there speaks {speaks}", self.place.base),
            format!("Write {instead}:// in --url or HOLDPOINT_URL."),
            Exit::Configuration,
        )
    }

    fn lost(&self, why: &str, next: &str) -> Problem {
        Problem::new("NO_ANSWER", format!("{}: {}", self.place.base, plain(why)), next, Exit::Other)
    }

    /// An answer that a server of ours does not give.
    pub(super) fn not_holdpoint(&self, text: &str) -> Problem {
        const SHOWN_CHARS_MAX: usize = 80;
        let begin: String = self.masked(text).chars().take(SHOWN_CHARS_MAX).collect();
        self.strange(&format!("answers something that no Holdpoint server says: {:?}", plain(&begin)))
    }

    fn not_ours(&self, status: StatusCode) -> Problem {
        self.strange(&format!("answers {status}, without an error of Holdpoint"))
    }

    fn strange(&self, what: &str) -> Problem {
        Problem::new(
            "NOT_HOLDPOINT",
            format!("{} {what}", self.place.base),
            "Look at --url and HOLDPOINT_URL, and at what stands between you and the server.",
            Exit::Other,
        )
    }
}

const LOOK_AGAIN: &str = "Try again.";
/// Whether a decision was heard cannot be known from here.
const LOOK_FIRST: &str = "It may have been heard: look with holdpoint approvals list or holdpoint runs show first. A \
    second decision on the same approval is refused.";

fn nobody_to_trust() -> Problem {
    Problem::new(
        "NO_CERTIFICATES",
        "this machine has no certificates to trust, so https cannot be used",
        "Install ca-certificates.",
        Exit::Other,
    )
}

/// What really happened, without the layers through which it was told.
fn root(error: &(dyn Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// A part of a path or a query, whatever somebody typed.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[test]
fn what_means_something_in_an_address_is_written_as_its_number() {
    assert_eq!(encoded("run_1~2.a"), "run_1~2.a");
    assert_eq!(encoded("../x?y=1&z é"), "..%2Fx%3Fy%3D1%26z%20%C3%A9");
}
