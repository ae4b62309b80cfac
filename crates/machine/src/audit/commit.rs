//! What a commit of a run adds to the audit record: one entry for each decision in its events.

use super::{Actor, AuditAction, AuditEntry};
use crate::decision::{Decision, DecisionAction};
use crate::event::{Closing, Event, Fact, InterruptCause};
use crate::grant::{Grant, GrantCoverage};
use crate::id::{AgentName, DecisionId, Digest, Principal, ToolName};
use crate::projection_rows::ApprovalStatus;
use crate::suspension::SuspensionKind;
use crate::tool::Arguments;

/// What is known about the call whose suspension closes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClosedCall {
    pub(crate) tool: Option<ToolName>,
    pub(crate) kind: Option<SuspensionKind>,
    pub(crate) arguments: Option<Digest>,
}

/// The entry for a suspension that closes. A child run answers its own suspension, which is not recorded.
pub(crate) fn closing_entry(
    event: &Event,
    closing: &Closing<'_>,
    status: ApprovalStatus,
    call: ClosedCall,
) -> Option<AuditEntry> {
    let action = action(&event.fact, status, call.kind)?;
    let by = closing.by.cloned().unwrap_or_else(Principal::system);
    let changed = event.fact.arguments().map(|(_, changed)| Arguments::digest(changed));
    let mut entry = AuditEntry {
        call_id: event.fact.call_id().cloned(),
        suspension_id: Some(closing.id.clone()),
        arguments_digest: changed.or(call.arguments),
        ..AuditEntry::new(event.at, action, Actor::from(by))
    };
    entry = entry
        .with_text("kind", call.kind.map(SuspensionKind::as_str))
        .with_text("tool", call.tool.as_ref().map(ToolName::as_str))
        .with_text("decision_id", event.fact.decision_id().map(DecisionId::as_str))
        .with_text("reason", closing.reason)
        .with_text("note", closing.note);
    if changed.is_some() {
        entry = entry.with("arguments_changed", true);
    }
    if let Fact::ToolResumed { mode, .. } = &event.fact {
        entry = entry.with("mode", mode.as_str());
    }
    if let Fact::ApprovalVoided { by, .. } = &event.fact {
        entry = entry
            .with_text("approver", by.as_ref().map(Principal::name))
            .with_text("approver_via", by.as_ref().and_then(Principal::via));
    }
    Some(entry)
}

fn action(fact: &Fact, status: ApprovalStatus, kind: Option<SuspensionKind>) -> Option<AuditAction> {
    if matches!(fact, Fact::ApprovalVoided { .. }) {
        return Some(AuditAction::ApprovalVoided);
    }
    match (kind, status) {
        (Some(SuspensionKind::ChildRun), _) | (_, ApprovalStatus::Pending) => None,
        (_, ApprovalStatus::Approved) => Some(AuditAction::ApprovalApproved),
        (Some(SuspensionKind::Approval), ApprovalStatus::Rejected | ApprovalStatus::Answered) => {
            Some(AuditAction::ApprovalRejected)
        }
        (Some(SuspensionKind::Approval), ApprovalStatus::Expired) => Some(AuditAction::ApprovalExpired),
        (_, ApprovalStatus::Answered) => Some(AuditAction::SuspensionAnswered),
        (_, ApprovalStatus::Rejected) => Some(AuditAction::SuspensionCancelled),
        (_, ApprovalStatus::Expired) => Some(AuditAction::SuspensionExpired),
    }
}

/// The entry for a decision that was acknowledged, and that its run never processed.
pub(crate) fn unapplied_entry(decision: &Decision, call: ClosedCall) -> AuditEntry {
    let (changed, reason, note) = match &decision.action {
        DecisionAction::Resume(resume) => {
            (resume.arguments.as_ref().map(Arguments::digest), None, resume.note.as_deref())
        }
        DecisionAction::Cancel { reason, .. } => (None, reason.as_deref(), None),
    };
    let action = match (&decision.action, call.kind) {
        (DecisionAction::Resume(_), Some(SuspensionKind::Approval)) => AuditAction::ApprovalApproved,
        (DecisionAction::Cancel { .. }, Some(SuspensionKind::Approval)) => AuditAction::ApprovalRejected,
        (DecisionAction::Resume(_), _) => AuditAction::SuspensionAnswered,
        (DecisionAction::Cancel { .. }, _) => AuditAction::SuspensionCancelled,
    };
    let entry = AuditEntry {
        call_id: Some(decision.call.clone()),
        suspension_id: Some(decision.suspension.clone()),
        arguments_digest: changed.or(call.arguments),
        ..AuditEntry::new(decision.accepted_at, action, Actor::from(decision.by.clone()))
    };
    entry
        .with("applied", false)
        .with_text("kind", call.kind.map(SuspensionKind::as_str))
        .with_text("tool", call.tool.as_ref().map(ToolName::as_str))
        .with_text("decision_id", decision.id.as_ref().map(DecisionId::as_str))
        .with_text("reason", reason)
        .with_text("note", note)
}

/// The entry for an approval that also applies to later calls.
pub(crate) fn grant_entry(event: &Event, grant: &Grant) -> AuditEntry {
    let entry = AuditEntry {
        call_id: event.fact.call_id().cloned(),
        ..AuditEntry::new(event.at, AuditAction::GrantGiven, Actor::from(grant.by.clone()))
    };
    let entry = entry.with_text("grant_id", Some(grant.id.as_str()));
    match &grant.covers {
        GrantCoverage::Thread => entry,
        GrantCoverage::Tool(granted) => entry
            .with_text("agent", granted.agent.as_ref().map(AgentName::as_str))
            .with_text("tool", Some(granted.tool.as_str())),
    }
}

/// The entry for what concerns the run as a whole: an interrupt, or a message that loosened its policy.
pub(crate) fn run_entry(event: &Event) -> Option<AuditEntry> {
    let new = |action, by: &Principal| AuditEntry::new(event.at, action, Actor::from(by.clone()));
    if let Fact::RunQueued(request) = &event.fact {
        return request.loosened_by.as_ref().map(|by| new(AuditAction::PolicyLoosened, by));
    }
    let Fact::RunInterrupting { cause } = &event.fact else { return None };
    Some(match cause {
        InterruptCause::Person(by) => new(AuditAction::RunInterrupted, by),
        InterruptCause::Superseded(run) => {
            new(AuditAction::RunInterrupted, &Principal::system()).with("superseded_by", run.as_str())
        }
        InterruptCause::Parent(run) => {
            new(AuditAction::RunInterrupted, &Principal::system()).with("interrupted_with", run.as_str())
        }
    })
}
