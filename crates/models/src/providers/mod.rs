//! Models reached over HTTP: OpenAI, OpenAI-compatible servers, Anthropic, Gemini and Ollama.
//!
//! ```
//! use models::providers::{ApiKey, Provider, ProviderSettings, RemoteModel};
//!
//! let settings = ProviderSettings::new(Provider::OpenAiCompatible, "qwen3")
//!     .base_url("http://127.0.0.1:8080/v1")
//!     .key(ApiKey::new("sk-…").or(ApiKey::new("sk-0123")));
//! let model = RemoteModel::new(settings)?;
//! # Ok::<(), models::providers::BadSettings>(())
//! ```
//!
//! Every answer is streamed: text, reasoning and the arguments of calls are sent as deltas when they arrive. Each call
//! has its own connection, and dropping the answer closes it. Failures are either retryable or permanent:
//!
//! | what happens | outcome |
//! |---|---|
//! | refused, connect timeout, unknown host name, TLS failure | retryable |
//! | 429, 500 and above; the delay in `Retry-After` is passed on | retryable |
//! | any other status, including redirects | permanent |
//! | no first byte in time, or too long a pause between two chunks | retryable |
//! | the stream ends or breaks before a finish reason was sent | retryable |
//! | the stream breaks after the finish reason | an answer |
//! | invalid JSON, invalid UTF-8, a message of unexpected shape | retryable |
//! | an error inside the stream | depends on its code; an unknown code is retryable |
//! | not a stream at all, for example a web page | permanent |
//! | the conversation does not fit into the context | permanent |
//! | a content filter stopped it | permanent |
//! | the text was cut off at its token limit | an answer, with the text so far |
//! | cut off within a call, or before the first word | permanent |
//! | longer than 4 MiB, or more than 64 MiB on the wire | permanent |
//!
//! A key is masked in every message, even if a provider echoes it.

mod answer_builder;
mod anthropic;
mod chat;
mod content;
mod dialect;
mod exchange;
mod failure;
mod frames;
mod gemini;
mod key;
mod message;
mod naming;
mod ollama;
mod responses;
mod sealed;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::store::BoxFuture;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use serde_json::{Map, Value};

use answer_builder::AnswerBuilder;
use dialect::{RequestContext, StreamDecoder};
use exchange::Connector;
use frames::Framing;
pub use key::ApiKey;
use naming::{CallIds, ToolNames};
use sealed::Seals;

/// Which provider's protocol is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// OpenAI's Responses API.
    OpenAi,
    /// OpenAI's Chat Completions API, which many servers implement.
    OpenAiCompatible,
    Anthropic,
    Gemini,
    Ollama,
}

impl Provider {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiCompatible => "openai_compatible",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// The provider's default address. None if every server has its own.
    #[must_use]
    pub const fn base_url(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("https://api.openai.com/v1"),
            Self::OpenAiCompatible => None,
            Self::Anthropic => Some("https://api.anthropic.com/v1"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Self::Ollama => Some("http://127.0.0.1:11434"),
        }
    }

    /// The address for requests. The protocol version may be omitted from the base URL if there is only one.
    fn address(self, base: &str, model: &str) -> String {
        let base = base.trim_end_matches('/');
        let bare = base.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'));
        match self {
            Self::OpenAi => format!("{base}/responses"),
            Self::OpenAiCompatible => format!("{base}/chat/completions"),
            Self::Anthropic if bare => format!("{base}/v1/messages"),
            Self::Anthropic => format!("{base}/messages"),
            Self::Gemini if bare => format!("{base}/v1beta/models/{model}:streamGenerateContent?alt=sse"),
            Self::Gemini => format!("{base}/models/{model}:streamGenerateContent?alt=sse"),
            Self::Ollama => format!("{base}/api/chat"),
        }
    }

    const fn framing(self) -> Framing {
        match self {
            Self::OpenAi | Self::OpenAiCompatible | Self::Anthropic | Self::Gemini => Framing::Events,
            Self::Ollama => Framing::Lines,
        }
    }

    fn key_header(self, key: &ApiKey) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::OpenAi | Self::OpenAiCompatible | Self::Ollama => {
                Some((AUTHORIZATION, key.header("Bearer ")?))
            }
            Self::Anthropic => Some((HeaderName::from_static("x-api-key"), key.header("")?)),
            Self::Gemini => Some((HeaderName::from_static("x-goog-api-key"), key.header("")?)),
        }
    }

    fn decoder(self) -> Box<dyn StreamDecoder> {
        match self {
            Self::OpenAi => Box::new(responses::ResponsesDecoder::default()),
            Self::OpenAiCompatible => Box::new(chat::ChatDecoder::default()),
            Self::Anthropic => Box::new(anthropic::AnthropicDecoder::default()),
            Self::Gemini => Box::new(gemini::GeminiDecoder),
            Self::Ollama => Box::new(ollama::OllamaDecoder),
        }
    }

    /// Which call ids the provider accepts unchanged.
    fn id_fits(self) -> fn(&str) -> bool {
        match self {
            Self::OpenAi => |id| id.len() <= 64,
            Self::OpenAiCompatible | Self::Gemini | Self::Ollama => |_| true,
            Self::Anthropic => anthropic::id_fits,
        }
    }

    fn body(self, context: &RequestContext<'_>) -> Map<String, Value> {
        match self {
            Self::OpenAi => responses::body(context),
            Self::OpenAiCompatible => chat::body(context),
            Self::Anthropic => anthropic::body(context),
            Self::Gemini => gemini::body(context),
            Self::Ollama => ollama::body(context),
        }
    }
}

/// Timeouts for a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    /// From sending the request to the first byte of the response body. A model that must be loaded first takes longer.
    pub first_byte: Duration,
    /// Between two chunks of an answer. A model that reasons may be silent for minutes.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(180),
            idle: Duration::from_secs(180),
        }
    }
}

/// One model of one provider.
#[derive(Clone, Debug)]
pub struct ProviderSettings {
    pub provider: Provider,
    /// The provider's name for the model.
    pub model: String,
    /// None: the provider's default.
    pub base_url: Option<String>,
    pub key: Option<ApiKey>,
    pub timeouts: Timeouts,
    /// Sent with every request, under the provider's own names, such as `temperature`. Plugins override these.
    pub params: Map<String, Value>,
}

impl ProviderSettings {
    #[must_use]
    pub fn new(provider: Provider, model: impl Into<String>) -> Self {
        Self {
            provider,
            model: model.into(),
            base_url: None,
            key: None,
            timeouts: Timeouts::default(),
            params: Map::new(),
        }
    }

    #[must_use]
    pub fn base_url(mut self, base_url: impl Into<String>) -> Self {
        self.base_url = Some(base_url.into());
        self
    }

    #[must_use]
    pub fn key(mut self, key: Option<ApiKey>) -> Self {
        self.key = key;
        self
    }

    #[must_use]
    pub const fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    #[must_use]
    pub fn param(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.params.insert(name.to_owned(), value.into());
        self
    }
}

/// Why a model can never be called with these settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadSettings {
    /// This provider has no default address.
    NoBaseUrl,
    /// The text is not an address, or the model's name cannot be part of one.
    BadAddress,
    /// This machine has no trusted CA certificates, so no `https` address can be used.
    NoTrustedRoots,
}

impl fmt::Display for BadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoBaseUrl => "this provider has no address of its own; give one",
            Self::BadAddress => "this makes no address; correct base_url or the name of the model",
            Self::NoTrustedRoots => {
                "this machine has no certificates to trust, so https cannot be used; install ca-certificates"
            }
        })
    }
}

impl Error for BadSettings {}

/// A model that is called over HTTP.
#[derive(Debug)]
pub struct RemoteModel {
    settings: ProviderSettings,
    address: Uri,
    connector: Connector,
}

impl RemoteModel {
    /// Sends nothing yet: a provider that is unavailable now may be available when a run needs it.
    pub fn new(settings: ProviderSettings) -> Result<Self, BadSettings> {
        let provider = settings.provider;
        let base = settings.base_url.as_deref().or(provider.base_url()).ok_or(BadSettings::NoBaseUrl)?;
        let address: Uri =
            provider.address(base, &settings.model).parse().map_err(|_| BadSettings::BadAddress)?;
        let secure = match address.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) | None => return Err(BadSettings::BadAddress),
        };
        let connector = Connector::new(secure, settings.timeouts)?;
        Ok(Self { settings, address, connector })
    }

    fn request(&self, asked: &ModelRequest, names: &ToolNames) -> Option<Request<Full<Bytes>>> {
        let provider = self.settings.provider;
        let context = RequestContext {
            model: &self.settings.model,
            request: asked,
            names,
            ids: CallIds::for_messages(&asked.messages, provider.id_fits()),
            seals: Seals::for_open_turn(&asked.messages, &self.identity()),
            params: &self.settings.params,
        };
        let body = Value::Object(provider.body(&context)).to_string();
        let accept = match provider.framing() {
            Framing::Events => "text/event-stream",
            Framing::Lines => "application/x-ndjson",
        };
        let mut request = Request::post(self.address.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, accept)
            .header(USER_AGENT, concat!("holdpoint/", env!("CARGO_PKG_VERSION")));
        if provider == Provider::Anthropic {
            request = request.header("anthropic-version", anthropic::VERSION);
        }
        if let Some(key) = &self.settings.key {
            let (name, value) = provider.key_header(key)?;
            request = request.header(name, value);
        }
        request.body(Full::from(body)).ok()
    }

    /// Identifies the model that can read its sealed content. Another model, or another server, could not.
    fn identity(&self) -> String {
        let (host, port) = (self.address.host().unwrap_or_default(), self.address.port_u16());
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{} {} at {host}{port}", self.settings.provider.as_str(), self.settings.model)
    }

    /// A model with thinking enabled must later be able to recognise its own answers.
    fn marks_own_answers(&self, request: &ModelRequest) -> bool {
        let set = |name: &str| {
            self.settings.params.contains_key(name) || request.params.iter().any(|(known, _)| known == name)
        };
        self.settings.provider == Provider::Anthropic && set(anthropic::THINKING)
    }

    /// Adds the provider and the model to the message, and masks the key.
    fn describe_failure(&self, failure: ModelFailure) -> ModelFailure {
        let message =
            format!("{} {}: {}", self.settings.provider.as_str(), self.settings.model, failure.message);
        let message = self.settings.key.as_ref().map_or(message.clone(), |key| key.masked(&message));
        ModelFailure { message, ..failure }
    }
}

impl Model for RemoteModel {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async move {
            let names = ToolNames::for_request(&request);
            let Some(sent) = self.request(&request, &names) else {
                return Err(self.describe_failure(failure::permanent("the request cannot be written down")));
            };
            let provider = self.settings.provider;
            let builder =
                AnswerBuilder::new(deltas, names, self.identity(), self.marks_own_answers(&request));
            let answer = self.connector.exchange(sent, provider.framing(), provider.decoder(), builder).await;
            answer.map_err(|failure| self.describe_failure(failure))
        })
    }
}
