//! How facts about a step, its model call and its messages change the state.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::calls::find;
use crate::call::{Call, Reported};
use crate::control::{Control, Inferring, Stage};
use crate::event::{Message, NoteBody, ToolBody};
use crate::id::CallId;
use crate::output::JudgedOutput;
use crate::phase::{Action, Phase};
use crate::policy::StepEnd;
use crate::status::{CallStatus, RunStatus};
use crate::time::Timestamp;

pub(super) fn start(control: &mut Control, step: u32, at: Timestamp) -> Result<(), String> {
    if step != control.step + 1 || control.step_open {
        return Err(format!("step {step} cannot start now"));
    }
    control.consecutive_errors = consecutive_errors(control);
    // A settled call whose result is in the transcript is removed; under `eager` an open call stays beside the new
    // step.
    let (gone, open) =
        core::mem::take(&mut control.calls).into_iter().partition(|call| call.reported == Reported::Result);
    control.calls = open;
    for call in <Vec<Call>>::from_iter(gone) {
        control.recent.insert(call.step, &call.id, at);
    }
    control.step = step;
    control.step_open = true;
    control.matched.clear();
    control.output = None;
    control.stage = Stage::Inferring(Inferring::first(at));
    Ok(())
}

/// A step without a success adds its tool errors; any success resets the count. Denied and cancelled are not errors.
pub(crate) fn consecutive_errors(control: &Control) -> u32 {
    let settled = || control.calls.iter().filter(|call| call.settled());
    if settled().any(|call| call.status() == CallStatus::Succeeded) {
        return 0;
    }
    let errors = settled().filter(|call| call.status() == CallStatus::Failed).count();
    control.consecutive_errors.saturating_add(u32::try_from(errors).unwrap_or(u32::MAX))
}

pub(super) fn end(control: &mut Control, step: u32) -> Result<(), String> {
    if step != control.step || !control.step_open {
        return Err(format!("step {step} is not open"));
    }
    control.step_open = false;
    match control.stage {
        Stage::Ending(_) => {}
        Stage::StepEnding
            if control.policy.step_end == StepEnd::AfterInference
                && control.step_calls().any(|call| call.reported == Reported::Nothing) =>
        {
            control.stage = Stage::Acting;
        }
        Stage::Queued
        | Stage::Starting
        | Stage::Inferring(_)
        | Stage::Acting
        | Stage::StepEnding
        | Stage::BetweenSteps
        | Stage::Ended => control.stage = Stage::BetweenSteps,
    }
    Ok(())
}

pub(super) fn add_message(control: &mut Control, message: &Message, seq: u64) -> Result<(), String> {
    control.message_count += 1;
    match message {
        Message::User { .. } | Message::CallsDropped { .. } => Ok(()),
        Message::Assistant { calls, usage, matched, output, .. } => {
            control.usage = control.usage.plus(*usage);
            control.matched.clone_from(matched);
            control.output = output.as_ref().map(|fit| JudgedOutput::from_fit(fit, seq));
            let tools_first = control.policy.step_end == StepEnd::AfterTools && !calls.is_empty();
            control.stage = if tools_first { Stage::Acting } else { Stage::StepEnding };
            Ok(())
        }
        Message::Tool { call_id, body, .. } => {
            let call = find(control, call_id)?;
            let (open, reported) = match body {
                ToolBody::Settled { .. } => (false, Reported::Result),
                ToolBody::Placeholder { .. } => (true, Reported::Placeholder),
            };
            if call.reported != Reported::Nothing || call.settled() == open {
                return Err(format!("call {call_id} cannot have this tool message"));
            }
            call.reported = reported;
            finish_turn(control);
            Ok(())
        }
        Message::Note { call_id, body, .. } => {
            let call = find(control, call_id)?;
            match body {
                NoteBody::Late { .. } if call.reported == Reported::Placeholder && call.settled() => {
                    call.reported = Reported::Result;
                    Ok(())
                }
                NoteBody::Late { .. } => Err(format!("call {call_id} has no late result")),
                NoteBody::Plugin { seq } => {
                    call.notes.retain(|note| note != seq);
                    Ok(())
                }
            }
        }
        Message::Correction { .. } if control.output_corrected => Err("an answer is corrected once".into()),
        Message::Correction { .. } => {
            control.output_corrected = true;
            Ok(())
        }
        Message::Interruption { .. } if control.status == RunStatus::Interrupting => Ok(()),
        Message::Interruption { .. } => Err("no interrupt of the run was requested".into()),
    }
}

/// Once every call of the step has its tool message, only the step's end is left.
fn finish_turn(control: &mut Control) {
    let complete = control.step_calls().all(|call| call.reported != Reported::Nothing);
    if complete && control.stage == Stage::Acting {
        control.stage = if control.step_open { Stage::StepEnding } else { Stage::BetweenSteps };
    }
}

pub(super) fn retry_model(
    control: &mut Control,
    attempt: u32,
    not_before: Timestamp,
    empty_answer: bool,
) -> Result<(), String> {
    match &mut control.stage {
        Stage::Inferring(inferring) if attempt == inferring.attempt + 1 => {
            inferring.attempt = attempt;
            inferring.not_before = not_before;
            inferring.failures += u32::from(!inferring.lost);
            inferring.empty_retried |= empty_answer;
            inferring.lost = false;
            Ok(())
        }
        Stage::Queued
        | Stage::Starting
        | Stage::Inferring(_)
        | Stage::Acting
        | Stage::StepEnding
        | Stage::BetweenSteps
        | Stage::Ending(_)
        | Stage::Ended => Err(format!("model attempt {attempt} follows nothing")),
    }
}

pub(super) fn answer_phase(
    control: &mut Control,
    phase: Phase,
    call_id: Option<&CallId>,
    actions: &[Action],
    seq: u64,
) -> Result<(), String> {
    match phase {
        Phase::StepStart | Phase::BeforeInference => {
            if let Stage::Inferring(inferring) = &mut control.stage {
                inferring.answered = inferring.answered.with(phase);
                inferring.adjusted_by.push(seq);
                return Ok(());
            }
            Err(format!("{phase} was not asked"))
        }
        Phase::AfterToolExecute => {
            let call_id = call_id.ok_or("AfterToolExecute is about a call")?;
            let call = find(control, call_id)?;
            if actions.iter().any(|action| matches!(action, Action::AddNote { .. })) {
                call.notes.push(seq);
            }
            call.after_answered = true;
            Ok(())
        }
        Phase::RunStart
        | Phase::AfterInference
        | Phase::BeforeToolExecute
        | Phase::StepEnd
        | Phase::RunEnd => Ok(()),
    }
}
