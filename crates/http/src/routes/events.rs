//! The events of a run: one page of them, or a stream of all of them as they happen.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use engine::Engine;
use engine::store::{RunView, StoreError, Tenant};
use futures_util::stream;
use machine::id::RunId;
use tokio_util::sync::CancellationToken;

use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::{QueryParams, RunPath};
use crate::limits::OpenStream;
use crate::log_reader::{LogReader, RunFollower, RunFrame};
use crate::paging::{PAGE_BYTES_MAX, json_bytes};
use crate::routes::runs::{find_run, run_refused};
use crate::server::Server;
use crate::streaming;
use crate::wire::event::Envelope;
use crate::wire::event_schema::Event as EventSchema;
use crate::wire::page::{Events, parse_limit};

/// List or stream the events of a run
///
/// Returns the events after `after`. With `Accept: text/event-stream`, the response is a stream: first the past events,
/// then new events as they happen, until the terminal event. `Last-Event-ID` takes precedence over `after`. If it is
/// not the sequence number of an event of this run, all events are sent.
#[utoipa::path(get, path = "/v1/runs/{id}/events", tag = "runs", operation_id = "run_events",
    params(("id" = String, Path), ("after" = Option<u64>, Query), ("limit" = Option<u32>, Query),
        ("Last-Event-ID" = Option<String>, Header)),
    responses((status = 200, content((Events = "application/json"), (Vec<EventSchema> = "text/event-stream")),
            description = "One page of events, or a stream of events"),
        (status = 204, description = "A stream was requested, but the run has ended and has no further events. Do not reconnect")))]
pub(crate) async fn events(
    State(server): State<Arc<Server>>,
    caller: Caller,
    RunPath(run): RunPath,
    parts: Parts,
) -> Result<Response, ApiError> {
    let query = QueryParams::parse(&parts, &["after", "limit"])?;
    let limit = parse_limit(query.text("limit"))?;
    let view = find_run(&server, &caller, &run).await?;
    let after = last_seen_seq(&parts.headers, &query, view.seq);
    if streaming::accepts_event_stream(&parts.headers) {
        return stream_events(&server, &caller, view, after).await;
    }
    let events = read_page(&server.engine, &caller.tenant, &view, after, limit)
        .await
        .map_err(|refused| run_refused(&run, refused))?;
    let last_seq = events.last().map_or(view.seq, |last| last.seq.max(view.seq));
    Ok(Json(Events::new(events, last_seq)).into_response())
}

async fn read_page(
    engine: &Engine,
    tenant: &Tenant,
    view: &RunView,
    after: u64,
    limit: usize,
) -> Result<Vec<Envelope>, StoreError> {
    let mut reader = LogReader::open(engine, tenant, view, after).await?;
    let (mut events, mut bytes) = (Vec::new(), 0);
    while events.len() < limit
        && bytes < PAGE_BYTES_MAX
        && let Some(envelope) = reader.next().await?
    {
        bytes += json_bytes(&envelope);
        events.push(envelope);
    }
    Ok(events)
}

/// The last seq that the client says it has seen; 0 if there is none or if it cannot be right.
fn last_seen_seq(headers: &HeaderMap, query: &QueryParams, newest: u64) -> u64 {
    let header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or_default());
    let seen = header.or_else(|| query.text("after")).and_then(|text| text.trim().parse().ok());
    seen.filter(|seen| *seen <= newest).unwrap_or(0)
}

async fn stream_events(
    server: &Arc<Server>,
    caller: &Caller,
    view: RunView,
    after: u64,
) -> Result<Response, ApiError> {
    if view.status.ended() && after >= view.seq {
        return Ok((StatusCode::NO_CONTENT, [(header::CACHE_CONTROL, "no-cache")]).into_response());
    }
    let reader = LogReader::open(&server.engine, &caller.tenant, &view, after).await?;
    let watcher = RunWatcher {
        follower: reader.follow(&server.engine),
        run: view.id,
        draining: server.draining.clone(),
        revoked: caller.revoked.clone(),
        _open: server.open_stream(&caller.tenant)?,
    };
    let frames = stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok(event), watcher))
    });
    Ok(streaming::respond(server, frames))
}

/// One client that watches one run. It reads the log by itself, a page at a time, as fast as the client receives it.
struct RunWatcher {
    follower: RunFollower,
    run: RunId,
    draining: CancellationToken,
    revoked: CancellationToken,
    _open: OpenStream,
}

impl RunWatcher {
    /// None after the terminal event, or if the stream cannot continue. A client that reconnects gets exactly the rest.
    async fn next(&mut self) -> Option<Event> {
        let frame = tokio::select! {
            biased;
            () = self.revoked.cancelled() => return None,
            () = self.draining.cancelled() => return None,
            frame = self.follower.next() => frame,
        };
        match frame {
            Ok(None) => None,
            Ok(Some(RunFrame::Event(envelope))) => {
                let event = streaming::event(envelope.name, &envelope)?;
                Some(event.id(envelope.seq.to_string()))
            }
            Ok(Some(RunFrame::Live(frame))) => streaming::event(frame.name, &frame),
            Err(refused) => {
                tracing::warn!(run = %self.run, %refused, "event stream ended early; the client can reconnect and continue");
                None
            }
        }
    }
}
