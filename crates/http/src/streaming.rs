//! What all streams share: one line of JSON per frame, keep-alive comments, and headers that prevent buffering.

use std::convert::Infallible;

use axum::http::{HeaderMap, HeaderName, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::Serialize;

use crate::server::Server;

/// Some proxies buffer a response until it is complete.
const NO_BUFFERING: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");

/// Whether the client asks for a stream. `*/*` does not: a client that accepts anything gets a response that ends.
pub(crate) fn accepts_event_stream(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|range| range.split(';').next())
        .any(|range| range.trim().eq_ignore_ascii_case("text/event-stream"))
}

pub(crate) fn respond(
    server: &Server,
    frames: impl Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> Response {
    let alive = KeepAlive::new().interval(server.limits.keep_alive_interval).text("alive");
    let stream = Sse::new(frames).keep_alive(alive);
    ([(header::CACHE_CONTROL, "no-cache"), NO_BUFFERING], stream).into_response()
}

/// None if the data cannot be serialized. That ends the stream: a client must never miss a frame in between.
pub(crate) fn event(kind: &str, data: &impl Serialize) -> Option<Event> {
    match Event::default().event(kind).json_data(data) {
        Ok(event) => Some(event),
        Err(error) => {
            tracing::error!(%error, kind, "a stream frame cannot be serialized; the stream ends");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_asks_for_a_stream_gets_one() {
        let accepts = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().expect("a header"));
            accepts_event_stream(&headers)
        };
        for good in ["text/event-stream", "Text/Event-Stream; q=1", "application/json, text/event-stream"] {
            assert!(accepts(good), "{good}");
        }
        for bad in ["*/*", "application/json", "text/*", "", "text/event-streams"] {
            assert!(!accepts(bad), "{bad}");
        }
        assert!(!accepts_event_stream(&HeaderMap::new()));
    }
}
