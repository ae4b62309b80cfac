//! From the start of a run to the model's answer.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::InputOutcome;
use super::draft::Draft;
use crate::call::Call;
use crate::control::{Inferring, Stage};
use crate::event::{CallInMessage, Fact, Message, Origin};
use crate::id::{CallId, MessageId, assistant_message_id, calls_dropped_message_id, generated_call_id};
use crate::input::{ModelAnswered, ModelFailure, RequestedCall};
use crate::output::OutputFit;
use crate::phase::{Action, HookAnswers, Phase};
use crate::rejection::Rejection;
use crate::revision::{ATTEMPT_COUNT_MAX, CALL_ID_BYTES_MAX, CALLS_OPEN_MAX, TOOL_NAME_BYTES_MAX};
use crate::status::RunStatus;
use crate::termination::{ErrorCode, Termination};
use crate::tool::Arguments;

impl Draft<'_> {
    pub(super) fn start(&mut self, after: Option<&MessageId>) -> Result<InputOutcome, Rejection> {
        if self.control.status != RunStatus::Queued {
            return Err(Rejection::AlreadyStarted);
        }
        self.record(Fact::RunStarted { after: after.cloned() })?;
        if let Some(id) = self.control.user_message.clone() {
            self.record(Fact::MessageAdded(Message::User { id }))?;
        }
        if !self.has_hooks(Phase::RunStart) {
            self.start_step()?;
        }
        Ok(InputOutcome::Done)
    }

    /// Records late results first, then calls the model again.
    pub(super) fn start_step(&mut self) -> Result<(), Rejection> {
        self.record_late_results()?;
        let step = self.control.step + 1;
        let message_id = assistant_message_id(&self.control.run, step);
        self.record(Fact::StepStarted { step, message_id })?;
        Ok(())
    }

    pub(super) fn phase_answered(
        &mut self,
        phase: Phase,
        hooks: &HookAnswers,
    ) -> Result<InputOutcome, Rejection> {
        let stage = &self.control.stage;
        let all_settled = self.control.calls.iter().all(Call::settled);
        match phase {
            Phase::RunStart if *stage == Stage::Starting => self.run_start_answered(hooks),
            Phase::StepStart | Phase::BeforeInference if matches!(stage, Stage::Inferring(inferring) if !inferring.answered.has(phase)) => {
                self.before_inference_answered(phase, hooks)
            }
            Phase::StepEnd if *stage == Stage::StepEnding => self.step_end_answered(hooks),
            Phase::RunEnd if matches!(stage, Stage::Ending(_)) && all_settled => self.run_end_answered(hooks),
            Phase::RunStart
            | Phase::StepStart
            | Phase::BeforeInference
            | Phase::AfterInference
            | Phase::BeforeToolExecute
            | Phase::AfterToolExecute
            | Phase::StepEnd
            | Phase::RunEnd => Err(Rejection::NotAsked(phase)),
        }
    }

    fn run_start_answered(&mut self, hooks: &HookAnswers) -> Result<InputOutcome, Rejection> {
        if self.end_on_hook_fault(Phase::RunStart, hooks)? {
            return Ok(InputOutcome::Done);
        }
        self.record_hooks(Phase::RunStart, None, hooks)?;
        if wants_end(hooks) {
            self.finish(Termination::BehaviorRequested)?;
        } else {
            self.start_step()?;
        }
        Ok(InputOutcome::Done)
    }

    fn before_inference_answered(
        &mut self,
        phase: Phase,
        hooks: &HookAnswers,
    ) -> Result<InputOutcome, Rejection> {
        if self.end_on_hook_fault(phase, hooks)? {
            return Ok(InputOutcome::Done);
        }
        self.record_hooks(phase, None, hooks)?;
        if hooks.actions().any(|(_, action)| *action == Action::SkipInference) {
            self.finish(Termination::BehaviorRequested)?;
        }
        Ok(InputOutcome::Done)
    }

    /// In the phases before the tools a failing hook ends the run: continuing without it could do harm.
    fn end_on_hook_fault(&mut self, phase: Phase, hooks: &HookAnswers) -> Result<bool, Rejection> {
        let Some(fault) = hooks.fault(phase) else { return Ok(false) };
        self.record_failures(phase, None, hooks)?;
        self.finish(Termination::error(ErrorCode::Hook, &fault))?;
        Ok(true)
    }

    pub(super) fn model_failed(
        &mut self,
        step: u32,
        attempt: u32,
        failure: &ModelFailure,
    ) -> Result<InputOutcome, Rejection> {
        let inferring = self.inferring(step, attempt)?;
        if !failure.retryable || !self.may_retry_model(&inferring) {
            self.finish(Termination::error(ErrorCode::Model, &failure.message))?;
            return Ok(InputOutcome::Done);
        }
        self.retry_model(&inferring, failure, false)
    }

    const fn may_retry_model(&self, inferring: &Inferring) -> bool {
        inferring.failures + 1 < self.revision.limits.model_try_count_max
            && inferring.attempt < ATTEMPT_COUNT_MAX
    }

    fn retry_model(
        &mut self,
        inferring: &Inferring,
        failure: &ModelFailure,
        empty_answer: bool,
    ) -> Result<InputOutcome, Rejection> {
        let limits = self.revision.limits;
        let pause = limits.backoff_ms.saturating_mul(1 << inferring.failures.min(16));
        let pause = pause.max(failure.retry_after_ms.unwrap_or(0)).min(limits.model_backoff_ms_max);
        self.record(Fact::ModelRetrying {
            attempt: inferring.attempt + 1,
            error: crate::termination::truncate_reason(&failure.message),
            at: self.now.plus_ms(pause),
            empty_answer,
        })?;
        Ok(InputOutcome::Done)
    }

    fn inferring(&self, step: u32, attempt: u32) -> Result<Inferring, Rejection> {
        match &self.control.stage {
            Stage::Inferring(inferring)
                if step == self.control.step && attempt == inferring.attempt && !inferring.lost =>
            {
                Ok(inferring.clone())
            }
            Stage::Queued
            | Stage::Starting
            | Stage::Inferring(_)
            | Stage::Acting
            | Stage::StepEnding
            | Stage::BetweenSteps
            | Stage::Ending(_)
            | Stage::Ended => Err(Rejection::StaleModelAttempt { step, attempt }),
        }
    }

    pub(super) fn model_answered(&mut self, answered: &ModelAnswered) -> Result<InputOutcome, Rejection> {
        let inferring = self.inferring(answered.step, answered.attempt)?;
        if self.retries_empty(answered, &inferring) {
            let message = "the model answered with neither text nor a tool call".into();
            let failure = ModelFailure { message, retryable: true, retry_after_ms: None };
            return self.retry_model(&inferring, &failure, true);
        }
        let (declared, dropped) = self.accept_calls(answered);
        if let Some(message) = self.answer_fault(answered, declared.len(), dropped) {
            let failure = ModelFailure { message, retryable: true, retry_after_ms: None };
            return self.model_failed(answered.step, answered.attempt, &failure);
        }
        if self.end_on_hook_fault(Phase::AfterInference, &answered.hooks)? {
            return Ok(InputOutcome::Done);
        }
        self.record_hooks(Phase::AfterInference, None, &answered.hooks)?;
        let taken = u32::try_from(declared.len()).unwrap_or(u32::MAX);
        // An answer that still asks for calls is not the final one.
        let output = answered.output.as_ref().filter(|_| declared.is_empty()).map(OutputFit::bounded);
        self.record(Fact::MessageAdded(Message::Assistant {
            id: assistant_message_id(&self.control.run, answered.step),
            text: answered.text.clone(),
            reasoning: answered.reasoning.clone(),
            calls: declared.iter().map(|call| call.in_message.clone()).collect(),
            usage: answered.usage,
            matched: answered.matched.clone(),
            output,
            origin: Origin {
                model: answered.origin.model.clone(),
                // The sealed content belongs to the whole answer. The provider would refuse it with a part of the
                // calls.
                sealed: answered.origin.sealed.clone().filter(|_| declared.len() == answered.calls.len()),
            },
        }))?;
        for call in declared {
            let CallInMessage { call_id, tool, .. } = call.in_message;
            self.record(Fact::ToolRequested { call_id, tool, arguments: call.arguments })?;
        }
        if dropped > 0 {
            let id = calls_dropped_message_id(&self.control.run, answered.step);
            self.record(Fact::MessageAdded(Message::CallsDropped { id, taken, dropped }))?;
        }
        if wants_end(&answered.hooks) {
            self.finish(Termination::BehaviorRequested)?;
        }
        Ok(InputOutcome::Done)
    }

    /// An answer with neither text nor calls is retried once, on the first step of a run: there it is more likely an
    /// error of the provider than a model that has nothing to add. Otherwise it ends the run like any last answer.
    const fn retries_empty(&self, answered: &ModelAnswered, inferring: &Inferring) -> bool {
        answered.text.is_empty()
            && answered.calls.is_empty()
            && answered.step == 1
            && !inferring.empty_retried
            && self.may_retry_model(inferring)
    }

    /// Why the answer cannot be accepted: a transcript could not hold it, or the control state has no room for it.
    fn answer_fault(&self, answered: &ModelAnswered, taken: usize, dropped: u32) -> Option<String> {
        if let Some(call) = answered
            .calls
            .iter()
            .find(|call| call.tool.as_str().is_empty() || call.tool.as_str().len() > TOOL_NAME_BYTES_MAX)
        {
            let length = call.tool.as_str().len();
            return Some(format!("the model asked for a tool whose name has {length} bytes"));
        }
        // If no call is open, nothing will make room later, and the run would end without the model's calls.
        let nothing_fits = taken == 0 && dropped > 0 && self.open_call_count() == 0;
        (nothing_fits || !self.has_room(fault_bytes(answered)))
            .then(|| "the answer does not fit into the run's state".into())
    }

    fn open_call_count(&self) -> usize {
        self.control.calls.iter().filter(|call| !call.settled()).count()
    }

    /// The calls that remain after the hooks, with ids that are unique in the thread, and the number of calls that the
    /// run has no room for. After the first call that does not fit, no more are taken; the model reads which ones
    /// were.
    fn accept_calls(&self, answered: &ModelAnswered) -> (Vec<DeclaredCall>, u32) {
        let count_max = CALLS_OPEN_MAX.saturating_sub(self.open_call_count());
        let mut room = self.room_bytes().unwrap_or(0).saturating_sub(fault_bytes(answered));
        // A hook identifies a call by its index, so calls beyond the largest index are never taken.
        let beyond = answered.calls.len().saturating_sub(1 + usize::from(u16::MAX));
        let beyond = u32::try_from(beyond).unwrap_or(u32::MAX);
        let mut dropped = 0_u32;
        let mut taken: BTreeSet<CallId> = answered.taken.clone();
        taken.extend(self.control.calls.iter().map(|call| call.id.clone()));
        let mut declared = Vec::new();
        for (asked, index) in answered.calls.iter().zip(0..=u16::MAX) {
            let dropped_by_hook = answered
                .hooks
                .actions()
                .any(|(_, action)| matches!(action, Action::DropCall { index: other } if *other == index));
            if dropped_by_hook {
                continue;
            }
            let left = room.checked_sub(call_bytes(asked)).filter(|_| declared.len() < count_max);
            let Some(left) = left.filter(|_| dropped == 0) else {
                dropped += 1;
                continue;
            };
            room = left;
            let set = answered.hooks.actions().filter_map(|(_, action)| set_arguments(action, index)).last();
            let call_id = self.unique_id(asked, index, &taken);
            taken.insert(call_id.clone());
            declared.push(DeclaredCall {
                in_message: CallInMessage {
                    call_id,
                    tool: asked.tool.clone(),
                    own_arguments: set.map(|_| asked.arguments.bounded()),
                },
                arguments: set.unwrap_or(&asked.arguments).bounded(),
            });
        }
        (declared, dropped.saturating_add(beyond))
    }

    /// The model's own id if it is usable and new in the thread, otherwise with `~2`, `~3`, … appended.
    fn unique_id(&self, asked: &RequestedCall, index: u16, taken: &BTreeSet<CallId>) -> CallId {
        // If the id began with the run's own name, its message could have the same id as an assistant message.
        let usable = !asked.id.is_empty()
            && asked.id.len() <= CALL_ID_BYTES_MAX
            && !asked.id.starts_with(self.control.run.as_str());
        let base = if usable {
            asked.id.clone()
        } else {
            generated_call_id(&self.control.run, self.control.step, index)
        };
        let mut id = CallId::from(base.as_str());
        let mut number = 2_u32;
        while taken.contains(&id) {
            id = CallId::from(format!("{base}~{number}"));
            number += 1;
        }
        id
    }
}

struct DeclaredCall {
    in_message: CallInMessage,
    arguments: Arguments,
}

fn wants_end(hooks: &HookAnswers) -> bool {
    hooks.actions().any(|(_, action)| *action == Action::End)
}

fn set_arguments(action: &Action, wanted: u16) -> Option<&Arguments> {
    match action {
        Action::SetArguments { index, arguments } if *index == wanted => Some(arguments),
        Action::SetArguments { .. }
        | Action::SetState { .. }
        | Action::End
        | Action::AddInstruction { .. }
        | Action::HideTool { .. }
        | Action::SetParam { .. }
        | Action::ReplaceMessage { .. }
        | Action::SkipInference
        | Action::DropCall { .. }
        | Action::Block { .. }
        | Action::Suspend(_)
        | Action::SetResult(_)
        | Action::AddNote { .. } => None,
    }
}

/// Bytes that the verdict on the answer's text takes in the stored control.
fn fault_bytes(answered: &ModelAnswered) -> usize {
    answered.output.as_ref().map_or(0, |fit| fit.bounded().bytes())
}

/// Bytes that one more call takes in the stored control once it is held.
fn call_bytes(call: &RequestedCall) -> usize {
    const FIXED: usize = 160;
    const MADE_UP_ID: usize = 40;
    FIXED + call.tool.as_str().len() + call.id.len().clamp(MADE_UP_ID, CALL_ID_BYTES_MAX)
}
