//! After a take-over: the new worker does not continue attempts that it did not start.

use alloc::format;
use alloc::vec::Vec;

use super::InputOutcome;
use super::draft::Draft;
use crate::call::{Attempt, Call, CallState};
use crate::control::Stage;
use crate::event::{CancelReason, Fact, LostAttempt};
use crate::rejection::Rejection;
use crate::revision::ATTEMPT_COUNT_MAX;
use crate::termination::{ErrorCode, Termination};
use crate::time::Timestamp;
use crate::tool::EffectClass;

impl Draft<'_> {
    /// Records which attempts were lost. Their outcome is decided once the inbox is drained: an answer, a decision or
    /// an interrupt that was accepted earlier comes first.
    pub(super) fn lease_acquired(
        &mut self,
        epoch: u64,
        doubt_at: Timestamp,
    ) -> Result<InputOutcome, Rejection> {
        let lost: Vec<LostAttempt> = self
            .control
            .calls
            .iter()
            .filter_map(|call| {
                let attempt = running(call).filter(|attempt| attempt.lost.is_none())?;
                Some(LostAttempt { call_id: call.id.clone(), attempt: attempt.number })
            })
            .collect();
        let lost_model_attempt = match &self.control.stage {
            Stage::Inferring(inferring) if !inferring.lost => Some(inferring.attempt),
            Stage::Queued
            | Stage::Starting
            | Stage::Inferring(_)
            | Stage::Acting
            | Stage::StepEnding
            | Stage::BetweenSteps
            | Stage::Ending(_)
            | Stage::Ended => None,
        };
        if !lost.is_empty() || lost_model_attempt.is_some() {
            self.record(Fact::RunRecovered { epoch, lost, lost_model_attempt, doubt_at })?;
        }
        Ok(InputOutcome::Done)
    }

    /// A lost model call gets a new number, and a lost `write` is in doubt. A call that may be repeated passes the gate
    /// again.
    pub(super) fn inbox_drained(&mut self) -> Result<InputOutcome, Rejection> {
        if let Stage::Inferring(inferring) = &self.control.stage
            && inferring.lost
        {
            let attempt = inferring.attempt + 1;
            let at = self.now;
            if attempt > ATTEMPT_COUNT_MAX {
                let why = format!("the worker was lost in each of {ATTEMPT_COUNT_MAX} model calls");
                self.finish(Termination::error(ErrorCode::Model, &why))?;
                return Ok(InputOutcome::Done);
            }
            self.record(Fact::ModelRetrying {
                attempt,
                error: "the worker was lost".into(),
                at,
                empty_answer: false,
            })?;
        }
        if matches!(self.control.stage, Stage::Ending(_)) {
            for call in self.lost_calls().iter().filter(|call| !call.may_have_written()) {
                self.cancel_call(call, CancelReason::RunEnded)?;
            }
        }
        self.suspend_due_doubts()?;
        Ok(InputOutcome::Done)
    }

    /// Asks a person about every lost `write` that is due. Returns true if there was one.
    pub(super) fn suspend_due_doubts(&mut self) -> Result<bool, Rejection> {
        let mut any = false;
        for call in self.lost_calls() {
            let due = running(&call).and_then(|attempt| attempt.lost).is_some_and(|at| at <= self.now);
            if due && call.may_have_written() {
                self.suspend_in_doubt(&call, call.attempts, Some("the worker was lost".into()))?;
                any = true;
            }
        }
        Ok(any)
    }

    fn lost_calls(&self) -> Vec<Call> {
        self.control
            .calls
            .iter()
            .filter(|call| running(call).is_some_and(|attempt| attempt.lost.is_some()))
            .cloned()
            .collect()
    }

    /// A new number makes the lost attempt's late answer stale.
    pub(super) fn start_retry(&mut self, call: &Call, not_before: Timestamp) -> Result<(), Rejection> {
        self.record(Fact::ExecutionStarted {
            call_id: call.id.clone(),
            tool: call.tool.clone(),
            attempt: call.attempts + 1,
            class: call.class.unwrap_or(EffectClass::Write),
            not_before,
            rule: None,
            let_through_by: None,
            expires: call.expires,
        })?;
        Ok(())
    }
}

pub(super) const fn running(call: &Call) -> Option<&Attempt> {
    match &call.state {
        CallState::Running(attempt) => Some(attempt),
        CallState::New
        | CallState::Suspended(_)
        | CallState::Resuming
        | CallState::Succeeded { .. }
        | CallState::Failed { .. }
        | CallState::Cancelled { .. } => None,
    }
}
