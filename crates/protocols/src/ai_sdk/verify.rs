//! Refuses chunks that some client would reject, show wrongly or answer forever.

mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::chunk::{Chunk, FinishReason};
use super::message::ToolState;
use super::seen::Seen;

/// Checks one stream, chunk by chunk, and its end.
#[derive(Clone, Debug)]
pub struct ChunkVerifier {
    /// The message that the stream must show, if it continues one.
    message_id: Option<String>,
    stage: VerifiedStage,
    /// Number of steps that the message has begun.
    step: u32,
    is_step_open: bool,
    open_texts: BTreeSet<String>,
    open_reasonings: BTreeSet<String>,
    calls: BTreeMap<String, KnownCall>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VerifiedStage {
    New,
    Open,
    /// After `error`: only `finish` may follow, and clients do not read it.
    Failed,
    Ended,
}

/// A call with a part in the message.
#[derive(Clone, Debug)]
struct KnownCall {
    step: u32,
    dynamic: bool,
    /// None for a call of the continued message.
    tool: Option<String>,
    state: ToolState,
    /// This stream has begun to send the input.
    is_input_started: bool,
    settled_here: bool,
}

/// A chunk that may not be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IllegalChunk {
    pub rule: ChunkRule,
    /// The `type` of the chunk, or `end of stream`.
    pub chunk: String,
    /// The id or field that the rule is about. Empty if there is none.
    pub subject: String,
}

/// The rules of the protocol that a stream can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkRule {
    UnknownType,
    UnknownField,
    MissingField,
    NullField,
    WrongType,
    UnknownFinishReason,
    StartIsFirst,
    StartOnlyOnce,
    /// Another id would add a second message and leave the first one unanswered.
    ContinuedMessageId,
    NothingAfterEnd,
    EndIsRequired,
    StepMustBeOpen,
    StepsDoNotNest,
    StepClosedAtEnd,
    /// Text, reasoning and inputs belong to a step.
    PartNeedsStep,
    PartIdIsFree,
    PartMustBeOpen,
    /// Some clients close texts at `finish-step`, others do not.
    PartClosedAtStepEnd,
    PartClosedAtEnd,
    CallIsKnown,
    CallIsNew,
    InputStarted,
    /// Newer clients would add a second part for the call.
    InputInLastStep,
    /// The tool's name and whether it is dynamic are fixed by the first chunk.
    SameTool,
    CallNotSettled,
    /// A client that posts by itself would post the same answer again and again.
    AnswersResolved,
}

impl fmt::Display for IllegalChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken by {}", self.rule, self.chunk)?;
        match self.subject.as_str() {
            "" => Ok(()),
            subject => write!(f, " ({subject})"),
        }
    }
}

impl std::error::Error for IllegalChunk {}

impl Default for ChunkVerifier {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkVerifier {
    /// For a client that has nothing of the message.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            message_id: None,
            stage: VerifiedStage::New,
            step: 0,
            is_step_open: false,
            open_texts: BTreeSet::new(),
            open_reasonings: BTreeSet::new(),
            calls: BTreeMap::new(),
        }
    }

    /// For a client that continues this message.
    #[must_use]
    pub fn continuing(message_id: &str, seen: &Seen) -> Self {
        let known = |tool: &super::SeenTool| KnownCall {
            step: tool.step,
            dynamic: tool.dynamic,
            tool: None,
            state: tool.state,
            is_input_started: false,
            settled_here: false,
        };
        let calls = seen.tools.iter().map(|(id, tool)| (id.clone(), known(tool))).collect();
        Self { message_id: Some(message_id.into()), step: seen.steps, calls, ..Self::new() }
    }

    /// Checks the form of a chunk, too: names, types, and that nothing is null or unknown to early clients.
    pub fn check_json(&mut self, json: &Value) -> Result<Chunk, IllegalChunk> {
        let chunk = shape::parse(json)?;
        self.check(&chunk)?;
        Ok(chunk)
    }

    /// After an error the stream must be closed.
    pub fn check(&mut self, chunk: &Chunk) -> Result<(), IllegalChunk> {
        self.broken_by(chunk).map_or(Ok(()), |(rule, subject)| {
            Err(IllegalChunk { rule, chunk: chunk.kind().into(), subject: subject.into() })
        })
    }

    /// To be called when the stream ends.
    pub fn end(&self) -> Result<(), IllegalChunk> {
        let rule = match self.stage {
            VerifiedStage::New => ChunkRule::StartIsFirst,
            // Clients take an end without a terminal chunk for a complete answer.
            VerifiedStage::Open => ChunkRule::EndIsRequired,
            VerifiedStage::Failed | VerifiedStage::Ended => return Ok(()),
        };
        Err(IllegalChunk { rule, chunk: "end of stream".into(), subject: String::new() })
    }

    fn broken_by<'c>(&mut self, chunk: &'c Chunk) -> Option<(ChunkRule, &'c str)> {
        if let Some(rule) = self.misplaced(chunk) {
            return Some((rule, ""));
        }
        match chunk {
            Chunk::Start { message_id, .. } => {
                self.stage = VerifiedStage::Open;
                let is_other = self.message_id.as_ref().is_some_and(|expected| expected != message_id);
                is_other.then_some((ChunkRule::ContinuedMessageId, message_id))
            }
            Chunk::TextStart { id } => self.open_part(id, true),
            Chunk::ReasoningStart { id } => self.open_part(id, false),
            Chunk::TextDelta { id, .. } => {
                (!self.open_texts.contains(id)).then_some((ChunkRule::PartMustBeOpen, id))
            }
            Chunk::ReasoningDelta { id, .. } => {
                (!self.open_reasonings.contains(id)).then_some((ChunkRule::PartMustBeOpen, id))
            }
            Chunk::TextEnd { id, .. } => {
                (!self.open_texts.remove(id)).then_some((ChunkRule::PartMustBeOpen, id))
            }
            Chunk::ReasoningEnd { id, .. } => {
                (!self.open_reasonings.remove(id)).then_some((ChunkRule::PartMustBeOpen, id))
            }
            Chunk::ToolInputStart { tool_call_id, tool_name, dynamic } => {
                self.start_input(tool_call_id, tool_name, *dynamic, true)
            }
            Chunk::ToolInputDelta { tool_call_id, .. } => {
                let is_started = self.calls.get(tool_call_id).is_some_and(|call| call.is_input_started);
                (!is_started).then_some((ChunkRule::InputStarted, tool_call_id))
            }
            Chunk::ToolInputAvailable { tool_call_id, tool_name, dynamic, .. } => {
                self.show_input(tool_call_id, tool_name, *dynamic)
            }
            Chunk::ToolApprovalRequest { tool_call_id, .. } => {
                self.advance(tool_call_id, ToolState::ApprovalRequested, None)
            }
            Chunk::ToolOutputAvailable { tool_call_id, dynamic, .. } => {
                self.advance(tool_call_id, ToolState::OutputAvailable, Some(*dynamic))
            }
            Chunk::ToolOutputError { tool_call_id, dynamic, .. } => {
                self.advance(tool_call_id, ToolState::OutputError, Some(*dynamic))
            }
            Chunk::ToolOutputDenied { tool_call_id } => {
                self.advance(tool_call_id, ToolState::OutputDenied, None)
            }
            Chunk::StartStep => self.start_step(),
            Chunk::FinishStep => self.finish_step(),
            Chunk::Error { .. } => {
                self.stage = VerifiedStage::Failed;
                self.open_at_end()
            }
            Chunk::Abort => self.finish(FinishReason::Stop),
            Chunk::Finish { finish_reason, .. } => self.finish(*finish_reason),
            Chunk::MessageMetadata { .. } | Chunk::Data(_) => None,
        }
    }

    /// Whether no chunk of this kind may come at this point.
    fn misplaced(&self, chunk: &Chunk) -> Option<ChunkRule> {
        let is_start = matches!(chunk, Chunk::Start { .. });
        match (self.stage, is_start) {
            (VerifiedStage::New, false) => Some(ChunkRule::StartIsFirst),
            (VerifiedStage::Open | VerifiedStage::Failed, true) => Some(ChunkRule::StartOnlyOnce),
            (VerifiedStage::Failed, false) if !matches!(chunk, Chunk::Finish { .. }) => {
                Some(ChunkRule::NothingAfterEnd)
            }
            (VerifiedStage::Ended, _) => Some(ChunkRule::NothingAfterEnd),
            (VerifiedStage::New, true) | (VerifiedStage::Open | VerifiedStage::Failed, false) => None,
        }
    }

    fn open_part<'c>(&mut self, id: &'c str, is_text: bool) -> Option<(ChunkRule, &'c str)> {
        if self.step == 0 {
            return Some((ChunkRule::PartNeedsStep, id));
        }
        let open = if is_text { &mut self.open_texts } else { &mut self.open_reasonings };
        (!open.insert(id.into())).then_some((ChunkRule::PartIdIsFree, id))
    }

    fn start_input<'c>(
        &mut self,
        call_id: &'c str,
        tool: &str,
        dynamic: bool,
        is_streamed: bool,
    ) -> Option<(ChunkRule, &'c str)> {
        if self.step == 0 {
            return Some((ChunkRule::PartNeedsStep, call_id));
        }
        let call = KnownCall {
            step: self.step,
            dynamic,
            tool: Some(tool.into()),
            state: if is_streamed { ToolState::InputStreaming } else { ToolState::InputAvailable },
            is_input_started: is_streamed,
            settled_here: false,
        };
        let known = self.calls.insert(call_id.into(), call)?;
        // The connection may have been lost while the input was streamed.
        let is_repeated = known.tool.is_none()
            && known.state == ToolState::InputStreaming
            && known.dynamic == dynamic
            && known.step == self.step;
        (!is_repeated).then_some((ChunkRule::CallIsNew, call_id))
    }

    fn show_input<'c>(
        &mut self,
        call_id: &'c str,
        tool: &str,
        dynamic: bool,
    ) -> Option<(ChunkRule, &'c str)> {
        let Some(call) = self.calls.get_mut(call_id) else {
            return self.start_input(call_id, tool, dynamic, false);
        };
        if call.step != self.step {
            return Some((ChunkRule::InputInLastStep, call_id));
        }
        if call.tool.as_deref().is_some_and(|known| known != tool) {
            return Some((ChunkRule::SameTool, call_id));
        }
        self.advance(call_id, ToolState::InputAvailable, Some(dynamic))
    }

    /// The call gets another state. A settled call of the continued message may be corrected once: its output is what
    /// the client claims.
    fn advance<'c>(
        &mut self,
        call_id: &'c str,
        state: ToolState,
        dynamic: Option<bool>,
    ) -> Option<(ChunkRule, &'c str)> {
        let Some(call) = self.calls.get_mut(call_id) else {
            return Some((ChunkRule::CallIsKnown, call_id));
        };
        if dynamic.is_some_and(|dynamic| dynamic != call.dynamic) {
            return Some((ChunkRule::SameTool, call_id));
        }
        if call.settled_here {
            return Some((ChunkRule::CallNotSettled, call_id));
        }
        call.state = state;
        call.settled_here = state.is_settled();
        None
    }

    fn start_step(&mut self) -> Option<(ChunkRule, &'static str)> {
        if self.is_step_open {
            return Some((ChunkRule::StepsDoNotNest, ""));
        }
        self.step = self.step.saturating_add(1);
        self.is_step_open = true;
        None
    }

    fn finish_step(&mut self) -> Option<(ChunkRule, &'static str)> {
        if !self.is_step_open {
            return Some((ChunkRule::StepMustBeOpen, ""));
        }
        self.is_step_open = false;
        self.has_open_part().then_some((ChunkRule::PartClosedAtStepEnd, ""))
    }

    fn finish(&mut self, reason: FinishReason) -> Option<(ChunkRule, &'static str)> {
        let has_failed = self.stage == VerifiedStage::Failed;
        self.stage = VerifiedStage::Ended;
        self.open_at_end().or_else(|| {
            // A client does not post by itself after an error.
            (!has_failed && self.would_post_again(reason)).then_some((ChunkRule::AnswersResolved, ""))
        })
    }

    fn open_at_end(&self) -> Option<(ChunkRule, &'static str)> {
        match (self.has_open_part(), self.is_step_open) {
            (true, _) => Some((ChunkRule::PartClosedAtEnd, "")),
            (false, true) => Some((ChunkRule::StepClosedAtEnd, "")),
            (false, false) => None,
        }
    }

    fn has_open_part(&self) -> bool {
        !self.open_texts.is_empty() || !self.open_reasonings.is_empty()
    }

    /// What `lastAssistantMessageIsCompleteWithApprovalResponses` and `…WithToolCalls` ask of the last step.
    fn would_post_again(&self, reason: FinishReason) -> bool {
        let mut states = self.calls.values().filter(|call| call.step == self.step).map(|call| call.state);
        let answered = states.clone().any(|state| state == ToolState::ApprovalResponded)
            && states.clone().all(|state| state == ToolState::ApprovalResponded || state.is_settled());
        let is_over = reason != FinishReason::ToolCalls;
        let settled = states.clone().next().is_some() && states.all(ToolState::is_settled);
        answered || (is_over && settled)
    }
}
