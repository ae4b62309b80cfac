//! Texts as PostgreSQL can keep them. It has no NUL in a text; names and notes of ours may have one.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

/// Stands for what follows it: a NUL, or itself.
const ESCAPE: char = '\u{1a}';

/// As it is stored. Almost every text is stored as it is.
pub(super) fn kept(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len() + 4);
    for letter in text.chars() {
        match letter {
            '\0' => kept.extend([ESCAPE, '0']),
            ESCAPE => kept.extend([ESCAPE, '1']),
            other => kept.push(other),
        }
    }
    Cow::Owned(kept)
}

/// As it was before it was stored.
pub(super) fn told(kept: String) -> String {
    if !kept.contains(ESCAPE) {
        return kept;
    }
    let mut told = String::with_capacity(kept.len());
    let mut letters = kept.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ESCAPE if letters.next() == Some('0') => told.push('\0'),
            other => told.push(other),
        }
    }
    told
}

/// A text on its way into a JSON parameter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Text<'t>(pub(super) &'t str);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&kept(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_none_has_a_nul() {
        for text in ["", "plain", "\0", "a\0b", "\u{1a}", "\u{1a}0", "\u{1a}\0", "\0\u{1a}1ü"] {
            let stored = kept(text);
            assert!(!stored.contains('\0'), "{text:?}");
            assert_eq!(told(stored.into_owned()), text);
        }
        assert_ne!(kept("\0"), kept("\u{1a}0"));
    }
}
