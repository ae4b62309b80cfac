//! Texts of models, tools and people as a terminal may show them: nothing moves the cursor, nothing is invisible.

use std::fmt::Write;

use serde_json::Value;

/// One line. Control characters, and those that hide or reorder others, are written as their numbers, as in JSON.
pub(in crate::cli) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            c if is_hidden(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            }
            c => shown.push(c),
        }
    }
    shown
}

fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The same over several lines, each after the first behind a margin that no text can write.
pub(super) fn lines(text: &str, margin: &str) -> String {
    let lines: Vec<String> = text.lines().map(plain).collect();
    lines.join(&format!("\n{margin}"))
}

/// JSON in one line. What is written as a number here is the same JSON.
pub(super) fn compact(value: &Value) -> String {
    plain(&value.to_string())
}

/// JSON over several lines.
pub(super) fn pretty(value: &Value, margin: &str) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    lines(&text, margin)
}

/// No more than so many characters, and how many there were.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(chars_max) else { return text.to_owned() };
    let count = text.chars().count();
    format!("{}… ({count} characters; --json shows all)", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_the_cursor_or_hides_is_left() {
        let nasty = "a\x1b[2J\x07b\u{9b}31m\u{7f}\u{202e}c\u{200b}\u{e0041}\r\nd\té😀";
        assert_eq!(
            plain(nasty),
            "a\\u001b[2J\\u0007b\\u009b31m\\u007f\\u202ec\\u200b\\udb40\\udc41\\r\\nd\\té😀"
        );
        assert!(!plain(nasty).chars().any(is_hidden));
    }

    #[test]
    fn json_is_the_same_json_when_it_is_plain() {
        let value = serde_json::json!({"a\u{9b}": "x\u{1b}[0m\u{202e}\u{e0001}\n\"é\""});
        let shown = compact(&value);
        assert!(!shown.chars().any(is_hidden), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).expect("it is JSON"), value);
    }

    #[test]
    fn a_text_of_several_lines_stays_behind_its_margin() {
        assert_eq!(lines("one\r\ntwo\x1b\n\nthree", "| "), "one\n| two\\u001b\n| \n| three");
        assert_eq!(pretty(&serde_json::json!({"a": "b\nc"}), "  "), "{\n    \"a\": \"b\\nc\"\n  }");
    }

    #[test]
    fn what_is_too_long_says_how_long_it_is() {
        assert_eq!(cut("éé", 2), "éé");
        assert_eq!(cut("ééé", 2), "éé… (3 characters; --json shows all)");
    }
}
