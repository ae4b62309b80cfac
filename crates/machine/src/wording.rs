//! What the model reads about a call.

use alloc::format;
use alloc::string::{String, ToString};
use serde_json::Value;

use crate::event::{CancelReason, Fact};
use crate::suspension::SuspensionKind;
use crate::termination::Stopped;

/// Whose arguments ran in place of the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedBy {
    Approver,
    /// Whoever answered the question that the call was held for.
    Answer,
}

/// The text of a terminal fact; none for any other. `changed`: the arguments that ran, where they are not the
/// model's.
#[must_use]
pub fn result_text(fact: &Fact, changed: Option<(ChangedBy, &Value)>) -> Option<String> {
    let text = match fact {
        Fact::ExecutionSucceeded { result, warning, .. } => match warning {
            Some(warning) => format!("{}\nWarning: {warning}", result.plain_text()),
            None => result.plain_text().into_owned(),
        },
        Fact::ExecutionFailed { error, outcome_unknown: true, .. } => {
            format!("Error: {}; an earlier attempt may have taken effect", error.message)
        }
        Fact::ExecutionFailed { error, .. } => format!("Error: {}", error.message),
        Fact::ToolDenied { by, reason, .. } => match reason {
            Some(reason) => format!("Denied by {by}: {reason}"),
            None => format!("Denied by {by}"),
        },
        Fact::ToolCancelled { outcome_unknown: true, .. } => {
            "Cancelled; it may have taken effect".to_string()
        }
        Fact::ToolCancelled { reason, text, .. } => cancelled(*reason, text.as_deref()),
        Fact::RunQueued(_)
        | Fact::RunStarted { .. }
        | Fact::RunWaiting { .. }
        | Fact::RunResumed {}
        | Fact::RunInterrupting { .. }
        | Fact::RunEnding { .. }
        | Fact::RunEnded { .. }
        | Fact::RunRecovered { .. }
        | Fact::StepStarted { .. }
        | Fact::StepEnded { .. }
        | Fact::MessageAdded(_)
        | Fact::ModelRetrying { .. }
        | Fact::PhaseAnswered { .. }
        | Fact::StateChanged { .. }
        | Fact::ToolRequested { .. }
        | Fact::ApprovalRequested(_)
        | Fact::ApprovalVoided { .. }
        | Fact::ToolApproved { .. }
        | Fact::ToolSuspended(_)
        | Fact::ToolResumed { .. }
        | Fact::ExecutionStarted { .. }
        | Fact::ChildStarted { .. }
        | Fact::ChildEnded { .. } => return None,
    };
    Some(match changed {
        Some((ChangedBy::Approver, to)) => format!("Arguments were changed by the approver to: {to}\n{text}"),
        Some((ChangedBy::Answer, to)) => format!("Arguments were changed by the answer to: {to}\n{text}"),
        None => text,
    })
}

fn cancelled(reason: CancelReason, text: Option<&str>) -> String {
    let reason = match (reason, text) {
        (_, Some(text)) => text,
        (CancelReason::Decided | CancelReason::GivenUp, None) => return "Cancelled".into(),
        (CancelReason::Expired, None) => "expired",
        (CancelReason::RunEnded, None) => "run_ended",
        (CancelReason::Interrupted, None) => "interrupted",
        (CancelReason::Superseded, None) => "superseded",
        (CancelReason::ChildInterrupted, None) => "the child run was interrupted",
    };
    format!("Cancelled: {reason}")
}

/// Stands in for a result that does not exist yet. The model can tell it from a call that ran and returned
/// nothing.
#[must_use]
pub fn placeholder(kind: Option<SuspensionKind>) -> String {
    match kind {
        Some(SuspensionKind::Approval) => "Not executed yet: awaiting approval".into(),
        Some(SuspensionKind::Question) => "Not finished yet: awaiting an answer".into(),
        Some(SuspensionKind::InDoubt) => "Outcome unknown: awaiting a person's decision".into(),
        Some(SuspensionKind::ClientTool | SuspensionKind::External) => {
            "Not finished yet: awaiting the result".into()
        }
        Some(SuspensionKind::ChildRun) => "Not finished yet: a sub-agent is working on it".into(),
        None => "Not executed yet".into(),
    }
}

/// An answer that is not the output which is wanted, told in the user role.
#[must_use]
pub fn correction(why: &str) -> String {
    format!(
        "Your last answer is not the output that is wanted: {why}. Answer again, with nothing but JSON that fits the \
         schema."
    )
}

/// Calls that the run had no room for, told in the user role after the results of those that it took.
#[must_use]
pub fn calls_dropped(taken: u32, dropped: u32) -> String {
    let total = taken.saturating_add(dropped);
    let accepted = match taken {
        0 => format!("None of the {total} calls in your last answer were accepted."),
        _ => format!("Only the first {taken} of the {total} calls in your last answer were accepted."),
    };
    format!(
        "[{accepted} The other {dropped} did not run, because too many calls would have been open at the same time. \
         Ask again for those that are still needed.]"
    )
}

/// What the next run of a thread is told in the user role, behind a question that was never answered.
pub const INTERRUPTION: &str = "[The run was interrupted here, before the model had answered.]";

/// The late result of a call that had a placeholder, told in the user role.
#[must_use]
pub fn late_result(call: &str, tool: &str, text: &str) -> String {
    format!("Result of the earlier call {call} ({tool}): {text}")
}

/// Why a delegated run that was stopped before its end gave no result, with what it had said by then.
#[must_use]
pub fn child_stopped(stopped: &Stopped, last_text: &str) -> String {
    let mut text = format!("the delegated run was stopped before it was done: {}", stopped.code.as_str());
    if let Some(detail) = &stopped.detail {
        text.push_str(": ");
        text.push_str(detail);
    }
    if !last_text.is_empty() {
        text.push_str("\nIt said last: ");
        text.push_str(last_text);
    }
    text
}
