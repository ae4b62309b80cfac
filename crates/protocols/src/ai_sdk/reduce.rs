//! Folds chunks into a message, as the client does. Hydration uses this too, so a reload shows what was streamed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::chunk::{Chunk, DataChunk, RawOutput};
use super::message::{TextState, ToolState, UiApproval, UiMessage, UiPart, UiRole, UiToolPart};

/// The message that a client shows. Chunks that the protocol does not allow at their place change nothing.
#[derive(Clone, Debug)]
pub struct MessageReducer {
    message: UiMessage,
    /// Indices of open parts, by the id of the chunks.
    open_texts: BTreeMap<String, usize>,
    open_reasonings: BTreeMap<String, usize>,
    /// The streamed input of calls.
    inputs: BTreeMap<String, String>,
}

impl Default for MessageReducer {
    fn default() -> Self {
        let message =
            UiMessage { id: String::new(), role: UiRole::Assistant, metadata: None, parts: Vec::new() };
        Self::continuing(message)
    }
}

impl MessageReducer {
    /// For a stream that continues a message.
    #[must_use]
    pub const fn continuing(message: UiMessage) -> Self {
        Self {
            message,
            open_texts: BTreeMap::new(),
            open_reasonings: BTreeMap::new(),
            inputs: BTreeMap::new(),
        }
    }

    #[must_use]
    pub const fn message(&self) -> &UiMessage {
        &self.message
    }

    #[must_use]
    pub fn into_message(self) -> UiMessage {
        self.message
    }

    pub fn apply(&mut self, chunk: &Chunk) {
        match chunk {
            Chunk::Start { message_id, message_metadata } => {
                self.message.id.clone_from(message_id);
                self.merge_metadata(message_metadata.as_ref());
            }
            Chunk::Finish { message_metadata, .. } => self.merge_metadata(message_metadata.as_ref()),
            Chunk::MessageMetadata { message_metadata } => self.merge_metadata(Some(message_metadata)),
            Chunk::StartStep => self.message.parts.push(UiPart::StepStart),
            Chunk::FinishStep => {
                self.open_texts.clear();
                self.open_reasonings.clear();
            }
            Chunk::TextStart { id } => {
                self.open_texts.insert(id.clone(), self.message.parts.len());
                let state = Some(TextState::Streaming);
                self.message.parts.push(UiPart::Text { text: String::new(), state, discarded: false });
            }
            Chunk::ReasoningStart { id } => {
                self.open_reasonings.insert(id.clone(), self.message.parts.len());
                let state = Some(TextState::Streaming);
                self.message.parts.push(UiPart::Reasoning { text: String::new(), state, discarded: false });
            }
            Chunk::TextDelta { id, delta } => {
                let index = self.open_texts.get(id).copied();
                self.append(index, delta);
            }
            Chunk::ReasoningDelta { id, delta } => {
                let index = self.open_reasonings.get(id).copied();
                self.append(index, delta);
            }
            Chunk::TextEnd { id, discarded } => {
                let index = self.open_texts.remove(id);
                self.end_text(index, *discarded);
            }
            Chunk::ReasoningEnd { id, discarded } => {
                let index = self.open_reasonings.remove(id);
                self.end_text(index, *discarded);
            }
            Chunk::ToolInputStart { .. }
            | Chunk::ToolInputDelta { .. }
            | Chunk::ToolInputAvailable { .. }
            | Chunk::ToolApprovalRequest { .. }
            | Chunk::ToolOutputAvailable { .. }
            | Chunk::ToolOutputError { .. }
            | Chunk::ToolOutputDenied { .. } => self.apply_to_call(chunk),
            Chunk::Data(data) => self.apply_data(data),
            Chunk::Error { .. } | Chunk::Abort => {}
        }
    }

    fn apply_to_call(&mut self, chunk: &Chunk) {
        match chunk {
            Chunk::ToolInputStart { tool_call_id, tool_name, dynamic } => {
                self.inputs.insert(tool_call_id.clone(), String::new());
                self.set_input(tool_call_id, tool_name, *dynamic, ToolState::InputStreaming, None);
            }
            Chunk::ToolInputDelta { tool_call_id, input_text_delta } => {
                let Some(streamed) = self.inputs.get_mut(tool_call_id) else { return };
                streamed.push_str(input_text_delta);
                // The client also repairs incomplete JSON. Our encoder sends the input in one piece.
                let input = serde_json::from_str(streamed).ok();
                if let Some(part) = self.call(tool_call_id) {
                    part.input = input;
                }
            }
            Chunk::ToolInputAvailable { tool_call_id, tool_name, input, dynamic } => {
                let (state, input) = (ToolState::InputAvailable, Some(input.clone()));
                self.set_input(tool_call_id, tool_name, *dynamic, state, input);
            }
            Chunk::ToolApprovalRequest { approval_id, tool_call_id } => {
                let approval = UiApproval { id: approval_id.clone(), approved: None, reason: None };
                if let Some(part) = self.call(tool_call_id) {
                    part.state = ToolState::ApprovalRequested;
                    part.approval = Some(approval);
                }
            }
            Chunk::ToolOutputAvailable { tool_call_id, output, .. } => {
                self.settle(tool_call_id, ToolState::OutputAvailable, Some(output.clone()), None);
            }
            Chunk::ToolOutputError { tool_call_id, error_text, .. } => {
                self.settle(tool_call_id, ToolState::OutputError, None, Some(error_text.clone()));
            }
            Chunk::ToolOutputDenied { tool_call_id } => {
                if let Some(part) = self.call(tool_call_id) {
                    part.state = ToolState::OutputDenied;
                }
            }
            Chunk::Start { .. }
            | Chunk::TextStart { .. }
            | Chunk::TextDelta { .. }
            | Chunk::TextEnd { .. }
            | Chunk::ReasoningStart { .. }
            | Chunk::ReasoningDelta { .. }
            | Chunk::ReasoningEnd { .. }
            | Chunk::StartStep
            | Chunk::FinishStep
            | Chunk::MessageMetadata { .. }
            | Chunk::Error { .. }
            | Chunk::Abort
            | Chunk::Finish { .. }
            | Chunk::Data(_) => {}
        }
    }

    fn append(&mut self, index: Option<usize>, delta: &str) {
        let part = index.and_then(|index| self.message.parts.get_mut(index));
        if let Some(UiPart::Text { text, .. } | UiPart::Reasoning { text, .. }) = part {
            text.push_str(delta);
        }
    }

    fn end_text(&mut self, index: Option<usize>, is_discarded: bool) {
        let part = index.and_then(|index| self.message.parts.get_mut(index));
        if let Some(UiPart::Text { state, discarded, .. } | UiPart::Reasoning { state, discarded, .. }) = part
        {
            *state = Some(TextState::Done);
            *discarded |= is_discarded;
        }
    }

    /// Clients find the part of an input in the current step only, and add one if it is not there.
    fn set_input(
        &mut self,
        call_id: &str,
        tool: &str,
        dynamic: bool,
        state: ToolState,
        input: Option<Value>,
    ) {
        let step = self.step_begin();
        let parts = self.message.parts.iter_mut().skip(step);
        let known =
            parts.filter_map(tool_part).find(|part| part.call_id == call_id && part.dynamic == dynamic);
        match known {
            Some(part) => {
                part.state = state;
                part.input = input;
                part.output = None;
                part.error_text = None;
            }
            None => self.message.parts.push(UiPart::Tool(UiToolPart {
                call_id: call_id.into(),
                tool: tool.into(),
                dynamic,
                state,
                input,
                output: None,
                error_text: None,
                approval: None,
            })),
        }
    }

    fn settle(&mut self, call_id: &str, state: ToolState, output: Option<RawOutput>, error: Option<String>) {
        if let Some(part) = self.call(call_id) {
            part.state = state;
            part.output = output;
            part.error_text = error;
        }
    }

    fn call(&mut self, call_id: &str) -> Option<&mut UiToolPart> {
        let parts = self.message.parts.iter_mut().rev();
        parts.filter_map(tool_part).find(|part| part.call_id == call_id)
    }

    fn step_begin(&self) -> usize {
        let parts = &self.message.parts;
        parts.iter().rposition(|part| *part == UiPart::StepStart).map_or(0, |index| index + 1)
    }

    fn apply_data(&mut self, chunk: &DataChunk) {
        if chunk.transient {
            return;
        }
        let replaced = self.message.parts.iter_mut().find_map(|part| match part {
            UiPart::Data { name, id: Some(id), data } => {
                (*name == chunk.name && chunk.id.as_ref() == Some(id)).then_some(data)
            }
            UiPart::StepStart
            | UiPart::Text { .. }
            | UiPart::Reasoning { .. }
            | UiPart::File { .. }
            | UiPart::Tool(_)
            | UiPart::Data { id: None, .. } => None,
        });
        match replaced {
            Some(data) => data.clone_from(&chunk.data),
            None => {
                let DataChunk { name, id, data, .. } = chunk.clone();
                self.message.parts.push(UiPart::Data { name, id, data });
            }
        }
    }

    fn merge_metadata(&mut self, added: Option<&Value>) {
        let Some(added) = added else { return };
        match &mut self.message.metadata {
            Some(known) => merge(known, added),
            None => self.message.metadata = Some(added.clone()),
        }
    }
}

fn tool_part(part: &mut UiPart) -> Option<&mut UiToolPart> {
    match part {
        UiPart::Tool(tool) => Some(tool),
        UiPart::StepStart
        | UiPart::Text { .. }
        | UiPart::Reasoning { .. }
        | UiPart::File { .. }
        | UiPart::Data { .. } => None,
    }
}

/// Merges objects deeply; anything else is replaced.
fn merge(known: &mut Value, added: &Value) {
    if let (Value::Object(known), Value::Object(added)) = (&mut *known, added) {
        for (key, value) in added {
            match known.get_mut(key) {
                Some(before) => merge(before, value),
                None => {
                    known.insert(key.clone(), value.clone());
                }
            }
        }
    } else {
        known.clone_from(added);
    }
}
