//! What a case has to end with, in the terms of the trait.

use engine::model::{ModelAnswer, ModelCall, ModelFailure, Origin};
use machine::event::Usage;

#[derive(Clone, Debug)]
pub(crate) enum Expected {
    Answer(ModelAnswer),
    /// Trying again may help. With these words in the message, and this wait.
    Again(&'static str, Option<u64>),
    ForGood(&'static str),
}

impl Expected {
    /// None, or what is wrong.
    pub(crate) fn differs(&self, found: &Result<ModelAnswer, ModelFailure>) -> Option<String> {
        let fits = match (self, found) {
            // What is sealed names the address of the fake; it has tests of its own.
            (Self::Answer(expected), Ok(answer)) => {
                *expected == ModelAnswer { origin: Origin::default(), ..answer.clone() }
            }
            (Self::Again(words, wait), Err(failure)) => {
                failure.retryable && failure.message.contains(words) && failure.retry_after_ms == *wait
            }
            (Self::ForGood(words), Err(failure)) => {
                !failure.retryable && failure.message.contains(words) && failure.retry_after_ms.is_none()
            }
            (Self::Answer(_), Err(_)) | (Self::Again(..) | Self::ForGood(_), Ok(_)) => false,
        };
        (!fits).then(|| format!("expected {self:?}, found {found:?}"))
    }
}

pub(crate) const COUNTED: Usage = Usage { input_tokens: 11, output_tokens: 7 };

pub(crate) fn text(text: &str) -> Expected {
    Expected::Answer(ModelAnswer { usage: COUNTED, ..ModelAnswer::text(text) })
}

pub(crate) fn thought(reasoning: &str, text: &str) -> Expected {
    let reasoning = Some(reasoning.to_owned());
    Expected::Answer(ModelAnswer { usage: COUNTED, reasoning, ..ModelAnswer::text(text) })
}

/// Id, tool and arguments of each call.
pub(crate) fn calls(text: &str, calls: &[(&str, &str, &str)]) -> Expected {
    let call = |(id, tool, arguments): &(&str, &str, &str)| ModelCall {
        id: (*id).to_owned(),
        tool: (*tool).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    let calls = calls.iter().map(call).collect();
    Expected::Answer(ModelAnswer { usage: COUNTED, calls, ..ModelAnswer::text(text) })
}

/// The same without a count of tokens.
pub(crate) fn uncounted(expected: Expected) -> Expected {
    match expected {
        Expected::Answer(answer) => Expected::Answer(ModelAnswer { usage: Usage::default(), ..answer }),
        Expected::Again(..) | Expected::ForGood(_) => expected,
    }
}
