//! One request and its answer: timeouts, and what to return if the connection breaks.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::model::{ModelAnswer, ModelFailure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response, StatusCode};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::answer_builder::AnswerBuilder;
use super::dialect::{StreamDecoder, corrupt};
use super::failure::{from_status, from_stream_error, permanent, transient};
use super::frames::{FrameParser, Framing};
use super::{BadSettings, Timeouts, message};

/// Limit for the body of a refusal, or of a response that should have been a stream.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// Limit for one answer, including protocol overhead.
const STREAM_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a complete answer waits for its token count.
const TRAILER_MAX: Duration = Duration::from_secs(5);

/// Opens one connection for each call, so that dropping the call closes it.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeouts: Timeouts,
}

impl Connector {
    /// The system's CA certificates are loaded only if `secure`.
    pub(super) fn new(secure: bool, timeouts: Timeouts) -> Result<Self, BadSettings> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = versions.map_err(|_| BadSettings::NoTrustedRoots)?;
        let config = if secure {
            config.with_native_roots().map_err(|_| BadSettings::NoTrustedRoots)?
        } else {
            config.with_root_certificates(RootCertStore::empty())
        };
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(timeouts.connect));
        http.set_nodelay(true);
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(config.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(https);
        Ok(Self { client, timeouts })
    }

    pub(super) async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        framing: Framing,
        decoder: Box<dyn StreamDecoder>,
        answer: AnswerBuilder,
    ) -> Result<ModelAnswer, ModelFailure> {
        let first_byte_at = Instant::now() + self.timeouts.first_byte;
        let late = || transient(format!("no answer within {:?}", self.timeouts.first_byte));
        let response = match timeout_at(first_byte_at, self.client.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_connect() => {
                return Err(transient(format!("no connection: {}", root_cause(&error))));
            }
            Ok(Err(error)) => {
                return Err(transient(format!("the connection was lost: {}", root_cause(&error))));
            }
            Err(_) => return Err(late()),
        };
        if response.status() != StatusCode::OK {
            return Err(error_response(response, first_byte_at).await);
        }
        if let Some(other) = non_stream_type(&response) {
            return Err(non_stream_failure(response, &other, first_byte_at).await);
        }
        let reader = ResponseReader { frames: FrameParser::new(framing), decoder, answer, byte_count: 0 };
        reader.read(response.into_body(), first_byte_at, self.timeouts).await
    }
}

struct ResponseReader {
    frames: FrameParser,
    decoder: Box<dyn StreamDecoder>,
    answer: AnswerBuilder,
    byte_count: usize,
}

impl ResponseReader {
    async fn read(
        mut self,
        mut body: Incoming,
        first_byte_at: Instant,
        timeouts: Timeouts,
    ) -> Result<ModelAnswer, ModelFailure> {
        let mut limit = (first_byte_at, timeouts.first_byte);
        let mut trailer_until = None;
        loop {
            let lost = match timeout_at(limit.0, body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    frame.into_data().ok().and_then(|bytes| self.process_bytes(&bytes).err())
                }
                Ok(Some(Err(error))) => {
                    Some(transient(format!("the connection was lost: {}", root_cause(&error))))
                }
                Ok(None) => return self.process_rest(),
                Err(_) => Some(transient(format!("nothing was received for {:?}", limit.1))),
            };
            // Anything after the finish reason is optional: the answer is complete without it.
            let complete = self.answer.finish.is_some();
            match lost {
                Some(failure) if !complete => return Err(failure),
                Some(_) => return self.answer.into_answer(),
                None if self.answer.ended => return self.answer.into_answer(),
                None => {}
            }
            let now = Instant::now();
            limit = (now + timeouts.idle, timeouts.idle);
            if complete {
                limit.0 = limit.0.min(*trailer_until.get_or_insert(now + TRAILER_MAX));
            }
        }
    }

    fn process_bytes(&mut self, bytes: &[u8]) -> Result<(), ModelFailure> {
        self.byte_count += bytes.len();
        if self.byte_count > STREAM_BYTES_MAX {
            return Err(permanent(format!("its stream is longer than {STREAM_BYTES_MAX} bytes")));
        }
        self.frames.push(bytes);
        while let Some(message) = self.frames.next().map_err(|unreadable| corrupt(&unreadable.why()))? {
            self.process_message(&message)?;
        }
        Ok(())
    }

    /// A truncated last message is ignored.
    fn process_rest(mut self) -> Result<ModelAnswer, ModelFailure> {
        let frames = std::mem::replace(&mut self.frames, FrameParser::new(Framing::Events));
        if let Ok(Some(last)) = frames.rest()
            && message::read(&last).is_ok()
        {
            self.process_message(&last)?;
        }
        self.answer.into_answer()
    }

    fn process_message(&mut self, message: &str) -> Result<(), ModelFailure> {
        if self.answer.ended {
            return Ok(());
        }
        if message == "[DONE]" {
            self.answer.ended = true;
            return Ok(());
        }
        let message = message::read(message).map_err(|why| corrupt(&why))?;
        self.decoder.decode(&message, &mut self.answer)
    }
}

async fn error_response(response: Response<Incoming>, until: Instant) -> ModelFailure {
    let (head, body) = response.into_parts();
    from_status(head.status.as_u16(), &head.headers, &body_prefix(body, until).await, SystemTime::now())
}

/// The content type of a response that cannot be a stream.
fn non_stream_type(response: &Response<Incoming>) -> Option<String> {
    let kind = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next().unwrap_or_default().trim().to_lowercase();
    matches!(kind.as_str(), "application/json" | "text/html").then_some(kind)
}

async fn non_stream_failure(response: Response<Incoming>, kind: &str, until: Instant) -> ModelFailure {
    let body = body_prefix(response.into_body(), until).await;
    let parsed: Value = serde_json::from_str(&body).unwrap_or_default();
    if parsed.get("error").is_some_and(|error| !error.is_null()) {
        return from_stream_error(&parsed);
    }
    permanent(format!("it answered with {kind} and not with a stream; look at base_url"))
}

/// As much of the text as needed to see what is wrong. Stops waiting at `until`.
async fn body_prefix(mut body: Incoming, until: Instant) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await {
        if let Ok(data) = frame.into_data() {
            let room = REFUSAL_BYTES_MAX - bytes.len();
            bytes.extend_from_slice(data.get(..room).unwrap_or(&data));
        }
        if bytes.len() >= REFUSAL_BYTES_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The innermost cause, without the layers that wrap it.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
