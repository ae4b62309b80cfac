//! Masks a bearer token that a tool echoes, before anything is stored, shown or read by a model.

use std::sync::Arc;

use engine::masking::{mask_json, masked_answer};
use engine::tool::{Outcome, SuspendRequest, ToolAnswer};
use serde_json::Value;

pub(super) const MASK: &str = "[token]";

pub(super) fn without_token(outcome: Outcome, token: &str) -> Outcome {
    let text = |text: String| masked_answer(&text, token, MASK);
    let json = |value: Arc<Value>| {
        let mut value = Arc::unwrap_or_clone(value);
        mask_json(&mut value, token, MASK);
        Arc::new(value)
    };
    match outcome {
        Outcome::Answered(ToolAnswer::Success { value, warning }) => {
            Outcome::Answered(ToolAnswer::Success { value: json(value), warning: warning.map(text) })
        }
        Outcome::Answered(ToolAnswer::Error { message }) => {
            Outcome::Answered(ToolAnswer::Error { message: text(message) })
        }
        Outcome::Answered(ToolAnswer::Pending(request)) => {
            Outcome::Answered(ToolAnswer::Pending(SuspendRequest {
                question: request.question.map(text),
                schema: request.schema.map(json),
                resume_state: request.resume_state.map(json),
                ..request
            }))
        }
        Outcome::NotSent { why, retry_after_ms } => Outcome::NotSent { why: text(why), retry_after_ms },
        Outcome::Unknown { why, retry_after_ms } => Outcome::Unknown { why: text(why), retry_after_ms },
    }
}
