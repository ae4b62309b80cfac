//! When a step may start, when a limit may stop a run, and which status follows from a run's calls.

use machine::Timestamp;
use machine::phase::Phase;
use machine::revision::StopCondition;
use machine::status::CallStatus;
use machine::suspension::SuspensionKind;
use machine::termination::{StopCode, Termination};

use crate::judge::invariant::{Checked, Invariant, ensure};
use crate::judge::ledger::{Announced, Projected, ReportedToModel, RunLedger};
use crate::world::setup::FINAL_WORD;

impl RunLedger {
    pub(crate) fn hear_step_started(&mut self, step: u32, at: Timestamp) -> Checked {
        ensure(step == self.step + 1 && !self.step_open, Invariant::OneContinuationPerTurn, || {
            format!("step {step} starts while step {} is open: {}", self.step, self.step_open)
        })?;
        ensure(self.ending.is_none(), Invariant::OneEndPerRun, || format!("step {step} starts at the end"))?;
        ensure(self.status == Announced::Running, Invariant::StatusIsTheProjection, || {
            format!("step {step} starts while the run is {:?}", self.status)
        })?;
        let eager = self.eager();
        for call in &self.calls {
            ensure(call.said != ReportedToModel::Nothing, Invariant::OneToolMessagePerCall, || {
                format!("step {step} starts and call {} has no tool message", call.id)
            })?;
            ensure(call.status.terminal() || eager, Invariant::OneContinuationPerTurn, || {
                format!("step {step} starts and call {} is {}", call.id, call.status)
            })?;
            let is_reported = !call.status.terminal() || call.said == ReportedToModel::Result;
            ensure(is_reported, Invariant::EagerLosesNothing, || {
                format!("step {step} starts, and the model lacks the result of call {}", call.id)
            })?;
        }
        self.check_output_at_step(step)?;
        if step > 1 {
            self.check_limits(step, at)?;
        }
        self.step = step;
        self.step_open = true;
        self.inferring = true;
        self.model_attempt = 1;
        self.empty_retried = false;
        Ok(())
    }

    fn check_limits(&self, step: u32, at: Timestamp) -> Checked {
        for condition in &self.revision.stop {
            let invariant = match condition {
                StopCondition::Timeout { .. } => Invariant::WaitingIsFree,
                StopCondition::MaxRounds { .. }
                | StopCondition::TokenBudget { .. }
                | StopCondition::ConsecutiveErrors { .. }
                | StopCondition::StopOnTool { .. }
                | StopCondition::ContentMatch { .. }
                | StopCondition::LoopDetection { .. } => Invariant::LimitsHold,
            };
            let reached = self.is_reached(condition, at) == Some(true);
            ensure(!reached, invariant, || format!("step {step} starts beyond {condition:?}"))?;
        }
        ensure(!self.is_grant_spent(), Invariant::LimitsHold, || {
            format!("step {step} starts beyond the grant of its parent")
        })
    }

    fn is_grant_spent(&self) -> bool {
        let grant = self.parent.as_ref().and_then(|parent| parent.grant_tokens);
        grant.is_some_and(|grant| self.spent_tokens() > grant)
    }

    /// The run's own tokens, and what was granted to children that have not ended.
    fn spent_tokens(&self) -> u64 {
        let granted = self
            .calls
            .iter()
            .filter(|call| call.open.as_ref().is_some_and(|open| open.kind == SuspensionKind::ChildRun))
            .filter_map(|call| call.grant);
        self.usage.total() + granted.sum::<u64>()
    }

    /// Whether a condition has been reached, by the simulator's own count. `None` if the simulator does not count it.
    fn is_reached(&self, condition: &StopCondition, at: Timestamp) -> Option<bool> {
        Some(match condition {
            StopCondition::MaxRounds { rounds } => *rounds > 0 && self.step >= *rounds,
            StopCondition::Timeout { seconds } => *seconds > 0 && self.active_ms_at(at) > seconds * 1_000,
            StopCondition::TokenBudget { max_total } => *max_total > 0 && self.spent_tokens() > *max_total,
            // Under `eager` the results of several steps arrive together.
            StopCondition::ConsecutiveErrors { .. } if self.eager() => return None,
            StopCondition::ConsecutiveErrors { max } => *max > 0 && self.errors_in_a_row() >= *max as usize,
            StopCondition::StopOnTool { tool_name } => {
                self.calls.iter().any(|call| call.step == self.step && call.tool == *tool_name)
            }
            StopCondition::ContentMatch { .. } => self.last_text.contains(FINAL_WORD),
            StopCondition::LoopDetection { window } => {
                let window = usize::from(*window).max(2);
                let latest = &self.calls[self.calls.len().saturating_sub(window)..];
                latest.iter().enumerate().any(|(place, call)| {
                    latest[..place]
                        .iter()
                        .any(|other| other.tool == call.tool && other.requested == call.requested)
                })
            }
        })
    }

    /// A step without a success adds its errors. Any success resets the count.
    fn errors_in_a_row(&self) -> usize {
        let mut errors = 0;
        for step in 1..=self.step {
            let of_step = || self.calls.iter().filter(|call| call.step == step);
            if of_step().any(|call| call.status == CallStatus::Succeeded) {
                errors = 0;
            } else {
                errors += of_step().filter(|call| call.status == CallStatus::Failed).count();
            }
        }
        errors
    }

    /// A run is stopped for a limit only if that limit was reached.
    pub(crate) fn check_stop(&self, termination: &Termination, at: Timestamp) -> Checked {
        let Termination::Stopped(stopped) = termination else { return Ok(()) };
        let invariant = match stopped.code {
            StopCode::Rejected | StopCode::Expired => return Ok(()),
            StopCode::Timeout => Invariant::WaitingIsFree,
            StopCode::MaxRounds
            | StopCode::TokenBudget
            | StopCode::ConsecutiveErrors
            | StopCode::StopOnTool
            | StopCode::ContentMatch
            | StopCode::LoopDetection => Invariant::LimitsHold,
        };
        let reached = self.revision.stop.iter().any(|condition| {
            code_of(condition) == stopped.code && self.is_reached(condition, at) != Some(false)
        });
        let granted = stopped.code == StopCode::TokenBudget && self.is_grant_spent();
        ensure(reached || granted, invariant, || {
            format!("stopped as {stopped:?} after {} ms of work", self.active_ms_at(at))
        })
    }

    /// The announced status must follow from the calls. Checked after each input, not between its events. Before an
    /// accepted interrupt, a settled call of an earlier step resumes an eager run without the model call that would
    /// follow.
    pub(crate) fn check_status(&self, before_interrupt: bool) -> Checked {
        let projected = self.projection();
        let (waits, quiet) = match &self.status {
            Announced::Waiting(_) => (true, false),
            Announced::Running => (false, !self.inferring && self.ending.is_none()),
            Announced::Queued | Announced::Interrupting | Announced::Done(_) => return Ok(()),
        };
        if waits {
            return ensure(
                projected == Projected::Waiting && !self.inferring,
                Invariant::StatusIsTheProjection,
                || format!("the run waits, its calls are {projected:?}, inferring: {}", self.inferring),
            );
        }
        let phases = self.revision.phases;
        let hooks = phases.has(Phase::AfterToolExecute) || phases.has(Phase::StepEnd);
        let has_settled = self
            .calls
            .iter()
            .any(|call| call.status.terminal() && (before_interrupt || call.step == self.step));
        let must_wait = quiet
            && !hooks
            && !(self.eager() && has_settled)
            && self.step > 0
            && projected == Projected::Waiting;
        ensure(!must_wait, Invariant::StatusIsTheProjection, || {
            "the run is running and all that is open is held".into()
        })
    }
}

const fn code_of(condition: &StopCondition) -> StopCode {
    match condition {
        StopCondition::MaxRounds { .. } => StopCode::MaxRounds,
        StopCondition::Timeout { .. } => StopCode::Timeout,
        StopCondition::TokenBudget { .. } => StopCode::TokenBudget,
        StopCondition::ConsecutiveErrors { .. } => StopCode::ConsecutiveErrors,
        StopCondition::StopOnTool { .. } => StopCode::StopOnTool,
        StopCondition::ContentMatch { .. } => StopCode::ContentMatch,
        StopCondition::LoopDetection { .. } => StopCode::LoopDetection,
    }
}
