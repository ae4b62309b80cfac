//! Connects a run to a stream of AG-UI events.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::response::Response;
use axum::response::sse::Event;
use engine::store::RunView;
use futures_util::stream;
use machine::id::RunId;
use prometheus_client::metrics::counter::Counter;
use protocols::ag_ui::{AgUiEncoder, AgUiEvent, AgUiSegment, AgUiVerifier};
use protocols::feed::Body;
use tokio_util::sync::CancellationToken;

use super::delegated::DelegatedCalls;
use crate::caller::{Caller, Validity};
use crate::error::{ApiError, Code};
use crate::front_end::feed_item;
use crate::limits::TenantCount;
use crate::log_reader::{LogReader, RunFollower, RunFrame};
use crate::metrics::AG_UI;
use crate::server::Server;
use crate::streaming;

/// Streams one segment of the run. The log is read from its first event: what the client has becomes a snapshot.
pub(super) async fn stream_events(
    server: &Arc<Server>,
    caller: &Caller,
    view: &RunView,
    segment: AgUiSegment,
    open: TenantCount,
) -> Result<Response, ApiError> {
    let reader = LogReader::open(&server.engine, &caller.tenant, view, 0).await?;
    let mut writer = EventWriter {
        follower: reader.follow(&server.engine),
        delegated: DelegatedCalls::new(server, caller, &view.id),
        run: view.id.clone(),
        verifier: AgUiVerifier::new(segment.dialect),
        encoder: AgUiEncoder::new(segment),
        illegal_events: server.metrics.illegal_frames(AG_UI),
        ready: VecDeque::new(),
        is_closed: false,
        draining: server.draining.clone(),
        validity: caller.validity.clone(),
        _open: open,
    };
    let first = writer.encoder.start();
    writer.write(&first);
    let frames = stream::unfold(writer, |mut writer| async move {
        let event = writer.next().await?;
        Some((Ok(event), writer))
    });
    Ok(streaming::respond(server, frames))
}

/// Streams a thread whose runs have all ended.
pub(super) fn stream_replay(server: &Server, segment: AgUiSegment) -> Result<Response, ApiError> {
    let mut verifier = AgUiVerifier::new(segment.dialect);
    let mut frames = Vec::new();
    for event in AgUiEncoder::replay_idle(segment) {
        if let Err(fault) = verifier.check_event(&event) {
            server.metrics.illegal_frames(AG_UI).inc();
            tracing::error!(%fault, "an event that AG-UI clients would refuse was not sent; this is a bug in Holdpoint");
            return Err(ApiError::internal());
        }
        frames.push(Ok(data_event(&event)));
    }
    Ok(streaming::respond(server, stream::iter(frames)))
}

/// One client that reads one run. It reads the log by itself, as fast as the client receives it.
struct EventWriter {
    follower: RunFollower,
    delegated: DelegatedCalls,
    run: RunId,
    encoder: AgUiEncoder,
    verifier: AgUiVerifier,
    illegal_events: Counter,
    ready: VecDeque<Event>,
    /// The terminal event is among the events that are ready.
    is_closed: bool,
    draining: CancellationToken,
    validity: Validity,
    _open: TenantCount,
}

impl EventWriter {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.is_closed {
                return None;
            }
            let events = self.read().await;
            self.write(&events);
        }
    }

    /// Waits for the next event or live frame, or for a call that a delegated run holds, and encodes it.
    async fn read(&mut self) -> Vec<AgUiEvent> {
        let frame = tokio::select! {
            biased;
            () = self.validity.ended() => {
                return self.abort(Code::Unauthorized, "the key of this request is no longer valid; the run continues");
            }
            () = self.draining.cancelled() => {
                return self.abort(Code::Draining, "the server is restarting; the run continues");
            }
            frame = self.follower.next() => frame,
            () = self.delegated.changed() => return self.read_delegated().await,
        };
        let (item, ends_commit) = match frame {
            Ok(Some(frame)) => {
                let ends_commit = matches!(&frame, RunFrame::Event(event) if event.checkpoint.is_some());
                (feed_item(frame), ends_commit)
            }
            Ok(None) => return self.abort(Code::Internal, "the run cannot be followed any further"),
            Err(refused) => return self.break_off(&refused.into()),
        };
        let mut events = self.encoder.push(&item);
        if matches!(item.body, Body::ChildStarted { .. }) && self.delegated.begin() {
            events.extend(self.read_delegated().await);
        }
        if ends_commit {
            events.extend(self.encoder.end_commit());
        }
        events
    }

    async fn read_delegated(&mut self) -> Vec<AgUiEvent> {
        match self.delegated.read().await {
            Ok(holds) => self.encoder.set_delegated(holds),
            Err(error) => self.break_off(&error),
        }
    }

    fn break_off(&mut self, error: &ApiError) -> Vec<AgUiEvent> {
        let (code, why) = (error.code.as_str(), &error.message);
        tracing::warn!(run = %self.run, code, %why, "an AG-UI stream ended early; the client can connect again");
        self.abort(Code::StoreUnavailable, "the stream ended early; the run continues")
    }

    fn abort(&mut self, code: Code, message: &str) -> Vec<AgUiEvent> {
        self.encoder.abort(code.as_str(), message)
    }

    /// An illegal event would break the client's page. The stream ends with an error instead.
    fn write(&mut self, events: &[AgUiEvent]) {
        for event in events {
            if let Err(fault) = self.verifier.check_event(event) {
                self.illegal_events.inc();
                tracing::error!(run = %self.run, %fault, "an event that AG-UI clients would refuse was not sent, and its stream was closed; this is a bug in Holdpoint");
                let failed = self.abort(Code::Internal, "internal error; connect again");
                self.ready.extend(failed.iter().map(data_event));
                self.is_closed = true;
                return;
            }
            self.ready.push_back(data_event(event));
        }
        self.is_closed = self.encoder.is_done();
    }
}

/// A frame without a type: clients of this protocol read only its data.
fn data_event(event: &AgUiEvent) -> Event {
    Event::default().data(event.to_json())
}
