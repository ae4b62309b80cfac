//! How facts about the run as a whole change its state.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::calls;
use crate::control::{Control, Stage};
use crate::event::{LostAttempt, RunRequest, Usage};
use crate::id::MessageId;
use crate::output::JudgedOutput;
use crate::recently_settled::RecentlySettled;
use crate::status::{RunStatus, WaitingOn};
use crate::termination::Termination;
use crate::time::Timestamp;

pub(super) fn queued(order: &RunRequest, at: Timestamp) -> Control {
    Control {
        run: order.run_id.clone(),
        thread: order.thread_id.clone(),
        agent: order.agent.clone(),
        revision: order.revision,
        parent: order.parent.clone(),
        policy: order.policy,
        loosened_by: order.loosened_by.clone(),
        user_message: order.message.as_ref().map(|message| message.id.clone()),
        after: None,
        seq: 1,
        at,
        status: RunStatus::Queued,
        stage: Stage::Queued,
        step: 0,
        step_open: false,
        matched: Vec::new(),
        output: None,
        output_corrected: false,
        calls: Vec::new(),
        recent: RecentlySettled::default(),
        usage: Usage::default(),
        reserved_tokens: 0,
        consecutive_errors: 0,
        active_ms: 0,
        active_since: at,
        loop_window: Vec::new(),
        message_count: 0,
        suspension_count: 0,
        descendants: 0,
    }
}

pub(super) fn start(control: &mut Control, after: Option<&MessageId>, at: Timestamp) -> Result<(), String> {
    set_status(control, RunStatus::Running, at)?;
    control.after = after.cloned();
    control.stage = Stage::Starting;
    Ok(())
}

pub(super) fn wait(control: &mut Control, on: WaitingOn, at: Timestamp) -> Result<(), String> {
    // A run waits only after every hook has answered, including those with empty answers.
    control.calls.iter_mut().for_each(|call| call.after_answered = true);
    set_status(control, RunStatus::Waiting(on), at)
}

pub(super) fn begin_ending(control: &mut Control, termination: &Termination) -> Result<(), String> {
    if control.status != RunStatus::Running {
        return Err(format!("a run that is {} does not begin to end", control.status));
    }
    control.stage = Stage::Ending(termination.clone());
    Ok(())
}

pub(super) fn end(
    control: &mut Control,
    termination: &Termination,
    output: Option<u64>,
    at: Timestamp,
) -> Result<(), String> {
    if let Some(open) = control.calls.iter().find(|call| !call.settled()) {
        return Err(format!("call {} is still {}", open.id, open.status()));
    }
    if let Some(seq) = output
        && control.output != Some(JudgedOutput::Fits { seq })
    {
        return Err(format!("event {seq} is not the output of the run"));
    }
    set_status(control, RunStatus::Done(termination.clone()), at)?;
    control.output = output.map(|seq| JudgedOutput::Fits { seq });
    control.stage = Stage::Ended;
    control.step_open = false;
    control.calls.clear();
    control.loop_window.clear();
    Ok(())
}

pub(super) fn recover(
    control: &mut Control,
    lost: &[LostAttempt],
    lost_model_attempt: Option<u32>,
    doubt_at: Timestamp,
) -> Result<(), String> {
    for attempt in lost {
        calls::mark_lost(control, &attempt.call_id, attempt.attempt, doubt_at)?;
    }
    match (&mut control.stage, lost_model_attempt) {
        (_, None) => Ok(()),
        (Stage::Inferring(inferring), Some(attempt)) if inferring.attempt == attempt => {
            inferring.lost = true;
            Ok(())
        }
        (_, Some(attempt)) => Err(format!("no model attempt {attempt} is under way")),
    }
}

pub(super) fn set_status(control: &mut Control, to: RunStatus, at: Timestamp) -> Result<(), String> {
    let next = control.status.transition_to(to).map_err(|illegal| illegal.to_string())?;
    if control.status == RunStatus::Running {
        control.active_ms = control.active_ms.saturating_add(at.ms_since(control.active_since));
    }
    control.active_since = at;
    control.status = next;
    Ok(())
}
