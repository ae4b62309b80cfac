//! Items of a run's feed in, events of one protocol run out.

use serde_json::{Map, Value, json};

use super::answer::AgUiAnswer;
use super::event::{AgUiDialect, AgUiEvent, AgUiKind, AgUiOutcome};
use super::interrupt::AgUiDelegatedHold;
use super::json_patch::apply_patch;
use super::message::{AgUiMessage, reasoning_id};
use super::result_text::AgUiSettlement;
use super::segment::AgUiSegment;
use super::snapshot::{AgUiAnnouncement, AgUiChange, AgUiConversation, AgUiResult};
use crate::feed::{Body, Item, RunEnd, Usage};

/// Encodes one segment of a run.
///
/// Call [`AgUiEncoder::start`], then [`AgUiEncoder::push`] with every item of the run from its first event on, until
/// [`AgUiEncoder::is_done`]. Items up to the segment's `new_after` are folded and sent as snapshots. Live frames count
/// only after that. Repeated items and items of other runs are skipped.
///
/// A reset of an answer that the client has a part of cannot be expressed by deltas: text only ever grows. The message
/// is closed, a `MESSAGES_SNAPSHOT` without it removes it, and the next attempt begins it again under the same id. The
/// same holds for the part of an answer that a failure or an interrupt leaves behind: the log does not keep it.
#[derive(Clone, Debug)]
pub struct AgUiEncoder {
    pub(super) segment: AgUiSegment,
    pub(super) phase: AgUiPhase,
    pub(super) conversation: AgUiConversation,
    pub(super) state: Value,
    pub(super) is_waiting: bool,
    pub(super) end: Option<(RunEnd, Usage)>,
    /// Calls below delegated runs that wait for the user.
    pub(super) delegated: Vec<AgUiDelegatedHold>,
    /// Delegated runs that the stream has announced and not closed.
    pub(super) open_subagents: Vec<String>,
    /// The client shows something that is not in the conversation, or differs from it.
    pub(super) needs_correction: bool,
    /// The conversation or the state has changed since the last snapshots.
    pub(super) is_stale: bool,
    answer: Option<AgUiAnswer>,
    /// The user's message of the run is in the log. A queued run does not have it yet.
    has_question: bool,
    /// The message id of the open step, as long as the answer is not complete.
    unanswered: Option<String>,
    open_step: Option<String>,
    /// The Holdpoint run, once an item has named it.
    holdpoint_run: Option<String>,
    last_seq: u64,
    /// The time of the item that is being read.
    at: Option<i64>,
    out: Vec<AgUiEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgUiPhase {
    NotStarted,
    /// Items are folded. Nothing but the start has been sent.
    Past,
    Live,
    Done,
}

impl AgUiEncoder {
    #[must_use]
    pub fn new(segment: AgUiSegment) -> Self {
        let conversation = AgUiConversation::new(
            segment.earlier.clone(),
            segment.client_tools.clone(),
            segment.client_result_ids(),
        );
        Self {
            conversation,
            state: segment.state_document(),
            segment,
            phase: AgUiPhase::NotStarted,
            is_waiting: false,
            end: None,
            delegated: Vec::new(),
            open_subagents: Vec::new(),
            needs_correction: false,
            is_stale: true,
            answer: None,
            has_question: false,
            unanswered: None,
            open_step: None,
            holdpoint_run: None,
            last_seq: 0,
            at: None,
            out: Vec::new(),
        }
    }

    /// The response to a `connect` for a thread without an unended run. All messages are in `earlier`.
    #[must_use]
    pub fn replay_idle(segment: AgUiSegment) -> Vec<AgUiEvent> {
        let mut encoder = Self::new(AgUiSegment { new_after: u64::MAX, ..segment });
        encoder.begin();
        encoder.phase = AgUiPhase::Live;
        encoder.send_snapshots();
        encoder.finish_run(Some(AgUiOutcome::Success { pending_tool_call_ids: Vec::new() }), Map::new());
        encoder.out
    }

    /// The first event. It can be sent before the run has any.
    pub fn start(&mut self) -> Vec<AgUiEvent> {
        if self.phase == AgUiPhase::NotStarted {
            self.begin();
        }
        std::mem::take(&mut self.out)
    }

    pub fn push(&mut self, item: &Item) -> Vec<AgUiEvent> {
        if self.phase == AgUiPhase::NotStarted {
            self.begin();
        }
        if self.phase != AgUiPhase::Done && self.is_new(item) {
            self.take(item);
        }
        std::mem::take(&mut self.out)
    }

    /// Says which calls below delegated runs wait for the user, whenever that changes: all of them, not only new ones.
    pub fn set_delegated(&mut self, holds: Vec<AgUiDelegatedHold>) -> Vec<AgUiEvent> {
        self.delegated = holds;
        if self.phase == AgUiPhase::Live && self.is_waiting {
            self.at = None;
            self.finish_waiting();
        }
        std::mem::take(&mut self.out)
    }

    /// Ends the stream because of a failure that is not the run's, such as an unreachable store.
    pub fn abort(&mut self, code: &str, message: &str) -> Vec<AgUiEvent> {
        if self.phase != AgUiPhase::Done {
            self.at = None;
            self.fail(message.to_owned(), code.to_owned(), Map::new());
        }
        std::mem::take(&mut self.out)
    }

    /// The terminal event was returned. Nothing follows it, and the response can be closed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.phase == AgUiPhase::Done
    }

    /// The conversation so far, as snapshots show it.
    #[must_use]
    pub fn messages(&self) -> &[AgUiMessage] {
        self.conversation.messages()
    }

    /// The state document so far.
    #[must_use]
    pub const fn state(&self) -> &Value {
        &self.state
    }

    fn begin(&mut self) {
        // While nothing of the run is in the past, what happens is what is sent.
        self.phase = AgUiPhase::Live;
        let (thread_id, run_id) = (self.segment.thread_id.clone(), self.segment.run_id.clone());
        let protocol_version = self.segment.dialect.version();
        self.emit(AgUiKind::RunStarted { thread_id, run_id, protocol_version });
        if self.segment.new_after > 0 {
            self.phase = AgUiPhase::Past;
        } else if !self.segment.client_has_state(&self.state) {
            self.emit(AgUiKind::StateSnapshot { snapshot: self.state.clone() });
        }
    }

    fn is_new(&mut self, item: &Item) -> bool {
        if self.holdpoint_run.as_ref().is_some_and(|run| *run != item.run_id) {
            return false;
        }
        match item.seq {
            Some(seq) => {
                let is_new = seq > self.last_seq;
                self.last_seq = self.last_seq.max(seq);
                is_new
            }
            None => self.phase == AgUiPhase::Live,
        }
    }

    fn take(&mut self, item: &Item) {
        if self.phase == AgUiPhase::Past && item.seq.is_some_and(|seq| seq > self.segment.new_after) {
            self.catch_up();
        }
        if self.phase == AgUiPhase::Done {
            return;
        }
        self.at = Some(item.at);
        if self.holdpoint_run.is_none() {
            self.holdpoint_run = Some(item.run_id.clone());
            self.announce_run();
        }
        self.read(item);
        if self.phase == AgUiPhase::Past {
            if item.seq.is_some_and(|seq| seq >= self.segment.new_after) {
                self.catch_up();
            }
            return;
        }
        if let Some((end, usage)) = self.end.clone() {
            self.finish_ended(&end, usage);
        } else if matches!(item.body, Body::RunWaiting { .. }) {
            self.finish_waiting();
        }
    }

    /// The past is complete: sends it as snapshots, and ends if nothing is to come.
    fn catch_up(&mut self) {
        self.at = None;
        self.phase = AgUiPhase::Live;
        self.answer = None;
        self.open_step = None;
        self.announce_run();
        self.show_supplied_results();
        // Of an answer that is still being written the client may have reasoning from a stream that broke off. It would
        // survive the snapshot, and the rest of it would be appended twice.
        let broken_off = self.unanswered.as_deref().map(reasoning_id);
        let broken_off = broken_off.filter(|id| self.segment.client_message_ids.contains(id));
        if self.has_question || !self.client_has_messages() {
            self.send_messages(broken_off);
        }
        self.send_state();
        if self.end.is_some() {
            self.finish_past_end();
        } else {
            self.reopen_subagents();
            if self.is_waiting {
                self.finish_waiting();
            }
        }
    }

    fn announce_run(&mut self) {
        if let Some(run) = self.holdpoint_run.clone() {
            self.emit(AgUiKind::Custom { name: "holdpoint.run", value: json!({"runId": run}) });
        }
    }

    /// Results of the client's own tools that were accepted and are not processed yet stay in the client's history.
    fn show_supplied_results(&mut self) {
        let supplied: Vec<(String, String)> = self
            .conversation
            .calls()
            .held()
            .filter(|(_, hold)| self.segment.decided.contains(&hold.id))
            .filter_map(|(call, _)| {
                let (_, text) = self.segment.client_results.get(&call.requested.call_id)?;
                call.is_client_tool.then(|| (call.requested.call_id.clone(), text.clone()))
            })
            .collect();
        for (call_id, text) in supplied {
            self.conversation.supply(&call_id, &text);
        }
    }

    fn read(&mut self, item: &Item) {
        let change = self.conversation.read(&item.body);
        match &item.body {
            Body::RunWaiting { .. } => self.is_waiting = true,
            Body::RunStarted | Body::RunResumed => self.resume(),
            Body::RunEnded { end, usage } => self.end = Some((end.clone(), *usage)),
            Body::StepStarted { message_id } => self.start_step(message_id, item.step),
            Body::StepEnded { .. } => self.finish_step(),
            Body::UserMessage { .. } => self.read_question(),
            Body::AssistantMessage { id, text, reasoning, .. } => {
                self.complete_answer(id, text, reasoning.as_deref());
            }
            Body::Note { id, call_id, text } => self.send_note(id, call_id.as_deref(), text),
            Body::StateChanged { patch } => self.change_state(patch),
            Body::ChildStarted { call_id, run_id } => self.start_subagent(call_id, run_id),
            Body::TextDelta { message_id, attempt, offset, text } => {
                self.send_delta(message_id, *attempt, |answer, out| answer.text_delta(*offset, text, out));
            }
            Body::ReasoningDelta { message_id, attempt, offset, text } => {
                self.send_delta(message_id, *attempt, |answer, out| {
                    answer.reasoning_delta(*offset, text, out)
                });
            }
            Body::StepReset { message_id, attempt } => self.reset_answer(message_id, *attempt),
            Body::ToolLog { call_id, tool, text } => {
                let value = json!({"toolCallId": call_id, "tool": tool, "text": text});
                self.emit(AgUiKind::Custom { name: "holdpoint.tool_log", value });
            }
            Body::ToolProgress { call_id, tool, progress } => {
                let value = json!({"toolCallId": call_id, "tool": tool, "progress": progress});
                self.emit(AgUiKind::Custom { name: "holdpoint.tool_progress", value });
            }
            // What the client sees of these is in `change`, or it sees nothing: a call has no id before its answer is
            // complete, so its arguments cannot be streamed.
            Body::RunQueued
            | Body::RunInterrupting
            | Body::RunEnding
            | Body::RunRecovered
            | Body::ToolMessage { .. }
            | Body::ModelRetrying { .. }
            | Body::CallRequested { .. }
            | Body::ApprovalRequested { .. }
            | Body::ApprovalVoided { .. }
            | Body::Approved { .. }
            | Body::Denied { .. }
            | Body::Suspended { .. }
            | Body::CallResumed { .. }
            | Body::ExecutionStarted { .. }
            | Body::Succeeded { .. }
            | Body::Failed { .. }
            | Body::Cancelled { .. }
            | Body::ChildEnded { .. }
            | Body::PhaseAnswered
            | Body::Unreadable
            | Body::ArgumentsDelta { .. } => {}
        }
        self.send_change(change);
    }

    /// The caller's list of delegated calls is of the present, so items of the past do not change it.
    fn resume(&mut self) {
        self.is_waiting = false;
        if self.phase == AgUiPhase::Live {
            self.delegated.clear();
        }
    }

    fn start_step(&mut self, message_id: &str, step: Option<u32>) {
        self.finish_step();
        self.unanswered = Some(message_id.to_owned());
        let step_name = step.map_or_else(|| message_id.to_owned(), |step| format!("step-{step}"));
        self.open_step = Some(step_name.clone());
        self.emit(AgUiKind::StepStarted { step_name });
    }

    /// A step that an earlier segment opened is closed already.
    pub(super) fn finish_step(&mut self) {
        if let Some(step_name) = self.open_step.take() {
            self.emit(AgUiKind::StepFinished { step_name });
        }
    }

    /// The thread may have been continued elsewhere since the client last read it. Its history is complete only once
    /// the message that starts the run is in it; until then a snapshot would remove that message from the client.
    fn read_question(&mut self) {
        self.has_question = true;
        if !self.client_has_messages() {
            self.send_messages(None);
        }
        self.is_stale = true;
    }

    /// Whether the client has all messages of the conversation. Reasoning stays out: clients need not send it back.
    fn client_has_messages(&self) -> bool {
        let mut messages = self.conversation.messages().iter().filter(|message| !message.is_reasoning());
        messages.all(|message| self.segment.client_message_ids.contains(message.id()))
    }

    fn send_delta(
        &mut self,
        message_id: &str,
        attempt: u32,
        send: impl FnOnce(&mut AgUiAnswer, &mut Vec<AgUiKind>),
    ) {
        let known = self.answer.as_ref().filter(|answer| answer.message_id == message_id);
        match known.map(|answer| answer.attempt) {
            Some(shown) if shown > attempt => return,
            Some(shown) if shown == attempt => {}
            Some(_) => self.reset_answer(message_id, attempt),
            None => {
                self.abandon_answer();
                self.answer = Some(AgUiAnswer::new(message_id, attempt));
            }
        }
        let mut kinds = Vec::new();
        if let Some(answer) = &mut self.answer {
            send(answer, &mut kinds);
        }
        self.emit_all(kinds);
    }

    fn reset_answer(&mut self, message_id: &str, attempt: u32) {
        let is_open = |answer: &AgUiAnswer| answer.message_id == message_id && answer.attempt < attempt;
        let Some(mut answer) = self.answer.take_if(|answer| is_open(answer)) else { return };
        let mut kinds = Vec::new();
        answer.close(&mut kinds);
        self.emit_all(kinds);
        let reasoning = answer.shown_reasoning();
        if answer.shows_text() || reasoning.is_some() {
            // The blank reasoning is dropped again at the end, if the next attempt does not fill it.
            self.needs_correction |= reasoning.is_some();
            let needs_correction = self.needs_correction;
            self.send_messages(reasoning);
            self.needs_correction = needs_correction;
        }
        self.answer = Some(AgUiAnswer::new(message_id, attempt));
    }

    fn complete_answer(&mut self, id: &str, text: &str, reasoning: Option<&str>) {
        if self.answer.as_ref().is_some_and(|answer| answer.message_id != id) {
            self.abandon_answer();
        }
        self.unanswered = None;
        let answer = self.answer.take().unwrap_or_else(|| AgUiAnswer::new(id, 0));
        let mut kinds = Vec::new();
        let is_right = answer.complete(text, reasoning, &mut kinds);
        self.emit_all(kinds);
        self.is_stale = true;
        if !is_right {
            self.send_messages(None);
        }
    }

    /// Closes an answer that will not be completed. What the client has of it is not in the log.
    pub(super) fn abandon_answer(&mut self) {
        if let Some(mut answer) = self.answer.take() {
            let mut kinds = Vec::new();
            answer.close(&mut kinds);
            self.emit_all(kinds);
            self.needs_correction |= answer.shows_text();
        }
    }

    fn send_note(&mut self, id: &str, call_id: Option<&str>, text: &str) {
        let mut value = json!({"id": id, "text": text});
        if let Some(call_id) = call_id {
            value["toolCallId"] = json!(call_id);
        }
        self.emit(AgUiKind::Custom { name: "holdpoint.note", value });
    }

    /// A patch that does not apply here would not apply at the client either.
    fn change_state(&mut self, patch: &Value) {
        if apply_patch(&mut self.state, patch) {
            self.is_stale = true;
            self.emit(AgUiKind::StateDelta { delta: patch.clone() });
        }
    }

    fn send_change(&mut self, change: AgUiChange) {
        match change {
            AgUiChange::Nothing => {}
            AgUiChange::Announced(announcement) => self.send_call(announcement),
            AgUiChange::Settled(result) => self.send_result(result),
            AgUiChange::Corrected => {
                self.is_stale = true;
                self.needs_correction = true;
            }
        }
    }

    fn send_call(&mut self, announcement: AgUiAnnouncement) {
        let AgUiAnnouncement { call, message_id: parent_message_id } = announcement;
        let tool_call_id = call.call_id;
        self.is_stale = true;
        self.emit(AgUiKind::ToolCallStart {
            tool_call_id: tool_call_id.clone(),
            tool_call_name: call.tool,
            parent_message_id,
        });
        let delta = call.arguments.to_string();
        self.emit(AgUiKind::ToolCallArgs { tool_call_id: tool_call_id.clone(), delta });
        self.emit(AgUiKind::ToolCallEnd { tool_call_id });
    }

    fn send_result(&mut self, result: AgUiResult) {
        let AgUiResult { announcement, message_id, call_id, settlement, is_supplied, differs, child_run_id } =
            result;
        if let Some(announcement) = announcement {
            self.send_call(announcement);
        }
        self.is_stale = true;
        if let Some(child) = child_run_id {
            self.finish_subagent(child, &settlement);
        }
        if is_supplied {
            // A second result would be a second message. The client's own is replaced at the end if it differs.
            self.needs_correction |= differs;
            return;
        }
        let content = settlement.text().to_owned();
        self.emit(AgUiKind::ToolCallResult { message_id, tool_call_id: call_id, content, role: "tool" });
    }

    fn start_subagent(&mut self, call_id: &str, run_id: &str) {
        if let Some(call) = self.conversation.calls().get(call_id)
            && self.segment.dialect == AgUiDialect::V1_0
            && self.phase == AgUiPhase::Live
        {
            let kind = AgUiKind::SubagentStarted {
                subagent_run_id: run_id.to_owned(),
                name: call.requested.tool.clone(),
                parent_tool_call_id: call_id.to_owned(),
                parent_message_id: call.message_id.clone(),
            };
            self.open_subagents.push(run_id.to_owned());
            self.emit(kind);
        }
    }

    /// A delegated run continues in this segment under the id that it had.
    fn reopen_subagents(&mut self) {
        let open = self.conversation.calls().open_children();
        let open: Vec<(String, String)> =
            open.map(|(call, run)| (call.requested.call_id.clone(), run.to_owned())).collect();
        for (call_id, run_id) in open {
            self.start_subagent(&call_id, &run_id);
        }
    }

    fn finish_subagent(&mut self, run_id: String, settlement: &AgUiSettlement) {
        let Some(at) = self.open_subagents.iter().position(|open| *open == run_id) else { return };
        self.open_subagents.remove(at);
        let subagent_run_id = run_id;
        self.emit(match settlement {
            AgUiSettlement::Succeeded(_) => AgUiKind::SubagentFinished { subagent_run_id, outcome: None },
            AgUiSettlement::Failed(text) => {
                AgUiKind::SubagentError { subagent_run_id, message: text.clone(), code: None }
            }
            AgUiSettlement::Cancelled(text) => {
                AgUiKind::SubagentError { subagent_run_id, message: text.clone(), code: Some("cancelled") }
            }
        });
    }

    pub(super) fn send_snapshots(&mut self) {
        self.send_messages(None);
        self.send_state();
    }

    fn send_state(&mut self) {
        self.emit(AgUiKind::StateSnapshot { snapshot: self.state.clone() });
        self.is_stale = false;
    }

    /// `blank_reasoning`: the client has a part of this reasoning that does not count. It keeps reasoning that a snapshot
    /// does not contain, so the snapshot has to empty it.
    pub(super) fn send_messages(&mut self, blank_reasoning: Option<String>) {
        let mut messages = self.conversation.messages().to_vec();
        messages.extend(blank_reasoning.map(|id| AgUiMessage::Reasoning { id, content: String::new() }));
        self.needs_correction = false;
        if self.phase == AgUiPhase::Live {
            self.segment.client_message_ids =
                messages.iter().map(|message| message.id().to_owned()).collect();
        }
        self.emit(AgUiKind::MessagesSnapshot { messages });
    }

    fn emit_all(&mut self, kinds: Vec<AgUiKind>) {
        for kind in kinds {
            self.emit(kind);
        }
    }

    pub(super) fn emit(&mut self, kind: AgUiKind) {
        self.emit_with(kind, Map::new());
    }

    /// Items of the past change what the encoder knows and send nothing.
    pub(super) fn emit_with(&mut self, kind: AgUiKind, metadata: Map<String, Value>) {
        if self.phase == AgUiPhase::Live {
            self.out.push(AgUiEvent { kind, timestamp: self.at, metadata });
        }
    }
}
