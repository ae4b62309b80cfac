//! Live items that are not stored: they have no seq, and a client that was not connected never receives them.

use engine::live::{Delta, LiveItem, Part, ToolNote, ToolNoteBody};
use machine::Timestamp;
use machine::event::EVENT_VERSION;
use machine::id::{RunId, ThreadId};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::time::Time;

/// The envelope of a live item: that of an event, without the fields that only stored events have.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Frame {
    #[serde(rename = "type")]
    pub name: &'static str,
    pub thread_id: String,
    pub run_id: String,
    /// The step that the update belongs to. Null only if a node of an earlier version sent it.
    pub step: Option<u32>,
    /// When it happened; for text that is sent in one piece, when the last of it arrived.
    pub ts: Time,
    pub v: u16,
    #[schema(value_type = Object)]
    pub payload: LivePayload,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LivePayload {
    Delta(DeltaPayload),
    Reset(ResetPayload),
    Log(LogPayload),
    Progress(ProgressPayload),
}

/// Payload of `text.delta`, `reasoning.delta` and `tool.arguments_delta`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DeltaPayload {
    pub message_id: String,
    pub attempt: u32,
    /// Index of the call within the model's answer; 0 for text and reasoning. The call has no id yet: the id that the
    /// model chose may belong to an earlier call, and then it gets another one.
    pub index: u16,
    /// Offset in characters, counted from 0 within the part and the attempt.
    pub offset: u64,
    pub text: String,
}

/// Payload of `step.reset`: discard the deltas of earlier attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResetPayload {
    pub message_id: String,
    pub attempt: u32,
}

/// Payload of `tool.log`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LogPayload {
    pub call_id: String,
    /// Empty only if a node of an earlier version sent it.
    pub tool: String,
    pub attempt: u32,
    pub text: String,
}

/// Payload of `tool.progress`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ProgressPayload {
    pub call_id: String,
    /// Empty only if a node of an earlier version sent it.
    pub tool: String,
    pub attempt: u32,
    #[schema(value_type = Value)]
    pub progress: Value,
}

impl Frame {
    #[must_use]
    pub fn from_live_item(thread: &ThreadId, run: &RunId, item: &LiveItem) -> Self {
        let (name, payload) = match item {
            LiveItem::Delta(delta) => delta_payload(delta),
            LiveItem::Reset(reset) => {
                let message_id = reset.message_id.as_str().into();
                ("step.reset", LivePayload::Reset(ResetPayload { message_id, attempt: reset.attempt }))
            }
            LiveItem::Note(note) => tool_note_payload(note),
        };
        let (step, at) = step_and_time(item);
        Self {
            name,
            thread_id: thread.as_str().into(),
            run_id: run.as_str().into(),
            step,
            ts: at.into(),
            v: EVENT_VERSION,
            payload,
        }
    }
}

const fn step_and_time(item: &LiveItem) -> (Option<u32>, Timestamp) {
    match item {
        LiveItem::Delta(delta) => (delta.step, delta.at),
        LiveItem::Reset(reset) => (reset.step, reset.at),
        LiveItem::Note(note) => (note.step, note.at),
    }
}

fn delta_payload(delta: &Delta) -> (&'static str, LivePayload) {
    let (name, index) = match &delta.part {
        Part::Text => ("text.delta", 0),
        Part::Reasoning => ("reasoning.delta", 0),
        Part::Arguments { index, .. } => ("tool.arguments_delta", *index),
    };
    let payload = DeltaPayload {
        message_id: delta.message_id.as_str().into(),
        attempt: delta.attempt,
        index,
        offset: delta.offset,
        text: delta.text.clone(),
    };
    (name, LivePayload::Delta(payload))
}

fn tool_note_payload(note: &ToolNote) -> (&'static str, LivePayload) {
    let (call_id, attempt) = (note.call_id.as_str().to_owned(), note.attempt);
    let tool = note.tool.as_ref().map(|tool| tool.as_str().to_owned()).unwrap_or_default();
    match &note.body {
        ToolNoteBody::Log(text) => {
            let text = text.clone();
            ("tool.log", LivePayload::Log(LogPayload { call_id, tool, attempt, text }))
        }
        ToolNoteBody::Progress(progress) => {
            let progress = progress.clone();
            ("tool.progress", LivePayload::Progress(ProgressPayload { call_id, tool, attempt, progress }))
        }
    }
}
