//! What the model reads about a call.

use alloc::format;
use alloc::string::String;
use serde_json::Value;

use crate::event::{CancelReason, Fact, Settlement};
use crate::suspension::SuspensionKind;
use crate::termination::Stopped;

/// Whose arguments ran in place of the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedBy {
    Approver,
    /// The person who answered the question that the call was held for.
    Answer,
}

/// The text of a terminal fact; none for any other fact. `changed` is the arguments that ran, if they are not the
/// model's. If the text has more than `chars_max` characters, the result itself is cut first.
#[must_use]
pub fn result_text(fact: &Fact, changed: Option<(ChangedBy, &Value)>, chars_max: usize) -> Option<String> {
    let mut warned = String::new();
    let text = match fact.settlement()? {
        Settlement::Succeeded { result, warning } => {
            if let Some(warning) = warning {
                warned = format!("\nWarning: {warning}");
            }
            result.plain_text()
        }
        Settlement::Failed { error, outcome_unknown: true } => {
            format!("Error: {}; an earlier attempt may have taken effect", error.message).into()
        }
        Settlement::Failed { error, outcome_unknown: false } => format!("Error: {}", error.message).into(),
        Settlement::Denied { by, reason: Some(reason) } => format!("Denied by {by}: {reason}").into(),
        Settlement::Denied { by, reason: None } => format!("Denied by {by}").into(),
        Settlement::Cancelled { outcome_unknown: true, .. } => "Cancelled; it may have taken effect".into(),
        Settlement::Cancelled { reason, text, outcome_unknown: false } => cancelled(reason, text).into(),
    };
    let changed = match changed {
        Some((ChangedBy::Approver, to)) => format!("Arguments were changed by the approver to: {to}\n"),
        Some((ChangedBy::Answer, to)) => format!("Arguments were changed by the answer to: {to}\n"),
        None => String::new(),
    };
    Some(bounded(&changed, &text, &warned, chars_max))
}

/// A text in three parts for the model. If it has more than `chars_max` characters, the middle part is cut first, then
/// the rest of the text. The last line says how many characters are missing.
#[must_use]
pub fn bounded(before: &str, text: &str, after: &str, chars_max: usize) -> String {
    let whole = [before, text, after].concat();
    if whole.len() <= chars_max {
        return whole;
    }
    let total = whole.chars().count();
    if total <= chars_max {
        return whole;
    }
    let around = before.chars().count() + after.chars().count();
    let kept = first_chars(text, chars_max.saturating_sub(around));
    let whole = [before, kept, after].concat();
    let shown = first_chars(&whole, chars_max);
    let left_out = total - shown.chars().count();
    format!("{shown}\n[{left_out} of {total} characters left out]")
}

fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
}

fn cancelled(reason: CancelReason, text: Option<&str>) -> String {
    let reason = match (reason, text) {
        (_, Some(text)) => text,
        (CancelReason::Decided | CancelReason::GivenUp, None) => return "Cancelled".into(),
        (CancelReason::ChildInterrupted, None) => "the child run was interrupted",
        (
            CancelReason::Expired
            | CancelReason::RunEnded
            | CancelReason::Interrupted
            | CancelReason::Superseded,
            None,
        ) => reason.as_str(),
    };
    format!("Cancelled: {reason}")
}

/// Placeholder for a result that does not exist yet. The model can distinguish it from a call that ran and returned
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

/// Message in the user role: the answer does not fit the output that is wanted.
#[must_use]
pub fn correction(why: &str) -> String {
    format!(
        "Your last answer is not the output that is wanted: {why}. Answer again, with nothing but JSON that fits the \
         schema."
    )
}

/// Message in the user role: the run had no room for some calls. It follows the results of the calls that it took.
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

/// Message in the user role for the next run of a thread, placed after a question that was never answered.
pub const INTERRUPTION: &str = "[The run was interrupted here, before the model had answered.]";

/// The late result of a call that had a placeholder, sent in the user role.
#[must_use]
pub fn late_result(call: &str, tool: &str, text: &str) -> String {
    format!("Result of the earlier call {call} ({tool}): {text}")
}

/// Why a delegated run was stopped before its end and gave no result, followed by the last text it had produced.
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
