//! The text of a result, as the model will read it. The tool message that the machine stores later wins: it may be
//! shortened, and it knows every reason.

use serde_json::Value;
use serde_json::value::RawValue;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AgUiSettlement {
    Succeeded(String),
    Failed(String),
    Cancelled(String),
}

impl AgUiSettlement {
    pub(super) fn succeeded(result: &RawValue, warning: Option<&str>) -> Self {
        let json = result.get();
        let mut text = match json.starts_with('"').then(|| serde_json::from_str::<String>(json)) {
            Some(Ok(text)) => text,
            Some(Err(_)) | None => json.to_owned(),
        };
        if let Some(warning) = warning {
            text.push_str("\nWarning: ");
            text.push_str(warning);
        }
        Self::Succeeded(text)
    }

    pub(super) fn failed(message: &str, outcome_unknown: bool) -> Self {
        let doubt = if outcome_unknown { "; an earlier attempt may have taken effect" } else { "" };
        Self::Failed(format!("Error: {message}{doubt}"))
    }

    pub(super) fn denied(by: &str, reason: &str) -> Self {
        Self::Cancelled(format!("Denied by {by}: {reason}"))
    }

    pub(super) fn cancelled(reason: &str, outcome_unknown: bool) -> Self {
        Self::Cancelled(match (outcome_unknown, reason) {
            (true, _) => "Cancelled; it may have taken effect".to_owned(),
            (false, "decided" | "given_up" | "") => "Cancelled".to_owned(),
            (false, reason) => format!("Cancelled: {reason}"),
        })
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Succeeded(text) | Self::Failed(text) | Self::Cancelled(text) => text,
        }
    }

    /// The model reads which arguments ran, if they were not its own.
    pub(super) fn with_edited(self, edited: Option<&Value>) -> Self {
        let Some(edited) = edited else { return self };
        let note = |text: String| format!("Arguments were changed by the approver to: {edited}\n{text}");
        match self {
            Self::Succeeded(text) => Self::Succeeded(note(text)),
            Self::Failed(text) => Self::Failed(note(text)),
            Self::Cancelled(text) => Self::Cancelled(note(text)),
        }
    }
}
