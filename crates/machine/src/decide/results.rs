//! Results of attempts. A result settles its call once; late, foreign and repeated results change nothing.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::InputOutcome;
use super::draft::Draft;
use super::recovery::running;
use crate::call::Call;
use crate::control::Stage;
use crate::event::{CallError, CallErrorCode, CancelReason, Fact, OpenedSuspension, ResultFrom};
use crate::id::{CallId, Principal, suspension_id};
use crate::input::{Outcome, ToolAnswer};
use crate::json::Json;
use crate::phase::{AskKind, SuspendRequest};
use crate::rejection::Rejection;
use crate::revision::{ATTEMPT_COUNT_MAX, PENDING_ROUNDS_MAX, RESUME_STATE_BYTES_MAX};
use crate::rules::Asker;
use crate::status::CallStatus;
use crate::suspension::{Held, ResumeMode};
use crate::tool::{ExpiryTerms, OnExpiry};

impl Draft<'_> {
    pub(super) fn tool_returned(
        &mut self,
        step: u32,
        id: &CallId,
        attempt: u32,
        outcome: &Outcome,
    ) -> Result<InputOutcome, Rejection> {
        let Some(call) = self.control.call(id).cloned() else {
            if self.control.recent.contains(step, id, self.now) {
                return Ok(InputOutcome::Duplicate);
            }
            return Err(Rejection::UnknownCall(id.clone()));
        };
        if call.step != step {
            return Err(Rejection::WrongStep { call: call.id, step, current: call.step });
        }
        if call.settled() && call.attempts == attempt {
            return Ok(InputOutcome::Duplicate);
        }
        if running(&call).is_some_and(|current| current.number == attempt) {
            self.attempt_ended(&call, outcome)?;
            return Ok(InputOutcome::Done);
        }
        if call.doubted.contains(&attempt) && call.status() != CallStatus::Running {
            return self.resolve_doubt(&call, attempt, outcome);
        }
        Err(Rejection::StaleAttempt { status: call.status(), current: call.attempts, call: call.id, attempt })
    }

    fn attempt_ended(&mut self, call: &Call, outcome: &Outcome) -> Result<(), Rejection> {
        match outcome {
            Outcome::Answered(answer) => self.answered(call, answer, ResultFrom::Tool),
            Outcome::NotSent { why, retry_after_ms } => {
                if self.retry_if_allowed(call, *retry_after_ms)? {
                    return Ok(());
                }
                self.fail(call, CallErrorCode::NotSent, why.clone())
            }
            Outcome::Unknown { why, .. } if call.may_have_written() => {
                self.suspend_in_doubt(call, call.attempts, Some(why.clone()))
            }
            Outcome::Unknown { why, retry_after_ms } => {
                if self.retry_if_allowed(call, *retry_after_ms)? {
                    return Ok(());
                }
                self.fail(call, CallErrorCode::NoAnswer, why.clone())
            }
        }
    }

    /// A repeatable tool is retried after a pause, with the same key.
    fn retry_if_allowed(&mut self, call: &Call, retry_after_ms: Option<u64>) -> Result<bool, Rejection> {
        let limits = self.revision.limits;
        let tries_left = call.failures + 1 < limits.tool_try_count_max && call.attempts < ATTEMPT_COUNT_MAX;
        let ending = self.interrupted || matches!(self.control.stage, Stage::Ending(_));
        if call.may_have_written() || !tries_left || ending {
            return Ok(false);
        }
        let pause = limits.backoff_ms.saturating_mul(1 << call.failures.min(16));
        let pause = pause.max(retry_after_ms.unwrap_or(0)).min(limits.tool_backoff_ms_max);
        self.start_retry(call, self.now.plus_ms(pause))?;
        Ok(true)
    }

    pub(super) fn answered(
        &mut self,
        call: &Call,
        answer: &ToolAnswer,
        by: ResultFrom,
    ) -> Result<(), Rejection> {
        match answer {
            ToolAnswer::Success { value, warning } => {
                if let Some(why) = answer.unstorable() {
                    return self.fail(call, CallErrorCode::StateFull, why);
                }
                self.record(Fact::ExecutionSucceeded {
                    call_id: call.id.clone(),
                    result: Json::from(&**value),
                    warning: warning.clone(),
                    by,
                })?;
                Ok(())
            }
            ToolAnswer::Error { message } => self.fail(call, CallErrorCode::ToolError, message.clone()),
            ToolAnswer::Pending(_) if matches!(self.control.stage, Stage::Ending(_)) => {
                self.cancel_call(call, CancelReason::RunEnded)
            }
            ToolAnswer::Pending(_) if call.pending_rounds >= PENDING_ROUNDS_MAX => self.fail(
                call,
                CallErrorCode::AskedTooOften,
                alloc::format!("the tool answered pending {PENDING_ROUNDS_MAX} times"),
            ),
            ToolAnswer::Pending(request) => self.suspend(call, request, Vec::new(), call.expires),
        }
    }

    /// A tool, or a hook in its place, holds its own call.
    pub(super) fn suspend(
        &mut self,
        call: &Call,
        request: &SuspendRequest,
        asked_by: Vec<Asker>,
        expires: Option<ExpiryTerms>,
    ) -> Result<(), Rejection> {
        let held = match request.kind {
            AskKind::ClientTool => Held::ClientTool,
            AskKind::External => Held::External,
            AskKind::Question => Held::Question,
            AskKind::Approval => {
                let why = "only the gate asks for an approval; a pending result asks a question";
                return self.fail(call, CallErrorCode::ToolError, why.into());
            }
        };
        if let Some(fault) = request.value_fault() {
            let why = alloc::format!("the question's schema or state cannot be stored: {fault}");
            return self.fail(call, CallErrorCode::StateFull, why);
        }
        let state_bytes = request.resume_state.as_ref().map_or(0, |state| state.to_string().len());
        if state_bytes > RESUME_STATE_BYTES_MAX {
            let why =
                alloc::format!("resume_state has {state_bytes} bytes; at most {RESUME_STATE_BYTES_MAX}");
            return self.fail(call, CallErrorCode::StateFull, why);
        }
        let by_the_tool = asked_by.is_empty() || request.resume_state.is_some();
        let opened = OpenedSuspension { asked_by, by_the_tool, ..self.opened(call, held, request, expires) };
        self.record(Fact::ToolSuspended(opened))?;
        Ok(())
    }

    /// `expires` are the terms of the tool. The stricter of these and the request's own terms count.
    pub(super) fn opened(
        &self,
        call: &Call,
        held: Held,
        request: &SuspendRequest,
        expires: Option<ExpiryTerms>,
    ) -> OpenedSuspension {
        let own = request.expires_in_ms.map(|after_ms| ExpiryTerms { after_ms, then: request.on_expiry });
        let prefix = if held.kind().needs_person() { "apr" } else { "sus" };
        OpenedSuspension {
            call_id: call.id.clone(),
            tool: call.tool.clone(),
            suspension_id: suspension_id(
                prefix,
                self.now,
                &self.control.run,
                self.control.suspension_count + 1,
            ),
            held,
            mode: request.mode,
            arguments: None,
            question: request.question.clone(),
            schema: request.schema.clone(),
            resume_state: request.resume_state.clone(),
            asked_by: Vec::new(),
            by_the_tool: false,
            rule: None,
            let_through_by: None,
            expiry: ExpiryTerms::stricter(own, expires).map(|terms| terms.from(self.now)),
        }
    }

    /// The outcome is unknown and the effect class does not allow another attempt, so a person is asked.
    pub(super) fn suspend_in_doubt(
        &mut self,
        call: &Call,
        attempt: u32,
        why: Option<String>,
    ) -> Result<(), Rejection> {
        if matches!(self.control.stage, Stage::Ending(_)) {
            return self.cancel_call(call, CancelReason::RunEnded);
        }
        let request = SuspendRequest {
            kind: AskKind::Question,
            question: why,
            schema: None,
            mode: ResumeMode::ReplayToolCall,
            resume_state: None,
            expires_in_ms: None,
            on_expiry: OnExpiry::Deny,
        };
        let opened = self.opened(call, Held::InDoubt { attempt }, &request, call.expires);
        self.record(Fact::ToolSuspended(opened))?;
        Ok(())
    }

    /// Processes the late answer of an attempt in doubt, if no other attempt was made since.
    fn resolve_doubt(
        &mut self,
        call: &Call,
        attempt: u32,
        outcome: &Outcome,
    ) -> Result<InputOutcome, Rejection> {
        if matches!(outcome, Outcome::Unknown { .. }) {
            return Ok(InputOutcome::Duplicate);
        }
        let Some(open) = call.suspension() else {
            return self.settle_before_retry(call, outcome);
        };
        self.record(Fact::ToolResumed {
            call_id: call.id.clone(),
            suspension_id: open.id.clone(),
            mode: ResumeMode::UseDecisionAsToolResult,
            by: Principal::system(),
            decision_id: None,
            late_attempt: Some(attempt),
            answer: None,
            arguments: None,
        })?;
        self.announce_status()?;
        // This attempt is no longer in doubt, but an earlier one may still be.
        let call = self.call(&call.id)?.clone();
        match outcome {
            Outcome::Answered(answer) => self.answered(&call, answer, ResultFrom::Tool)?,
            Outcome::NotSent { why, .. } | Outcome::Unknown { why, .. } => {
                self.fail(&call, CallErrorCode::NotSent, why.clone())?;
            }
        }
        Ok(InputOutcome::Done)
    }

    /// A person asked for a repeat that has not started. A successful answer makes it unnecessary; anything else does
    /// not.
    fn settle_before_retry(&mut self, call: &Call, outcome: &Outcome) -> Result<InputOutcome, Rejection> {
        match outcome {
            Outcome::Answered(answer @ ToolAnswer::Success { .. }) => {
                self.answered(call, answer, ResultFrom::Tool)?;
                Ok(InputOutcome::Done)
            }
            Outcome::Answered(ToolAnswer::Error { .. } | ToolAnswer::Pending(_))
            | Outcome::NotSent { .. }
            | Outcome::Unknown { .. } => Ok(InputOutcome::Duplicate),
        }
    }

    /// Fails a call that did not run, or suspends it as in doubt: a refused repeat says nothing about the outcome of
    /// the attempt before it.
    pub(super) fn fail(
        &mut self,
        call: &Call,
        code: CallErrorCode,
        message: String,
    ) -> Result<(), Rejection> {
        if let Some(attempt) = call.doubted.last().copied()
            && code.is_without_tool_answer()
        {
            return self.suspend_in_doubt(call, attempt, Some(message));
        }
        self.record(Fact::ExecutionFailed {
            call_id: call.id.clone(),
            error: CallError { code, message },
            outcome_unknown: !call.doubted.is_empty(),
        })?;
        Ok(())
    }
}
