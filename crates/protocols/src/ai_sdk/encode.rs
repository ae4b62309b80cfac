//! Turns the items of one run into the chunks of one assistant message.

mod answer;
mod call;
mod calls;
mod ending;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use self::answer::{AnswerPart, StepAnswer};
use self::call::{CallOutcome, ShownSuspension, TrackedCall};
use super::chunk::Chunk;
use super::message_id;
use super::seen::Seen;
use crate::feed::{Body, Item, WaitingOn};

/// The stream of one run for one client.
///
/// [Push](Self::push) every item of the run from its first, whether the stream is new, is resumed, or continues a
/// message: a resumed stream is a full replay, and a continuation produces chunks only for what the client lacks.
/// Whenever all items of a commit are pushed and no further item is at hand, call [`Self::idle`]: it ends the stream
/// if the run waits. In the middle of a commit a run can seem to wait that does not. When [`Self::is_done`], send
/// [`DONE`](super::DONE) and close.
#[derive(Clone, Debug)]
pub struct ChunkEncoder {
    client_tools: BTreeSet<String>,
    seen: Seen,
    stage: StreamStage,
    run_id: String,
    status: &'static str,
    /// The last status that the client was sent.
    reported_status: &'static str,
    is_waiting: bool,
    /// Number of steps that the items have begun.
    step: u32,
    /// This stream has begun a step and not finished it.
    is_step_open: bool,
    step_has_calls: bool,
    answer: StepAnswer,
    /// Calls that have not settled.
    calls: BTreeMap<String, TrackedCall>,
    suspensions: BTreeMap<String, ShownSuspension>,
    /// Calls that execute although the run was waiting. `run.resumed` follows in the same commit, or they settle.
    moving: BTreeSet<String>,
    awaited_approvals: BTreeSet<String>,
    awaited_outputs: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamStage {
    /// No item was pushed.
    New,
    Open,
    Done,
}

impl ChunkEncoder {
    /// A stream for a client that has nothing of the message. `client_tools`: names of the tools that the front end
    /// executes, of this run's agent and message.
    #[must_use]
    pub fn new(client_tools: BTreeSet<String>) -> Self {
        Self::continuing(client_tools, Seen::default())
    }

    /// A stream that continues the message that the client posted.
    #[must_use]
    pub fn continuing(client_tools: BTreeSet<String>, seen: Seen) -> Self {
        Self {
            client_tools,
            seen,
            stage: StreamStage::New,
            run_id: String::new(),
            status: "queued",
            reported_status: "",
            is_waiting: false,
            step: 0,
            is_step_open: false,
            step_has_calls: false,
            answer: StepAnswer::default(),
            calls: BTreeMap::new(),
            suspensions: BTreeMap::new(),
            moving: BTreeSet::new(),
            awaited_approvals: BTreeSet::new(),
            awaited_outputs: BTreeSet::new(),
        }
    }

    /// A decision on this approval was accepted: the stream does not end before the run has processed it. To be called
    /// before the first item is pushed.
    pub fn await_approval(&mut self, approval_id: &str) {
        self.awaited_approvals.insert(approval_id.into());
    }

    /// An output for this client tool was accepted: the stream does not end before the run has processed it. To be
    /// called before the first item is pushed.
    pub fn await_output(&mut self, call_id: &str) {
        self.awaited_outputs.insert(call_id.into());
    }

    /// The stream has ended; further items produce nothing.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stage == StreamStage::Done
    }

    /// Whether the run waits, and has processed everything that the client decided.
    #[must_use]
    pub fn may_end(&self) -> bool {
        self.is_waiting
            && self.moving.is_empty()
            && self.awaited_approvals.is_empty()
            && self.awaited_outputs.is_empty()
    }

    /// No further item is at hand. Reports the status, and ends the stream if it [may end](Self::may_end).
    pub fn idle(&mut self, out: &mut Vec<Chunk>) {
        if self.stage != StreamStage::Open {
            return;
        }
        self.report_status(out);
        if self.may_end() {
            self.end_waiting(out);
        }
    }

    /// Ends the stream because this server cannot continue it. The run is not affected.
    pub fn fail(&mut self, error_text: &str, out: &mut Vec<Chunk>) {
        if self.stage == StreamStage::Open {
            self.close_parts(out);
            out.push(Chunk::Error { error_text: error_text.into() });
        }
        self.stage = StreamStage::Done;
    }

    pub fn push(&mut self, item: &Item, out: &mut Vec<Chunk>) {
        match self.stage {
            StreamStage::New => self.begin(&item.run_id, out),
            StreamStage::Open => {}
            StreamStage::Done => return,
        }
        match &item.body {
            Body::RunQueued => self.status = "queued",
            Body::RunStarted | Body::RunResumed => self.run_executes("running"),
            Body::RunInterrupting => self.run_executes("interrupting"),
            Body::RunEnding => self.run_executes("running"),
            Body::RunWaiting { on } => self.run_waits(*on),
            Body::RunEnded { end, usage } => self.end_run(end, *usage, out),
            Body::StepStarted { message_id } => self.start_step(message_id, out),
            Body::StepEnded { .. } => self.finish_step(out),
            Body::AssistantMessage { id, text, reasoning, .. } => {
                if self.answer.is_of(id) {
                    self.answer.finish(reasoning.as_deref().unwrap_or_default(), text, out);
                }
            }
            Body::TextDelta { message_id, attempt, offset, text } => {
                self.answer.delta(AnswerPart::Text, (message_id, *attempt), *offset, text, out);
            }
            Body::ReasoningDelta { message_id, attempt, offset, text } => {
                self.answer.delta(AnswerPart::Reasoning, (message_id, *attempt), *offset, text, out);
            }
            Body::StepReset { message_id, attempt } => self.answer.reset(message_id, *attempt, out),
            Body::CallRequested { call } => self.request_call(call, out),
            Body::ApprovalRequested { call, approval_id, .. } => {
                self.ask_for_approval(call, approval_id, out)
            }
            Body::ApprovalVoided { call_id, approval_id } => self.void_approval(call_id, approval_id),
            Body::Approved { call_id, approval_id, arguments, .. } => {
                self.approve(call_id, approval_id, arguments.as_ref(), out);
            }
            Body::Denied { call_id, approval_id, .. } => self.deny(call_id, approval_id, out),
            Body::Suspended { call, suspension } => self.suspend(call, suspension, out),
            Body::CallResumed { call_id, .. } => self.resume_call(call_id, out),
            Body::ExecutionStarted { call_id, .. } => self.moves(call_id),
            Body::Succeeded { call_id, result, warning, .. } => {
                self.succeed(call_id, result, warning.as_deref(), out);
            }
            Body::Failed { call_id, message, outcome_unknown, .. } => {
                self.settle(call_id, CallOutcome::failed(message, *outcome_unknown), out);
            }
            Body::Cancelled { call_id, reason, outcome_unknown, .. } => {
                self.settle(call_id, CallOutcome::cancelled(reason, *outcome_unknown), out);
            }
            Body::ToolLog { call_id, tool, text } => {
                out.push(tool_note("data-log", call_id, tool, "text", &json!(text)));
            }
            Body::ToolProgress { call_id, tool, progress } => {
                out.push(tool_note("data-progress", call_id, tool, "progress", progress));
            }
            // Arguments have no call id while they are streamed; the call brings them whole. Messages to the model and
            // bookkeeping of the run have no form in this protocol.
            Body::ArgumentsDelta { .. }
            | Body::RunRecovered
            | Body::UserMessage { .. }
            | Body::ToolMessage { .. }
            | Body::Note { .. }
            | Body::ModelRetrying { .. }
            | Body::StateChanged { .. }
            | Body::ChildStarted { .. }
            | Body::ChildEnded { .. }
            | Body::PhaseAnswered
            | Body::Unreadable => {}
        }
    }

    fn begin(&mut self, run_id: &str, out: &mut Vec<Chunk>) {
        self.stage = StreamStage::Open;
        self.run_id = run_id.into();
        let metadata = json!({"run_id": run_id, "status": "running"});
        out.push(Chunk::Start { message_id: message_id(run_id), message_metadata: Some(metadata) });
    }

    fn run_executes(&mut self, status: &'static str) {
        self.status = status;
        self.is_waiting = false;
    }

    /// The item says that nothing executes, whatever was known of single calls.
    fn run_waits(&mut self, on: WaitingOn) {
        self.status = match on {
            WaitingOn::Approval => "waiting_approval",
            WaitingOn::Tool => "waiting_tool",
        };
        self.is_waiting = true;
        self.moving.clear();
    }

    fn start_step(&mut self, message_id: &str, out: &mut Vec<Chunk>) {
        self.step = self.step.saturating_add(1);
        self.step_has_calls = false;
        if self.step <= self.seen.steps {
            self.answer = StepAnswer::for_seen_step(self.step, message_id, &self.seen);
            return;
        }
        self.answer = StepAnswer::new(self.step, message_id);
        self.is_step_open = true;
        out.push(Chunk::StartStep);
    }

    fn finish_step(&mut self, out: &mut Vec<Chunk>) {
        self.answer.close_open(out);
        if self.is_step_open {
            out.push(Chunk::FinishStep);
        }
        self.is_step_open = false;
    }

    /// The last step of the client's message.
    fn last_step(&self) -> u32 {
        self.step.max(self.seen.steps)
    }

    fn report_status(&mut self, out: &mut Vec<Chunk>) {
        if self.reported_status != self.status {
            let data = json!({"run_id": self.run_id, "status": self.status});
            out.push(Chunk::transient("data-run", data));
            self.reported_status = self.status;
        }
    }
}

fn tool_note(name: &str, call_id: &str, tool: &str, key: &str, value: &Value) -> Chunk {
    Chunk::transient(name, json!({"call_id": call_id, "tool": tool, key: value}))
}
