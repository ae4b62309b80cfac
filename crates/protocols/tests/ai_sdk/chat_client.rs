//! A chat that behaves like the client's `Chat` class, and a server of one scripted run.

use std::collections::BTreeSet;

use protocols::ai_sdk::{
    ChatAction, Chunk, ChunkEncoder, ChunkVerifier, MessageReducer, Seen, ToolState, UiMessage, UiPart,
    UiToolPart, parse_request,
};
use protocols::feed::{Body, Item};
use serde_json::{Value, json};

use crate::run_script::{MESSAGE, RunScript};

/// Tools that the front end executes in every test.
pub(crate) const CLIENT_TOOLS: [&str; 2] = ["pick_file", "locate"];

pub(crate) fn client_tools() -> BTreeSet<String> {
    CLIENT_TOOLS.into_iter().map(str::to_owned).collect()
}

/// What the client decided, and which of it the server accepts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accepted {
    pub(crate) approvals: Vec<String>,
    pub(crate) outputs: Vec<String>,
}

impl Accepted {
    pub(crate) fn approval(id: &str) -> Self {
        Self { approvals: vec![id.into()], outputs: Vec::new() }
    }

    pub(crate) fn output(id: &str) -> Self {
        Self { approvals: Vec::new(), outputs: vec![id.into()] }
    }
}

/// The chunks of a stream over these items. Up to `stored` they are read at once; after each further commit the server
/// has no other item at hand.
pub(crate) fn stream(mut encoder: ChunkEncoder, items: &[Item], stored: usize) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for (index, item) in items.iter().enumerate() {
        encoder.push(item, &mut chunks);
        if index + 1 >= stored && ends_commit(item, items.get(index + 1)) {
            encoder.idle(&mut chunks);
        }
    }
    chunks
}

/// What follows from a decision is in the commit of the decision.
fn ends_commit(item: &Item, next: Option<&Item>) -> bool {
    let is_decision = matches!(
        item.body,
        Body::Approved { .. }
            | Body::Denied { .. }
            | Body::ApprovalVoided { .. }
            | Body::CallResumed { .. }
            | Body::Cancelled { .. }
    );
    let follows = |next: &Item| {
        matches!(
            next.body,
            Body::RunResumed
                | Body::Succeeded { .. }
                | Body::Failed { .. }
                | Body::Cancelled { .. }
                | Body::StepEnded { .. }
                | Body::RunEnded { .. }
        )
    };
    !(is_decision && next.is_some_and(follows))
}

/// Checks every chunk as JSON, and that the stream ends.
pub(crate) fn verify(mut verifier: ChunkVerifier, chunks: &[Chunk]) {
    let broken = |error| panic!("{error}\n{}", lines(chunks).join("\n"));
    for chunk in chunks {
        let json = serde_json::to_value(chunk).unwrap();
        match verifier.check_json(&json) {
            Ok(parsed) => assert_eq!(serde_json::to_value(&parsed).unwrap(), json),
            Err(error) => broken(error),
        }
    }
    verifier.end().unwrap_or_else(broken);
}

pub(crate) fn lines(chunks: &[Chunk]) -> Vec<String> {
    chunks.iter().map(|chunk| serde_json::to_string(chunk).unwrap()).collect()
}

/// The stream that a new client gets of the run so far.
pub(crate) fn fresh(script: &RunScript) -> Vec<Chunk> {
    fresh_until(script, script.items.len())
}

pub(crate) fn fresh_until(script: &RunScript, count: usize) -> Vec<Chunk> {
    let items = &script.items[..count];
    let chunks = stream(ChunkEncoder::new(client_tools()), items, items.len());
    verify(ChunkVerifier::new(), &chunks);
    chunks
}

pub(crate) fn fold(chunks: &[Chunk]) -> UiMessage {
    let mut reducer = MessageReducer::default();
    chunks.iter().for_each(|chunk| reducer.apply(chunk));
    reducer.into_message()
}

/// Without what only the client knows of its own answers, and without text that was given up, which a reload does not
/// show. A text in two parts, because the connection was lost in between, is one text. Data parts have no place among
/// the others: a step that was begun at the end of a stream is where a later step would not be. Such a step can stay
/// empty.
pub(crate) fn normalized(message: &UiMessage) -> Value {
    let mut parts: Vec<UiPart> = Vec::new();
    for part in message.parts.clone() {
        match (parts.last_mut(), part) {
            (_, UiPart::Text { discarded: true, .. } | UiPart::Reasoning { discarded: true, .. }) => {}
            (Some(UiPart::Text { text, .. }), UiPart::Text { text: more, .. })
            | (Some(UiPart::Reasoning { text, .. }), UiPart::Reasoning { text: more, .. }) => {
                text.push_str(&more);
            }
            (_, UiPart::Text { text, discarded, .. }) => {
                parts.push(UiPart::Text { text, state: None, discarded });
            }
            (_, UiPart::Reasoning { text, discarded, .. }) => {
                parts.push(UiPart::Reasoning { text, state: None, discarded });
            }
            (_, UiPart::Tool(mut tool)) => {
                if let Some(approval) = &mut tool.approval {
                    (approval.approved, approval.reason) = (None, None);
                }
                // A page that gives the output itself is not shown an approval that came before it.
                if !tool.dynamic && tool.state == ToolState::OutputAvailable {
                    tool.approval = None;
                }
                parts.push(UiPart::Tool(tool));
            }
            (_, part) => parts.push(part),
        }
    }
    let (data, others): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| matches!(part, UiPart::Data { .. }));
    let mut parts: Vec<UiPart> = Vec::new();
    for part in others {
        if part == UiPart::StepStart && parts.last() == Some(&UiPart::StepStart) {
            continue;
        }
        parts.push(part);
    }
    if parts.last() == Some(&UiPart::StepStart) {
        parts.pop();
    }
    parts.extend(data.into_iter().filter(|part| !is_closed_client_tool(part)));
    serde_json::to_value(UiMessage { parts, ..message.clone() }).unwrap()
}

/// A tool of the front end that was not in the last step when it was handed over. Whether a page was shown it in this
/// form depends on the step in which its stream began.
fn is_closed_client_tool(part: &UiPart) -> bool {
    matches!(part, UiPart::Data { data, .. } if data["kind"] == "client_tool" && data["status"] == "closed")
}

/// The client's side of a chat with one assistant message.
#[derive(Clone, Debug)]
pub(crate) struct ChatClient {
    pub(crate) message: UiMessage,
}

impl ChatClient {
    /// Has received this stream, or the beginning of it.
    pub(crate) fn of(chunks: &[Chunk]) -> Self {
        Self { message: fold(chunks) }
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &UiToolPart> {
        self.message.parts.iter().filter_map(|part| match part {
            UiPart::Tool(tool) => Some(tool),
            _ => None,
        })
    }

    pub(crate) fn tool(&self, call_id: &str) -> &UiToolPart {
        let mut found = self.tools().filter(|tool| tool.call_id == call_id);
        let tool = found.next().unwrap_or_else(|| panic!("no part of {call_id}"));
        assert!(found.next().is_none(), "two parts of {call_id}");
        tool
    }

    pub(crate) fn state(&self, call_id: &str) -> ToolState {
        self.tool(call_id).state
    }

    /// `addToolApprovalResponse`.
    pub(crate) fn respond(&mut self, approval_id: &str, approved: bool, reason: Option<&str>) -> &mut Self {
        for part in &mut self.message.parts {
            if let UiPart::Tool(tool) = part
                && tool.state == ToolState::ApprovalRequested
                && let Some(approval) = &mut tool.approval
                && approval.id == approval_id
            {
                tool.state = ToolState::ApprovalResponded;
                (approval.approved, approval.reason) = (Some(approved), reason.map(str::to_owned));
            }
        }
        self
    }

    /// `addToolOutput`.
    pub(crate) fn output(&mut self, call_id: &str, output: &Value) -> &mut Self {
        for part in &mut self.message.parts {
            if let UiPart::Tool(tool) = part
                && tool.call_id == call_id
            {
                tool.state = ToolState::OutputAvailable;
                tool.output = Some(output.into());
            }
        }
        self
    }

    pub(crate) fn body(&self) -> Value {
        let user = json!({"id": "user_1", "role": "user", "parts": [{"type": "text", "text": "hi"}]});
        json!({
            "id": "thr_1",
            "messages": [user, self.message],
            "trigger": "submit-message",
            "messageId": self.message.id,
        })
    }

    pub(crate) fn post(&self) -> ChatAction {
        parse_request(&self.body()).unwrap().action
    }

    pub(crate) fn seen(&self) -> Seen {
        match self.post() {
            ChatAction::Continue { message_id, seen, .. } => {
                assert_eq!(message_id, self.message.id);
                seen
            }
            other => panic!("{other:?}"),
        }
    }

    /// Posts the message, and receives the continuation over the items up to `count`, of which `stored` are in the log
    /// when it begins.
    pub(crate) fn continue_over(
        &mut self,
        script: &RunScript,
        accepted: &Accepted,
        stored: usize,
        count: usize,
    ) -> Vec<Chunk> {
        let seen = self.seen();
        let mut encoder = ChunkEncoder::continuing(client_tools(), seen.clone());
        accepted.approvals.iter().for_each(|id| encoder.await_approval(id));
        accepted.outputs.iter().for_each(|id| encoder.await_output(id));
        let chunks = stream(encoder, &script.items[..count], stored);
        verify(ChunkVerifier::continuing(MESSAGE, &seen), &chunks);
        self.receive(&chunks);
        chunks
    }

    pub(crate) fn receive(&mut self, chunks: &[Chunk]) {
        let mut reducer = MessageReducer::continuing(self.message.clone());
        chunks.iter().for_each(|chunk| reducer.apply(chunk));
        self.message = reducer.into_message();
    }

    fn last_step_tools(&self) -> Vec<&UiToolPart> {
        let begin = self.message.parts.iter().rposition(|part| *part == UiPart::StepStart).unwrap_or(0);
        let tools = self.message.parts[begin..].iter();
        tools.filter_map(|part| if let UiPart::Tool(tool) = part { Some(tool) } else { None }).collect()
    }

    /// `lastAssistantMessageIsCompleteWithApprovalResponses`, or `…WithToolCalls`.
    pub(crate) fn posts_by_itself(&self) -> bool {
        let tools = self.last_step_tools();
        let is_done =
            |tool: &&UiToolPart| matches!(tool.state, ToolState::OutputAvailable | ToolState::OutputError);
        let responded = |tool: &&UiToolPart| tool.state == ToolState::ApprovalResponded;
        let approvals =
            tools.iter().any(responded) && tools.iter().all(|tool| is_done(tool) || responded(tool));
        approvals || (!tools.is_empty() && tools.iter().all(is_done))
    }
}
