//! Refusals of a decision on an approval: what is recorded instead, and what is still possible.

use engine::store::SuspensionView;
use machine::id::SuspensionId;
use machine::inbox::Refusal;
use machine::suspension::SuspensionKind;

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
                "this Idempotency-Key was already used with another body. The first request stays in effect, and this \
                 one changed nothing; choose a new key",
            ),
            Refusal::Forbidden(kind) if *kind == held.kind => Self::wrong_kind(*kind),
            // Another suspension holds the call by now.
            Refusal::Forbidden(_)
            | Refusal::NotHeld
            | Refusal::Answered
            | Refusal::SuspensionNotNamed
            | Refusal::UnknownCall => Self::not_pending(held, "is no longer open"),
            Refusal::Expired => Self::not_pending(held, "can no longer be decided: it has expired"),
            Refusal::RunOver => Self::not_pending(held, "is closed: its run has ended or is ending"),
            Refusal::DigestMismatch => {
                let asked = held.opened.as_ref().and_then(|opened| opened.arguments.as_ref());
                let shown = asked.map(|arguments| arguments.digest().to_string());
                Self::new(
                    Code::DigestMismatch,
                    format!(
                        "the arguments of approval `{id}` do not match `expect_digest`; it was not approved and is \
                         still pending. Read the approval again"
                    ),
                )
                .with("arguments_digest", shown)
            }
            Refusal::Invalid(why) => {
                Self::new(Code::InvalidArguments, format!("{why}; the call is still held"))
            }
        }
    }

    fn wrong_kind(kind: SuspensionKind) -> Self {
        let instead = match kind {
            SuspensionKind::Approval => "approve or reject it",
            SuspensionKind::Question => "post its `result` to /answer",
            SuspensionKind::InDoubt => "post a `choice` or the `result` to /answer",
            SuspensionKind::ClientTool | SuspensionKind::External => {
                "post its result to /v1/runs/{id}/decisions"
            }
            SuspensionKind::ChildRun => "it takes no answer; it closes when the child run ends",
        };
        Self::new(
            Code::WrongKind,
            format!(
                "a call that is held as `{kind}` cannot be answered in this way, and it is still held; {instead}"
            ),
        )
        .with("kind", kind.as_str())
    }

    fn not_pending(held: &SuspensionView, why: &str) -> Self {
        let (id, status) = (&held.id, ApprovalStatus::from(held.status));
        let decided = match (&held.decided_by, status) {
            (Some(_), ApprovalStatus::Expired) => format!("approval `{id}` has expired"),
            (Some(by), status) => {
                let via = by.via().map(|via| format!(" via {via}")).unwrap_or_default();
                format!("approval `{id}` was {} by {by}{via}", status.as_str())
            }
            (None, _) => format!("approval `{id}` {why}"),
        };
        let error = Self::new(
            Code::ApprovalNotPending,
            format!(
                "{decided}; this decision was not applied. GET /v1/approvals/{id} shows what is recorded"
            ),
        )
        .with("status", status.as_str());
        match &held.decided_by {
            Some(by) => {
                let error = error.with("decided_by", by.name());
                match by.via() {
                    Some(via) => error.with("via", via),
                    None => error,
                }
            }
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
                     Review the new approval and decide that one"
                ),
            )
            .with("approval_id", id.as_str()),
            None => Self::new(
                Code::ToolChanged,
                format!(
                    "the tool `{tool}` changed after this approval was shown, so the approval has no effect. No other \
                     approval of the call was found; GET /v1/runs/{} shows in `pending` whether the call is held",
                    held.run
                ),
            ),
        }
    }
}
