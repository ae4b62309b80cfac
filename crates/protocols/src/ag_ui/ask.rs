//! What a request asks for, given what the thread has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::request::{
    AgUiInputMessage, AgUiRequest, AgUiResumeEntry, AgUiResumeStatus, AgUiToolResult, AgUiUserMessage,
};

/// What the caller knows of the thread, from durable state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgUiThreadView {
    /// The ids of all messages of the thread, or at least of its users' messages.
    pub message_ids: BTreeSet<String>,
    /// Ids of calls that wait for the result of a client tool.
    pub open_client_calls: BTreeSet<String>,
    /// The open interrupts (approvals, questions, calls in doubt) by id, with the ids of their calls.
    pub open_interrupts: BTreeMap<String, String>,
}

/// What the client wants. Where a request carries several things, the caller processes them in the order of the fields.
#[derive(Clone, Debug, PartialEq)]
pub enum AgUiAsk {
    /// Users' messages that the thread does not have, oldest first: at least one.
    NewMessage { messages: Vec<AgUiUserMessage> },
    /// Answers to interrupts. Entries that name no open interrupt are included: they may repeat an earlier request, and
    /// otherwise they are skipped with a warning.
    Resume {
        entries: Vec<AgUiResumeEntry>,
        tool_results: Vec<AgUiToolResult>,
        messages: Vec<AgUiUserMessage>,
    },
    /// Results of client tools that the thread waits for.
    ToolResults { tool_results: Vec<AgUiToolResult>, messages: Vec<AgUiUserMessage> },
    /// The history ends with a message of the thread: the client wants another answer to it.
    Regenerate { message: AgUiUserMessage },
    /// Nothing that the thread does not know already.
    Nothing,
}

impl AgUiRequest {
    /// Decisions, results and users' messages are all that is taken from the posted history. `resume` is authoritative:
    /// a tool message for a call under an open interrupt is what a client shows in place of an answer, not a result.
    #[must_use]
    pub fn ask(&self, thread: &AgUiThreadView) -> AgUiAsk {
        let messages = self.new_user_messages(&thread.message_ids);
        let tool_results = self.open_tool_results(thread);
        let entries = self.resume_entries(thread);
        if !entries.is_empty() {
            return AgUiAsk::Resume { entries, tool_results, messages };
        }
        if !tool_results.is_empty() {
            return AgUiAsk::ToolResults { tool_results, messages };
        }
        if !messages.is_empty() {
            return AgUiAsk::NewMessage { messages };
        }
        match self.messages.last() {
            Some(AgUiInputMessage::User(message)) => AgUiAsk::Regenerate { message: message.clone() },
            Some(AgUiInputMessage::Tool(_) | AgUiInputMessage::Other { .. }) | None => AgUiAsk::Nothing,
        }
    }

    /// The users' messages at the end of the history that the thread does not have, oldest first.
    #[must_use]
    pub fn new_user_messages(&self, known: &BTreeSet<String>) -> Vec<AgUiUserMessage> {
        let mut found = Vec::new();
        for message in self.messages.iter().rev() {
            match message {
                AgUiInputMessage::User(message) if !known.contains(&message.id) => {
                    found.push(message.clone())
                }
                AgUiInputMessage::User(_) | AgUiInputMessage::Tool(_) | AgUiInputMessage::Other { .. } => {
                    break;
                }
            }
        }
        found.reverse();
        found
    }

    /// The newest result of each client tool that the thread waits for, in the order of the history.
    fn open_tool_results(&self, thread: &AgUiThreadView) -> Vec<AgUiToolResult> {
        let is_interrupted = |call_id: &String| thread.open_interrupts.values().any(|held| held == call_id);
        let mut results: Vec<AgUiToolResult> = Vec::new();
        for result in self.tool_results() {
            if !thread.open_client_calls.contains(&result.call_id) || is_interrupted(&result.call_id) {
                continue;
            }
            results.retain(|earlier| earlier.call_id != result.call_id);
            results.push(result.clone());
        }
        results
    }

    /// The answers in `resume`. The legacy form names no interrupt, so it counts only if exactly one is open.
    fn resume_entries(&self, thread: &AgUiThreadView) -> Vec<AgUiResumeEntry> {
        let Some(legacy) = self.legacy_resume.as_ref().filter(|_| self.resume.is_empty()) else {
            return self.resume.clone();
        };
        let mut open = thread.open_interrupts.keys();
        match (open.next(), open.next()) {
            (Some(interrupt_id), None) => vec![AgUiResumeEntry {
                interrupt_id: interrupt_id.clone(),
                status: AgUiResumeStatus::Resolved(Some(legacy_payload(legacy))),
            }],
            (Some(_), Some(_)) | (None, _) => Vec::new(),
        }
    }
}

/// The hook that sends the legacy form can only send text, so an answer with several fields is JSON text.
fn legacy_payload(answer: &Value) -> Value {
    let parsed = answer.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    parsed.filter(Value::is_object).unwrap_or_else(|| answer.clone())
}
