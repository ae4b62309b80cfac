//! How a run ends: at once if it is interrupted or fails, otherwise after the calls that still execute.

use alloc::vec::Vec;

use super::InputOutcome;
use super::draft::Draft;
use super::recovery::running;
use crate::call::{Attempt, Call};
use crate::control::Stage;
use crate::event::{CancelReason, Fact, InterruptCause, Message};
use crate::id::{Principal, interruption_message_id};
use crate::output::JudgedOutput;
use crate::phase::{HookAnswers, Phase};
use crate::rejection::Rejection;
use crate::status::RunStatus;
use crate::termination::Termination;

impl Draft<'_> {
    /// Nothing new starts. Held calls are closed; executing ones are awaited unless the end is an abort. Then the hooks
    /// of RunEnd are asked, then the run is over.
    pub(super) fn finish(&mut self, termination: Termination) -> Result<(), Rejection> {
        if self.interrupted {
            return Ok(());
        }
        // The end that was decided first is kept, unless the run is aborted.
        let termination = match &self.control.stage {
            Stage::Ending(decided) if !termination.is_abort() => decided.clone(),
            Stage::Queued
            | Stage::Starting
            | Stage::Inferring(_)
            | Stage::Acting
            | Stage::StepEnding
            | Stage::BetweenSteps
            | Stage::Ending(_)
            | Stage::Ended => termination,
        };
        let waits = matches!(self.control.status, RunStatus::Waiting(_));
        if waits && !termination.is_abort() {
            self.record(Fact::RunResumed {})?;
        }
        self.cancel_calls(CancelReason::RunEnded, termination.is_abort())?;
        let executing = self.control.calls.iter().any(|call| !call.settled());
        if !executing {
            self.record_missing_messages()?;
            if !self.has_hooks(Phase::RunEnd) {
                return self.end(termination);
            }
        }
        if !matches!(self.control.stage, Stage::Ending(_)) {
            self.record(Fact::RunEnding { termination })?;
        }
        Ok(())
    }

    pub(super) fn run_end_answered(&mut self, hooks: &HookAnswers) -> Result<InputOutcome, Rejection> {
        let Stage::Ending(termination) = self.control.stage.clone() else {
            return Err(Rejection::NotAsked(Phase::RunEnd));
        };
        self.record_hooks(Phase::RunEnd, None, &hooks.isolate_failures(Phase::RunEnd))?;
        self.end(termination)?;
        Ok(InputOutcome::Done)
    }

    /// Waits neither for a tool that ignores its cancellation token nor for hooks.
    pub(super) fn interrupt(&mut self, cause: &InterruptCause) -> Result<InputOutcome, Rejection> {
        let reason = match cause {
            InterruptCause::Person(_) | InterruptCause::Parent(_) => CancelReason::Interrupted,
            InterruptCause::Superseded(_) => CancelReason::Superseded,
        };
        let unanswered = matches!(self.control.stage, Stage::Inferring(_));
        self.record(Fact::RunInterrupting { cause: cause.clone() })?;
        self.cancel_calls(reason, true)?;
        if unanswered {
            // The model's partial text is not an answer. The next run is informed that there was none.
            let id = interruption_message_id(&self.control.run, self.control.step);
            self.record(Fact::MessageAdded(Message::Interruption { id }))?;
        }
        self.record_missing_messages()?;
        self.end(Termination::Cancelled(cause.cancelled()))?;
        Ok(InputOutcome::Done)
    }

    /// Cancels every call that is not settled, in call order; executing ones only if `running_too`.
    fn cancel_calls(&mut self, reason: CancelReason, running_too: bool) -> Result<(), Rejection> {
        let open: Vec<Call> = self
            .control
            .calls
            .iter()
            .filter(|call| !call.settled() && (running_too || !self.executes(call)))
            .cloned()
            .collect();
        for call in &open {
            self.cancel_call(call, reason)?;
        }
        Ok(())
    }

    /// A repeat that is not due yet does not execute, nor does an attempt that was lost with its worker, unless it may
    /// have written. A call that was approved before the end was decided counts as executing: it runs.
    fn executes(&self, call: &Call) -> bool {
        let under_way = |attempt: &Attempt| attempt.lost.is_none() && attempt.not_before <= self.now;
        running(call).is_some_and(under_way)
            || (call.lost() && call.may_have_written())
            || call.is_approved_and_unstarted()
    }

    /// A call that would be held while the run ends is cancelled instead. Returns true if it was.
    pub(super) fn cancel_if_ending(&mut self, call: &Call) -> Result<bool, Rejection> {
        let ends = matches!(self.control.stage, Stage::Ending(_));
        if ends {
            self.cancel_call(call, CancelReason::RunEnded)?;
        }
        Ok(ends)
    }

    pub(super) fn cancel_call(&mut self, call: &Call, reason: CancelReason) -> Result<(), Rejection> {
        self.record(Fact::ToolCancelled {
            call_id: call.id.clone(),
            reason,
            text: None,
            by: Principal::system(),
            decision_id: None,
            outcome_unknown: call.may_take_effect(),
            suspension_id: call.suspension().map(|open| open.id.clone()),
        })?;
        Ok(())
    }

    fn end(&mut self, termination: Termination) -> Result<(), Rejection> {
        let usage = self.control.usage;
        let output = match (&termination, &self.control.output) {
            (Termination::NaturalEnd, Some(JudgedOutput::Fits { seq })) => Some(*seq),
            (Termination::NaturalEnd, Some(JudgedOutput::Unfit { .. }) | None)
            | (
                Termination::BehaviorRequested
                | Termination::Stopped(_)
                | Termination::Cancelled(_)
                | Termination::Blocked(_)
                | Termination::Error(_),
                _,
            ) => None,
        };
        self.record(Fact::RunEnded { termination, usage, output })?;
        Ok(())
    }
}
