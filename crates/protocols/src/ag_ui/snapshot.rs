//! The conversation as the client should have it, folded from the items of a run.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::{AgUiCalls, AgUiHold, AgUiHoldKind};
use super::message::{self, AgUiMessage};
use super::result_text::AgUiSettlement;
use crate::feed::{Body, Item, RequestedCall};

/// The messages for a `MESSAGES_SNAPSHOT`.
///
/// Three things differ from what the model reads. A call has the arguments that it was gated with, which hooks may have
/// changed. A call of a client tool appears only when the client may run it: a front end runs each call of its tools
/// that has no result, so a call that still waits for an approval must not be visible. And the placeholder that the
/// model reads for a held call is left out.
#[derive(Clone, Debug, Default)]
pub struct AgUiConversation {
    messages: Vec<AgUiMessage>,
    calls: AgUiCalls,
    client_tools: BTreeSet<String>,
    /// Ids that the client gave to results of its own tools, by call.
    client_result_ids: BTreeMap<String, String>,
    /// The assistant message that asks for a call, by call.
    asking: BTreeMap<String, String>,
    last_assistant: String,
}

/// What an item changes in the conversation that a stream has to say.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AgUiChange {
    Nothing,
    Announced(AgUiAnnouncement),
    Settled(AgUiResult),
    /// A result has another text than the one that was shown.
    Corrected,
}

/// A call that the client sees for the first time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgUiAnnouncement {
    pub(super) call: RequestedCall,
    pub(super) message_id: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgUiResult {
    /// Present if the client has not seen the call before.
    pub(super) announcement: Option<AgUiAnnouncement>,
    pub(super) message_id: String,
    pub(super) call_id: String,
    pub(super) settlement: AgUiSettlement,
    /// The client supplied the result and shows it.
    pub(super) is_supplied: bool,
    pub(super) child_run_id: Option<String>,
}

impl AgUiConversation {
    /// `client_tools` names the tools that the client offers. `client_result_ids` gives the ids that the client's
    /// history has for results of those tools, by call: a snapshot with other ids would move them to its end.
    #[must_use]
    pub fn new(
        earlier: Vec<AgUiMessage>,
        client_tools: BTreeSet<String>,
        client_result_ids: BTreeMap<String, String>,
    ) -> Self {
        Self { messages: earlier, client_tools, client_result_ids, ..Self::default() }
    }

    /// The messages of whole runs, for the runs before the one that is streamed.
    pub fn read_all<'i>(&mut self, items: impl IntoIterator<Item = &'i Item>) {
        for item in items {
            self.read(&item.body);
        }
    }

    #[must_use]
    pub fn messages(&self) -> &[AgUiMessage] {
        &self.messages
    }

    #[must_use]
    pub fn into_messages(self) -> Vec<AgUiMessage> {
        self.messages
    }

    pub(super) const fn calls(&self) -> &AgUiCalls {
        &self.calls
    }

    pub(super) fn read(&mut self, body: &Body) -> AgUiChange {
        match body {
            Body::UserMessage { id, content } => {
                self.add_message(AgUiMessage::User { id: id.clone(), content: content.clone() });
            }
            Body::AssistantMessage { id, text, reasoning, calls } => {
                self.read_answer(id, text, reasoning.as_deref(), calls);
            }
            Body::ToolMessage { call_id, text, .. } => return self.read_tool_message(call_id, text),
            Body::CallRequested { call } => return self.request(call),
            Body::ApprovalRequested { call, approval_id, expires_at } => {
                return self.hold(call, AgUiHold::for_approval(call, approval_id, expires_at.as_deref()));
            }
            Body::Suspended { call, suspension } => {
                return self.hold(call, AgUiHold::from_suspension(call, suspension));
            }
            Body::Approved { call_id, arguments, .. } => {
                if let Some(call) = self.calls.get_mut(call_id) {
                    call.hold = None;
                    // A call that is held again has the arguments of the earlier approval.
                    call.edited = arguments.clone().or(call.edited.take());
                }
            }
            Body::ApprovalVoided { call_id, .. } | Body::CallResumed { call_id, .. } => {
                self.calls.release(call_id)
            }
            Body::ChildStarted { call_id, run_id } => {
                if let Some(call) = self.calls.get_mut(call_id) {
                    call.child_run_id = Some(run_id.clone());
                }
            }
            Body::Denied { call_id, by, reason, .. } => {
                return self.settle(call_id, AgUiSettlement::denied(by, reason));
            }
            Body::Succeeded { call_id, result, warning, .. } => {
                return self.settle(call_id, AgUiSettlement::succeeded(result, warning.as_deref()));
            }
            Body::Failed { call_id, message, outcome_unknown, .. } => {
                return self.settle(call_id, AgUiSettlement::failed(message, *outcome_unknown));
            }
            Body::Cancelled { call_id, reason, outcome_unknown, .. } => {
                return self.settle(call_id, AgUiSettlement::cancelled(reason, *outcome_unknown));
            }
            Body::RunQueued
            | Body::RunStarted
            | Body::RunWaiting { .. }
            | Body::RunResumed
            | Body::RunInterrupting
            | Body::RunEnding
            | Body::RunEnded { .. }
            | Body::RunRecovered
            | Body::StepStarted { .. }
            | Body::StepEnded { .. }
            | Body::Note { .. }
            | Body::ModelRetrying { .. }
            | Body::ExecutionStarted { .. }
            | Body::StateChanged { .. }
            | Body::ChildEnded { .. }
            | Body::PhaseAnswered
            | Body::Unreadable
            | Body::TextDelta { .. }
            | Body::ReasoningDelta { .. }
            | Body::ArgumentsDelta { .. }
            | Body::StepReset { .. }
            | Body::ToolLog { .. }
            | Body::ToolProgress { .. } => {}
        }
        AgUiChange::Nothing
    }

    fn add_message(&mut self, message: AgUiMessage) {
        if self.messages.iter().all(|known| known.id() != message.id()) {
            self.messages.push(message);
        }
    }

    fn read_answer(&mut self, id: &str, text: &str, reasoning: Option<&str>, calls: &[RequestedCall]) {
        if let Some(reasoning) = reasoning.filter(|reasoning| !reasoning.is_empty()) {
            let id = message::reasoning_id(id);
            self.add_message(AgUiMessage::Reasoning { id, content: reasoning.to_owned() });
        }
        if !text.is_empty() {
            let (id, content) = (id.to_owned(), Some(text.to_owned()));
            self.add_message(AgUiMessage::Assistant { id, content, tool_calls: Vec::new() });
        }
        for call in calls {
            self.asking.insert(call.call_id.clone(), id.to_owned());
        }
        id.clone_into(&mut self.last_assistant);
    }

    /// A call that has not settled has a placeholder as its tool message, which only the model needs.
    fn read_tool_message(&mut self, call_id: &str, text: &str) -> AgUiChange {
        if !self.calls.get(call_id).is_some_and(|call| call.is_settled) {
            return AgUiChange::Nothing;
        }
        let id = self.result_id(call_id);
        if message::set_result(&mut self.messages, call_id, id, text) {
            return AgUiChange::Corrected;
        }
        AgUiChange::Nothing
    }

    fn request(&mut self, call: &RequestedCall) -> AgUiChange {
        let message_id = self.asking.get(&call.call_id).unwrap_or(&self.last_assistant).clone();
        let is_client_tool = self.client_tools.contains(&call.tool);
        self.calls.add(call, message_id, is_client_tool);
        if is_client_tool {
            return AgUiChange::Nothing;
        }
        self.announce(&call.call_id).map_or(AgUiChange::Nothing, AgUiChange::Announced)
    }

    fn hold(&mut self, held: &RequestedCall, hold: AgUiHold) -> AgUiChange {
        let Some(call) = self.calls.get_mut(&held.call_id) else { return AgUiChange::Nothing };
        let is_clients_turn = hold.kind == AgUiHoldKind::ClientTool;
        call.is_client_tool |= is_clients_turn;
        call.hold = Some(hold);
        if !is_clients_turn {
            return AgUiChange::Nothing;
        }
        self.announce(&held.call_id).map_or(AgUiChange::Nothing, AgUiChange::Announced)
    }

    /// Makes the call visible. None if it is visible already.
    fn announce(&mut self, call_id: &str) -> Option<AgUiAnnouncement> {
        let call = self.calls.get_mut(call_id).filter(|call| !call.is_announced)?;
        call.is_announced = true;
        let announcement =
            AgUiAnnouncement { call: call.requested.clone(), message_id: call.message_id.clone() };
        message::add_call(&mut self.messages, &announcement.message_id, &announcement.call);
        Some(announcement)
    }

    /// The client sent this result of its own tool, and the answer was accepted.
    pub(super) fn supply(&mut self, call_id: &str, text: &str) {
        let id = self.result_id(call_id);
        if let Some(call) = self.calls.get_mut(call_id) {
            call.is_supplied = true;
            message::set_result(&mut self.messages, call_id, id, text);
        }
    }

    fn settle(&mut self, call_id: &str, settlement: AgUiSettlement) -> AgUiChange {
        let announcement = self.announce(call_id);
        let message_id = self.result_id(call_id);
        let Some(call) = self.calls.get_mut(call_id).filter(|call| !call.is_settled) else {
            return AgUiChange::Nothing;
        };
        call.is_settled = true;
        call.hold = None;
        let settlement = settlement.with_edited(call.edited.as_ref());
        let (is_supplied, child_run_id) = (call.is_supplied, call.child_run_id.clone());
        message::set_result(&mut self.messages, call_id, message_id.clone(), settlement.text());
        let call_id = call_id.to_owned();
        AgUiChange::Settled(AgUiResult {
            announcement,
            message_id,
            call_id,
            settlement,
            is_supplied,
            child_run_id,
        })
    }

    fn result_id(&self, call_id: &str) -> String {
        let is_client_tool = self.calls.get(call_id).is_some_and(|call| call.is_client_tool);
        let clients = self.client_result_ids.get(call_id).filter(|_| is_client_tool);
        clients.cloned().unwrap_or_else(|| message::tool_message_id(call_id))
    }
}
