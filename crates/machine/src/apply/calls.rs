//! How facts about a call change it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use sha2::{Digest as _, Sha256};

use crate::call::{Approved, Attempt, Call, CallState, Reported};
use crate::control::{Control, LOOP_WINDOW_MAX};
use crate::event::OpenedSuspension;
use crate::id::{CallId, Digest, SuspensionId, ToolName};
use crate::status::CallStatus;
use crate::suspension::{Held, ResumeMode, Suspension};
use crate::time::Timestamp;
use crate::tool::{Arguments, EffectClass, ExpiryTerms};

pub(super) fn request(
    control: &mut Control,
    call_id: &CallId,
    tool: &ToolName,
    arguments: Digest,
    seq: u64,
) -> Result<(), String> {
    if control.call(call_id).is_some() {
        return Err(format!("call id {call_id} is taken"));
    }
    control.calls.push(Call {
        id: call_id.clone(),
        step: control.step,
        tool: tool.clone(),
        arguments,
        arguments_seq: seq,
        state: CallState::New,
        attempts: 0,
        failures: 0,
        class: None,
        expires: None,
        asked: Vec::new(),
        ask_rounds: 0,
        pending_rounds: 0,
        approved: None,
        doubted: Vec::new(),
        must_ask: false,
        answer_seq: None,
        resume_state_seq: None,
        notes: Vec::new(),
        after_answered: false,
        reported: Reported::Nothing,
    });
    let surplus = (control.loop_window.len() + 1).saturating_sub(LOOP_WINDOW_MAX);
    control.loop_window.drain(..surplus);
    control.loop_window.push(fingerprint(tool, &arguments));
    Ok(())
}

fn fingerprint(tool: &ToolName, arguments: &Digest) -> [u8; 16] {
    let mut hasher = Sha256::new();
    hasher.update(arguments.0);
    hasher.update(tool.as_str().as_bytes());
    let whole: [u8; 32] = hasher.finalize().into();
    let mut short = [0; 16];
    short.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
    short
}

pub(super) fn open(control: &mut Control, opened: &OpenedSuspension, seq: u64) -> Result<(), String> {
    let call = find(control, &opened.call_id)?;
    let answered = call.status() == CallStatus::Running && opened.by_the_tool && opened.asked_by.is_empty();
    transition_to(
        call,
        CallState::Suspended(Suspension {
            id: opened.suspension_id.clone(),
            held: opened.held.clone(),
            mode: opened.mode,
            expiry: opened.expiry,
            asker_count: u8::try_from(opened.asked_by.len()).unwrap_or(u8::MAX),
            by_the_tool: opened.by_the_tool,
            seq,
        }),
    )?;
    let asked = !opened.asked_by.is_empty();
    call.ask_rounds = call.ask_rounds.saturating_add(u8::from(asked));
    call.pending_rounds = call.pending_rounds.saturating_add(u8::from(opened.by_the_tool && !asked));
    call.asked.extend(opened.asked_by.iter().cloned());
    call.must_ask &= !matches!(opened.held, Held::Approval { .. });
    if let Some(attempt) = opened.held.doubted_attempt() {
        call.doubted.retain(|earlier| *earlier != attempt);
        call.doubted.push(attempt);
    }
    // The tool's saved state and its answer belong to the tool. Only a suspension by the tool replaces them.
    if opened.by_the_tool {
        call.resume_state_seq = opened.resume_state.as_ref().map(|_| seq);
        call.answer_seq = None;
    }
    if answered {
        call.doubted.clear();
    }
    control.suspension_count += 1;
    Ok(())
}

/// The approval is void. Earlier askers may ask again, and the call must be approved again before it runs.
pub(super) fn void(control: &mut Control, call_id: &CallId) -> Result<(), String> {
    let call = find(control, call_id)?;
    if call.status() == CallStatus::Suspended {
        transition_to(call, CallState::Resuming)?;
    }
    call.asked.clear();
    call.ask_rounds = 0;
    call.approved = None;
    call.must_ask = true;
    Ok(())
}

pub(super) fn approve(
    control: &mut Control,
    call_id: &CallId,
    approval: &SuspensionId,
    edited: Option<&Arguments>,
    seq: u64,
) -> Result<(), String> {
    let call = find(control, call_id)?;
    let closed = call.suspension().cloned();
    let Some((closed, definition)) = closed.as_ref().and_then(|open| Some((open, open.held.definition()?)))
    else {
        return Err(format!("call {call_id} waits for no approval"));
    };
    transition_to(call, CallState::Resuming)?;
    if edited.is_some() {
        forget_other_askers(call, closed);
        replace_arguments(call, edited, seq);
    }
    call.approved = Some(Approved { approval: approval.clone(), definition });
    Ok(())
}

pub(super) struct Resumption<'e> {
    pub(super) mode: ResumeMode,
    pub(super) arguments: Option<&'e Arguments>,
    pub(super) late_attempt: Option<u32>,
}

pub(super) fn resume(
    control: &mut Control,
    call_id: &CallId,
    resumption: &Resumption<'_>,
    seq: u64,
) -> Result<(), String> {
    let Resumption { mode, arguments, late_attempt } = *resumption;
    let call = find(control, call_id)?;
    let closed = call.suspension().cloned();
    transition_to(call, CallState::Resuming)?;
    let Some(closed) = closed else { return Ok(()) };
    if arguments.is_some() {
        forget_other_askers(call, &closed);
        replace_arguments(call, arguments, seq);
    }
    // The person who answered may not have approved running the call. If the asker did not expect the call to run
    // again, an approval is required first.
    call.must_ask |= mode != closed.mode && mode != ResumeMode::UseDecisionAsToolResult;
    call.doubted.retain(|attempt| Some(*attempt) != late_attempt);
    // Set even if the answer is empty: the tool must learn that it was resumed, and receive its `resume_state`.
    if closed.by_the_tool {
        call.answer_seq = Some(seq);
    }
    release_grant(control, &closed);
    Ok(())
}

/// Only the asker who was just answered has seen the arguments that will run. What other approvers allowed does not
/// cover them.
fn forget_other_askers(call: &mut Call, closed: &Suspension) {
    let answered = usize::from(closed.asker_count);
    call.asked.drain(..call.asked.len().saturating_sub(answered));
    call.approved = None;
}

pub(super) fn start_attempt(
    control: &mut Control,
    call_id: &CallId,
    attempt: Attempt,
    class: EffectClass,
    expires: Option<ExpiryTerms>,
) -> Result<(), String> {
    let call = find(control, call_id)?;
    if attempt.number != call.attempts + 1 {
        return Err(format!("attempt {} does not follow {}", attempt.number, call.attempts));
    }
    // An attempt that was lost with its worker does not count as a failure of the tool.
    let failures = match &call.state {
        CallState::Running(before) => call.failures + u32::from(before.lost.is_none()),
        CallState::New
        | CallState::Suspended(_)
        | CallState::Resuming
        | CallState::Succeeded { .. }
        | CallState::Failed { .. }
        | CallState::Cancelled { .. } => 0,
    };
    transition_to(call, CallState::Running(attempt))?;
    call.attempts = attempt.number;
    call.class = Some(class);
    call.expires = expires;
    call.failures = failures;
    Ok(())
}

pub(super) fn settle(control: &mut Control, call_id: &CallId, end: CallState) -> Result<(), String> {
    let call = find(control, call_id)?;
    let closed = call.suspension().cloned();
    transition_to(call, end)?;
    call.doubted.clear();
    if let Some(closed) = closed {
        release_grant(control, &closed);
    }
    Ok(())
}

pub(super) fn grant(
    control: &mut Control,
    call_id: &CallId,
    tokens: Option<u64>,
    descendants: u32,
) -> Result<(), String> {
    find(control, call_id)?;
    control.reserved_tokens = control.reserved_tokens.saturating_add(tokens.unwrap_or(0));
    control.descendants = control.descendants.saturating_add(1).saturating_add(descendants);
    Ok(())
}

/// A child that ends returns the granted runs that it did not start. The grant of a cancelled child stays counted,
/// because the child may have started them.
pub(super) fn return_descendants(control: &mut Control, call_id: &CallId, used: u32) -> Result<(), String> {
    let held = find(control, call_id)?.suspension().map(|open| &open.held);
    let Some(Held::ChildRun { grant_descendants, .. }) = held else {
        return Err(format!("call {call_id} has no child run"));
    };
    let granted = *grant_descendants;
    control.descendants = control.descendants.saturating_sub(granted.saturating_sub(used));
    Ok(())
}

/// Tokens that a child run was granted and did not use are free again once its call continues or is over.
fn release_grant(control: &mut Control, closed: &Suspension) {
    if let Held::ChildRun { grant_tokens: Some(grant), .. } = closed.held {
        control.reserved_tokens = control.reserved_tokens.saturating_sub(grant);
    }
}

pub(super) fn mark_lost(
    control: &mut Control,
    call_id: &CallId,
    attempt: u32,
    doubt_at: Timestamp,
) -> Result<(), String> {
    let call = find(control, call_id)?;
    match &mut call.state {
        CallState::Running(running) if running.number == attempt => {
            running.lost = Some(doubt_at);
            Ok(())
        }
        CallState::New
        | CallState::Running(_)
        | CallState::Suspended(_)
        | CallState::Resuming
        | CallState::Succeeded { .. }
        | CallState::Failed { .. }
        | CallState::Cancelled { .. } => {
            Err(format!("attempt {attempt} of call {} is not under way", call.id))
        }
    }
}

fn replace_arguments(call: &mut Call, arguments: Option<&Arguments>, seq: u64) {
    if let Some(arguments) = arguments {
        call.arguments = arguments.digest();
        call.arguments_seq = seq;
    }
}

fn transition_to(call: &mut Call, state: CallState) -> Result<(), String> {
    call.status().transition_to(state.status()).map_err(|illegal| format!("call {}: {illegal}", call.id))?;
    call.state = state;
    call.after_answered = false;
    Ok(())
}

pub(super) fn find<'c>(control: &'c mut Control, call_id: &CallId) -> Result<&'c mut Call, String> {
    control
        .calls
        .iter_mut()
        .find(|call| call.id == *call_id)
        .ok_or_else(|| format!("no call {call_id} is open"))
}
