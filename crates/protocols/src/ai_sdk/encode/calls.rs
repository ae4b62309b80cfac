//! Items about tool calls: the chunks that they produce, and what the stream still has to wait for.

use serde_json::Value;
use serde_json::value::RawValue;

use super::ChunkEncoder;
use super::call::{CallHold, CallOutcome, ShownSuspension, TrackedCall};
use crate::ai_sdk::chunk::{Chunk, RawOutput};
use crate::feed::{RequestedCall, Suspension, SuspensionKind};

impl ChunkEncoder {
    pub(super) fn request_call(&mut self, call: &RequestedCall, out: &mut Vec<Chunk>) {
        if self.calls.contains_key(&call.call_id) {
            return;
        }
        self.step_has_calls = true;
        let seen = self.seen.tools.get(&call.call_id).cloned();
        let is_client_tool = self.client_tools.contains(&call.tool);
        // A part that the client lacks is added to the last step of its message.
        let mut tracked = TrackedCall::new(call, self.last_step(), is_client_tool, seen);
        tracked.requested(out);
        self.calls.insert(call.call_id.clone(), tracked);
    }

    pub(super) fn ask_for_approval(&mut self, call: &RequestedCall, approval_id: &str, out: &mut Vec<Chunk>) {
        // Only if the event with the request cannot be decoded.
        self.request_call(call, out);
        self.moving.remove(&call.call_id);
        let in_last_step = self.is_in_last_step(&call.call_id);
        if let Some(tracked) = self.calls.get_mut(&call.call_id) {
            tracked.approval_requested(approval_id, &call.arguments, in_last_step, out);
        }
    }

    pub(super) fn void_approval(&mut self, call_id: &str, approval_id: &str) {
        self.awaited_approvals.remove(approval_id);
        self.moves(call_id);
    }

    pub(super) fn approve(
        &mut self,
        call_id: &str,
        approval_id: &str,
        edited: Option<&Value>,
        out: &mut Vec<Chunk>,
    ) {
        self.awaited_approvals.remove(approval_id);
        self.moves(call_id);
        let in_last_step = self.is_in_last_step(call_id);
        if let Some(call) = self.calls.get_mut(call_id) {
            call.approved(approval_id, edited, in_last_step, out);
        }
    }

    pub(super) fn deny(&mut self, call_id: &str, approval_id: &str, out: &mut Vec<Chunk>) {
        self.awaited_approvals.remove(approval_id);
        self.settle(call_id, CallOutcome::Denied, out);
    }

    pub(super) fn suspend(&mut self, call: &RequestedCall, suspension: &Suspension, out: &mut Vec<Chunk>) {
        self.request_call(call, out);
        self.moving.remove(&call.call_id);
        let in_last_step = self.is_in_last_step(&call.call_id);
        let Some(tracked) = self.calls.get_mut(&call.call_id) else { return };
        match &suspension.kind {
            SuspensionKind::ClientTool => {
                if tracked.handed_over(&call.arguments, in_last_step, out) {
                    return;
                }
            }
            SuspensionKind::External
            | SuspensionKind::Question
            | SuspensionKind::InDoubt
            | SuspensionKind::ChildRun { .. } => tracked.held_elsewhere(in_last_step, out),
        }
        let shown = ShownSuspension::new(call, suspension);
        if !self.seen.suspensions.contains_key(shown.id()) {
            shown.open(out);
        }
        self.suspensions.insert(call.call_id.clone(), shown);
    }

    pub(super) fn resume_call(&mut self, call_id: &str, out: &mut Vec<Chunk>) {
        self.awaited_outputs.remove(call_id);
        self.moves(call_id);
        self.close_suspension(call_id, out);
        if let Some(call) = self.calls.get_mut(call_id) {
            call.hold = None;
        }
    }

    pub(super) fn succeed(
        &mut self,
        call_id: &str,
        result: &RawValue,
        warning: Option<&str>,
        out: &mut Vec<Chunk>,
    ) {
        if let (Some(warning), Some(call)) = (warning, self.calls.get(call_id)) {
            call.warn(warning, out);
        }
        self.settle(call_id, CallOutcome::Output(RawOutput::from(result)), out);
    }

    pub(super) fn settle(&mut self, call_id: &str, outcome: CallOutcome, out: &mut Vec<Chunk>) {
        self.awaited_outputs.remove(call_id);
        self.moving.remove(call_id);
        self.close_suspension(call_id, out);
        let Some(call) = self.calls.remove(call_id) else { return };
        if let Some(CallHold::Approval { id }) = &call.hold {
            self.awaited_approvals.remove(id);
        }
        call.settle(outcome, out);
        // A run waits for held calls only.
        self.is_waiting &= self.calls.values().any(|call| call.hold.is_some());
    }

    fn close_suspension(&mut self, call_id: &str, out: &mut Vec<Chunk>) {
        if let Some(shown) = self.suspensions.remove(call_id)
            && self.seen.suspensions.get(shown.id()) != Some(&false)
        {
            shown.close(out);
        }
    }

    /// The call executes, or is about to.
    pub(super) fn moves(&mut self, call_id: &str) {
        if self.is_waiting {
            self.moving.insert(call_id.into());
        }
    }

    fn is_in_last_step(&self, call_id: &str) -> bool {
        self.calls.get(call_id).is_some_and(|call| call.step == self.last_step())
    }
}
