//! What a grant covers, computed without the machine.

use machine::event::{Event, Fact};
use machine::grant::{Grant, GrantCoverage, HoldReason, ToolGrant};
use machine::id::{Digest, Principal, grant_id};
use machine::policy::ApprovalScope;
use machine::rules::Asker;
use machine::tool::Tool;

use crate::judge::invariant::{Checked, Invariant, ensure};
use crate::judge::ledger::{CallLedger, RunLedger};

pub(crate) fn auto_approval(by: &Principal) -> Grant {
    Grant { id: "grt_all".into(), by: by.clone(), covers: GrantCoverage::Thread }
}

/// The grant that an approval gives. It must cover no more than what held the call. `ledger` is the state before the
/// event.
pub(crate) fn given(ledger: &RunLedger, event: &Event) -> Checked<Option<Grant>> {
    let Fact::ToolApproved { call_id, approval_id, by, apply_to_future, covers, .. } = &event.fact else {
        return Ok(None);
    };
    let Some(call) = ledger.call(call_id) else { return Ok(None) };
    let Some(shown) = call.approved else { return Ok(None) };
    let askers: Vec<HoldReason> = call.asked.iter().filter_map(|asker| reason(ledger, asker)).collect();
    ensure(
        covers.iter().all(|covered| askers.contains(covered)) && covers.is_empty() != *apply_to_future,
        Invariant::GrantsAreWhatWasAsked,
        || format!("the approval of {call_id} covers {covers:?}; {:?} had asked", call.asked),
    )?;
    Ok(apply_to_future.then(|| Grant {
        id: grant_id(approval_id),
        by: by.clone(),
        covers: GrantCoverage::Tool(ToolGrant {
            tool: call.tool.clone(),
            agent: Some(ledger.agent.clone()),
            definition: shown.definition,
            reasons: covers.clone(),
        }),
    }))
}

/// Why an asker of this run asks. `None` if no grant covers it.
fn reason(ledger: &RunLedger, asker: &Asker) -> Option<HoldReason> {
    let own = ledger.revision.policy.approval;
    match asker {
        Asker::Policy | Asker::Tool => Some(HoldReason::Tool),
        Asker::Agent if rank(ledger.policy.approval) < rank(own) => {
            Some(HoldReason::Agent(ledger.policy.approval))
        }
        Asker::Agent => Some(HoldReason::Agent(own)),
        Asker::Run => Some(HoldReason::Run(ledger.run.clone())),
        Asker::Rule(index) => {
            let rule = ledger.revision.rules.get(usize::from(*index))?;
            Some(HoldReason::Rule(Digest::sha256(serde_json::to_string(rule).ok()?.as_bytes())))
        }
        Asker::Plugin(_) => None,
    }
}

/// The giver of a grant that covers this asker.
pub(crate) fn giver(
    ledger: &RunLedger,
    call: &CallLedger,
    asker: &Asker,
    tool: &Tool,
    grants: &[Grant],
) -> Option<Principal> {
    let reason = reason(ledger, asker)?;
    let lifts = |grant: &&Grant| match &grant.covers {
        GrantCoverage::Thread => *asker != Asker::Run,
        GrantCoverage::Tool(granted) => {
            let despite = |covered: &HoldReason| match (covered, &reason) {
                (HoldReason::Agent(covered), HoldReason::Agent(asks)) => rank(*covered) >= rank(*asks),
                (covered, reason) => covered == reason,
            };
            granted.tool == call.tool
                && granted.definition == tool.definition
                && granted.agent.as_ref() == Some(&ledger.agent)
                && granted.reasons.iter().any(despite)
        }
    };
    grants.iter().find(lifts).map(|grant| grant.by.clone())
}

/// Orders the scopes by how many calls wait for a person.
pub(crate) const fn rank(scope: ApprovalScope) -> u8 {
    match scope {
        ApprovalScope::Never => 0,
        ApprovalScope::Policy => 1,
        ApprovalScope::WriteTools => 2,
        ApprovalScope::AllTools => 3,
    }
}
