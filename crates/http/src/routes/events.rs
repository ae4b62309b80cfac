//! The events of a run: one page of them, or a stream of all of them as they happen. The events of a thread as a stream.

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
use machine::thread::ThreadState;
use tokio_util::sync::CancellationToken;

use crate::caller::{Caller, Validity};
use crate::error::ApiError;
use crate::extract::{QueryParams, RunPath, ThreadPath, bad_query};
use crate::limits::TenantCount;
use crate::log_reader::{LogReader, RunFollower, RunFrame, ThreadFollower, ThreadPosition};
use crate::paging::{PAGE_BYTES_MAX, json_bytes};
use crate::routes::runs::{find_run, run_refused};
use crate::routes::threads::find_thread;
use crate::server::Server;
use crate::streaming;
use crate::wire::event::Envelope;
use crate::wire::event_schema::Event as EventSchema;
use crate::wire::page::{Events, parse_limit};

/// List or stream the events of a run
///
/// Returns the events after `after`. With `Accept: text/event-stream`, the response is a stream: first the past events,
/// then new events as they happen, until the terminal event. `Last-Event-ID` takes precedence over `after`. If it is
/// not the sequence number of an event of this run, all events are sent. A stream also takes a browser token as
/// `?access_token=`.
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
        validity: caller.validity.clone(),
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
    validity: Validity,
    _open: TenantCount,
}

impl RunWatcher {
    /// None after the terminal event, or if the stream cannot continue. A client that reconnects gets exactly the rest.
    async fn next(&mut self) -> Option<Event> {
        let frame = tokio::select! {
            biased;
            () = self.validity.ended() => return None,
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

/// Stream the events of a thread
///
/// Streams the events of all runs of the thread, in the order in which their messages were accepted: first the past
/// events, then new events as they happen. The events of a run follow the last event of the run before it. The stream does
/// not end with a run. With `from=now`, it starts after the newest event. `Last-Event-ID` takes precedence over `from`; if
/// it is not the id of an event of this thread, all events are sent. The response is a stream whatever `Accept` says.
/// It also takes a browser token as `?access_token=`.
#[utoipa::path(get, path = "/v1/threads/{id}/events", tag = "threads", operation_id = "thread_events",
    params(("id" = String, Path), ("from" = Option<String>, Query, description = "`now`, or absent"),
        ("Last-Event-ID" = Option<String>, Header)),
    responses((status = 200, content_type = "text/event-stream", body = Vec<EventSchema>,
        description = "A stream of events. The id of an event is `RUN_ID:SEQ`")))]
pub(crate) async fn thread_events(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    parts: Parts,
) -> Result<Response, ApiError> {
    let query = QueryParams::parse(&parts, &["from"])?;
    let from_now = match query.text("from") {
        None => false,
        Some("now") => true,
        Some(_) => return Err(bad_query("from", "expected `now`; leave it out to get all events")),
    };
    let view = find_thread(&server, &caller, &thread).await?;
    let open = server.open_stream(&caller.tenant)?;
    let mut follower = ThreadFollower::new(&server.engine, &caller.tenant, &thread);
    let (mut seen, mut first) = (None, None);
    if let Some(header) = parts.headers.get("last-event-id") {
        seen = header.to_str().ok().and_then(ThreadPosition::parse);
    } else if from_now {
        let front = match &view.state {
            ThreadState::Free => None,
            ThreadState::Busy { front, .. } => Some(front),
        };
        seen = follower.newest(front).await?;
        // A client that is disconnected before the first event continues here, and not at a later present.
        let id = seen.as_ref().map_or_else(|| NO_EVENT_ID.to_owned(), ToString::to_string);
        first = Some(Event::default().id(id));
    }
    if let Some(seen) = &seen {
        follower.start_after(seen).await?;
    }
    let watcher = ThreadWatcher { follower, first, server: server.clone(), caller, _open: open };
    let frames = stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok(event), watcher))
    });
    Ok(streaming::respond(&server, frames))
}

/// The id before the first event of a thread.
const NO_EVENT_ID: &str = "0";

/// One client that follows one thread, as fast as the client receives it.
struct ThreadWatcher {
    follower: ThreadFollower,
    /// What is sent before the events.
    first: Option<Event>,
    server: Arc<Server>,
    caller: Caller,
    _open: TenantCount,
}

impl ThreadWatcher {
    /// None if the thread is gone, or if the stream cannot continue. A client that reconnects gets exactly the rest.
    async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let caller = &self.caller;
        let frame = tokio::select! {
            biased;
            () = caller.validity.ended() => return None,
            () = self.server.draining.cancelled() => return None,
            frame = self.follower.next(|agent| caller.may_see(agent)) => frame,
        };
        match frame {
            Ok(None) => None,
            Ok(Some(RunFrame::Event(envelope))) => {
                let event = streaming::event(envelope.name, &envelope)?;
                Some(event.id(format!("{}:{}", envelope.run_id, envelope.seq)))
            }
            Ok(Some(RunFrame::Live(frame))) => streaming::event(frame.name, &frame),
            Err(refused) => {
                tracing::warn!(%refused, "event stream of a thread ended early; the client can reconnect and continue");
                None
            }
        }
    }
}
