//! How a stream ends: because the run waits, or because it has ended.

use serde_json::{Map, Value, json};

use super::{ChunkEncoder, StreamStage};
use crate::ai_sdk::chunk::{Chunk, FinishReason};
use crate::feed::{CompletedReason, RunEnd, Usage};

impl ChunkEncoder {
    /// The run waits. The continuation will be another stream with the same message id.
    pub(super) fn end_waiting(&mut self, out: &mut Vec<Chunk>) {
        let last_step = self.last_step();
        for call in self.calls.values_mut() {
            let in_last_step = call.step == last_step;
            call.show_hold(in_last_step, out);
        }
        self.close_parts(out);
        // Calls of earlier steps can be held while those of the last one have settled.
        if self.calls.values().all(|call| call.step != last_step) {
            self.keep_client_from_posting(out);
        }
        let metadata = json!({"status": self.status});
        out.push(Chunk::Finish { finish_reason: FinishReason::ToolCalls, message_metadata: Some(metadata) });
        self.stage = StreamStage::Done;
    }

    pub(super) fn end_run(&mut self, end: &RunEnd, usage: Usage, out: &mut Vec<Chunk>) {
        self.close_parts(out);
        self.keep_client_from_posting(out);
        self.status = match end {
            RunEnd::Completed { .. } => "completed",
            RunEnd::Failed { .. } => "failed",
            RunEnd::Interrupted { .. } => "interrupted",
        };
        self.report_status(out);
        let metadata = self.final_metadata(end, usage);
        match end {
            RunEnd::Completed { .. } => out.push(finish(FinishReason::Stop, metadata)),
            RunEnd::Failed { blocked: true, .. } => out.push(finish(FinishReason::ContentFilter, metadata)),
            RunEnd::Failed { message, .. } => {
                // The client reads nothing after the error, so its message gets the metadata first.
                out.push(Chunk::MessageMetadata { message_metadata: metadata });
                out.push(Chunk::Error { error_text: message.clone() });
                out.push(Chunk::Finish { finish_reason: FinishReason::Error, message_metadata: None });
            }
            RunEnd::Interrupted { .. } => {
                out.push(Chunk::MessageMetadata { message_metadata: metadata });
                out.push(Chunk::Abort);
            }
        }
        self.stage = StreamStage::Done;
    }

    /// A client that posts by itself when the last step's calls have results would post at the end of each stream,
    /// forever. With another step begun there is nothing to post. The metadata that follows makes the client show the
    /// step, and the run's next step fills it.
    fn keep_client_from_posting(&self, out: &mut Vec<Chunk>) {
        if self.step_has_calls && self.seen.steps <= self.step {
            out.extend([Chunk::StartStep, Chunk::FinishStep]);
        }
    }

    pub(super) fn close_parts(&mut self, out: &mut Vec<Chunk>) {
        self.finish_step(out);
    }

    fn final_metadata(&self, end: &RunEnd, usage: Usage) -> Value {
        let mut termination = Map::new();
        termination.insert("reason".into(), reason_name(end).into());
        let (code, detail) = match end {
            RunEnd::Completed { code, detail, .. } => (code.as_ref(), detail.as_ref()),
            RunEnd::Failed { .. } => (None, None),
            RunEnd::Interrupted { code, .. } => (code.as_ref(), None),
        };
        for (key, text) in [("code", code), ("detail", detail)] {
            if let Some(text) = text {
                termination.insert(key.into(), text.as_str().into());
            }
        }
        let mut metadata = json!({
            "status": self.status,
            "termination": termination,
            "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
        });
        if let (RunEnd::Failed { code, message, .. }, Some(fields)) = (end, metadata.as_object_mut()) {
            fields.insert("error".into(), json!({"code": code, "message": message}));
        }
        metadata
    }
}

const fn finish(finish_reason: FinishReason, metadata: Value) -> Chunk {
    Chunk::Finish { finish_reason, message_metadata: Some(metadata) }
}

const fn reason_name(end: &RunEnd) -> &'static str {
    match end {
        RunEnd::Completed { reason: CompletedReason::NaturalEnd, .. } => "natural_end",
        RunEnd::Completed { reason: CompletedReason::BehaviorRequested, .. } => "behavior_requested",
        RunEnd::Completed { reason: CompletedReason::Stopped, .. } => "stopped",
        RunEnd::Failed { blocked: true, .. } => "blocked",
        RunEnd::Failed { blocked: false, .. } => "error",
        RunEnd::Interrupted { .. } => "cancelled",
    }
}
