//! What every response gets, whatever it contains: an id, security headers, a log line, and metrics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use uuid::Uuid;

use crate::error::{ApiError, Code};
use crate::limits::RETRY_SECONDS;
use crate::server::Server;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Responses are data for programs: no browser may guess their type, embed them, cache them or pass them on.
const SECURITY_HEADERS: [(HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

pub(crate) async fn finish_response(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    // A panic is a bug in one request. The other requests continue.
    let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            tracing::error!(request_id = id, %method, route, "a request panicked");
            ApiError::internal().into_response()
        }
    };
    let code = response.extensions().get::<Code>().copied();
    if let Some(code) = code {
        server.refused_requests.note(response.extensions().get(), code, &method, route);
    }
    let status = response.status();
    let headers = response.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, value);
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if code == Some(Code::RateLimited) || code == Some(Code::Draining) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS));
    }
    if server.is_draining() {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let elapsed = began.elapsed();
    server.metrics.record_response(method.as_str(), route, status, code, elapsed);
    let (is_refused, ms) = (status.is_client_error(), elapsed.as_millis() as u64);
    let (status, code) = (status.as_u16(), code.map(Code::as_str));
    // A caller without a key can cause any number of refusals; the metrics count them.
    if is_refused {
        tracing::debug!(request_id = id, %method, route, status, code, ms, "answered");
    } else {
        tracing::info!(request_id = id, %method, route, status, code, ms, "answered");
    }
    response
}

/// The client's own request id, if it can be written into a log as it is.
fn request_id(headers: &HeaderMap) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    let theirs = headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|id| !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.bytes().all(plain));
    theirs.map_or_else(|| format!("req_{}", Uuid::now_v7()), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_s_request_id_is_kept_only_if_it_is_plain() {
        let id_for = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(value).expect("a header"));
            request_id(&headers)
        };
        assert_eq!(id_for(b"abc-1.2:3_4"), "abc-1.2:3_4");
        for bad in [&b"a b"[..], b"", b"a\"b", b"\xc3\xa4", &[b'a'; 129]] {
            assert!(id_for(bad).starts_with("req_"), "{bad:?}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }
}
