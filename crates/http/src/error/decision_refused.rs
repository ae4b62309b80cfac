//! Refusals of a decision on an approval: what is recorded instead, and what is still possible.

use engine::store::SuspensionView;
use machine::id::SuspensionId;
use machine::inbox::Refusal;

use super::{ApiError, Code};
use crate::wire::enums::ApprovalStatus;

impl ApiError {
    /// `held` is the approval as it is now: the response names the approver who decided it first.
    #[must_use]
    pub fn decision_refused(refusal: &Refusal, held: &SuspensionView) -> Self {
        let id = &held.id;
        match refusal {
            Refusal::IdUsed => Self::new(
                Code::IdempotencyConflict,
                "this Idempotency-Key was used with another body; the first request keeps its effect, and this one had none",
            ),
            Refusal::NotHeld
            | Refusal::Answered
            | Refusal::SuspensionNotNamed
            | Refusal::UnknownCall
            | Refusal::Forbidden(_) => Self::not_pending(held, "is not open any more"),
            Refusal::Expired => Self::not_pending(held, "can not be decided any more: its time is over"),
            Refusal::RunOver => {
                Self::not_pending(held, "is closed: its run is over, or on its way to its end")
            }
            Refusal::DigestMismatch => {
                let asked = held.opened.as_ref().and_then(|opened| opened.arguments.as_ref());
                let shown = asked.map(|arguments| arguments.digest().to_string());
                Self::new(
                    Code::DigestMismatch,
                    format!(
                        "approval `{id}` is held with other arguments than `expect_digest` names; it was not \
                         approved and is still held. Read it again"
                    ),
                )
                .with("arguments_digest", shown)
            }
            Refusal::Invalid(why) => {
                Self::new(Code::InvalidArguments, format!("{why}; the call is still held"))
            }
        }
    }

    fn not_pending(held: &SuspensionView, why: &str) -> Self {
        let (id, status) = (&held.id, ApprovalStatus::from(held.status));
        let decided = match &held.decided_by {
            Some(by) => format!("approval `{id}` is {} by {by}", status.as_str()),
            None => format!("approval `{id}` {why}"),
        };
        let error = Self::new(
            Code::ApprovalNotPending,
            format!("{decided}; this decision was not taken. GET /v1/approvals/{id} says what is recorded"),
        )
        .with("status", status.as_str());
        match &held.decided_by {
            Some(by) => error.with("decided_by", by.as_str()),
            None => error,
        }
    }

    /// The tool is no longer the one that was shown. `again` is the approval that holds the call now, if there is
    /// one.
    #[must_use]
    pub fn tool_changed(held: &SuspensionView, again: Option<&SuspensionId>) -> Self {
        let tool = held.opened.as_ref().map_or("", |opened| opened.tool.as_str());
        match again {
            Some(id) => Self::new(
                Code::ToolChanged,
                format!(
                    "the tool `{tool}` changed after this approval was shown; nothing ran, and the call is held again. \
                     Look at the new approval and decide that one"
                ),
            )
            .with("approval_id", id.as_str()),
            None => Self::new(
                Code::ToolChanged,
                format!(
                    "the tool `{tool}` changed after this approval was shown, so the approval counts for nothing. No other \
                     approval of the call was found; GET /v1/runs/{} shows in `pending` whether it is held",
                    held.run
                ),
            ),
        }
    }
}
