//! The audit record has exactly what happened: one record for each decision, answer, grant, interrupt and change of a
//! thread that is stored, in order, and nothing else.

use std::collections::BTreeMap;

use machine::audit::AuditAction;
use machine::event::{CancelReason, Event, Fact, InterruptCause};
use machine::id::{CallId, DecisionId, Principal, RunId, SuspensionId};
use machine::suspension::SuspensionKind;

use super::{Objections, Rule};
use crate::audit_evidence::AuditedRecord;
use crate::evidence::{Evidence, RunEvidence};
use crate::people::People;
use crate::people::thread_changes::ThreadChange;

/// What a record must say.
#[derive(Debug, PartialEq)]
struct ExpectedRecord {
    action: AuditAction,
    by: Principal,
    call: Option<CallId>,
    suspension: Option<SuspensionId>,
    decision: Option<DecisionId>,
}

impl ExpectedRecord {
    fn is(&self, record: &AuditedRecord) -> bool {
        record.is(self.action)
            && record.by == self.by
            && record.call_id == self.call
            && record.suspension_id == self.suspension
            && record.decision() == self.decision
    }
}

pub(super) fn judge(evidence: &Evidence, people: &People, objections: &mut Objections) {
    judge_chain(evidence, objections);
    for run in &evidence.runs {
        let records = evidence.audit.records.iter();
        let records: Vec<_> = records.filter(|record| record.run_id.as_ref() == Some(&run.view.id)).collect();
        let expected = expected_of(run);
        let agrees = records.len() == expected.len()
            && expected.iter().zip(&records).all(|(expected, record)| expected.is(record));
        objections.ensure(agrees, Rule::AuditIsExact, || {
            format!("the log of {} asks for {expected:?}, and recorded are {records:?}", run.view.id)
        });
    }
    let is_known = |id: &RunId| evidence.runs.iter().any(|run| run.view.id == *id);
    for record in &evidence.audit.records {
        if let Some(id) = &record.run_id {
            objections.ensure(is_known(id), Rule::AuditIsExact, || format!("there is no run for {record:?}"));
        }
    }
    judge_thread_changes(evidence, people, false, objections);
}

/// The thread was deleted with its runs and their logs. What people decided there is still recorded, once.
pub(super) fn judge_deleted(evidence: &Evidence, people: &People, objections: &mut Objections) {
    judge_chain(evidence, objections);
    let mut recorded: BTreeMap<DecisionId, u32> = BTreeMap::new();
    for id in evidence.audit.records.iter().filter_map(AuditedRecord::decision) {
        *recorded.entry(id).or_default() += 1;
    }
    for decided in people.decisions.values() {
        let id = &decided.given.id;
        let count = recorded.remove(id).unwrap_or(0);
        let expected = u32::from(decided.accepted());
        objections.ensure(count == expected, Rule::AuditIsExact, || {
            format!("{id} was answered with {:?}, and is recorded {count} times", decided.responses)
        });
    }
    objections.ensure(recorded.is_empty(), Rule::AuditIsExact, || format!("no person gave {recorded:?}"));
    judge_thread_changes(evidence, people, true, objections);
}

fn judge_chain(evidence: &Evidence, objections: &mut Objections) {
    for broken in &evidence.audit.broken {
        objections.ensure(false, Rule::AuditChainHolds, || {
            format!("record {} of {}: {}", broken.seq, broken.tenant, broken.why)
        });
    }
}

/// A change whose answer was lost is sent again, and may then have been stored more than once.
fn judge_thread_changes(evidence: &Evidence, people: &People, is_deleted: bool, objections: &mut Objections) {
    let outside_of_runs = || evidence.audit.records.iter().filter(|record| record.run_id.is_none());
    for change in ThreadChange::ALL {
        let count = outside_of_runs().filter(|record| record.is(change.action())).count();
        let (accepted, sent) = match change {
            ThreadChange::Deletion => (usize::from(is_deleted), usize::from(is_deleted)),
            ThreadChange::AutoApproveOn | ThreadChange::AutoApproveOff => people.thread_change_counts(change),
        };
        objections.ensure((accepted..=sent).contains(&count), Rule::AuditIsExact, || {
            format!("{change:?} was accepted {accepted} times of {sent}, and is recorded {count} times")
        });
    }
    judge_ended_grants(evidence, objections);
    for record in outside_of_runs().filter(|record| !record.is(AuditAction::GrantRevoked)) {
        let is_known = ThreadChange::ALL.iter().any(|change| record.is(change.action()));
        let all_runs = record.detail.get("run_count").is_none_or(|count| *count == people.messages.len());
        objections.ensure(is_known && all_runs, Rule::AuditIsExact, || format!("no person did {record:?}"));
    }
}

/// Auto-approval that ends takes every grant of the thread with it, and one that is given again replaces the one before.
/// The end of each is recorded once, and of no other grant.
fn judge_ended_grants(evidence: &Evidence, objections: &mut Objections) {
    let records = &evidence.audit.records;
    let last = |action| records.iter().rposition(|record| record.is(action));
    let (last_off, last_on) = (last(AuditAction::AutoApproveOff), last(AuditAction::AutoApproveOn));
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records.iter().filter(|record| record.is(AuditAction::GrantRevoked)) {
        *ends.entry(record.grant().unwrap_or_default()).or_default() += 1;
    }
    for (index, record) in records.iter().enumerate() {
        let is_on = record.is(AuditAction::AutoApproveOn);
        let Some(grant) = record.grant().filter(|_| is_on || record.is(AuditAction::GrantGiven)) else {
            continue;
        };
        let has_ended = last_off.is_some_and(|off| index < off) || (is_on && last_on != Some(index));
        let count = ends.remove(grant).unwrap_or(0);
        objections.ensure(count == usize::from(has_ended), Rule::AuditIsExact, || {
            format!("the end of the grant in {record:?} is recorded {count} times, has ended: {has_ended}")
        });
    }
    objections.ensure(ends.is_empty(), Rule::AuditIsExact, || format!("no one gave the grants {ends:?}"));
}

fn expected_of(run: &RunEvidence) -> Vec<ExpectedRecord> {
    let mut kinds: BTreeMap<&SuspensionId, SuspensionKind> = BTreeMap::new();
    let mut expected = Vec::new();
    for event in &run.log {
        if let Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) = &event.fact {
            kinds.insert(&opened.suspension_id, opened.held.kind());
        }
        expected.extend(expected_of_grant(event));
        let closing = closing(event, &kinds);
        expected.extend(closing.or_else(|| expected_of_run(event)));
    }
    expected
}

fn expected_of_grant(event: &Event) -> Option<ExpectedRecord> {
    let Fact::ToolApproved { call_id, by, apply_to_future: true, .. } = &event.fact else { return None };
    Some(ExpectedRecord {
        action: AuditAction::GrantGiven,
        by: by.clone(),
        call: Some(call_id.clone()),
        suspension: None,
        decision: None,
    })
}

fn expected_of_run(event: &Event) -> Option<ExpectedRecord> {
    let Fact::RunInterrupting { cause } = &event.fact else { return None };
    let by = match cause {
        InterruptCause::Person(by) => by.clone(),
        InterruptCause::Superseded(_) | InterruptCause::Parent(_) => Principal::system(),
    };
    let action = AuditAction::RunInterrupted;
    Some(ExpectedRecord { action, by, call: None, suspension: None, decision: None })
}

/// What is recorded of a suspension that closes. A child run closes its own, which no person decides.
fn closing(event: &Event, kinds: &BTreeMap<&SuspensionId, SuspensionKind>) -> Option<ExpectedRecord> {
    let kind = |id: &SuspensionId| kinds.get(id).copied().filter(|kind| *kind != SuspensionKind::ChildRun);
    let (action, by, suspension) = if let Fact::ToolApproved { approval_id, by, .. } = &event.fact {
        (AuditAction::ApprovalApproved, by, approval_id)
    } else if let Fact::ToolDenied { approval_id, by, expired, .. } = &event.fact {
        let action = if *expired { AuditAction::ApprovalExpired } else { AuditAction::ApprovalRejected };
        (action, by, approval_id)
    } else if let Fact::ToolResumed { suspension_id, by, .. } = &event.fact {
        kind(suspension_id)?;
        (AuditAction::SuspensionAnswered, by, suspension_id)
    } else if let Fact::ToolCancelled { suspension_id: Some(id), by, reason, .. } = &event.fact {
        let action = match (kind(id)?, reason) {
            (SuspensionKind::Approval, _) => AuditAction::ApprovalRejected,
            (_, CancelReason::GivenUp) => AuditAction::SuspensionAnswered,
            (_, CancelReason::Expired) => AuditAction::SuspensionExpired,
            (
                _,
                CancelReason::Decided
                | CancelReason::RunEnded
                | CancelReason::Interrupted
                | CancelReason::Superseded
                | CancelReason::ChildInterrupted,
            ) => AuditAction::SuspensionCancelled,
        };
        (action, by, id)
    } else {
        return None;
    };
    Some(ExpectedRecord {
        action,
        by: by.clone(),
        call: event.fact.call_id().cloned(),
        suspension: Some(suspension.clone()),
        decision: super::decision_of(event).cloned(),
    })
}
