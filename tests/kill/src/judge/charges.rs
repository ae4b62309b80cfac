//! Calls that charge at the till. Each charges once, and the log states for each attempt what happened, or that it is
//! unknown.

use std::collections::BTreeSet;

use machine::event::{CallErrorCode, Event, Fact, ResultFrom};
use machine::id::CallId;
use machine::suspension::Held;

use super::doubts::{cancelled_unknowing, next_about, subject};
use super::{Moment, Objections, Rule};
use crate::evidence::{Evidence, RunEvidence};
use crate::ledger::Act;
use crate::stories::tools;
use crate::till::{Manner, Visit};

pub(super) fn judge(evidence: &Evidence, run: &RunEvidence, moment: Moment, objections: &mut Objections) {
    for event in &run.log {
        let Fact::ToolRequested { call_id, tool, .. } = &event.fact else { continue };
        if tool.as_str() != tools::CHARGE {
            continue;
        }
        let visits: Vec<&Act> =
            evidence.acts.iter().filter(|act| act.run == run.view.id && act.call == *call_id).collect();
        charged_once(call_id, &visits, objections);
        attempts_agree(run, call_id, &visits, objections);
        if moment == Moment::End {
            end_agrees(run, call_id, &visits, objections);
        }
    }
}

fn charges(visits: &[&Act]) -> usize {
    visits.iter().filter(|act| act.visit.is_some_and(|visit| visit.charged)).count()
}

fn charged_once(call: &CallId, visits: &[&Act], objections: &mut Objections) {
    let keys: BTreeSet<&str> = visits.iter().map(|act| act.key.as_str()).collect();
    let count = charges(visits);
    objections.ensure(count <= 1 && keys.len() <= 1, Rule::ChargedOnce, || {
        format!("{call} was charged {count} times under the keys {keys:?}")
    });
}

/// After each attempt the log states what the till did, or that it is unknown.
fn attempts_agree(run: &RunEvidence, call: &CallId, visits: &[&Act], objections: &mut Objections) {
    for (index, event) in run.log.iter().enumerate() {
        let Fact::ExecutionStarted { call_id, attempt, .. } = &event.fact else { continue };
        let Some(next) = next_about(&run.log[index + 1..], call).filter(|_| call_id == call) else {
            continue;
        };
        let visit = visits.iter().find(|act| act.attempt == *attempt).and_then(|act| act.visit);
        objections.ensure(may_follow(next, visit), Rule::LostChargeIsInDoubt, || {
            format!("attempt {attempt} of {call} was {visit:?} at the till, and then came {:?}", next.fact)
        });
    }
}

fn may_follow(next: &Event, visit: Option<Visit>) -> bool {
    let manner = visit.map(|visit| visit.manner);
    if let Fact::ToolSuspended(opened) = &next.fact {
        // In doubt may always follow: the process may have been killed, or too busy to read the answer in time.
        let awaited = opened.held == Held::External && manner == Some(Manner::Accepts);
        return awaited || matches!(opened.held, Held::InDoubt { .. });
    }
    if let Fact::ExecutionSucceeded { by, .. } = &next.fact {
        return *by == ResultFrom::Tool && matches!(manner, Some(Manner::Prompt | Manner::Slow));
    }
    if let Fact::ExecutionFailed { error, outcome_unknown, .. } = &next.fact {
        let not_sent = error.code == CallErrorCode::NotSent && manner.is_none();
        let refused = error.code == CallErrorCode::ToolError && manner == Some(Manner::Refuses);
        return refused || (not_sent && !outcome_unknown);
    }
    cancelled_unknowing(next)
}

/// A call that succeeded was charged; one that failed or was denied was not.
fn end_agrees(run: &RunEvidence, call: &CallId, visits: &[&Act], objections: &mut Objections) {
    let charged = charges(visits) > 0;
    for event in run.log.iter().filter(|event| subject(&event.fact) == Some(call)) {
        let mut agrees = true;
        if let Fact::ExecutionSucceeded { .. } = &event.fact {
            agrees = charged;
        }
        if let Fact::ExecutionFailed { .. } | Fact::ToolDenied { .. } = &event.fact {
            agrees = !charged;
        }
        if let Fact::ToolCancelled { outcome_unknown, .. } = &event.fact {
            agrees = *outcome_unknown || !charged;
        }
        objections.ensure(agrees, Rule::ChargesAgreeWithTheLog, || {
            let did = if charged { "charged" } else { "charged nothing" };
            format!("the till {did} for {call}, and the log has {:?}", event.fact)
        });
    }
}
