//! Secrets that a provider or a tool echoes: they are replaced before the text is stored or shown.

use serde_json::Value;

/// A word that begins like the secret, with this many bytes of it, is taken for a part of it.
const RECOGNISED_BYTES: usize = 8;

/// The text without the secret, and without words that begin as the secret does: services echo secrets whole or in part.
#[must_use]
pub fn masked(text: &str, secret: &str, placeholder: &str) -> String {
    let whole = text.replace(secret, placeholder);
    let Some(begin) = secret.get(..RECOGNISED_BYTES) else { return whole };
    let mut shown = String::with_capacity(whole.len());
    let mut rest = whole.as_str();
    while let Some(at) = rest.find(begin) {
        let (before, word) = rest.split_at(at);
        let end =
            word.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',')).unwrap_or(word.len());
        shown.push_str(before);
        shown.push_str(placeholder);
        rest = word.get(end..).unwrap_or_default();
    }
    shown.push_str(rest);
    shown
}

/// The same in every name and every text of a JSON value.
pub fn mask_json(value: &mut Value, secret: &str, placeholder: &str) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => *text = masked(text, secret, placeholder),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_json(item, secret, placeholder)),
        Value::Object(fields) => {
            for (name, mut field) in std::mem::take(fields) {
                mask_json(&mut field, secret, placeholder);
                fields.insert(masked(&name, secret, placeholder), field);
            }
        }
    }
}
