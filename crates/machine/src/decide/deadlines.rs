//! What happens at deadlines: suspensions expire, and lost calls may be offered as in doubt.

use alloc::vec::Vec;

use super::InputOutcome;
use super::draft::Draft;
use crate::call::Call;
use crate::event::{CancelReason, Fact};
use crate::id::Principal;
use crate::policy::OnReject;
use crate::rejection::Rejection;
use crate::suspension::{Expiry, SuspensionKind};
use crate::termination::{StopCode, Termination};
use crate::tool::OnExpiry;

impl Draft<'_> {
    pub(super) fn deadline_reached(&mut self) -> Result<InputOutcome, Rejection> {
        let expired: Vec<(Call, Expiry)> = self
            .control
            .calls
            .iter()
            .filter_map(|call| {
                let expiry = call.suspension()?.expiry.filter(|expiry| expiry.at <= self.now)?;
                Some((call.clone(), expiry))
            })
            .collect();
        let nothing_expired = expired.is_empty();
        let mut end = None;
        for (call, expiry) in expired {
            let ends_run = self.expire(&call, expiry)?;
            end = end.or(ends_run);
        }
        let doubted = self.suspend_due_doubts()?;
        if nothing_expired && !doubted {
            return Err(Rejection::NothingDue);
        }
        if let Some(code) = end {
            self.finish(Termination::stopped(code, None))?;
        }
        Ok(InputOutcome::Done)
    }

    /// An expired suspension never runs anything. Returns the code with which the run ends, if it does.
    fn expire(&mut self, call: &Call, expiry: Expiry) -> Result<Option<StopCode>, Rejection> {
        let Some(open) = call.suspension() else { return Ok(None) };
        // Held for an approval while an earlier attempt is in doubt: that it may have taken effect takes precedence.
        let approval = open.held.kind() == SuspensionKind::Approval;
        self.record(if approval && call.doubted.is_empty() {
            Fact::ToolDenied {
                call_id: call.id.clone(),
                approval_id: open.id.clone(),
                by: Principal::system(),
                decision_id: None,
                reason: Some("expired".into()),
                expired: true,
            }
        } else {
            Fact::ToolCancelled {
                call_id: call.id.clone(),
                reason: CancelReason::Expired,
                text: None,
                by: Principal::system(),
                decision_id: None,
                outcome_unknown: call.may_take_effect(),
                suspension_id: Some(open.id.clone()),
            }
        })?;
        Ok(match (expiry.then, self.control.policy.on_reject) {
            (OnExpiry::EndRun, _) => Some(StopCode::Expired),
            (OnExpiry::Deny, Some(OnReject::EndRun)) if approval => Some(StopCode::Rejected),
            (OnExpiry::Deny, Some(OnReject::EndRun | OnReject::Continue) | None) => None,
        })
    }
}
