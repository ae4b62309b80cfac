//! An answer under construction: each piece is sent as a delta, and the whole is returned at the end.

use std::collections::BTreeMap;

use engine::live::Deltas;
use engine::model::{ModelAnswer, ModelCall, ModelFailure, Origin, Sealed};
use machine::event::Usage;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::failure::{context_full, filtered, permanent, transient};
use super::naming::ToolNames;
use super::sealed::Piece;

/// The engine accepts no longer answer, so there is no reason to read on.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A run has no room for more calls.
const CALLS_MAX: usize = 1024;

/// Why a provider stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinishReason {
    Answered,
    /// At the token limit for one answer.
    CutOff,
    Filtered,
    ContextFull,
    /// The model wrote a call that its own provider could not parse.
    Garbled,
}

pub(super) struct AnswerBuilder {
    deltas: Deltas,
    names: ToolNames,
    pub(super) text: String,
    reasoning: String,
    /// By their index in the answer.
    calls: BTreeMap<u16, ModelCall>,
    /// In the order of arrival.
    pieces: Vec<Piece>,
    /// Identifies the model that answers, for content that only it can read.
    by: String,
    /// The origin of this answer must be known later, even if it contains nothing sealed.
    signed: bool,
    byte_count: usize,
    pub(super) usage: Usage,
    pub(super) finish: Option<FinishReason>,
    /// The stream is finished.
    pub(super) ended: bool,
}

impl AnswerBuilder {
    pub(super) fn new(deltas: Deltas, names: ToolNames, by: String, signed: bool) -> Self {
        Self {
            deltas,
            names,
            pieces: Vec::new(),
            by,
            signed,
            text: String::new(),
            reasoning: String::new(),
            calls: BTreeMap::new(),
            byte_count: 0,
            usage: Usage::default(),
            finish: None,
            ended: false,
        }
    }

    pub(super) fn add_text(&mut self, text: &str) -> Result<(), ModelFailure> {
        self.count_bytes(text.len())?;
        self.text.push_str(text);
        self.deltas.text(text);
        match self.pieces.last_mut() {
            Some(Piece::Text(length)) => *length += text.len(),
            Some(Piece::Sealed(_) | Piece::Call(_)) | None => self.pieces.push(Piece::Text(text.len())),
        }
        Ok(())
    }

    /// Content that the provider wants back with this answer. It is opaque to everyone else.
    pub(super) fn add_sealed(&mut self, value: Value) -> Result<(), ModelFailure> {
        self.count_bytes(value.to_string().len())?;
        self.pieces.push(Piece::Sealed(value));
        Ok(())
    }

    pub(super) fn add_reasoning(&mut self, text: &str) -> Result<(), ModelFailure> {
        self.count_bytes(text.len())?;
        self.reasoning.push_str(text);
        self.deltas.reasoning(text);
        Ok(())
    }

    pub(super) fn call_count(&self) -> u16 {
        u16::try_from(self.calls.len()).unwrap_or(u16::MAX)
    }

    pub(super) fn call(&self, index: u16) -> Option<&ModelCall> {
        self.calls.get(&index)
    }

    /// Adds a call at this index. A provider that sends the id or the name in pieces repeats them with more text.
    pub(super) fn add_call(&mut self, index: u16, id: &str, sent_name: &str) -> Result<(), ModelFailure> {
        if self.calls.len() >= CALLS_MAX {
            return Err(permanent(format!("it asked for more than {CALLS_MAX} calls at once")));
        }
        self.count_bytes(id.len() + sent_name.len())?;
        let pieces = &mut self.pieces;
        let call = self.calls.entry(index).or_insert_with(|| {
            pieces.push(Piece::Call(index));
            ModelCall { id: String::new(), tool: String::new(), arguments: String::new() }
        });
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        if call.tool.is_empty() {
            call.tool.push_str(sent_name);
        }
        Ok(())
    }

    pub(super) fn add_arguments(&mut self, index: u16, text: &str) -> Result<(), ModelFailure> {
        self.count_bytes(text.len())?;
        if let Some(call) = self.calls.get_mut(&index) {
            call.arguments.push_str(text);
            let id = Some(call.id.as_str()).filter(|id| !id.is_empty());
            self.deltas.arguments(index, id, text);
        }
        Ok(())
    }

    /// The complete arguments that the provider sends at the end. They override the deltas.
    pub(super) fn set_arguments(&mut self, index: u16, whole: &str) -> Result<(), ModelFailure> {
        let known = self.calls.get(&index).map_or("", |call| call.arguments.as_str());
        if let Some(missing) = whole.strip_prefix(known) {
            return self.add_arguments(index, missing);
        }
        self.count_bytes(whole.len())?;
        if let Some(call) = self.calls.get_mut(&index) {
            whole.clone_into(&mut call.arguments);
        }
        Ok(())
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), ModelFailure> {
        self.byte_count = self.byte_count.saturating_add(bytes);
        if self.byte_count <= ANSWER_BYTES_MAX {
            return Ok(());
        }
        Err(permanent(format!("its answer is longer than {ANSWER_BYTES_MAX} bytes")))
    }

    /// A cut-off text is still usable. A cut-off call is not, and a retry would be cut off at the same point.
    fn unusable_part(&self) -> Option<&'static str> {
        let is_whole = |call: &ModelCall| {
            call.arguments.is_empty() || serde_json::from_str::<IgnoredAny>(&call.arguments).is_ok()
        };
        if !self.calls.values().all(is_whole) {
            return Some("within a call");
        }
        (self.text.is_empty() && self.calls.is_empty()).then_some("before its first word")
    }

    /// Sealed content is sent back with the results of calls, so an answer without calls needs none.
    fn sealed(&self) -> Option<Sealed> {
        let sealed = |piece: &Piece| matches!(piece, Piece::Sealed(_));
        if self.calls.is_empty() || !(self.signed || self.pieces.iter().any(sealed)) {
            return None;
        }
        let content = serde_json::to_string(&self.pieces).ok()?;
        Some(Sealed { by: self.by.clone(), content: content.into() })
    }

    /// An answer without a finish reason is incomplete.
    pub(super) fn into_answer(self) -> Result<ModelAnswer, ModelFailure> {
        match self.finish {
            Some(FinishReason::Answered) => {}
            Some(FinishReason::CutOff) => {
                if let Some(what) = self.unusable_part() {
                    let how = "allow more in the params of the model";
                    return Err(permanent(format!(
                        "its answer was cut off at its limit of tokens {what}; {how}"
                    )));
                }
            }
            Some(FinishReason::Filtered) => return Err(permanent(filtered("its answer broke off"))),
            Some(FinishReason::ContextFull) => return Err(permanent(context_full("its answer broke off"))),
            Some(FinishReason::Garbled) => return Err(transient("it garbled a tool call")),
            None => return Err(transient("the stream ended before the answer did")),
        }
        let origin = Origin { model: None, sealed: self.sealed() };
        let names = &self.names;
        let whole = |call: ModelCall| ModelCall {
            tool: names.original(&call.tool).to_owned(),
            arguments: if call.arguments.trim().is_empty() { "{}".to_owned() } else { call.arguments },
            id: call.id,
        };
        Ok(ModelAnswer {
            text: self.text,
            reasoning: Some(self.reasoning).filter(|reasoning| !reasoning.is_empty()),
            calls: self.calls.into_values().map(whole).collect(),
            usage: self.usage,
            origin,
        })
    }
}
