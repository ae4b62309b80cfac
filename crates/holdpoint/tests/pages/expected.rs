//! Compares output with what a page shows. `…` matches anything within a text, and the rest of an object or list.

use serde_json::Value;

const ANYTHING: &str = "…";

/// Ignores blanks at the end of a line, and empty lines before and after.
pub(crate) fn text_fits(expected: &str, actual: &str) -> bool {
    let plain = |text: &str| {
        let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
        lines.join("\n")
    };
    piece_fits(&plain(expected), &plain(actual))
}

/// Matches the pieces between `…` in order, each at its first possible position.
fn piece_fits(expected: &str, actual: &str) -> bool {
    let Some((first, rest)) = expected.split_once(ANYTHING) else { return expected == actual };
    let Some(mut actual) = actual.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split(ANYTHING).collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match actual.find(piece) {
            Some(at) => actual = &actual[at + piece.len()..],
            None => return false,
        }
    }
    actual.ends_with(last)
}

/// One JSON value per line, or one over all lines.
pub(crate) fn json_fits(expected: &str, actual: &str) -> bool {
    let values = |text: &str| -> Option<Vec<Value>> {
        serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()
    };
    match (values(expected), values(actual)) {
        (Some(expected), Some(actual)) => {
            expected.len() == actual.len()
                && expected.iter().zip(&actual).all(|(expected, actual)| value_fits(expected, actual))
        }
        (Some(_) | None, _) => false,
    }
}

fn value_fits(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::String(expected), _) if expected == ANYTHING => true,
        (Value::String(expected), Value::String(actual)) => piece_fits(expected, actual),
        (Value::Object(expected), Value::Object(actual)) => {
            let more = expected.contains_key(ANYTHING);
            let named = expected.iter().filter(|(key, _)| *key != ANYTHING);
            (more || expected.len() == actual.len())
                && named
                    .clone()
                    .all(|(key, value)| actual.get(key).is_some_and(|actual| value_fits(value, actual)))
        }
        (Value::Array(expected), Value::Array(actual)) => match expected.split_last() {
            Some((Value::String(last), before)) if last == ANYTHING => {
                before.len() <= actual.len()
                    && before.iter().zip(actual).all(|(expected, actual)| value_fits(expected, actual))
            }
            _ => {
                expected.len() == actual.len()
                    && expected.iter().zip(actual).all(|(expected, actual)| value_fits(expected, actual))
            }
        },
        (expected, actual) => expected == actual,
    }
}

#[test]
fn what_differs_does_not_fit() {
    assert!(text_fits("run_… is done\n", "run_7 is done  \n\n"));
    assert!(text_fits("a\n…\nd", "a\nb\nc\nd"));
    for (expected, actual) in [("a", "b"), ("a…c", "ab"), ("…a…a", "a"), ("a", "a b"), ("run_…", "ran_7")]
    {
        assert!(!text_fits(expected, actual), "{expected:?} {actual:?}");
    }
    assert!(json_fits(r#"{"id": "run_…", "…": "…"}"#, r#"{"id":"run_7","more":[1]}"#));
    assert!(json_fits(r#"[{"a": 1}, "…"]"#, r#"[{"a":1},2,3]"#));
    for (expected, actual) in [
        (r#"{"id": "run_…"}"#, r#"{"id":"run_7","more":1}"#),
        (r#"{"id": 1, "…": "…"}"#, r#"{"more":1}"#),
        ("[1]", "[1,2]"),
        ("[1, 2, \"…\"]", "[1]"),
        ("{}", "no JSON"),
    ] {
        assert!(!json_fits(expected, actual), "{expected:?} {actual:?}");
    }
}
