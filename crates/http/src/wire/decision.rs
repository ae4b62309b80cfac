//! The outcome of one decision in a list.

use machine::inbox::{Refusal, Verdict};
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DecisionResult {
    /// The `call_id` that was sent; empty if it was missing.
    pub call_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub decision_id: Option<String>,
    pub outcome: Outcome,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Applied,
    /// A repeat of the same decision.
    AlreadyApplied,
    /// The call is not held or was decided otherwise, or the id was used for another decision.
    Conflict,
    NotFound,
    /// Malformed, or it does not match the schema. The call is still held.
    Invalid,
    Forbidden,
}

impl DecisionResult {
    #[must_use]
    pub fn new(call_id: &str, decision_id: Option<&str>, outcome: Outcome, message: &str) -> Self {
        Self {
            call_id: call_id.to_owned(),
            decision_id: decision_id.map(str::to_owned),
            outcome,
            message: message.to_owned(),
        }
    }

    #[must_use]
    pub fn from_verdict(call_id: &str, decision_id: Option<&str>, verdict: &Verdict) -> Self {
        Self::new(call_id, decision_id, Outcome::from_verdict(verdict), &verdict.to_string())
    }
}

impl Outcome {
    #[must_use]
    pub const fn from_verdict(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Accepted => Self::Applied,
            Verdict::AlreadyApplied => Self::AlreadyApplied,
            Verdict::ToolChanged => Self::Conflict,
            Verdict::Refused(refusal) => match refusal {
                Refusal::Invalid(_) => Self::Invalid,
                Refusal::UnknownCall => Self::NotFound,
                Refusal::Forbidden(_) => Self::Forbidden,
                Refusal::IdUsed
                | Refusal::NotHeld
                | Refusal::Answered
                | Refusal::Expired
                | Refusal::RunOver
                | Refusal::DigestMismatch
                | Refusal::SuspensionNotNamed => Self::Conflict,
            },
        }
    }
}

/// The results of a list of decisions: one per decision, in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DecisionResults {
    pub results: Vec<DecisionResult>,
}
