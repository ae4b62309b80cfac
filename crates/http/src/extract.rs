//! What a request contains besides its sender: an id in the path, a query, a body. None of it can be trusted.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, header};
use engine::arguments;
use futures_util::StreamExt as _;
use machine::id::{AgentName, Digest, GrantId, RunId, SuspensionId, ThreadId};
use machine::json_text::{Cost, TextFault};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::body;
use crate::capacity::TenantCapacity;
use crate::error::{ApiError, Code};
use crate::json_threads::{JsonThreads, LONG_BYTES};
use crate::limits::Limits;
use crate::server::Server;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// A longer name is never valid.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Without control characters.
pub(crate) const NAME_PATTERN: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";

/// A body as it was received, with everything that is needed to parse it and to recognise a repeat.
pub(crate) struct RequestBody {
    pub(crate) method: String,
    pub(crate) path: String,
    /// The idempotency key that the client chose.
    pub(crate) key: Option<String>,
    content_type: Option<String>,
    bytes: Bytes,
    checked: BodyCheck,
    threads: Arc<JsonThreads>,
}

/// The result of checking the body's text.
#[derive(Clone)]
pub(crate) struct BodyCheck(Arc<Result<Cost, TextFault>>);

impl BodyCheck {
    async fn run(bytes: &Bytes, threads: &JsonThreads) -> Self {
        let text = bytes.clone();
        Self(Arc::new(threads.run(bytes.len(), move || body::check_text(&text)).await))
    }

    /// Memory needed to parse the body and to keep its values while the request is processed. None if that is little,
    /// or if the body is refused.
    pub(crate) fn memory_bytes(&self) -> Option<usize> {
        let cost = self.0.as_ref().as_ref().ok()?;
        let bytes = COPIES * cost.memory_bytes;
        (bytes > SMALL_BYTES_MAX).then_some(bytes)
    }
}

/// Copies of a body's value that exist at the same time: as it was parsed, and as it is handed on.
const COPIES: usize = 2;
/// The memory of smaller values is bounded by the number of requests.
const SMALL_BYTES_MAX: usize = 256 * 1024;
impl FromRequest<Arc<Server>> for RequestBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, server: &Arc<Server>) -> Result<Self, ApiError> {
        let content_type = one_header(request.headers(), &header::CONTENT_TYPE)?;
        let key = one_header(request.headers(), &IDEMPOTENCY_KEY)?;
        if let Some(key) = &key
            && (key.is_empty() || key.len() > IDEMPOTENCY_KEY_BYTES_MAX)
        {
            return Err(ApiError::new(
                Code::BadRequest,
                format!(
                    "`Idempotency-Key` has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} characters; nothing was done"
                ),
            ));
        }
        let method = request.method().as_str().to_owned();
        let path = request.uri().path().to_owned();
        let checked = request.extensions().get::<BodyCheck>().cloned();
        // The body is complete: `process_request` has waited for it.
        let bytes = Bytes::from_request(request, server)
            .await
            .map_err(|_| unreadable_body("the body cannot be read"))?;
        let checked = match checked {
            Some(checked) => checked,
            None => BodyCheck::run(&bytes, &server.json_threads).await,
        };
        let threads = server.json_threads.clone();
        Ok(Self { method, path, key, content_type, bytes, checked, threads })
    }
}

/// How much memory the body of a request needs, as far as its head says so.
pub(crate) fn body_size_hint(request: &Request, bytes_max: usize) -> usize {
    let declared = request.body().size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    declared.map_or(bytes_max, |bytes| bytes.min(bytes_max))
}

/// The same request with its whole body read. Only a POST has a body that is used; other bodies are not awaited.
pub(crate) async fn read_body(
    request: Request,
    limits: &Limits,
    threads: &JsonThreads,
    share: &TenantCapacity,
) -> Result<Request, ApiError> {
    if *request.method() != Method::POST {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    match tokio::time::timeout(limits.body_timeout, collect_body(body, limits.body_bytes_max)).await {
        Ok(Ok(bytes)) => {
            // Not while the body is arriving: a slow client must not keep the tenant's other requests waiting.
            let turn = if bytes.len() > LONG_BYTES { Some(share.long_json_turn().await) } else { None };
            let checked = BodyCheck::run(&bytes, threads).await;
            drop(turn);
            let mut request = Request::from_parts(parts, Body::from(bytes));
            request.extensions_mut().insert(checked);
            Ok(request)
        }
        Ok(Err(refused)) => Err(refused),
        Err(_) => Err(unreadable_body("the body did not arrive in time")),
    }
}

/// All bytes of a body, each in memory once: the chunks are not kept until the last one has arrived.
async fn collect_body(body: Body, bytes_max: usize) -> Result<Bytes, ApiError> {
    let expected = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(expected.min(bytes_max));
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| unreadable_body("the body is incomplete"))?;
        if piece.len() > bytes_max - bytes.len() {
            return Err(ApiError::new(
                Code::TooLarge,
                format!("the body is too long and nothing was done; send at most {bytes_max} bytes"),
            )
            .with("bytes_max", bytes_max));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Bytes::from(bytes))
}

impl RequestBody {
    pub(crate) async fn parse<T: DeserializeOwned + Send + 'static>(&self) -> Result<T, ApiError> {
        self.read(false).await
    }

    /// Like `parse`, but an empty body means `{}`.
    pub(crate) async fn parse_or_empty<T: DeserializeOwned + Send + 'static>(&self) -> Result<T, ApiError> {
        self.read(true).await
    }

    async fn read<T: DeserializeOwned + Send + 'static>(&self, empty_allowed: bool) -> Result<T, ApiError> {
        let (content_type, bytes, checked) =
            (self.content_type.clone(), self.bytes.clone(), self.checked.clone());
        let read =
            move || body::parse_strict_checked(content_type.as_deref(), &bytes, empty_allowed, &checked.0);
        self.threads.run(self.bytes.len(), read).await
    }

    /// The same for the same JSON, however it is formatted. Parse it strictly first.
    pub(crate) async fn digest(&self) -> Digest {
        let bytes = self.bytes.clone();
        let digest = move || {
            let value = match serde_json::from_slice::<Value>(&bytes) {
                Ok(value) => value,
                Err(_) => Value::Object(serde_json::Map::new()),
            };
            arguments::digest(&value).unwrap_or_else(|_| Digest::sha256(&bytes))
        };
        self.threads.run(self.bytes.len(), digest).await
    }
}

fn unreadable_body(why: &str) -> ApiError {
    ApiError::new(Code::BadRequest, format!("{why}, and nothing was done; send the request again"))
}

fn one_header(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(bad_header(name)),
        },
        (Some(_), Some(_)) => Err(bad_header(name)),
    }
}

fn bad_header(name: &HeaderName) -> ApiError {
    ApiError::new(
        Code::BadRequest,
        format!("`{name}` may be sent only once, as plain text; nothing was done"),
    )
}

/// Extractors for ids in a path. An id that cannot be valid is answered like an id that does not exist.
macro_rules! path_extractors {
    ($($path:ident($id:ty) = $absent:ident;)*) => {$(
        pub(crate) struct $path(pub(crate) $id);

        impl FromRequestParts<Arc<Server>> for $path {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, server: &Arc<Server>) -> Result<Self, ApiError> {
                let Ok(Path(name)) = Path::<String>::from_request_parts(parts, server).await else {
                    return Err(ApiError::$absent(""));
                };
                if is_valid_name(&name) { Ok(Self(<$id>::from(name.as_str()))) } else { Err(ApiError::$absent("")) }
            }
        }
    )*};
}

path_extractors! {
    ThreadPath(ThreadId) = no_thread;
    RunPath(RunId) = no_run;
    ApprovalPath(SuspensionId) = no_approval;
    AgentPath(AgentName) = no_agent;
    GrantPath(GrantId) = no_grant;
}

fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

/// The query of a request: each name at most once, and no unknown names. A misspelt filter must not list everything.
pub(crate) struct QueryParams {
    fields: BTreeMap<String, String>,
}

impl QueryParams {
    /// `known` are the names that this route accepts.
    pub(crate) fn parse(parts: &Parts, known: &[&str]) -> Result<Self, ApiError> {
        let Ok(Query(pairs)) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri) else {
            return Err(bad_query("the query", "cannot be read"));
        };
        let mut fields = BTreeMap::new();
        for (name, value) in pairs {
            if !known.contains(&name.as_str()) {
                return Err(bad_query(
                    &name,
                    &format!("unknown parameter; this route accepts [{}]", known.join(", ")),
                ));
            }
            if value.len() > NAME_BYTES_MAX || value.chars().any(char::is_control) {
                return Err(bad_query(&name, "invalid value"));
            }
            if fields.insert(name.clone(), value).is_some() {
                return Err(bad_query(&name, "sent more than once"));
            }
        }
        Ok(Self { fields })
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// One value out of a fixed list; the error names the list.
    pub(crate) fn parse_value<T: std::str::FromStr<Err = String>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, ApiError> {
        self.text(name).map(str::parse).transpose().map_err(|why: String| bad_query(name, &why))
    }
}

pub(crate) fn bad_query(name: &str, why: &str) -> ApiError {
    let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    ApiError::new(Code::BadRequest, format!("`{name}`: {why}; nothing was done")).with("field", name)
}
