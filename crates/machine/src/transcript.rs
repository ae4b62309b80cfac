//! The transcript: what the model reads, built from any prefix of the log. Every call in it has exactly one
//! result, in call order, directly after the message that asked for it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::{fmt, iter, mem};
use serde_json::Value;

use crate::event::{CallChange, Event, Fact, Message, NoteBody, Sealed, ToolBody, UserMessage};
use crate::id::{CallId, MessageId, Principal, ToolName, tool_message_id};
use crate::model_text::{
    ChangedBy, INTERRUPTION, bounded, calls_dropped, correction, late_result, placeholder, result_text,
};
use crate::phase::note_text;
use crate::policy::RESULT_CHARS_DEFAULT;
use crate::suspension::SuspensionKind;
use crate::tool::Arguments;

/// One message in the form that model providers expect.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelMessage {
    User {
        id: MessageId,
        content: Arc<Value>,
        /// The caller who sent it, if the log has the name. It is not sent to providers.
        by: Option<Principal>,
    },
    Assistant {
        id: MessageId,
        text: String,
        reasoning: Option<String>,
        calls: Vec<AssistantCall>,
        /// Sealed reasoning, which only the provider that made it can read.
        sealed: Option<Sealed>,
    },
    Tool {
        call: CallId,
        text: String,
    },
    /// Sent to the model in the user role.
    Note {
        id: MessageId,
        call: CallId,
        text: String,
    },
    /// A message from the runtime itself to the model. Sent in the user role.
    Notice {
        text: String,
    },
}

impl ModelMessage {
    /// Whether this is the message that the log and every message list show under this id. Notices from the runtime
    /// have no id here.
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
    /// The model's own arguments, even if a hook or an approver changed what ran.
    pub arguments: Arguments,
}

/// Messages per shared chunk. A copy of the list copies at most this many pointers, plus one for each full chunk.
pub const CHUNK_MESSAGES: usize = 64;

/// An append-only list of messages. A copy shares its messages with the original, and does not change when the
/// original grows.
#[derive(Clone, Default, PartialEq)]
pub struct Messages {
    /// Each chunk has exactly `CHUNK_MESSAGES` messages.
    chunks: Vec<Arc<Vec<Arc<ModelMessage>>>>,
    /// Always fewer than `CHUNK_MESSAGES`.
    tail: Vec<Arc<ModelMessage>>,
    /// Index of the last user message.
    last_user: Option<usize>,
    /// Number of messages before the first one that are omitted from this list.
    left_out: usize,
}

impl Messages {
    /// An empty list that follows `left_out` omitted messages.
    #[must_use]
    pub fn after_omitted(left_out: usize) -> Self {
        Self { left_out, ..Self::default() }
    }

    /// Number of messages before the first one that are omitted from this list.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// Appends all messages of `more` without copying any text.
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

    /// Iterates from the oldest message to the newest.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ModelMessage> + Clone {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).chain(&self.tail).map(|message| &**message)
    }

    /// Returns the shared pointer, so that a caller can keep the message without copying its text.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Arc<ModelMessage>> {
        match index.checked_sub(self.chunks.len() * CHUNK_MESSAGES) {
            Some(in_tail) => self.tail.get(in_tail),
            None => self.chunks.get(index / CHUNK_MESSAGES)?.get(index % CHUNK_MESSAGES),
        }
    }

    /// Index of the last user message.
    #[must_use]
    pub const fn last_user(&self) -> Option<usize> {
        self.last_user
    }

    #[must_use]
    pub fn last(&self) -> Option<&Arc<ModelMessage>> {
        self.len().checked_sub(1).and_then(|index| self.get(index))
    }
}

/// Prints one flat list: chunk boundaries are an implementation detail.
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

/// Append-only, kept beside the control state. Feed it every event of the thread's runs, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// Messages that no later event can change.
    closed: Messages,
    /// Entries after `closed`. The first one asked for a call that has no tool message yet.
    open: VecDeque<TranscriptEntry>,
    /// Every call that still needs a tool message or a late result.
    calls: BTreeMap<CallId, CallText>,
    /// User messages of runs that have not started.
    queued: BTreeMap<MessageId, UserMessage>,
    /// Notes that hooks asked for, by the sequence number of the event that records them.
    notes: BTreeMap<u64, String>,
    /// Maximum characters of one result that the model reads, for the run whose events are being fed.
    result_chars_max: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
enum TranscriptEntry {
    Complete(Arc<ModelMessage>),
    /// An assistant message that asks for calls. Their arguments and results arrive in later events.
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
    /// The arguments that will run, if they are not the model's.
    changed: Option<(ChangedBy, Arc<Value>)>,
    held: Option<SuspensionKind>,
    outcome: Option<String>,
    tool_message: Option<ToolMessageKind>,
}

/// What the tool message of a call contains.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ToolMessageKind {
    /// The placeholder stays in the transcript; the result is added later as a note.
    Placeholder(Option<SuspensionKind>),
    Result,
}

impl Transcript {
    /// Starts a transcript whose new messages follow these.
    #[must_use]
    pub fn after_messages(messages: Messages) -> Self {
        Self { closed: messages, ..Self::default() }
    }

    pub fn push(&mut self, event: &Event) {
        let fact = &event.fact;
        if let Fact::RunQueued(order) = fact {
            self.result_chars_max = Some(order.policy.max_result_chars);
            if let Some(message) = &order.message {
                self.queued.insert(message.id.clone(), message.clone());
            }
        }
        if let Fact::MessageAdded(message) = fact {
            self.add(message);
        }
        if let Fact::PhaseAnswered { actions, .. } = fact {
            let note = note_text(actions).map(|note| bounded("", &note, "", self.chars_max()));
            self.notes.extend(note.map(|note| (event.seq, note)));
        }
        if let (Some(call_id), Some(change)) = (fact.call_id(), fact.call_change()) {
            let chars_max = self.chars_max();
            self.with_call(call_id, |call| call.apply(fact, change, chars_max));
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
            // Hooks may have dropped every call of an answer without text. Providers refuse such a message.
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
            // The results of the calls that were taken still come before this notice.
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

    /// Once the late result is added, the call is removed, unless the message that asked for it is still open.
    fn late_text(&mut self, id: &CallId) -> Option<String> {
        let call = self.calls.get(id)?;
        let text = late_result(id.as_str(), call.tool.as_str(), call.outcome.as_deref().unwrap_or_default());
        if self.open.is_empty() {
            self.calls.remove(id);
        }
        Some(text)
    }

    /// Moves entries that no later event can change to the shared messages.
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

    /// Removes a call that has its result. A call with a placeholder is kept for its late result.
    fn forget(&mut self, id: &CallId) {
        match self.calls.get(id).and_then(|call| call.tool_message) {
            Some(ToolMessageKind::Result) => drop(self.calls.remove(id)),
            Some(ToolMessageKind::Placeholder(_)) | None => {}
        }
    }

    /// What the model would read now. A call without a tool message gets a text that says so. The messages are shared,
    /// so the cost of this call does not grow with the length of the texts.
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

    /// Tool messages are written in call order, so checking from the last call finds a missing one soonest.
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
    /// The assistant message, then one result for each of its calls.
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
    fn apply(&mut self, fact: &Fact, change: CallChange<'_>, chars_max: usize) {
        match change {
            CallChange::Requested { arguments, .. } => {
                self.own_arguments.get_or_insert_with(|| arguments.clone());
            }
            CallChange::Suspended(opened) => self.held = Some(opened.held.kind()),
            CallChange::Resumed => {
                if let Some((by, value)) = fact.changed_arguments() {
                    self.changed = Some((by, value.clone()));
                }
            }
            CallChange::Started { .. } => self.held = None,
            CallChange::Settled(_) => {
                let changed = self.changed.as_ref().map(|(by, value)| (*by, &**value));
                self.outcome = result_text(fact, changed, chars_max);
            }
        }
    }

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
