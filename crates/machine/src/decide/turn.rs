//! The turn barrier: one continuation, when every expected call is settled, in the model's call order.

use alloc::string::String;
use alloc::vec::Vec;

use super::InputOutcome;
use super::draft::Draft;
use crate::call::{Call, Reported};
use crate::control::Stage;
use crate::event::{Fact, Message, NoteBody, ToolBody};
use crate::id::{
    CallId, assistant_message_id, correction_message_id, late_message_id, plugin_note_id, tool_message_id,
};
use crate::output::JudgedOutput;
use crate::phase::{Action, HookAnswers, Phase};
use crate::policy::{Continuation, StepEnd};
use crate::rejection::Rejection;
use crate::status::{CallStatus, RunStatus};
use crate::step_projection::{self, StepProjection};
use crate::stop;
use crate::termination::{ErrorCode, Termination};

impl Draft<'_> {
    /// Takes every step that follows from the state, until the run has to wait for an effect or an input.
    pub(super) fn advance(&mut self) -> Result<(), Rejection> {
        loop {
            self.announce_status()?;
            let before = self.control.seq;
            match &self.control.stage {
                Stage::Queued | Stage::Starting | Stage::Inferring(_) | Stage::Ended => return Ok(()),
                Stage::Acting => self.close_turn()?,
                Stage::StepEnding if self.has_hooks(Phase::StepEnd) => return Ok(()),
                // The outcome of a lost attempt is decided once the inbox is drained, or when the doubt is due.
                Stage::Ending(_) if self.control.calls.iter().any(Call::lost) => return Ok(()),
                Stage::StepEnding => self.end_step()?,
                Stage::BetweenSteps => self.continue_after_step()?,
                Stage::Ending(termination) => {
                    let termination = termination.clone();
                    self.finish(termination)?;
                }
            }
            if self.control.seq == before {
                return Ok(());
            }
        }
    }

    /// Records `run.waiting` at every entry into a waiting status, and `run.resumed` at every return to running.
    pub(super) fn announce_status(&mut self) -> Result<(), Rejection> {
        let waits = match &self.control.stage {
            Stage::Acting => {
                self.step_waits() && step_projection::project_run(&self.control) == StepProjection::Waiting
            }
            Stage::BetweenSteps => {
                self.after_step() == AfterStep::WaitForCalls
                    && step_projection::project_run(&self.control) == StepProjection::Waiting
            }
            Stage::Queued
            | Stage::Starting
            | Stage::Inferring(_)
            | Stage::StepEnding
            | Stage::Ending(_)
            | Stage::Ended => false,
        };
        let on = step_projection::waiting_on(&self.control);
        match (&self.control.status, waits) {
            (RunStatus::Running, true) => {
                self.record(Fact::RunWaiting { on, pending: self.control.pending() })?;
            }
            (RunStatus::Waiting(before), true) if *before != on => {
                self.record(Fact::RunWaiting { on, pending: self.control.pending() })?;
            }
            (RunStatus::Waiting(_), false) => {
                self.record(Fact::RunResumed {})?;
            }
            (RunStatus::Waiting(_), true)
            | (RunStatus::Running, false)
            | (RunStatus::Queued | RunStatus::Interrupting | RunStatus::Done(_), _) => {}
        }
        Ok(())
    }

    /// The open step blocks the run: a call in it is held, and nothing can continue without that call.
    fn step_waits(&self) -> bool {
        step_projection::project_step(&self.control) == StepProjection::Waiting
            && !self.continues_eagerly()
            && !self.awaits_after_tool_hooks()
    }

    fn continues_eagerly(&self) -> bool {
        self.control.policy.continuation == Continuation::Eager
            && (self.control.step_calls().any(Call::settled) || self.has_late_results())
    }

    /// A result came after its placeholder, and the model has not received it yet.
    fn has_late_results(&self) -> bool {
        self.control.calls.iter().any(|call| call.settled() && call.reported == Reported::Placeholder)
    }

    /// The hooks of AfterToolExecute have not all answered for the calls in their current state.
    fn awaits_after_tool_hooks(&self) -> bool {
        self.has_hooks(Phase::AfterToolExecute)
            && self.control.calls.iter().any(|call| {
                wants_after_hooks(call, self.control.policy.step_end)
                    && !call.after_answered
                    && !self.after_hooks_answered.contains(&call.id)
            })
    }

    /// Writes the tool messages in call order once the step has nothing left to wait for.
    fn close_turn(&mut self) -> Result<(), Rejection> {
        let complete = match step_projection::project_step(&self.control) {
            StepProjection::Executing => false,
            StepProjection::Waiting => self.continues_eagerly(),
            StepProjection::Settled => true,
        };
        if !complete || self.awaits_after_tool_hooks() {
            return Ok(());
        }
        self.record_tool_messages()
    }

    fn end_step(&mut self) -> Result<(), Rejection> {
        let step = self.control.step;
        let message_id = assistant_message_id(&self.control.run, step);
        self.record(Fact::StepEnded { step, message_id })?;
        Ok(())
    }

    pub(super) fn step_end_answered(&mut self, hooks: &HookAnswers) -> Result<InputOutcome, Rejection> {
        let hooks = hooks.isolate_failures(Phase::StepEnd);
        self.record_hooks(Phase::StepEnd, None, &hooks)?;
        self.end_step()?;
        if hooks.actions().any(|(_, action)| *action == Action::End) {
            self.finish(Termination::BehaviorRequested)?;
        }
        Ok(InputOutcome::Done)
    }

    fn continue_after_step(&mut self) -> Result<(), Rejection> {
        match self.after_step() {
            AfterStep::AwaitHooks | AfterStep::WaitForCalls => Ok(()),
            AfterStep::Finish(termination) => self.finish(termination),
            AfterStep::NextStep => self.start_step(),
            AfterStep::Correct { why } => {
                let id = correction_message_id(&self.control.run, self.control.step);
                self.record(Fact::MessageAdded(Message::Correction { id, why }))?;
                self.start_step()
            }
        }
    }

    /// Between two steps: stop, continue, or wait for calls that were left open.
    fn after_step(&self) -> AfterStep {
        if self.awaits_after_tool_hooks() {
            return AfterStep::AwaitHooks;
        }
        let open = self.control.calls.iter().any(|call| !call.settled());
        let asked_for_tools = self.control.step_calls().next().is_some();
        let nothing_more = !asked_for_tools && !self.has_late_results();
        let stop = stop::check_conditions(self.revision, &self.control, nothing_more, self.now);
        match stop {
            // The run would end here, but calls are open. It waits for them instead of dropping them.
            _ if open && (nothing_more || stop.is_some()) => AfterStep::WaitForCalls,
            Some(stopped) => AfterStep::Finish(stopped),
            None if nothing_more => self.after_last_answer(),
            None => AfterStep::NextStep,
        }
    }

    /// The model asks for no more calls. If an output is wanted and this answer does not fit, the model is asked to
    /// correct it once, in an additional step that counts towards the limits like any other.
    fn after_last_answer(&self) -> AfterStep {
        let Some(JudgedOutput::Unfit { why }) = &self.control.output else {
            return AfterStep::Finish(Termination::NaturalEnd);
        };
        if self.control.output_corrected {
            return AfterStep::Finish(Termination::error(ErrorCode::Output, why));
        }
        match stop::check_conditions(self.revision, &self.control, false, self.now) {
            Some(stopped) => AfterStep::Finish(stopped),
            None => AfterStep::Correct { why: why.clone() },
        }
    }

    pub(super) fn after_tools(&mut self, heard: &[(CallId, HookAnswers)]) -> Result<InputOutcome, Rejection> {
        if !self.has_hooks(Phase::AfterToolExecute) {
            return Err(Rejection::NotAsked(Phase::AfterToolExecute));
        }
        for (id, hooks) in heard {
            let Some(call) = self.control.call(id) else { continue };
            let due = wants_after_hooks(call, self.control.policy.step_end) && !call.after_answered;
            if !due || !self.after_hooks_answered.insert(id.clone()) {
                continue;
            }
            let hooks = hooks.isolate_failures(Phase::AfterToolExecute);
            self.record_hooks(Phase::AfterToolExecute, Some(id), &hooks)?;
        }
        Ok(InputOutcome::Done)
    }

    /// Writes a tool message for every call of the step that has none, in call order, then the notes of plugins.
    fn record_tool_messages(&mut self) -> Result<(), Rejection> {
        let calls: Vec<Call> =
            self.control.step_calls().filter(|call| call.reported == Reported::Nothing).cloned().collect();
        for call in &calls {
            self.record_tool_message(call)?;
        }
        for call in &calls {
            self.record_plugin_notes(call)?;
        }
        Ok(())
    }

    fn record_tool_message(&mut self, call: &Call) -> Result<(), Rejection> {
        let body = match call.settled_seq() {
            Some(seq) => ToolBody::Settled { seq },
            None => ToolBody::Placeholder { kind: call.suspension().map(|open| open.held.kind()) },
        };
        self.record(Fact::MessageAdded(Message::Tool {
            id: tool_message_id(&call.id),
            call_id: call.id.clone(),
            status: call.status(),
            body,
        }))?;
        Ok(())
    }

    fn record_plugin_notes(&mut self, call: &Call) -> Result<(), Rejection> {
        for seq in &call.notes {
            self.record(Fact::MessageAdded(Message::Note {
                id: plugin_note_id(&call.id, *seq),
                call_id: call.id.clone(),
                body: NoteBody::Plugin { seq: *seq },
            }))?;
        }
        Ok(())
    }

    /// Under `eager`: writes the results that came after their placeholder, and the notes of plugins about them.
    pub(super) fn record_late_results(&mut self) -> Result<(), Rejection> {
        let late: Vec<Call> = self
            .control
            .calls
            .iter()
            .filter(|call| call.reported == Reported::Placeholder && call.settled())
            .cloned()
            .collect();
        for call in &late {
            let Some(seq) = call.settled_seq() else { continue };
            self.record(Fact::MessageAdded(Message::Note {
                id: late_message_id(&call.id),
                call_id: call.id.clone(),
                body: NoteBody::Late { seq },
            }))?;
            self.record_plugin_notes(call)?;
        }
        Ok(())
    }

    /// Before the run ends, every requested call gets its message. Nothing repairs transcripts later.
    pub(super) fn record_missing_messages(&mut self) -> Result<(), Rejection> {
        self.record_tool_messages()?;
        self.record_late_results()?;
        if self.control.step_open {
            self.end_step()?;
        }
        Ok(())
    }
}

/// What follows a finished step.
#[derive(PartialEq)]
enum AfterStep {
    AwaitHooks,
    WaitForCalls,
    Finish(Termination),
    NextStep,
    /// The last answer does not fit the wanted output. The model reads why, and answers once more.
    Correct {
        why: String,
    },
}

/// If the step ends before the tools, the hooks are also asked about a held call. Otherwise they are asked once, when
/// there is a result (X25 of the behaviour catalogue).
pub(crate) fn wants_after_hooks(call: &Call, step_end: StepEnd) -> bool {
    match call.status() {
        CallStatus::Succeeded | CallStatus::Failed | CallStatus::Cancelled => {
            call.reported != Reported::Result
        }
        CallStatus::Suspended => step_end == StepEnd::AfterInference && call.reported == Reported::Nothing,
        CallStatus::New | CallStatus::Running | CallStatus::Resuming => false,
    }
}
