//! One tool call: what is true of it, what the client shows, and the chunks that bring the client there.

use serde_json::{Value, json};

use crate::ai_sdk::chunk::{Chunk, RawOutput};
use crate::ai_sdk::message::ToolState;
use crate::ai_sdk::seen::SeenTool;
use crate::feed::{RequestedCall, Suspension, SuspensionKind};

/// A call that has not settled.
///
/// A continuation reads the run from its beginning. Until the items reach the state in which the client has shown the
/// call, they produce no chunks for it.
///
/// `in_last_step` says whether the call belongs to the last step of the message. Newer clients look for the part of an
/// input only there; for an earlier step they would add a second part.
#[derive(Clone, Debug)]
pub(super) struct TrackedCall {
    call_id: String,
    tool: String,
    /// The step that asked for the call, counted from 1.
    pub(super) step: u32,
    dynamic: bool,
    /// With which the call runs.
    arguments: Value,
    /// The state that the client has, while the items have not reached it.
    ahead: Option<SeenTool>,
    /// What the client shows. None before the call's first chunk.
    shown: Option<ToolState>,
    has_input: bool,
    shown_approval: Option<String>,
    /// The last approval that was requested.
    approval: Option<String>,
    pub(super) hold: Option<CallHold>,
}

/// Why the call is held, and who answers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallHold {
    Approval {
        id: String,
    },
    ClientTool,
    /// Not by this protocol: shown as a data part.
    Elsewhere,
}

/// How a call settles.
#[derive(Clone, Debug)]
pub(super) enum CallOutcome {
    Output(RawOutput),
    Error(String),
    Denied,
}

impl CallOutcome {
    pub(super) fn failed(message: &str, outcome_unknown: bool) -> Self {
        Self::Error(match outcome_unknown {
            true => format!("{message}; an earlier attempt may have taken effect"),
            false => message.into(),
        })
    }

    /// With the text that the model reads.
    pub(super) fn cancelled(reason: &str, outcome_unknown: bool) -> Self {
        Self::Error(match (outcome_unknown, reason) {
            (true, _) => "Cancelled; it may have taken effect".into(),
            (false, "") => "Cancelled".into(),
            (false, reason) => format!("Cancelled: {reason}"),
        })
    }
}

impl TrackedCall {
    /// `seen`: the call as the client already shows it.
    pub(super) fn new(call: &RequestedCall, step: u32, is_client_tool: bool, seen: Option<SeenTool>) -> Self {
        Self {
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            step: seen.as_ref().map_or(step, |seen| seen.step),
            dynamic: seen.as_ref().map_or(!is_client_tool, |seen| seen.dynamic),
            arguments: call.arguments.clone(),
            ahead: seen,
            shown: None,
            has_input: false,
            shown_approval: None,
            approval: None,
            hold: None,
        }
    }

    /// The model asked for the call.
    pub(super) fn requested(&mut self, out: &mut Vec<Chunk>) {
        let dynamic = self.dynamic;
        self.reach(|seen| match seen.state {
            ToolState::InputStreaming => true,
            ToolState::InputAvailable => dynamic && seen.approval_id.is_none(),
            ToolState::ApprovalRequested
            | ToolState::ApprovalResponded
            | ToolState::OutputAvailable
            | ToolState::OutputError
            | ToolState::OutputDenied => false,
        });
        if self.ahead.is_some() {
            return;
        }
        // The connection may have been lost before the input arrived. Only the hand-over may make it available to a
        // client tool, so it is streamed again.
        let lacks_input = !dynamic && !self.has_input;
        if self.shown.is_none() || lacks_input {
            let (tool_call_id, tool_name) = (self.call_id.clone(), self.tool.clone());
            out.push(Chunk::ToolInputStart { tool_call_id, tool_name, dynamic });
            let (tool_call_id, input_text_delta) = (self.call_id.clone(), self.arguments.to_string());
            out.push(Chunk::ToolInputDelta { tool_call_id, input_text_delta });
            self.shown = Some(ToolState::InputStreaming);
        }
        // The input of a client tool is available when the run hands the call over.
        if dynamic && self.shown == Some(ToolState::InputStreaming) {
            self.show_input(out);
        }
    }

    pub(super) fn approval_requested(
        &mut self,
        id: &str,
        arguments: &Value,
        in_last_step: bool,
        out: &mut Vec<Chunk>,
    ) {
        self.hold = Some(CallHold::Approval { id: id.into() });
        self.approval = Some(id.into());
        let has_other_input = self.arguments != *arguments;
        self.arguments.clone_from(arguments);
        self.reach(|seen| match seen.state {
            ToolState::ApprovalRequested | ToolState::ApprovalResponded => {
                seen.approval_id.as_deref() == Some(id)
            }
            ToolState::InputStreaming | ToolState::InputAvailable => seen.approval_id.is_none(),
            ToolState::OutputAvailable | ToolState::OutputError | ToolState::OutputDenied => false,
        });
        if self.ahead.is_some() || self.shows_approval(id) {
            return;
        }
        if has_other_input && self.dynamic && in_last_step {
            self.show_input(out);
        }
        self.show_approval(id, out);
    }

    /// A person approved the call, possibly with other arguments.
    pub(super) fn approved(
        &mut self,
        id: &str,
        edited: Option<&Value>,
        in_last_step: bool,
        out: &mut Vec<Chunk>,
    ) {
        self.hold = None;
        if let Some(arguments) = edited {
            self.arguments.clone_from(arguments);
        }
        self.reach(|seen| seen.state == ToolState::InputAvailable && seen.approval_id.as_deref() == Some(id));
        // The user of this client sees what they answered. Anyone else must no longer be asked.
        let is_outdated = edited.is_some() || self.shown == Some(ToolState::ApprovalRequested);
        if self.ahead.is_none()
            && self.dynamic
            && in_last_step
            && is_outdated
            && self.shown.is_some_and(ToolState::awaits_approval)
        {
            self.show_input(out);
        }
    }

    /// The front end has to execute the call. False if this client cannot be asked to.
    pub(super) fn handed_over(
        &mut self,
        arguments: &Value,
        in_last_step: bool,
        out: &mut Vec<Chunk>,
    ) -> bool {
        self.hold = Some(CallHold::ClientTool);
        self.arguments.clone_from(arguments);
        let approval = self.approval.clone();
        self.reach(|seen| match seen.state {
            ToolState::InputStreaming => true,
            ToolState::InputAvailable => seen.approval_id == approval,
            ToolState::ApprovalRequested
            | ToolState::ApprovalResponded
            | ToolState::OutputAvailable
            | ToolState::OutputError
            | ToolState::OutputDenied => false,
        });
        if self.ahead.is_some() || self.shown == Some(ToolState::InputAvailable) {
            return true;
        }
        if in_last_step {
            self.show_input(out);
        }
        in_last_step
    }

    /// The call waits for something that this protocol cannot answer.
    pub(super) fn held_elsewhere(&mut self, in_last_step: bool, out: &mut Vec<Chunk>) {
        self.hold = Some(CallHold::Elsewhere);
        if self.ahead.is_none() && in_last_step && self.shown.is_some_and(ToolState::awaits_approval) {
            self.show_input(out);
        }
    }

    /// A warning comes before the output, so a client that has the output has the warning.
    pub(super) fn warn(&self, warning: &str, out: &mut Vec<Chunk>) {
        if !self.ahead.as_ref().is_some_and(|seen| seen.state.is_settled()) {
            let data = json!({"call_id": self.call_id, "tool": self.tool, "text": warning});
            out.push(Chunk::data("data-warning", &self.call_id, data));
        }
    }

    /// Shows the outcome, unless the client has it.
    pub(super) fn settle(mut self, outcome: CallOutcome, out: &mut Vec<Chunk>) {
        self.reach(|_| true);
        let state = match outcome {
            CallOutcome::Output(_) => ToolState::OutputAvailable,
            CallOutcome::Error(_) => ToolState::OutputError,
            CallOutcome::Denied => ToolState::OutputDenied,
        };
        if self.shown == Some(state) {
            return;
        }
        let (tool_call_id, dynamic) = (self.call_id, self.dynamic);
        out.push(match outcome {
            CallOutcome::Output(output) => Chunk::ToolOutputAvailable { tool_call_id, output, dynamic },
            CallOutcome::Error(error_text) => Chunk::ToolOutputError { tool_call_id, error_text, dynamic },
            CallOutcome::Denied => Chunk::ToolOutputDenied { tool_call_id },
        });
    }

    /// The run waits, and the stream is about to end. If the client shows anything but the hold, it would post its
    /// answer again and again.
    pub(super) fn show_hold(&mut self, in_last_step: bool, out: &mut Vec<Chunk>) {
        self.reach(|_| true);
        let shows_input = self.shown == Some(ToolState::InputAvailable);
        match self.hold.clone() {
            Some(CallHold::Approval { id }) => {
                let is_asked = self.shown == Some(ToolState::ApprovalRequested);
                if !(is_asked && self.shows_approval(&id)) {
                    self.show_approval(&id, out);
                }
            }
            Some(CallHold::ClientTool | CallHold::Elsewhere) if in_last_step && !shows_input => {
                self.show_input(out);
            }
            Some(CallHold::ClientTool | CallHold::Elsewhere) | None => {}
        }
    }

    /// From here on items produce chunks, if the client has shown the call in a state that these items have reached.
    fn reach(&mut self, is_reached: impl FnOnce(&SeenTool) -> bool) {
        if let Some(seen) = self.ahead.take_if(|seen| is_reached(seen)) {
            self.shown = Some(seen.state);
            self.has_input = seen.has_input;
            self.shown_approval = seen.approval_id;
        }
    }

    fn shows_approval(&self, id: &str) -> bool {
        self.shown.is_some_and(ToolState::awaits_approval) && self.shown_approval.as_deref() == Some(id)
    }

    fn show_approval(&mut self, id: &str, out: &mut Vec<Chunk>) {
        out.push(Chunk::ToolApprovalRequest { approval_id: id.into(), tool_call_id: self.call_id.clone() });
        self.shown = Some(ToolState::ApprovalRequested);
        self.shown_approval = Some(id.into());
    }

    fn show_input(&mut self, out: &mut Vec<Chunk>) {
        let (tool_call_id, tool_name) = (self.call_id.clone(), self.tool.clone());
        let (input, dynamic) = (self.arguments.clone(), self.dynamic);
        out.push(Chunk::ToolInputAvailable { tool_call_id, tool_name, input, dynamic });
        self.shown = Some(ToolState::InputAvailable);
    }
}

/// A suspension that the front end shows as a data part.
#[derive(Clone, Debug)]
pub(super) struct ShownSuspension {
    id: String,
    data: Value,
}

impl ShownSuspension {
    pub(super) fn new(call: &RequestedCall, suspension: &Suspension) -> Self {
        let mut data = json!({
            "suspension_id": suspension.id,
            "call_id": call.call_id,
            "tool": call.tool,
            "kind": kind_name(&suspension.kind),
            "status": "open",
        });
        if let Some(fields) = data.as_object_mut() {
            let mut add = |name: &str, value: Option<Value>| {
                if let Some(value) = value {
                    fields.insert(name.into(), value);
                }
            };
            add("question", suspension.question.clone().map(Value::String));
            add("schema", suspension.schema.clone());
            add("expires_at", suspension.expires_at.clone().map(Value::String));
            if let SuspensionKind::ChildRun { run_id } = &suspension.kind {
                add("run_id", Some(run_id.as_str().into()));
            }
        }
        Self { id: suspension.id.clone(), data }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn open(&self, out: &mut Vec<Chunk>) {
        out.push(Chunk::data("data-suspension", &self.id, self.data.clone()));
    }

    pub(super) fn close(mut self, out: &mut Vec<Chunk>) {
        if let Some(fields) = self.data.as_object_mut() {
            fields.insert("status".into(), "closed".into());
        }
        out.push(Chunk::data("data-suspension", &self.id, self.data));
    }
}

const fn kind_name(kind: &SuspensionKind) -> &'static str {
    match kind {
        SuspensionKind::ClientTool => "client_tool",
        SuspensionKind::External => "external",
        SuspensionKind::Question => "question",
        SuspensionKind::InDoubt => "in_doubt",
        SuspensionKind::ChildRun { .. } => "child_run",
    }
}
