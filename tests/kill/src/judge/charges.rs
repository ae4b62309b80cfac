//! Calls that charge at the payment service. Each charges once, and the log states for each attempt what happened, or that it is
//! unknown.

use std::collections::BTreeSet;

use machine::event::{CallErrorCode, Event, Fact, ResultFrom};
use machine::id::CallId;
use machine::suspension::Held;

use super::doubts::{cancelled_unknowing, next_about};
use super::{Moment, Objections, Rule};
use crate::evidence::{Evidence, RunEvidence};
use crate::ledger::Act;
use crate::payment_server::{ChargeRecord, Manner};
use crate::stories::tools;

pub(super) fn judge(evidence: &Evidence, run: &RunEvidence, moment: Moment, objections: &mut Objections) {
    for event in &run.log {
        let Fact::ToolRequested { call_id, tool, .. } = &event.fact else { continue };
        if tool.as_str() != tools::CHARGE {
            continue;
        }
        let charge_records: Vec<&Act> =
            evidence.acts.iter().filter(|act| act.run == run.view.id && act.call == *call_id).collect();
        charged_once(call_id, &charge_records, objections);
        attempts_agree(run, call_id, &charge_records, objections);
        if moment == Moment::End {
            end_agrees(run, call_id, &charge_records, objections);
        }
    }
}

fn charges(charge_records: &[&Act]) -> usize {
    charge_records
        .iter()
        .filter(|act| act.charge_record.is_some_and(|charge_record| charge_record.charged))
        .count()
}

fn charged_once(call: &CallId, charge_records: &[&Act], objections: &mut Objections) {
    let keys: BTreeSet<&str> = charge_records.iter().map(|act| act.key.as_str()).collect();
    let count = charges(charge_records);
    objections.ensure(count <= 1 && keys.len() <= 1, Rule::ChargedOnce, || {
        format!("{call} was charged {count} times under the keys {keys:?}")
    });
}

/// After each attempt the log states what the payment service did, or that it is unknown.
fn attempts_agree(run: &RunEvidence, call: &CallId, charge_records: &[&Act], objections: &mut Objections) {
    for (index, event) in run.log.iter().enumerate() {
        let Fact::ExecutionStarted { call_id, attempt, .. } = &event.fact else { continue };
        let Some(next) = next_about(&run.log[index + 1..], call).filter(|_| call_id == call) else {
            continue;
        };
        let charge_record =
            charge_records.iter().find(|act| act.attempt == *attempt).and_then(|act| act.charge_record);
        objections.ensure(may_follow(next, charge_record), Rule::LostChargeIsInDoubt, || {
            format!(
                "attempt {attempt} of {call} was {charge_record:?} at the payment service, and then came {:?}",
                next.fact
            )
        });
    }
}

fn may_follow(next: &Event, charge_record: Option<ChargeRecord>) -> bool {
    let manner = charge_record.map(|charge_record| charge_record.manner);
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
fn end_agrees(run: &RunEvidence, call: &CallId, charge_records: &[&Act], objections: &mut Objections) {
    let charged = charges(charge_records) > 0;
    for event in run.log.iter().filter(|event| event.fact.call_id() == Some(call)) {
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
            format!("the payment service {did} for {call}, and the log has {:?}", event.fact)
        });
    }
}
