//! What each item of the feed means for the stream.

use serde_json::{Value, json};

use super::answer::AgUiAnswer;
use super::encode::{AgUiEncoder, AgUiPhase};
use super::event::{AgUiDialect, AgUiKind};
use super::json_patch::apply_patch;
use super::result_text::AgUiSettlement;
use super::snapshot::{AgUiAnnouncement, AgUiChange, AgUiResult};
use crate::feed::{Body, Item};

impl AgUiEncoder {
    /// Changes what the encoder knows, and sends what the client has to know. In the past nothing is sent.
    pub(super) fn read(&mut self, item: &Item) {
        let change = self.conversation.read(&item.body);
        match &item.body {
            Body::RunWaiting { .. } => self.is_waiting = true,
            Body::RunStarted | Body::RunResumed => self.is_waiting = false,
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
    pub(super) fn client_has_messages(&self) -> bool {
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
        let AgUiResult { announcement, message_id, call_id, settlement, is_supplied, child_run_id } = result;
        if let Some(announcement) = announcement {
            self.send_call(announcement);
        }
        self.is_stale = true;
        if let Some(child) = child_run_id {
            self.finish_subagent(child, &settlement);
        }
        if is_supplied {
            // A second result would be a second message. The snapshot at the end has the text of the log.
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
    pub(super) fn reopen_subagents(&mut self) {
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
}
