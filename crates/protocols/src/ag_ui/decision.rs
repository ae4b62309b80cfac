//! What an answer of the client decides. Nothing but a literal `approved: true` approves.

use std::fmt;

use serde_json::Value;

use super::interrupt::AgUiAnswerable;
use super::request::{AgUiResumeEntry, AgUiResumeStatus};

/// The reason of a denial that the user did not give: they left without an answer.
pub const CANCELLED_IN_CLIENT: &str = "Cancelled in the client";

#[derive(Clone, Debug, PartialEq)]
pub enum AgUiDecision {
    Approve {
        /// Replaces the arguments as a whole.
        edited: Option<Value>,
    },
    Deny {
        reason: Option<String>,
    },
    /// The answer to a question, or the result of a call in doubt.
    Answer {
        result: Value,
    },
    /// Of a call in doubt: run it again.
    Retry,
    /// Of a call in doubt: its outcome stays unknown.
    GiveUp,
    /// The call is cancelled without an answer to its question.
    Cancel {
        reason: &'static str,
    },
}

/// The answer does not have the form that its interrupt asks for. It decides nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgUiInvalidAnswer {
    pub interrupt_id: String,
    pub problem: String,
}

impl fmt::Display for AgUiInvalidAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer to `{}` decides nothing: {}", self.interrupt_id, self.problem)
    }
}

impl std::error::Error for AgUiInvalidAnswer {}

impl AgUiDecision {
    /// `held` is what the interrupt asks for, from durable state.
    pub fn from_entry(entry: &AgUiResumeEntry, held: AgUiAnswerable) -> Result<Self, AgUiInvalidAnswer> {
        let decision = match &entry.status {
            AgUiResumeStatus::Cancelled => Ok(Self::abandoned(held)),
            AgUiResumeStatus::Resolved(payload) => match held {
                AgUiAnswerable::Approval => approval(payload.as_ref()),
                AgUiAnswerable::Question => question(payload.as_ref()),
                AgUiAnswerable::InDoubt => doubt(payload.as_ref()),
            },
        };
        decision.map_err(|problem| AgUiInvalidAnswer {
            interrupt_id: entry.interrupt_id.clone(),
            problem: problem.to_owned(),
        })
    }

    /// Nothing runs because the user left.
    fn abandoned(held: AgUiAnswerable) -> Self {
        match held {
            AgUiAnswerable::Approval => Self::Deny { reason: Some(CANCELLED_IN_CLIENT.to_owned()) },
            AgUiAnswerable::Question => Self::Cancel { reason: CANCELLED_IN_CLIENT },
            AgUiAnswerable::InDoubt => Self::GiveUp,
        }
    }
}

fn approval(payload: Option<&Value>) -> Result<AgUiDecision, &'static str> {
    const FORM: &str = "the payload must be an object with `approved`: true or false";
    let payload = payload.and_then(Value::as_object).ok_or(FORM)?;
    // A misspelt field must not approve anything.
    if payload.keys().any(|field| !["approved", "editedArgs", "reason"].contains(&field.as_str())) {
        return Err(
            "the payload has a field that is not known; it may have `approved`, `editedArgs` and `reason`",
        );
    }
    let reason = match payload.get("reason") {
        None => None,
        Some(reason) => Some(reason.as_str().ok_or("`reason` must be a string")?.to_owned()),
    };
    if !payload.get("approved").and_then(Value::as_bool).ok_or(FORM)? {
        return Ok(AgUiDecision::Deny { reason });
    }
    match payload.get("editedArgs") {
        None => Ok(AgUiDecision::Approve { edited: None }),
        Some(edited) if edited.is_object() => Ok(AgUiDecision::Approve { edited: Some(edited.clone()) }),
        Some(_) => Err("`editedArgs` must be an object with all arguments, or absent"),
    }
}

fn question(payload: Option<&Value>) -> Result<AgUiDecision, &'static str> {
    match payload {
        None | Some(Value::Null) => Err("the payload is missing; it is the answer"),
        Some(answer) => Ok(AgUiDecision::Answer { result: answer.clone() }),
    }
}

fn doubt(payload: Option<&Value>) -> Result<AgUiDecision, &'static str> {
    const FORM: &str =
        "the payload must be an object with either `choice` (`retry` or `give_up`) or `result`";
    let payload = payload.and_then(Value::as_object).ok_or(FORM)?;
    match (payload.get("choice"), payload.get("result")) {
        (Some(choice), None) if payload.len() == 1 => match choice.as_str() {
            Some("retry") => Ok(AgUiDecision::Retry),
            Some("give_up") => Ok(AgUiDecision::GiveUp),
            Some(_) | None => Err(FORM),
        },
        (None, Some(result)) if payload.len() == 1 => Ok(AgUiDecision::Answer { result: result.clone() }),
        (Some(_) | None, Some(_) | None) => Err(FORM),
    }
}
