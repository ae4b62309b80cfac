//! What a request asks for, given what the thread has.

use std::collections::{BTreeMap, BTreeSet};

use super::request::{AgUiInputMessage, AgUiRequest, AgUiResumeEntry, AgUiToolResult, AgUiUserMessage};

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
        if !self.resume.is_empty() {
            return AgUiAsk::Resume { entries: self.resume.clone(), tool_results, messages };
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
}
