//! Whether something is as a page shows it. `…` stands for anything, within a text and for the rest of an object or list.

use serde_json::Value;

const ANYTHING: &str = "…";

/// Blanks at the end of a line count for nothing, nor do empty lines around.
pub(crate) fn text_fits(shown: &str, said: &str) -> bool {
    let plain = |text: &str| {
        let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
        lines.join("\n")
    };
    piece_fits(&plain(shown), &plain(said))
}

/// Piece by piece, each as early as it can be.
fn piece_fits(shown: &str, said: &str) -> bool {
    let Some((first, rest)) = shown.split_once(ANYTHING) else { return shown == said };
    let Some(mut said) = said.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split(ANYTHING).collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match said.find(piece) {
            Some(at) => said = &said[at + piece.len()..],
            None => return false,
        }
    }
    said.ends_with(last)
}

/// One value of JSON in each line, or one over all lines.
pub(crate) fn json_fits(shown: &str, said: &str) -> bool {
    let values = |text: &str| -> Option<Vec<Value>> {
        serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()
    };
    match (values(shown), values(said)) {
        (Some(shown), Some(said)) => {
            shown.len() == said.len() && shown.iter().zip(&said).all(|(shown, said)| value_fits(shown, said))
        }
        (Some(_) | None, _) => false,
    }
}

fn value_fits(shown: &Value, said: &Value) -> bool {
    match (shown, said) {
        (Value::String(shown), _) if shown == ANYTHING => true,
        (Value::String(shown), Value::String(said)) => piece_fits(shown, said),
        (Value::Object(shown), Value::Object(said)) => {
            let more = shown.contains_key(ANYTHING);
            let named = shown.iter().filter(|(key, _)| *key != ANYTHING);
            (more || shown.len() == said.len())
                && named.clone().all(|(key, value)| said.get(key).is_some_and(|said| value_fits(value, said)))
        }
        (Value::Array(shown), Value::Array(said)) => match shown.split_last() {
            Some((Value::String(last), before)) if last == ANYTHING => {
                before.len() <= said.len()
                    && before.iter().zip(said).all(|(shown, said)| value_fits(shown, said))
            }
            _ => {
                shown.len() == said.len()
                    && shown.iter().zip(said).all(|(shown, said)| value_fits(shown, said))
            }
        },
        (shown, said) => shown == said,
    }
}

#[test]
fn what_differs_does_not_fit() {
    assert!(text_fits("run_… is done\n", "run_7 is done  \n\n"));
    assert!(text_fits("a\n…\nd", "a\nb\nc\nd"));
    for (shown, said) in [("a", "b"), ("a…c", "ab"), ("…a…a", "a"), ("a", "a b"), ("run_…", "ran_7")]
    {
        assert!(!text_fits(shown, said), "{shown:?} {said:?}");
    }
    assert!(json_fits(r#"{"id": "run_…", "…": "…"}"#, r#"{"id":"run_7","more":[1]}"#));
    assert!(json_fits(r#"[{"a": 1}, "…"]"#, r#"[{"a":1},2,3]"#));
    for (shown, said) in [
        (r#"{"id": "run_…"}"#, r#"{"id":"run_7","more":1}"#),
        (r#"{"id": 1, "…": "…"}"#, r#"{"more":1}"#),
        ("[1]", "[1,2]"),
        ("[1, 2, \"…\"]", "[1]"),
        ("{}", "no JSON"),
    ] {
        assert!(!json_fits(shown, said), "{shown:?} {said:?}");
    }
}
