//! The transcript in its plainest form, which the shared one must equal at every prefix of every log.

use std::collections::BTreeMap;
use std::sync::Arc;

use machine::event::{Event, Fact, Message, NoteBody, Sealed, ToolBody, UserMessage};
use machine::id::{CallId, MessageId, Principal, ToolName};
use machine::model_text::{
    ChangedBy, INTERRUPTION, bounded, calls_dropped, correction, late_result, placeholder, result_text,
};
use machine::phase::Action;
use machine::suspension::SuspensionKind;
use machine::tool::Arguments;
use machine::transcript::{AssistantCall, Messages, ModelMessage, Transcript};
use serde_json::Value;

/// Both forms of the transcript of one thread.
#[derive(Default)]
pub(crate) struct Compared {
    pub(crate) shared: Transcript,
    plain: PlainTranscript,
}

impl Compared {
    #[track_caller]
    pub(crate) fn push(&mut self, event: &Event) {
        self.shared.push(event);
        self.plain.push(event);
        let expected: Messages = self.plain.model_input().into_iter().collect();
        assert_eq!(self.shared.model_input(), expected, "after {event:#?}");
    }
}

/// Keeps every text, and copies them all whenever the model input is asked for.
#[derive(Default)]
pub(crate) struct PlainTranscript {
    entries: Vec<Entry>,
    calls: BTreeMap<CallId, CallText>,
    /// What users said to runs that have not started.
    queued: BTreeMap<MessageId, UserMessage>,
    /// Texts that hooks asked to be noted, by the event that records them.
    notes: BTreeMap<u64, String>,
    chars_max: usize,
}

enum Entry {
    User {
        id: MessageId,
        content: Arc<Value>,
        by: Option<Principal>,
    },
    Assistant {
        id: MessageId,
        text: String,
        reasoning: Option<String>,
        calls: Vec<CallId>,
        sealed: Option<Sealed>,
    },
    Note {
        id: MessageId,
        call: CallId,
        text: String,
    },
    Notice {
        text: String,
    },
}

struct CallText {
    tool: ToolName,
    own_arguments: Option<Arguments>,
    /// The arguments that will run, where they are not the model's.
    changed: Option<(ChangedBy, Arc<Value>)>,
    held: Option<SuspensionKind>,
    outcome: Option<String>,
    /// The placeholder that the model was given stays what it was given.
    said: Option<String>,
}

impl PlainTranscript {
    pub(crate) fn push(&mut self, event: &Event) {
        match &event.fact {
            Fact::RunQueued(order) => {
                self.chars_max = order.policy.max_result_chars as usize;
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
                let chars_max = self.chars_max;
                self.with_call(call_id, |call| {
                    let changed = call.changed.as_ref().map(|(by, value)| (*by, &**value));
                    call.outcome = result_text(&event.fact, changed, chars_max);
                });
            }
            Fact::PhaseAnswered { actions, .. } => {
                for action in actions {
                    if let Action::AddNote { text } = action {
                        let note = self.notes.entry(event.seq).or_default();
                        if !note.is_empty() {
                            note.push('\n');
                        }
                        note.push_str(text);
                    }
                }
                if let Some(note) = self.notes.get_mut(&event.seq) {
                    *note = bounded("", note, "", self.chars_max);
                }
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
                self.entries.push(Entry::User { id: id.clone(), content, by });
            }
            Message::Assistant { id, text, reasoning, calls, origin, .. } => {
                for call in calls {
                    let text = CallText {
                        tool: call.tool.clone(),
                        own_arguments: call.own_arguments.clone(),
                        changed: None,
                        held: None,
                        outcome: None,
                        said: None,
                    };
                    self.calls.insert(call.call_id.clone(), text);
                }
                self.entries.push(Entry::Assistant {
                    id: id.clone(),
                    text: text.clone(),
                    reasoning: reasoning.clone(),
                    calls: calls.iter().map(|call| call.call_id.clone()).collect(),
                    sealed: origin.sealed.clone(),
                });
            }
            Message::Tool { call_id, body, .. } => self.with_call(call_id, |call| {
                call.said = match body {
                    ToolBody::Settled { .. } => call.outcome.clone(),
                    ToolBody::Placeholder { kind } => Some(placeholder(*kind)),
                };
            }),
            Message::Note { id, call_id, body } => {
                let text = match body {
                    NoteBody::Late { .. } => self.calls.get(call_id).map(|call| {
                        late_result(
                            call_id.as_str(),
                            call.tool.as_str(),
                            call.outcome.as_deref().unwrap_or_default(),
                        )
                    }),
                    NoteBody::Plugin { seq } => self.notes.remove(seq),
                };
                if let Some(text) = text {
                    self.entries.push(Entry::Note { id: id.clone(), call: call_id.clone(), text });
                }
            }
            Message::Correction { why, .. } => self.entries.push(Entry::Notice { text: correction(why) }),
            Message::CallsDropped { taken, dropped, .. } => {
                self.entries.push(Entry::Notice { text: calls_dropped(*taken, *dropped) });
            }
            Message::Interruption { .. } => self.entries.push(Entry::Notice { text: INTERRUPTION.into() }),
        }
    }

    fn with_call(&mut self, id: &CallId, change: impl FnOnce(&mut CallText)) {
        if let Some(call) = self.calls.get_mut(id) {
            change(call);
        }
    }

    /// What the model would read now. A call without a tool message yet gets a text that says so.
    pub(crate) fn model_input(&self) -> Vec<ModelMessage> {
        let mut messages = Vec::new();
        for entry in &self.entries {
            match entry {
                Entry::User { id, content, by } => {
                    let (id, content, by) = (id.clone(), content.clone(), by.clone());
                    messages.push(ModelMessage::User { id, content, by });
                }
                Entry::Notice { text } => messages.push(ModelMessage::Notice { text: text.clone() }),
                Entry::Note { id, call, text } => {
                    let (id, call, text) = (id.clone(), call.clone(), text.clone());
                    messages.push(ModelMessage::Note { id, call, text });
                }
                // Hooks may have dropped every call of an answer without words: providers refuse such a message.
                Entry::Assistant { text, calls, .. } if text.is_empty() && calls.is_empty() => {}
                Entry::Assistant { id, text, reasoning, calls, sealed } => {
                    messages.push(ModelMessage::Assistant {
                        id: id.clone(),
                        text: text.clone(),
                        reasoning: reasoning.clone(),
                        calls: calls.iter().filter_map(|call| self.assistant_call(call)).collect(),
                        sealed: sealed.clone(),
                    });
                    messages.extend(
                        calls.iter().map(|call| ModelMessage::Tool {
                            call: call.clone(),
                            text: self.tool_text(call),
                        }),
                    );
                }
            }
        }
        messages
    }

    fn assistant_call(&self, id: &CallId) -> Option<AssistantCall> {
        self.calls.get(id).map(|call| AssistantCall {
            id: id.clone(),
            tool: call.tool.clone(),
            arguments: call
                .own_arguments
                .clone()
                .unwrap_or_else(|| Arguments::Invalid { raw: String::new(), why: String::new() }),
        })
    }

    fn tool_text(&self, id: &CallId) -> String {
        let call = self.calls.get(id);
        call.and_then(|call| call.said.clone().or_else(|| call.outcome.clone()))
            .unwrap_or_else(|| placeholder(call.and_then(|call| call.held)))
    }
}
