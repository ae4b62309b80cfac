//! Text from models, tools and callers in a form that is safe to show to an approver: invisible characters are escaped
//! as their code points, and text that may not be what it looks like is flagged.
//!
//! The terminal and the HTTP API both show what an approver agrees to, so the rule is implemented once, here.

mod script;
mod table;

use alloc::collections::BTreeSet;
use alloc::string::String;
use core::fmt::Write;

use serde_json::Value;

/// Why a text may not be what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warning {
    /// It has characters that are escaped because they are invisible.
    Invisible,
    /// A word has letters of two scripts, such as a Cyrillic `а` among Latin letters.
    MixedScripts,
    /// Parts of it are displayed from right to left, so the order on the screen is not the order of the text.
    RightToLeft,
}

impl Warning {
    pub const ALL: [Self; 3] = [Self::Invisible, Self::MixedScripts, Self::RightToLeft];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invisible => "invisible",
            Self::MixedScripts => "mixed_scripts",
            Self::RightToLeft => "right_to_left",
        }
    }
}

/// Whether a reader sees this character, and sees it as itself. Of all white space only U+0020 is visible.
#[must_use]
pub fn is_visible(c: char) -> bool {
    let borders = table::BORDERS.partition_point(|border| *border <= u32::from(c));
    borders % 2 == 1
}

/// The text in one line, with invisible characters escaped. Escaped JSON is still the same JSON.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            c if is_visible(c) => shown.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            }
        }
    }
    shown
}

/// Whether a reader may confuse the two names: they are equal, or differ only in case or punctuation.
#[must_use]
pub fn looks_like(one: &str, other: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = char> {
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase)
    }
    one == other || (letters(one).next().is_some() && letters(one).eq(letters(other)))
}

/// What to warn an approver about. Line ends and tabs cause no warning.
#[must_use]
pub fn warnings(text: &str) -> BTreeSet<Warning> {
    let mut found = BTreeSet::new();
    // The script of the word's last letter; none between words.
    let mut word = None;
    for c in text.chars() {
        if !is_visible(c) {
            if !matches!(c, '\n' | '\t' | '\r') {
                found.insert(Warning::Invisible);
                // A word that is split by an invisible character looks like one word.
                continue;
            }
            word = None;
            continue;
        }
        if script::is_right_to_left(c) {
            found.insert(Warning::RightToLeft);
        }
        if let Some(next) = script::letter_script(c) {
            if word.is_some_and(|last| !script::may_share_a_word(last, next)) {
                found.insert(Warning::MixedScripts);
            }
            word = Some(next);
        } else if !script::is_inside_a_word(c) {
            word = None;
        }
    }
    found
}

/// The warnings for every key and every text in a JSON value.
#[must_use]
pub fn json_warnings(value: &Value) -> BTreeSet<Warning> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => BTreeSet::new(),
        Value::String(text) => warnings(text),
        Value::Array(items) => items.iter().flat_map(json_warnings).collect(),
        Value::Object(fields) => {
            let found = fields.iter().flat_map(|(name, value)| [warnings(name), json_warnings(value)]);
            found.flatten().collect()
        }
    }
}
