//! The transcript: what the model reads, built from any prefix of the log. Every call in it has exactly one
//! result, in call order, directly after the message that asked for it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::{fmt, iter, mem};
use serde_json::Value;

use crate::event::{Event, Fact, Message, NoteBody, Sealed, ToolBody, UserMessage};
use crate::id::{CallId, MessageId, Principal, ToolName, tool_message_id};
use crate::model_text::{
    ChangedBy, INTERRUPTION, bounded, calls_dropped, correction, late_result, placeholder, result_text,
};
use crate::phase::note_text;
use crate::policy::RESULT_CHARS_DEFAULT;
use crate::suspension::SuspensionKind;
use crate::tool::Arguments;

/// One message as a model provider wants it.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelMessage {
    User {
        id: MessageId,
        content: Arc<Value>,
        /// The caller who sent it, where the log has the name. Providers are not sent it.
        by: Option<Principal>,
    },
    Assistant {
        id: MessageId,
        text: String,
        reasoning: Option<String>,
        calls: Vec<AssistantCall>,
        /// For whoever made it.
        sealed: Option<Sealed>,
    },
    Tool {
        call: CallId,
        text: String,
    },
    /// Goes to the model in the user role.
    Note {
        id: MessageId,
        call: CallId,
        text: String,
    },
    /// What the runtime itself tells the model. Goes to it in the user role.
    Notice {
        text: String,
    },
}

impl ModelMessage {
    /// It is the message that the log and every list of messages show under this id. What the runtime itself tells has
    /// none here.
    #[must_use]
    pub fn has_id(&self, wanted: &MessageId) -> bool {
        match self {
            Self::User { id, .. } | Self::Assistant { id, .. } | Self::Note { id, .. } => id == wanted,
            Self::Tool { call, .. } => tool_message_id(call) == *wanted,
            Self::Notice { .. } => false,
        }
    }
}

/// A call that an assistant message asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct AssistantCall {
    pub id: CallId,
    pub tool: ToolName,
    /// The model's own, also where a hook or an approver changed what ran.
    pub arguments: Arguments,
}

/// How many messages are shared as one. A copy of the list copies this many pointers at most, and one for every
/// full chunk.
pub const CHUNK_MESSAGES: usize = 64;

/// Messages that are only ever added to. A copy shares them with the list that it was made of, and stays as it is
/// when that list goes on.
#[derive(Clone, Default, PartialEq)]
pub struct Messages {
    /// Each has `CHUNK_MESSAGES`.
    chunks: Vec<Arc<Vec<Arc<ModelMessage>>>>,
    /// Fewer than `CHUNK_MESSAGES`.
    tail: Vec<Arc<ModelMessage>>,
    /// The place of what the user said last.
    last_user: Option<usize>,
    /// Those that stood before the first one, and are not here.
    left_out: usize,
}

impl Messages {
    /// An empty list behind so many messages that nobody is shown any more.
    #[must_use]
    pub fn after_omitted(left_out: usize) -> Self {
        Self { left_out, ..Self::default() }
    }

    /// Messages before the first one that are not here.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// Adds all of these, and copies no text.
    pub fn append(&mut self, more: &Self) {
        more.chunks.iter().flat_map(|chunk| chunk.iter()).chain(&more.tail).cloned().for_each(|message| {
            self.push_shared(message);
        });
    }

    pub fn push(&mut self, message: ModelMessage) {
        self.push_shared(Arc::new(message));
    }

    pub(crate) fn push_shared(&mut self, message: Arc<ModelMessage>) {
        if matches!(*message, ModelMessage::User { .. }) {
            self.last_user = Some(self.len());
        }
        self.tail.push(message);
        if self.tail.len() == CHUNK_MESSAGES {
            let full = mem::replace(&mut self.tail, Vec::with_capacity(CHUNK_MESSAGES));
            self.chunks.push(Arc::new(full));
        }
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.chunks.len() * CHUNK_MESSAGES + self.tail.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.tail.is_empty()
    }

    /// From the first one; its other end is the last one.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ModelMessage> + Clone {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).chain(&self.tail).map(|message| &**message)
    }

    /// Whoever wants to keep it keeps the pointer, and copies no text.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Arc<ModelMessage>> {
        match index.checked_sub(self.chunks.len() * CHUNK_MESSAGES) {
            Some(in_tail) => self.tail.get(in_tail),
            None => self.chunks.get(index / CHUNK_MESSAGES)?.get(index % CHUNK_MESSAGES),
        }
    }

    /// The place of what the user said last.
    #[must_use]
    pub const fn last_user(&self) -> Option<usize> {
        self.last_user
    }

    #[must_use]
    pub fn last(&self) -> Option<&Arc<ModelMessage>> {
        self.len().checked_sub(1).and_then(|index| self.get(index))
    }
}

/// As one list: where a chunk ends is nobody's business.
impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Extend<ModelMessage> for Messages {
    fn extend<I: IntoIterator<Item = ModelMessage>>(&mut self, messages: I) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}

impl FromIterator<ModelMessage> for Messages {
    fn from_iter<I: IntoIterator<Item = ModelMessage>>(messages: I) -> Self {
        let mut list = Self::default();
        list.extend(messages);
        list
    }
}

/// Append-only, beside the control state. Feed it every event of the runs of a thread, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// What no event can change.
    closed: Messages,
    /// What stands behind it. The first of these asked for a call that has no tool message.
    open: VecDeque<TranscriptEntry>,
    /// Every call of which something is still to be said.
    calls: BTreeMap<CallId, CallText>,
    /// What users said to runs that have not started.
    queued: BTreeMap<MessageId, UserMessage>,
    /// Texts that hooks asked to be noted, by the event that records them.
    notes: BTreeMap<u64, String>,
    /// Characters that the model reads of one result of the run whose events come now.
    result_chars_max: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
enum TranscriptEntry {
    Complete(Arc<ModelMessage>),
    /// An assistant message that asks for calls. Their arguments and results come with later events.
    OpenTurn(OpenTurn),
}

#[derive(Clone, Debug, PartialEq)]
struct OpenTurn {
    id: MessageId,
    text: String,
    reasoning: Option<String>,
    calls: Vec<CallId>,
    sealed: Option<Sealed>,
}

#[derive(Clone, Debug, PartialEq)]
struct CallText {
    tool: ToolName,
    own_arguments: Option<Arguments>,
    /// The arguments that will run, where they are not the model's.
    changed: Option<(ChangedBy, Arc<Value>)>,
    held: Option<SuspensionKind>,
    outcome: Option<String>,
    tool_message: Option<ToolMessageKind>,
}

/// What the tool message of a call tells.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ToolMessageKind {
    /// It stays what the model was given; the result comes as a note.
    Placeholder(Option<SuspensionKind>),
    Result,
}

impl Transcript {
    /// What is told from here on stands behind these.
    #[must_use]
    pub fn after_messages(messages: Messages) -> Self {
        Self { closed: messages, ..Self::default() }
    }

    pub fn push(&mut self, event: &Event) {
        match &event.fact {
            Fact::RunQueued(order) => {
                self.result_chars_max = Some(order.policy.max_result_chars);
                if let Some(message) = &order.message {
                    self.queued.insert(message.id.clone(), message.clone());
                }
            }
            Fact::MessageAdded(message) => self.add(message),
            Fact::ToolRequested { call_id, arguments, .. } => {
                self.with_call(call_id, |call| {
                    call.own_arguments.get_or_insert_with(|| arguments.clone());
                });
            }
            Fact::ToolApproved { call_id, arguments: Some(Arguments::Valid { value, .. }), .. } => {
                self.with_call(call_id, |call| call.changed = Some((ChangedBy::Approver, value.clone())));
            }
            Fact::ToolResumed { call_id, arguments: Some(Arguments::Valid { value, .. }), .. } => {
                self.with_call(call_id, |call| call.changed = Some((ChangedBy::Answer, value.clone())));
            }
            Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) => {
                self.with_call(&opened.call_id, |call| call.held = Some(opened.held.kind()));
            }
            Fact::ExecutionSucceeded { call_id, .. }
            | Fact::ExecutionFailed { call_id, .. }
            | Fact::ToolDenied { call_id, .. }
            | Fact::ToolCancelled { call_id, .. } => {
                let chars_max = self.chars_max();
                self.with_call(call_id, |call| {
                    let changed = call.changed.as_ref().map(|(by, value)| (*by, &**value));
                    call.outcome = result_text(&event.fact, changed, chars_max);
                });
            }
            Fact::PhaseAnswered { actions, .. } => {
                let note = note_text(actions).map(|note| bounded("", &note, "", self.chars_max()));
                self.notes.extend(note.map(|note| (event.seq, note)));
            }
            Fact::ExecutionStarted { call_id, .. } => self.with_call(call_id, |call| call.held = None),
            Fact::ToolApproved { .. }
            | Fact::RunStarted { .. }
            | Fact::RunWaiting { .. }
            | Fact::RunResumed {}
            | Fact::RunInterrupting { .. }
            | Fact::RunEnding { .. }
            | Fact::RunEnded { .. }
            | Fact::RunRecovered { .. }
            | Fact::StepStarted { .. }
            | Fact::StepEnded { .. }
            | Fact::ModelRetrying { .. }
            | Fact::StateChanged { .. }
            | Fact::ApprovalVoided { .. }
            | Fact::ToolResumed { .. }
            | Fact::ChildStarted { .. }
            | Fact::ChildEnded { .. } => {}
        }
    }

    fn add(&mut self, message: &Message) {
        match message {
            Message::User { id } => {
                let queued = self.queued.remove(id).map(|queued| (queued.content, queued.by));
                let (content, by) = queued.unwrap_or_default();
                self.open.push_back(TranscriptEntry::complete(ModelMessage::User {
                    id: id.clone(),
                    content,
                    by,
                }));
            }
            // Hooks may have dropped every call of an answer without words: providers refuse such a message.
            Message::Assistant { text, calls, .. } if text.is_empty() && calls.is_empty() => {}
            Message::Assistant { id, text, reasoning, calls, origin, .. } => {
                for call in calls {
                    let text = CallText {
                        tool: call.tool.clone(),
                        own_arguments: call.own_arguments.clone(),
                        changed: None,
                        held: None,
                        outcome: None,
                        tool_message: None,
                    };
                    self.calls.insert(call.call_id.clone(), text);
                }
                self.open.push_back(TranscriptEntry::OpenTurn(OpenTurn {
                    id: id.clone(),
                    text: text.clone(),
                    reasoning: reasoning.clone(),
                    calls: calls.iter().map(|call| call.call_id.clone()).collect(),
                    sealed: origin.sealed.clone(),
                }));
            }
            Message::Tool { call_id, body, .. } => self.with_call(call_id, |call| {
                call.tool_message = Some(match body {
                    ToolBody::Settled { .. } => ToolMessageKind::Result,
                    ToolBody::Placeholder { kind } => ToolMessageKind::Placeholder(*kind),
                });
            }),
            Message::Correction { why, .. } => {
                let notice = ModelMessage::Notice { text: correction(why) };
                self.open.push_back(TranscriptEntry::complete(notice));
            }
            // The results of the calls that were taken still come before it.
            Message::CallsDropped { taken, dropped, .. } => {
                let notice = ModelMessage::Notice { text: calls_dropped(*taken, *dropped) };
                self.open.push_back(TranscriptEntry::complete(notice));
            }
            Message::Interruption { .. } => {
                let notice = ModelMessage::Notice { text: INTERRUPTION.into() };
                self.open.push_back(TranscriptEntry::complete(notice));
            }
            Message::Note { id, call_id, body } => {
                let text = match body {
                    NoteBody::Late { .. } => self.late_text(call_id),
                    NoteBody::Plugin { seq } => self.notes.remove(seq),
                };
                if let Some(text) = text {
                    let note = ModelMessage::Note { id: id.clone(), call: call_id.clone(), text };
                    self.open.push_back(TranscriptEntry::complete(note));
                }
            }
        }
        self.close();
    }

    fn chars_max(&self) -> usize {
        usize::try_from(self.result_chars_max.unwrap_or(RESULT_CHARS_DEFAULT)).unwrap_or(usize::MAX)
    }

    fn with_call(&mut self, id: &CallId, change: impl FnOnce(&mut CallText)) {
        if let Some(call) = self.calls.get_mut(id) {
            change(call);
        }
    }

    /// With the late result everything is said of a call, unless the message that asked for it is still open.
    fn late_text(&mut self, id: &CallId) -> Option<String> {
        let call = self.calls.get(id)?;
        let text = late_result(id.as_str(), call.tool.as_str(), call.outcome.as_deref().unwrap_or_default());
        if self.open.is_empty() {
            self.calls.remove(id);
        }
        Some(text)
    }

    /// Hands over to the shared messages what no event can change.
    fn close(&mut self) {
        while let Some(entry) = self.open.pop_front_if(|entry| entry.is_complete(&self.calls)) {
            match entry {
                TranscriptEntry::Complete(message) => self.closed.push_shared(message),
                TranscriptEntry::OpenTurn(turn) => {
                    let ids = turn.calls.clone();
                    self.closed.extend(turn.into_messages(&self.calls));
                    for id in ids {
                        self.forget(&id);
                    }
                }
            }
        }
    }

    /// A call whose placeholder was told is remembered for its late result.
    fn forget(&mut self, id: &CallId) {
        match self.calls.get(id).and_then(|call| call.tool_message) {
            Some(ToolMessageKind::Result) => drop(self.calls.remove(id)),
            Some(ToolMessageKind::Placeholder(_)) | None => {}
        }
    }

    /// What the model would read now. A call without a tool message yet gets a text that says so. The messages are
    /// shared, so that the cost of asking does not grow with the texts that were ever said.
    #[must_use]
    pub fn model_input(&self) -> Messages {
        let mut messages = self.closed.clone();
        for entry in &self.open {
            match entry {
                TranscriptEntry::Complete(message) => messages.push_shared(message.clone()),
                TranscriptEntry::OpenTurn(turn) => messages.extend(turn.clone().into_messages(&self.calls)),
            }
        }
        messages
    }
}

impl TranscriptEntry {
    fn complete(message: ModelMessage) -> Self {
        Self::Complete(Arc::new(message))
    }

    /// Calls are told in their order: while the last one is not, the others need no look.
    fn is_complete(&self, calls: &BTreeMap<CallId, CallText>) -> bool {
        match self {
            Self::Complete(_) => true,
            Self::OpenTurn(turn) => {
                turn.calls.iter().rev().all(|id| calls.get(id).is_none_or(|call| call.tool_message.is_some()))
            }
        }
    }
}

impl OpenTurn {
    /// The message that asked, then one result for each of its calls.
    fn into_messages(self, calls: &BTreeMap<CallId, CallText>) -> impl Iterator<Item = ModelMessage> {
        let Self { id, text, reasoning, calls: asked, sealed } = self;
        let known =
            asked.iter().filter_map(|id| calls.get(id).map(|call| call.to_assistant_call(id))).collect();
        let message = ModelMessage::Assistant { id, text, reasoning, calls: known, sealed };
        let results = asked.into_iter().filter_map(|call| {
            let text = calls.get(&call)?.result();
            Some(ModelMessage::Tool { call, text })
        });
        iter::once(message).chain(results)
    }
}

impl CallText {
    fn to_assistant_call(&self, id: &CallId) -> AssistantCall {
        let arguments = self.own_arguments.clone();
        AssistantCall {
            id: id.clone(),
            tool: self.tool.clone(),
            arguments: arguments
                .unwrap_or_else(|| Arguments::Invalid { raw: String::new(), why: String::new() }),
        }
    }

    fn result(&self) -> String {
        match self.tool_message {
            Some(ToolMessageKind::Placeholder(kind)) => placeholder(kind),
            Some(ToolMessageKind::Result) | None => {
                self.outcome.clone().unwrap_or_else(|| placeholder(self.held))
            }
        }
    }
}
