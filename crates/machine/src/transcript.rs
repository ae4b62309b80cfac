//! The transcript: what the model reads, built from any prefix of the log. Every call in it has exactly one
//! result, in call order, directly after the message that asked for it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde_json::Value;

use crate::event::{Event, Fact, Message, NoteBody, ToolBody};
use crate::id::{CallId, MessageId, ToolName};
use crate::phase::Action;
use crate::suspension::SuspensionKind;
use crate::tool::Arguments;
use crate::wording::{ChangedBy, late_result, placeholder, result_text};

/// One message as a model provider wants it.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelMessage {
    User {
        id: MessageId,
        content: Arc<Value>,
    },
    Assistant {
        id: MessageId,
        text: String,
        reasoning: Option<String>,
        calls: Vec<AssistantCall>,
    },
    Tool {
        call: CallId,
        text: String,
    },
    /// Goes to the model in the user role.
    Note {
        call: CallId,
        text: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct AssistantCall {
    pub id: CallId,
    pub tool: ToolName,
    /// The model's own, also where a hook or an approver changed what ran.
    pub arguments: Arguments,
}

/// Append-only, beside the control state. Feed it every event of the runs of a thread, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    entries: Vec<Entry>,
    calls: BTreeMap<CallId, CallText>,
    /// What users said to runs that have not started.
    queued: BTreeMap<MessageId, Arc<Value>>,
    /// Texts that hooks asked to be noted, by the event that records them.
    notes: BTreeMap<u64, String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Entry {
    User { id: MessageId, content: Arc<Value> },
    Assistant { id: MessageId, text: String, reasoning: Option<String>, calls: Vec<CallId> },
    Note { call: CallId, text: String },
}

#[derive(Clone, Debug, PartialEq)]
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

impl Transcript {
    pub fn push(&mut self, event: &Event) {
        match &event.fact {
            Fact::RunQueued(order) => {
                if let Some(message) = &order.message {
                    self.queued.insert(message.id.clone(), message.content.clone());
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
                self.with_call(call_id, |call| {
                    let changed = call.changed.as_ref().map(|(by, value)| (*by, &**value));
                    call.outcome = result_text(&event.fact, changed);
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
                let content = self.queued.remove(id).unwrap_or_default();
                self.entries.push(Entry::User { id: id.clone(), content });
            }
            Message::Assistant { id, text, reasoning, calls, .. } => {
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
                });
            }
            Message::Tool { call_id, body, .. } => self.with_call(call_id, |call| {
                call.said = match body {
                    ToolBody::Settled { .. } => call.outcome.clone(),
                    ToolBody::Placeholder { kind } => Some(placeholder(*kind)),
                };
            }),
            Message::Note { call_id, body, .. } => {
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
                    self.entries.push(Entry::Note { call: call_id.clone(), text });
                }
            }
        }
    }

    fn with_call(&mut self, id: &CallId, change: impl FnOnce(&mut CallText)) {
        if let Some(call) = self.calls.get_mut(id) {
            change(call);
        }
    }

    /// What the model would read now. A call without a tool message yet gets a text that says so.
    #[must_use]
    pub fn model_input(&self) -> Vec<ModelMessage> {
        let mut messages = Vec::new();
        for entry in &self.entries {
            match entry {
                Entry::User { id, content } => {
                    messages.push(ModelMessage::User { id: id.clone(), content: content.clone() });
                }
                Entry::Note { call, text } => {
                    messages.push(ModelMessage::Note { call: call.clone(), text: text.clone() });
                }
                // Hooks may have dropped every call of an answer without words: providers refuse such a message.
                Entry::Assistant { text, calls, .. } if text.is_empty() && calls.is_empty() => {}
                Entry::Assistant { id, text, reasoning, calls } => {
                    messages.push(ModelMessage::Assistant {
                        id: id.clone(),
                        text: text.clone(),
                        reasoning: reasoning.clone(),
                        calls: calls.iter().filter_map(|call| self.assistant_call(call)).collect(),
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
