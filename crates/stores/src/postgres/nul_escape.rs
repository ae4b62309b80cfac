//! Escapes texts for PostgreSQL, which cannot store a NUL in a text; our names and notes may contain one.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

/// Introduces an escape sequence for a NUL or for itself.
const ESCAPE: char = '\u{1a}';

/// The stored form. Almost every text is stored unchanged.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 4);
    for letter in text.chars() {
        match letter {
            '\0' => escaped.extend([ESCAPE, '0']),
            ESCAPE => escaped.extend([ESCAPE, '1']),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// The original text of a stored one.
pub(super) fn unescape(escaped: String) -> String {
    if !escaped.contains(ESCAPE) {
        return escaped;
    }
    let mut unescaped = String::with_capacity(escaped.len());
    let mut letters = escaped.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ESCAPE if letters.next() == Some('0') => unescaped.push('\0'),
            other => unescaped.push(other),
        }
    }
    unescaped
}

/// A text to be escaped within a JSON parameter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EscapedText<'t>(pub(super) &'t str);

impl Serialize for EscapedText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_none_has_a_nul() {
        for text in ["", "plain", "\0", "a\0b", "\u{1a}", "\u{1a}0", "\u{1a}\0", "\0\u{1a}1ü"] {
            let stored = escape(text);
            assert!(!stored.contains('\0'), "{text:?}");
            assert_eq!(unescape(stored.into_owned()), text);
        }
        assert_ne!(escape("\0"), escape("\u{1a}0"));
    }
}
