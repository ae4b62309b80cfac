//! Calls in doubt: a lost write becomes one, and only those with the right to settle it do.

use machine::event::{CancelReason, Event, Fact, OpenedSuspension};
use machine::id::{CallId, Principal};
use machine::suspension::Held;
use machine::tool::EffectClass;

use super::{Objections, Rule};
use crate::evidence::RunEvidence;

pub(super) fn judge(run: &RunEvidence, objections: &mut Objections) {
    for (index, event) in run.log.iter().enumerate() {
        let rest = &run.log[index + 1..];
        if let Fact::RunRecovered { lost, .. } = &event.fact {
            for lost in lost.iter().filter(|lost| is_write(&run.log[..index], &lost.call_id, lost.attempt)) {
                if let Some(next) = next_about(rest, &lost.call_id) {
                    objections.ensure(
                        follows_a_loss(next, lost.attempt),
                        Rule::DoubtIsSettledByRight,
                        || {
                            let (call, attempt) = (&lost.call_id, lost.attempt);
                            format!("attempt {attempt} of {call} was lost, and then came {:?}", next.fact)
                        },
                    );
                }
            }
        }
        if let Fact::ToolSuspended(opened) = &event.fact
            && let Held::InDoubt { attempt } = opened.held
            && let Some(next) = next_about(rest, &opened.call_id)
        {
            let settled = settles(next, opened, attempt) || expires(next, opened);
            objections.ensure(settled, Rule::DoubtIsSettledByRight, || {
                format!("{} was in doubt, and then came {:?}", opened.call_id, next.fact)
            });
        }
    }
}

fn is_write(before: &[std::sync::Arc<Event>], call: &CallId, lost: u32) -> bool {
    before.iter().any(|event| {
        if let Fact::ExecutionStarted { call_id, attempt, class, .. } = &event.fact {
            call_id == call && *attempt == lost && *class == EffectClass::Write
        } else {
            false
        }
    })
}

/// The next event about this call.
pub(super) fn next_about<'e>(rest: &'e [std::sync::Arc<Event>], call: &CallId) -> Option<&'e Event> {
    rest.iter().map(|event| &**event).find(|event| event.fact.call_id() == Some(call))
}

/// The process is gone and cannot answer any more: a person is asked, or the run ends with an unknown outcome.
fn follows_a_loss(next: &Event, lost: u32) -> bool {
    if let Fact::ToolSuspended(opened) = &next.fact {
        return opened.held == Held::InDoubt { attempt: lost };
    }
    cancelled_unknowing(next)
}

fn settles(next: &Event, opened: &OpenedSuspension, doubted: u32) -> bool {
    if let Fact::ToolResumed { suspension_id, by, late_attempt, .. } = &next.fact {
        let by_right = match late_attempt {
            Some(late) => *late == doubted,
            None => *by != Principal::system(),
        };
        return by_right && *suspension_id == opened.suspension_id;
    }
    if let Fact::ToolCancelled { reason: CancelReason::GivenUp, by, outcome_unknown, .. } = &next.fact {
        return *by != Principal::system() && *outcome_unknown;
    }
    cancelled_unknowing(next)
}

/// Cancelled with an unknown outcome, because the suspension had an expiry and that has passed.
fn expires(next: &Event, opened: &OpenedSuspension) -> bool {
    let is_due = opened.expiry.is_some_and(|expiry| expiry.at <= next.at);
    is_due
        && matches!(&next.fact, Fact::ToolCancelled { reason: CancelReason::Expired, by, outcome_unknown: true, .. }
            if *by == Principal::system())
}

/// Cancelled with an unknown outcome, by an interrupt or the end of the run.
pub(super) fn cancelled_unknowing(event: &Event) -> bool {
    if let Fact::ToolCancelled { reason, outcome_unknown, .. } = &event.fact {
        return match reason {
            CancelReason::Interrupted | CancelReason::Superseded | CancelReason::RunEnded => *outcome_unknown,
            CancelReason::Decided
            | CancelReason::GivenUp
            | CancelReason::Expired
            | CancelReason::ChildInterrupted => false,
        };
    }
    false
}
