//! Masks secrets that a provider or a tool echoes, before the text is stored or shown.

use serde_json::Value;

/// A word that begins with this many bytes of the secret is treated as a part of it.
const RECOGNISED_BYTES: usize = 8;

/// The text of an error without the secret, and without words that begin like the secret: services echo secrets whole
/// or in part.
#[must_use]
pub fn masked(text: &str, secret: &str, placeholder: &str) -> String {
    without(text, secret, placeholder, RECOGNISED_BYTES)
}

/// The same for a tool's answer. Here a part must be at least half of the secret: tokens of one kind begin alike, and
/// an answer about other tokens of that kind must stay unchanged.
#[must_use]
pub fn masked_answer(text: &str, secret: &str, placeholder: &str) -> String {
    without(text, secret, placeholder, RECOGNISED_BYTES.max(secret.len() / 2))
}

/// Applies [`masked_answer`] to every name and every text of a JSON value.
pub fn mask_json(value: &mut Value, secret: &str, placeholder: &str) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => *text = masked_answer(text, secret, placeholder),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_json(item, secret, placeholder)),
        Value::Object(fields) => {
            for (name, mut field) in std::mem::take(fields) {
                mask_json(&mut field, secret, placeholder);
                fields.insert(masked_answer(&name, secret, placeholder), field);
            }
        }
    }
}

fn without(text: &str, secret: &str, placeholder: &str, recognised: usize) -> String {
    let whole = text.replace(secret, placeholder);
    let Some(begin) = secret.get(..recognised) else { return whole };
    let mut shown = String::with_capacity(whole.len());
    let mut rest = whole.as_str();
    while let Some(at) = rest.find(begin) {
        let (before, word) = rest.split_at(at);
        // A secret may itself begin with a character that ends words.
        let (_, after) = word.split_at(begin.len());
        let end =
            after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',')).unwrap_or(after.len());
        shown.push_str(before);
        shown.push_str(placeholder);
        rest = after.get(end..).unwrap_or_default();
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{mask_json, masked};

    const TOKEN: &str = "github_pat_0123456789abcdef";

    #[test]
    fn an_answer_keeps_words_that_only_begin_like_the_token() {
        let mut answer = json!({"github_pages": ["github_pat_99", TOKEN, "Bearer github_pat_01234567…"]});
        mask_json(&mut answer, TOKEN, "[token]");
        assert_eq!(answer, json!({"github_pages": ["github_pat_99", "[token]", "Bearer [token]"]}));
    }

    #[test]
    fn a_secret_that_begins_with_the_end_of_a_word_is_masked_once() {
        for secret in ["\"abcdefghij\"", "'abcdefghij'", ",abcdefghij", " abcdefghij"] {
            let part = &secret[..9];
            assert_eq!(masked(&format!("x{part}*** y"), secret, "[token]"), "x[token] y");
        }
    }
}
