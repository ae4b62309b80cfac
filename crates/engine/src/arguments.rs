//! Arguments of a call: parsed, bounded, checked against the tool's schema, and given their canonical digest.

use std::sync::Arc;

use machine::id::Digest;
use machine::json_text::{self, Bounds};
use machine::json_value;
use machine::tool::Arguments;
use serde_json::{Number, Value};

pub use crate::schema::Schema;

/// Longer arguments are invalid.
pub const ARGUMENTS_BYTES_MAX: usize = 1024 * 1024;
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Arguments as a model wrote them. An empty text means no arguments.
#[must_use]
pub fn from_text(text: &str, schema: Option<&Schema>) -> Arguments {
    if text.len() > ARGUMENTS_BYTES_MAX {
        let why = format!("the arguments have {} bytes; at most {ARGUMENTS_BYTES_MAX}", text.len());
        return Arguments::Invalid { raw: String::new(), why };
    }
    let text = if text.trim().is_empty() { "{}" } else { text };
    match json_text::parse(text, &Bounds::VALUE) {
        Ok(value) => from_value(Arc::new(value), schema),
        Err(fault) => {
            let what = if fault.is_syntax() { "are not JSON" } else { "cannot be used" };
            Arguments::Invalid { raw: text.to_owned(), why: format!("the arguments {what}: {fault}") }
        }
    }
}

/// Arguments from a decision, or as they were stored.
#[must_use]
pub fn from_value(value: Arc<Value>, schema: Option<&Schema>) -> Arguments {
    if let Some(fault) = json_value::fault(&value) {
        return Arguments::unstorable(fault);
    }
    let digest = match digest(&value) {
        Ok(digest) => digest,
        Err(why) => return Arguments::Invalid { raw: value.to_string(), why },
    };
    match schema.and_then(|schema| schema.fault(&value)) {
        Some(why) => Arguments::Invalid { raw: value.to_string(), why },
        None => Arguments::Valid { value, digest },
    }
}

/// SHA-256 of the RFC 8785 form. A number without an exact form has no digest: two different amounts must never share
/// one.
pub fn digest(value: &Value) -> Result<Digest, String> {
    if let Some(number) = inexact(value) {
        return Err(format!("{number} has no exact form; integers go up to {INTEGER_MAX}"));
    }
    serde_json_canonicalizer::to_vec(value)
        .map(|bytes| Digest::sha256(&bytes))
        .map_err(|error| error.to_string())
}

/// An integer that a double cannot hold exactly. The value is not deep: that was checked before.
fn inexact(value: &Value) -> Option<&Number> {
    match value {
        Value::Number(number) => {
            let beyond = number.as_u64().is_some_and(|integer| integer > INTEGER_MAX)
                || number.as_i64().is_some_and(|integer| integer.unsigned_abs() > INTEGER_MAX);
            let float = number.as_f64().filter(|_| number.as_u64().is_none() && number.as_i64().is_none());
            let beyond_as_float =
                float.is_some_and(|float| float.fract() == 0.0 && float.abs() > INTEGER_MAX as f64);
            (beyond || beyond_as_float).then_some(number)
        }
        Value::Array(items) => items.iter().find_map(inexact),
        Value::Object(fields) => fields.values().find_map(inexact),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_a_model_wrote_twice_is_bad_arguments() {
        for text in [r#"{"amount":5,"amount":1000000}"#, r#"{"to":{"name":"bob","n\u0061me":"eve"}}"#] {
            let judged = from_text(text, None);
            let is_refused =
                matches!(&judged, Arguments::Invalid { why, .. } if why.contains("appears twice"));
            assert!(is_refused, "{text}: {judged:?}");
        }
    }
}
