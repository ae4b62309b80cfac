//! Makes text from models, tools and people safe for a terminal: it cannot move the cursor, and nothing is invisible.

use std::collections::BTreeSet;

use machine::visible::{self, Warning};
use serde_json::Value;

/// One line. Characters that are invisible, or that hide or reorder others, are written as escapes, as in JSON.
pub(in crate::cli) fn escaped(text: &str) -> String {
    visible::escaped(text)
}

/// One warning line for each reason why the shown text may not be what it looks like.
pub(super) fn warning_lines(shown: &[Value], margin: &str) -> String {
    let found: BTreeSet<Warning> = shown.iter().flat_map(visible::json_warnings).collect();
    let line = |warning: Warning| {
        let what = match warning {
            Warning::Invisible => "it has characters that cannot be seen; they are shown as \\uXXXX",
            Warning::MixedScripts => "a word mixes letters of two alphabets that can look alike",
            Warning::RightToLeft => "parts of it are shown from right to left, so the order can mislead",
        };
        format!("{margin}warning: {what}\n")
    };
    found.into_iter().map(line).collect()
}

/// Several lines, each after the first with a margin that the text cannot imitate.
pub(super) fn lines(text: &str, margin: &str) -> String {
    let lines: Vec<String> = text.lines().map(escaped).collect();
    lines.join(&format!("\n{margin}"))
}

/// JSON in one line. The escapes keep it the same JSON.
pub(super) fn compact(value: &Value) -> String {
    escaped(&value.to_string())
}

/// JSON over several lines.
pub(super) fn pretty(value: &Value, margin: &str) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    lines(&text, margin)
}

/// Truncates to `chars_max` characters and says how many there were.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(chars_max) else { return text.to_owned() };
    let count = text.chars().count();
    format!("{}… ({count} characters; --json shows all)", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_invisible_characters_are_escaped() {
        let nasty = "a\x1b[2J\x07b\u{9b}31m\u{7f}\u{202e}c\u{200b}\u{e0041}\r\nd\té😀";
        assert_eq!(
            escaped(nasty),
            "a\\u001b[2J\\u0007b\\u009b31m\\u007f\\u202ec\\u200b\\udb40\\udc41\\r\\nd\\té😀"
        );
        assert!(escaped(nasty).chars().all(visible::is_visible));
    }

    #[test]
    fn escaped_json_is_the_same_json() {
        let value = serde_json::json!({"a\u{9b}": "x\u{1b}[0m\u{202e}\u{e0001}\n\"é\""});
        let shown = compact(&value);
        assert!(shown.chars().all(visible::is_visible), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).expect("it is JSON"), value);
    }

    #[test]
    fn every_line_of_a_text_gets_the_margin() {
        assert_eq!(lines("one\r\ntwo\x1b\n\nthree", "| "), "one\n| two\\u001b\n| \n| three");
        assert_eq!(pretty(&serde_json::json!({"a": "b\nc"}), "  "), "{\n    \"a\": \"b\\nc\"\n  }");
    }

    #[test]
    fn a_text_that_may_mislead_is_preceded_by_a_warning() {
        let arguments = serde_json::json!({"to": "b\u{3164}ob"});
        assert_eq!(
            warning_lines(&[arguments, Value::from("p\u{430}y \u{5d0}")], "  "),
            "  warning: it has characters that cannot be seen; they are shown as \\uXXXX\n  \
             warning: a word mixes letters of two alphabets that can look alike\n  \
             warning: parts of it are shown from right to left, so the order can mislead\n"
        );
        assert_eq!(warning_lines(&[Value::from("Jürgen")], "  "), "");
    }

    #[test]
    fn a_truncated_text_shows_its_length() {
        assert_eq!(cut("éé", 2), "éé");
        assert_eq!(cut("ééé", 2), "éé… (3 characters; --json shows all)");
    }
}
