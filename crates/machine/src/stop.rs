//! The stop conditions, checked between one step and the next.

use alloc::format;
use alloc::string::String;

use crate::apply::consecutive_errors;
use crate::control::Control;
use crate::revision::{Revision, StopCondition};
use crate::status::RunStatus;
use crate::termination::{StopCode, Termination};
use crate::time::Timestamp;

/// The first condition in configured order that fires. `nothing_more`: the model asked for no calls and there is
/// nothing to send it, so the run is over anyway. Its own end then takes precedence over the limits, and only a match
/// of its text still counts.
#[must_use]
pub fn check_conditions(
    revision: &Revision,
    control: &Control,
    nothing_more: bool,
    now: Timestamp,
) -> Option<Termination> {
    let fired = revision.stop.iter().zip(0_u16..).find_map(|(condition, index)| {
        if nothing_more && !matches!(condition, StopCondition::ContentMatch { .. }) {
            return None;
        }
        fires(condition, index, control, now)
    });
    if nothing_more {
        return fired;
    }
    fired.or_else(|| grant_spent(control))
}

fn fires(condition: &StopCondition, index: u16, control: &Control, now: Timestamp) -> Option<Termination> {
    match condition {
        StopCondition::MaxRounds { rounds } => {
            over(StopCode::MaxRounds, *rounds > 0 && control.step >= *rounds, || {
                format!("{} of {rounds} rounds", control.step)
            })
        }
        StopCondition::Timeout { seconds } => {
            let spent = active_ms(control, now);
            over(StopCode::Timeout, *seconds > 0 && spent > seconds.saturating_mul(1_000), || {
                format!("{spent} ms of {seconds} s")
            })
        }
        StopCondition::TokenBudget { max_total } => {
            // Tokens granted to children count as used until the children return them.
            let used = control.usage.total().saturating_add(control.reserved_tokens);
            over(StopCode::TokenBudget, *max_total > 0 && used > *max_total, || {
                format!("{used} of {max_total} tokens")
            })
        }
        StopCondition::ConsecutiveErrors { max } => {
            let errors = consecutive_errors(control);
            over(StopCode::ConsecutiveErrors, *max > 0 && errors >= *max, || {
                format!("{errors} tool errors without a success")
            })
        }
        StopCondition::StopOnTool { tool_name } => {
            over(StopCode::StopOnTool, control.step_calls().any(|call| call.tool == *tool_name), || {
                format!("{tool_name} was called")
            })
        }
        StopCondition::ContentMatch { pattern } => {
            over(StopCode::ContentMatch, control.matched.contains(&index), || {
                format!("the answer matches {pattern}")
            })
        }
        StopCondition::LoopDetection { window } => {
            over(StopCode::LoopDetection, repeats(control, *window), || {
                String::from("the same call with the same arguments again")
            })
        }
    }
}

fn over(code: StopCode, fired: bool, detail: impl FnOnce() -> String) -> Option<Termination> {
    fired.then(|| Termination::stopped(code, detail()))
}

/// A child run may use no more than its parent granted, regardless of its own agent's limits.
fn grant_spent(control: &Control) -> Option<Termination> {
    let grant = control.parent.as_ref()?.grant_tokens?;
    let used = control.usage.total().saturating_add(control.reserved_tokens);
    over(StopCode::TokenBudget, used > grant, || {
        format!("{used} of the {grant} tokens granted by the parent")
    })
}

/// Time spent neither queued nor waiting.
fn active_ms(control: &Control, now: Timestamp) -> u64 {
    let open = match control.status {
        RunStatus::Running => now.ms_since(control.active_since),
        RunStatus::Queued | RunStatus::Waiting(_) | RunStatus::Interrupting | RunStatus::Done(_) => 0,
    };
    control.active_ms.saturating_add(open)
}

/// One of the latest `window` calls occurs twice. A window of one could match nothing, so it counts as two.
fn repeats(control: &Control, window: u16) -> bool {
    let window = usize::from(window.max(2));
    let skipped = control.loop_window.len().saturating_sub(window);
    let mut latest = control.loop_window.iter().skip(skipped);
    while let Some(call) = latest.next() {
        if latest.clone().any(|other| other == call) {
            return true;
        }
    }
    false
}

/// The tokens that a child run may be granted: the smaller of what it may use itself and what its parent has left. None
/// means no limit on either side.
#[must_use]
pub fn grant_for_child(revision: &Revision, control: &Control, asked: Option<u64>) -> Option<u64> {
    let own_limit = revision
        .stop
        .iter()
        .filter_map(|condition| match condition {
            StopCondition::TokenBudget { max_total } if *max_total > 0 => Some(*max_total),
            StopCondition::TokenBudget { .. }
            | StopCondition::MaxRounds { .. }
            | StopCondition::Timeout { .. }
            | StopCondition::ConsecutiveErrors { .. }
            | StopCondition::StopOnTool { .. }
            | StopCondition::ContentMatch { .. }
            | StopCondition::LoopDetection { .. } => None,
        })
        .chain(control.parent.as_ref().and_then(|parent| parent.grant_tokens))
        .min();
    let left = own_limit
        .map(|limit| limit.saturating_sub(control.usage.total()).saturating_sub(control.reserved_tokens));
    match (asked, left) {
        (Some(asked), Some(left)) => Some(asked.min(left)),
        (asked, left) => asked.or(left),
    }
}
