//! How an accepted answer will close its suspension, for clients that look before the run has processed it.

use alloc::string::String;

use crate::decision::{Decision, DecisionAction, DecisionMeaning, interpret};
use crate::event::OpenedSuspension;
use crate::event::VoidReason;
use crate::id::Principal;
use crate::inbox::Item;
use crate::projection_rows::ApprovalStatus;
use crate::suspension::Held;
use crate::time::Timestamp;
use crate::tool::Arguments;

/// How the suspension will be closed. No other answer is accepted for it.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerPreview {
    pub status: ApprovalStatus,
    pub by: Principal,
    /// When it was accepted. None if no person gave the answer.
    pub at: Option<Timestamp>,
    pub reason: Option<String>,
    pub note: Option<String>,
    /// The arguments that will run in place of the ones shown.
    pub edited: Option<Arguments>,
}

/// None if the item does not answer this kind of suspension.
#[must_use]
pub fn preview_answer(opened: &OpenedSuspension, item: &Item) -> Option<AnswerPreview> {
    match item {
        Item::Decision(decision) | Item::Early { decision, .. } => decided(opened, decision),
        // The attempt that was in doubt has answered by itself.
        Item::LateAnswer { .. } => Some(AnswerPreview {
            status: ApprovalStatus::Answered,
            by: Principal::system(),
            at: None,
            reason: None,
            note: None,
            edited: None,
        }),
        Item::Interrupt { .. } | Item::ChildEnded(_) => None,
    }
}

fn decided(opened: &OpenedSuspension, decision: &Decision) -> Option<AnswerPreview> {
    let (status, edited) = match interpret(opened.held.kind(), opened.mode, &decision.action).ok()? {
        DecisionMeaning::Approve { .. } if is_void(&opened.held, decision) => return Some(void(decision)),
        DecisionMeaning::Approve { edited } => (ApprovalStatus::Approved, edited.cloned()),
        DecisionMeaning::Deny | DecisionMeaning::Cancel => (ApprovalStatus::Rejected, None),
        DecisionMeaning::Replay { .. }
        | DecisionMeaning::Result(_)
        | DecisionMeaning::Failure(_)
        | DecisionMeaning::GiveUp => (ApprovalStatus::Answered, None),
    };
    let (reason, note) = match &decision.action {
        // Only an approval keeps the note of a positive answer.
        DecisionAction::Resume(resume) if status == ApprovalStatus::Approved => (None, resume.note.clone()),
        DecisionAction::Resume(_) => (None, None),
        DecisionAction::Cancel { reason, .. } => (reason.clone(), None),
    };
    Some(AnswerPreview {
        status,
        by: decision.by.clone(),
        at: Some(decision.accepted_at),
        reason,
        note,
        edited,
    })
}

/// The tool differs from the one that was shown: the call will be held again.
fn is_void(held: &Held, decision: &Decision) -> bool {
    held.definition().is_some_and(|definition| decision.is_for_changed_tool(definition))
}

fn void(decision: &Decision) -> AnswerPreview {
    AnswerPreview {
        status: ApprovalStatus::Expired,
        by: Principal::system(),
        at: Some(decision.accepted_at),
        reason: Some(VoidReason::ToolChanged.as_str().into()),
        note: None,
        edited: None,
    }
}
