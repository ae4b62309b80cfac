//! Applies a decision to the call that it answers.

use alloc::string::String;
use alloc::vec::Vec;

use super::InputOutcome;
use super::draft::Draft;
use crate::call::Call;
use crate::control::Stage;
use crate::decision::{
    Decision, DecisionAction, DecisionMeaning, edit_fault, grant_fault, interpret, is_grantable,
};
use crate::event::{CallErrorCode, CancelReason, Fact, ResultFrom, VoidReason};
use crate::grant::HoldReason;
use crate::json::Json;
use crate::policy::{ApprovalScope, OnReject};
use crate::rejection::Rejection;
use crate::status::RunStatus;
use crate::suspension::{ResumeMode, Suspension};
use crate::termination::{StopCode, Termination};

impl Draft<'_> {
    pub(super) fn decision(&mut self, decision: &Decision) -> Result<InputOutcome, Rejection> {
        if self.control.status == RunStatus::Queued {
            return Err(Rejection::NotStarted);
        }
        if matches!(self.control.stage, Stage::Ending(_)) {
            return Err(Rejection::RunEnding);
        }
        let call = self.call(&decision.call)?.clone();
        let Some(open) = call.suspension() else {
            return Err(Rejection::NotSuspended { status: call.status(), call: call.id });
        };
        if open.id != decision.suspension {
            return Err(Rejection::WrongSuspension { call: call.id.clone(), open: open.id.clone() });
        }
        if let Some(expiry) = open.expiry.filter(|expiry| expiry.at <= decision.accepted_at) {
            return Err(Rejection::Expired { call: call.id.clone(), at: expiry.at });
        }
        let means = interpret(open.held.kind(), open.mode, &decision.action)
            .map_err(|why| Rejection::Invalid { call: call.id.clone(), why })?;
        if let Some(why) = grant_fault(&means, &decision.action, is_grantable(&call)) {
            return Err(Rejection::Invalid { call: call.id, why });
        }
        self.check_expected_digest(&call, decision)?;
        match means {
            DecisionMeaning::Approve { edited } => {
                return self.approve(&call, open, decision, edited.cloned());
            }
            // The repeat was denied, but an earlier attempt may have taken effect. The event must say so.
            DecisionMeaning::Deny if !call.doubted.is_empty() => {
                self.cancel_by(&call, decision, CancelReason::GivenUp)?;
                self.after_denial(decision)?;
            }
            DecisionMeaning::Deny => {
                self.deny(&call, open, decision)?;
                self.after_denial(decision)?;
            }
            DecisionMeaning::Replay { answer, arguments, mode } => {
                self.resume(&call, open, decision, mode, answer.cloned(), arguments.cloned())?;
            }
            DecisionMeaning::Result(value) => {
                self.resume(&call, open, decision, ResumeMode::UseDecisionAsToolResult, None, None)?;
                self.record(Fact::ExecutionSucceeded {
                    call_id: call.id.clone(),
                    result: Json::from(&**value),
                    warning: None,
                    by: ResultFrom::Decision,
                })?;
            }
            DecisionMeaning::Failure(text) => {
                self.resume(&call, open, decision, ResumeMode::UseDecisionAsToolResult, None, None)?;
                self.fail(&call, CallErrorCode::ToolError, text.into())?;
            }
            DecisionMeaning::GiveUp => self.cancel_by(&call, decision, CancelReason::GivenUp)?,
            DecisionMeaning::Cancel => self.cancel_by(&call, decision, CancelReason::Decided)?,
        }
        Ok(InputOutcome::Done)
    }

    /// The approver may state which arguments they have seen.
    fn check_expected_digest(&self, call: &Call, decision: &Decision) -> Result<(), Rejection> {
        match &decision.action {
            DecisionAction::Resume(resume)
                if resume.expect_digest.is_some_and(|seen| seen != call.arguments) =>
            {
                Err(Rejection::DigestMismatch { call: call.id.clone(), held: call.arguments })
            }
            DecisionAction::Resume(_) | DecisionAction::Cancel { .. } => Ok(()),
        }
    }

    fn approve(
        &mut self,
        call: &Call,
        open: &Suspension,
        decision: &Decision,
        arguments: Option<crate::tool::Arguments>,
    ) -> Result<InputOutcome, Rejection> {
        if open.held.definition().is_some_and(|shown| decision.is_for_changed_tool(shown)) {
            self.record(Fact::ApprovalVoided {
                call_id: call.id.clone(),
                approval_id: open.id.clone(),
                reason: VoidReason::ToolChanged,
                by: Some(decision.by.clone()),
                decision_id: decision.id.clone(),
            })?;
            return Ok(InputOutcome::ToolChanged { voided: open.id.clone() });
        }
        if let Some(why) = arguments.as_ref().and_then(edit_fault) {
            return Err(Rejection::Invalid { call: call.id.clone(), why });
        }
        let (note, apply_to_future) = match &decision.action {
            DecisionAction::Resume(resume) => (resume.note.clone(), resume.apply_to_future),
            DecisionAction::Cancel { .. } => (None, false),
        };
        let covers = if apply_to_future { self.covered_reasons(call) } else { Vec::new() };
        self.record(Fact::ToolApproved {
            call_id: call.id.clone(),
            approval_id: open.id.clone(),
            by: decision.by.clone(),
            decision_id: decision.id.clone(),
            note,
            arguments,
            apply_to_future,
            covers,
        })?;
        Ok(InputOutcome::Done)
    }

    /// The reasons for which later calls are not held: those that opened this suspension.
    fn covered_reasons(&self, call: &Call) -> Vec<HoldReason> {
        // The gate's input is not stored. A run whose own scope asks about no tool holds no call because of its agent's
        // policy. So if a call is held for that reason, the agent's policy was no longer loosened.
        let loosening_ended = match self.control.policy.approval {
            ApprovalScope::Never | ApprovalScope::Policy => true,
            ApprovalScope::WriteTools | ApprovalScope::AllTools => false,
        };
        let scopes = self.scopes_in_force(loosening_ended);
        let reason = |asker| HoldReason::for_asker(asker, scopes, self.revision, &self.control);
        call.open_askers().iter().filter_map(reason).collect()
    }

    fn deny(&mut self, call: &Call, open: &Suspension, decision: &Decision) -> Result<(), Rejection> {
        self.record(Fact::ToolDenied {
            call_id: call.id.clone(),
            approval_id: open.id.clone(),
            by: decision.by.clone(),
            decision_id: decision.id.clone(),
            reason: reason_of(decision),
            expired: false,
        })?;
        Ok(())
    }

    fn after_denial(&mut self, decision: &Decision) -> Result<(), Rejection> {
        let then = match &decision.action {
            DecisionAction::Cancel { then, .. } => *then,
            DecisionAction::Resume(_) => None,
        };
        match self.control.policy.after_denial(then) {
            OnReject::Continue => Ok(()),
            OnReject::EndRun => self.finish(Termination::stopped(StopCode::Rejected, reason_of(decision))),
        }
    }

    fn resume(
        &mut self,
        call: &Call,
        open: &Suspension,
        decision: &Decision,
        mode: ResumeMode,
        answer: Option<alloc::sync::Arc<serde_json::Value>>,
        arguments: Option<crate::tool::Arguments>,
    ) -> Result<(), Rejection> {
        self.record(Fact::ToolResumed {
            call_id: call.id.clone(),
            suspension_id: open.id.clone(),
            mode,
            by: decision.by.clone(),
            decision_id: decision.id.clone(),
            late_attempt: None,
            answer,
            arguments,
        })?;
        self.announce_status()
    }

    fn cancel_by(&mut self, call: &Call, decision: &Decision, reason: CancelReason) -> Result<(), Rejection> {
        self.record(Fact::ToolCancelled {
            call_id: call.id.clone(),
            reason,
            text: reason_of(decision),
            by: decision.by.clone(),
            decision_id: decision.id.clone(),
            outcome_unknown: call.may_have_written(),
            suspension_id: call.suspension().map(|open| open.id.clone()),
        })?;
        Ok(())
    }
}

fn reason_of(decision: &Decision) -> Option<String> {
    match &decision.action {
        DecisionAction::Cancel { reason, .. } => reason.clone(),
        DecisionAction::Resume(_) => None,
    }
}
