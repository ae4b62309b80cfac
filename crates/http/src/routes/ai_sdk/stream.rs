//! Connects a run to the AI SDK's UI message stream.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use axum::response::sse::Event;
use engine::store::RunView;
use futures_util::stream;
use machine::id::RunId;
use prometheus_client::metrics::counter::Counter;
use protocols::ai_sdk::{Chunk, ChunkEncoder, ChunkVerifier, DONE, VERSION_HEADER};
use tokio_util::sync::CancellationToken;

use crate::caller::{Caller, Validity};
use crate::error::ApiError;
use crate::front_end::feed_item;
use crate::limits::TenantCount;
use crate::log_reader::{LogReader, RunFollower, RunFrame};
use crate::metrics::AI_SDK;
use crate::server::Server;
use crate::streaming;

/// Streams the run from its first event. The encoder leaves out what the client has. `open` was taken before the request
/// changed anything: a request that is refused for want of a stream changes nothing.
pub(super) async fn stream_chunks(
    server: &Arc<Server>,
    caller: &Caller,
    view: &RunView,
    encoder: ChunkEncoder,
    verifier: ChunkVerifier,
    open: TenantCount,
) -> Result<Response, ApiError> {
    let reader = LogReader::open(&server.engine, &caller.tenant, view, 0).await?;
    let writer = ChunkWriter {
        follower: reader.follow(&server.engine),
        stored_seq: view.seq,
        encoder,
        verified: VerifiedChunks {
            run: view.id.clone(),
            verifier,
            illegal: server.metrics.illegal_frames(AI_SDK),
            ready: VecDeque::new(),
            is_closed: false,
        },
        draining: server.draining.clone(),
        validity: caller.validity.clone(),
        _open: open,
    };
    let frames = stream::unfold(writer, |mut writer| async move {
        let event = writer.next().await?;
        Some((Ok(event), writer))
    });
    let mut response = streaming::respond(server, frames);
    let (name, value) = VERSION_HEADER;
    response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    Ok(response)
}

/// One client that reads one run. It reads the log by itself, as fast as the client receives it.
struct ChunkWriter {
    follower: RunFollower,
    /// The last event when the stream was opened. Up to it, the run has moved on from whatever the log shows.
    stored_seq: u64,
    encoder: ChunkEncoder,
    verified: VerifiedChunks,
    draining: CancellationToken,
    validity: Validity,
    _open: TenantCount,
}

impl ChunkWriter {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.verified.ready.pop_front() {
                return Some(event);
            }
            if self.verified.is_closed {
                return None;
            }
            let mut chunks = Vec::new();
            self.read(&mut chunks).await;
            self.verified.write(&chunks);
            if self.encoder.is_done() && !self.verified.is_closed {
                self.verified.close();
            }
        }
    }

    /// Waits for the next event or live frame, and encodes it.
    async fn read(&mut self, chunks: &mut Vec<Chunk>) {
        let frame = tokio::select! {
            biased;
            () = self.validity.ended() => {
                self.encoder.fail("the key of this request is no longer valid; the run continues", chunks);
                return;
            }
            () = self.draining.cancelled() => {
                self.encoder.fail("the server is restarting; the run continues, load the chat again", chunks);
                return;
            }
            frame = self.follower.next() => frame,
        };
        match frame {
            Ok(Some(frame)) => {
                let ends_commit = matches!(&frame, RunFrame::Event(event)
                    if event.checkpoint.is_some() && event.seq >= self.stored_seq);
                self.encoder.push(&feed_item(frame), chunks);
                if ends_commit {
                    self.encoder.idle(chunks);
                }
            }
            Ok(None) => {
                self.encoder.fail("the run cannot be followed any further; load the chat again", chunks);
            }
            Err(refused) => {
                tracing::warn!(run = %self.verified.run, %refused, "a stream of the AI SDK ended early; the client can load the chat again");
                self.encoder.fail("the stream ended early; the run continues, load the chat again", chunks);
            }
        }
    }
}

/// The chunks of a stream after they were verified, ready to be sent.
struct VerifiedChunks {
    run: RunId,
    verifier: ChunkVerifier,
    illegal: Counter,
    ready: VecDeque<Event>,
    /// `[DONE]` is sent.
    is_closed: bool,
}

impl VerifiedChunks {
    /// An illegal chunk would break the client's page. The stream ends with an error instead.
    fn write(&mut self, chunks: &[Chunk]) {
        for chunk in chunks {
            if let Err(illegal) = self.verifier.check(chunk) {
                self.illegal.inc();
                tracing::error!(run = %self.run, %illegal, "a chunk that the AI SDK would refuse was not sent, and its stream was closed; this is a bug in Holdpoint");
                self.ready.extend(data_event(&Chunk::Error {
                    error_text: "internal error; load the chat again".into(),
                }));
                self.close();
                return;
            }
            match data_event(chunk) {
                Some(event) => self.ready.push_back(event),
                None => return self.close(),
            }
        }
    }

    fn close(&mut self) {
        self.ready.push_back(Event::default().data(DONE));
        self.is_closed = true;
    }
}

/// A frame without a type: clients of this protocol read only its data.
fn data_event(chunk: &Chunk) -> Option<Event> {
    match Event::default().json_data(chunk) {
        Ok(event) => Some(event),
        Err(error) => {
            tracing::error!(%error, "a chunk cannot be serialized; the stream ends");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_illegal_chunk_is_counted_and_closes_the_stream() {
        let mut verified = VerifiedChunks {
            run: "run_1".into(),
            verifier: ChunkVerifier::new(),
            illegal: Counter::default(),
            ready: VecDeque::new(),
            is_closed: false,
        };
        let start = Chunk::Start { message_id: "msg_run_1".into(), message_metadata: None };
        verified.write(&[start, Chunk::StartStep]);
        assert_eq!((verified.ready.len(), verified.illegal.get(), verified.is_closed), (2, 0, false));
        let unknown = Chunk::TextDelta { id: "txt".into(), delta: "a text that has not begun".into() };
        verified.write(&[unknown, Chunk::FinishStep]);
        // An error and the end; nothing of what followed.
        assert_eq!((verified.ready.len(), verified.illegal.get(), verified.is_closed), (4, 1, true));
    }
}
