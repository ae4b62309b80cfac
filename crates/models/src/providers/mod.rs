//! Models behind an address: OpenAI, whoever speaks like OpenAI, Anthropic, Gemini and Ollama.
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
//! Every answer is streamed: text, reasoning and the arguments of calls are told as they arrive. Dropping the answer
//! closes the connection, and each call has one of its own. What can go wrong has one of two outcomes:
//!
//! | what happens | outcome |
//! |---|---|
//! | refused, no connection in time, the name unknown, TLS fails | may be tried again |
//! | 429, 500 and above; the wait that `Retry-After` asks for is passed on | may be tried again |
//! | any other status, a redirect included | for good |
//! | no first byte in time, nothing for too long between two pieces | may be tried again |
//! | the stream ends or breaks before a reason for the end was given | may be tried again |
//! | the stream breaks after the reason for the end | an answer |
//! | no JSON, no UTF-8, a message of another shape | may be tried again |
//! | an error inside of the stream | by its code; one that nobody knows may be tried again |
//! | no stream at all, a web page for example | for good |
//! | the conversation does not fit into the context | for good |
//! | a content filter stopped it | for good |
//! | the text was cut off at its limit of tokens | an answer, as far as it goes |
//! | the same within a call, or before the first word | for good |
//! | longer than 4 MiB, or more than 64 MiB on the wire | for good |
//!
//! A key is masked in every message, also where a provider echoes it.

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

/// Whose protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The responses of OpenAI.
    OpenAi,
    /// The chat completions of OpenAI, as many servers speak them.
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

    /// None where there are as many as servers.
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

    /// Where requests go. The version of the protocol may be left out where it is the only one.
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

    /// Which ids of calls are taken back as they are.
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

/// How long a provider may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    /// From sending the request to the first byte of what is said. A model that has to be loaded first takes its time.
    pub first_byte: Duration,
    /// Between two pieces of an answer. A model that thinks may be silent for minutes.
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
    /// As the provider calls it.
    pub model: String,
    /// None: the provider's own.
    pub base_url: Option<String>,
    pub key: Option<ApiKey>,
    pub timeouts: Timeouts,
    /// Sent with every request, in the provider's own words, such as `temperature`. What a plugin sets wins.
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

/// Why a model cannot be spoken to, ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadSettings {
    /// This provider has no address of its own.
    NoBaseUrl,
    /// What was written is no address, or the name of the model has no place in one.
    BadAddress,
    /// This machine trusts nobody, so no `https` address can be spoken to.
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

/// A model that is asked over HTTP.
#[derive(Debug)]
pub struct RemoteModel {
    settings: ProviderSettings,
    address: Uri,
    connector: Connector,
}

impl RemoteModel {
    /// Nothing is asked yet: a provider that is away at this moment may be back when a run needs it.
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

    /// Who has to be asked for what was sealed to be of use. Another model, or another server, could not read it.
    fn identity(&self) -> String {
        let (host, port) = (self.address.host().unwrap_or_default(), self.address.port_u16());
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{} {} at {host}{port}", self.settings.provider.as_str(), self.settings.model)
    }

    /// Whoever was told to think has to be told later which answers were its own.
    fn marks_own_answers(&self, request: &ModelRequest) -> bool {
        let set = |name: &str| {
            self.settings.params.contains_key(name) || request.params.iter().any(|(known, _)| known == name)
        };
        self.settings.provider == Provider::Anthropic && set(anthropic::THINKING)
    }

    /// Says who failed, and hides what nobody may read.
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
