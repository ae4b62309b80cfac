//! What all dialects have in common: the request, and the decoding of an answer.

use engine::model::{ModelFailure, ModelRequest};
use serde_json::{Map, Value};

use super::answer_builder::AnswerBuilder;
use super::failure::transient;
use super::naming::{CallIds, ToolNames};
use super::sealed::Seals;

/// One request, with everything that a dialect needs to encode it.
pub(super) struct RequestContext<'a> {
    pub(super) model: &'a str,
    pub(super) request: &'a ModelRequest,
    pub(super) names: &'a ToolNames,
    pub(super) ids: CallIds,
    pub(super) seals: Seals,
    /// From the configuration.
    pub(super) params: &'a Map<String, Value>,
}

impl RequestContext<'_> {
    /// Parameters from the configuration and from plugins; plugins win. A dialect overrides them with its own fields.
    pub(super) fn params(&self) -> Map<String, Value> {
        let mut params = self.params.clone();
        for (name, value) in &self.request.params {
            params.insert(name.clone(), (**value).clone());
        }
        params
    }
}

/// Decodes one answer, message by message.
pub(super) trait StreamDecoder: Send {
    fn decode(&mut self, message: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure>;
}

/// A required text field.
pub(super) fn required_text<'a>(message: &'a Value, key: &str) -> Result<&'a str, ModelFailure> {
    message.get(key).and_then(Value::as_str).ok_or_else(|| corrupt(&format!("a message without {key}")))
}

pub(super) fn corrupt(what: &str) -> ModelFailure {
    transient(format!("its stream is corrupt: {what}"))
}

/// A text field that is not empty.
pub(super) fn nonempty_text<'a>(message: &'a Value, key: &str) -> Option<&'a str> {
    message.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

pub(super) fn count(message: &Value, key: &str) -> u64 {
    message.get(key).and_then(Value::as_u64).unwrap_or_default()
}

/// Builds an object from fields.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
