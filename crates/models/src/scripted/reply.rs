//! One reply of a script: its content, its deltas and its result.

use std::num::NonZeroUsize;
use std::time::Duration;

use engine::live::Part;
use engine::model::{ModelAnswer, ModelCall, ModelFailure};
use serde_json::Value;

/// An answer, or an error in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    body: ReplyBody,
    delay: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplyBody {
    Answer { answer: ModelAnswer, delta_chars: Option<NonZeroUsize> },
    Failure(ModelFailure),
}

impl Reply {
    pub(super) const fn answer(answer: ModelAnswer, delta_chars: Option<NonZeroUsize>) -> Self {
        Self { body: ReplyBody::Answer { answer, delta_chars }, delay: Duration::ZERO }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::answer(ModelAnswer::text(text), None)
    }

    /// Asks for one tool call; [`Reply::and_call`] adds another one.
    #[must_use]
    pub fn call(id: &str, tool: &str, arguments: Value) -> Self {
        Self::answer(ModelAnswer::default().calling(id, tool, &arguments), None)
    }

    /// Fails like a provider that responds with this HTTP status.
    #[must_use]
    pub fn error(status: u16, message: &str) -> Self {
        let failure = ModelFailure {
            message: format!("{status}: {message}"),
            retryable: matches!(status, 429 | 500..),
            retry_after_ms: None,
        };
        Self { body: ReplyBody::Failure(failure), delay: Duration::ZERO }
    }

    /// # Panics
    /// If the reply is an error: an error has no content.
    #[must_use]
    pub fn and_call(self, id: &str, tool: &str, arguments: Value) -> Self {
        self.change_answer("and_call", |answer| {
            answer.calls.push(ModelCall {
                id: id.to_owned(),
                tool: tool.to_owned(),
                arguments: arguments.to_string(),
            });
        })
    }

    /// A call whose arguments are sent as they are, JSON or not.
    ///
    /// # Panics
    /// If the reply is an error: an error has no content.
    #[must_use]
    pub fn and_call_raw(self, id: &str, tool: &str, arguments: &str) -> Self {
        self.change_answer("and_call_raw", |answer| {
            answer.calls.push(ModelCall {
                id: id.to_owned(),
                tool: tool.to_owned(),
                arguments: arguments.to_owned(),
            });
        })
    }

    /// # Panics
    /// If the reply is an error: an error has no content.
    #[must_use]
    pub fn reasoning(self, text: &str) -> Self {
        self.change_answer("reasoning", |answer| answer.reasoning = Some(text.to_owned()))
    }

    /// # Panics
    /// If the reply is an error: an error has no content.
    #[must_use]
    pub fn usage(self, input_tokens: u64, output_tokens: u64) -> Self {
        self.change_answer("usage", |answer| {
            answer.usage.input_tokens = input_tokens;
            answer.usage.output_tokens = output_tokens;
        })
    }

    /// Maximum characters of one delta. Without it each part is one delta.
    ///
    /// # Panics
    /// If the reply is an error: an error has no content.
    #[must_use]
    pub fn delta_chars(mut self, count: NonZeroUsize) -> Self {
        match &mut self.body {
            ReplyBody::Answer { delta_chars, .. } => *delta_chars = Some(count),
            ReplyBody::Failure(_) => {
                panic!("`delta_chars` on a reply that is an error: give it to an answer")
            }
        }
        self
    }

    /// Delay before each delta, or before the reply if it has none.
    #[must_use]
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The retry delay that the provider asks for.
    ///
    /// # Panics
    /// If the reply is an answer: an answer is not retried.
    #[must_use]
    pub fn retry_after_ms(mut self, wait_ms: u64) -> Self {
        match &mut self.body {
            ReplyBody::Failure(failure) => failure.retry_after_ms = Some(wait_ms),
            ReplyBody::Answer { .. } => panic!("`retry_after_ms` on an answer: give it to `Reply::error`"),
        }
        self
    }

    fn change_answer(mut self, what: &str, change: impl FnOnce(&mut ModelAnswer)) -> Self {
        match &mut self.body {
            ReplyBody::Answer { answer, .. } => change(answer),
            ReplyBody::Failure(_) => panic!("`{what}` on a reply that is an error: give it to an answer"),
        }
        self
    }

    pub(super) const fn delay(&self) -> Duration {
        self.delay
    }

    pub(super) fn outcome(&self) -> Result<ModelAnswer, ModelFailure> {
        match &self.body {
            ReplyBody::Answer { answer, .. } => Ok(answer.clone()),
            ReplyBody::Failure(failure) => Err(failure.clone()),
        }
    }

    /// The deltas, in the order in which they are sent.
    pub(super) fn deltas(&self) -> Vec<(Part, &str)> {
        let ReplyBody::Answer { answer, delta_chars } = &self.body else { return Vec::new() };
        let thought = answer.reasoning.iter().map(|reasoning| (Part::Reasoning, reasoning.as_str()));
        let said = [(Part::Text, answer.text.as_str())];
        let asked = (0..=u16::MAX).zip(&answer.calls).map(|(index, call)| {
            let call_id = Some(call.id.clone()).filter(|id| !id.is_empty());
            (Part::Arguments { index, call_id }, call.arguments.as_str())
        });
        let parts = thought.chain(said).chain(asked);
        parts
            .flat_map(|(part, text)| chunks(text, *delta_chars).map(move |piece| (part.clone(), piece)))
            .collect()
    }
}

/// Chunks of this many characters; the last one may be shorter.
fn chunks(text: &str, chars_max: Option<NonZeroUsize>) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = chars_max.and_then(|count| rest.char_indices().nth(count.get()));
        let (piece, after) = rest.split_at(end.map_or(rest.len(), |(end, _)| end));
        rest = after;
        Some(piece).filter(|piece| !piece.is_empty())
    })
}
