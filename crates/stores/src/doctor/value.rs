//! Columns as they must be, beside columns as they are.

use machine::Timestamp;

use crate::words::{millis, number};

/// Of a text that is shown.
const SHOWN_CHARS_MAX: usize = 80;
/// Of bytes that are shown.
const SHOWN_BYTES_MAX: usize = 8;

/// What stands in a column, whichever database has it. What is true or false is 1 or 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nothing,
    Whole(i64),
    Text(String),
    Bytes(Vec<u8>),
    /// Something that no column of ours holds, in words.
    Odd(String),
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.into())
}

pub(crate) fn maybe_text(found: Option<&str>) -> Value {
    found.map_or(Value::Nothing, text)
}

pub(crate) fn bytes(bytes: &[u8]) -> Value {
    Value::Bytes(bytes.into())
}

pub(crate) fn whole(count: u64) -> Value {
    Value::Whole(number(count))
}

pub(crate) fn time(at: Timestamp) -> Value {
    Value::Whole(millis(at))
}

pub(crate) fn maybe_time(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Nothing, time)
}

/// The columns that are not what they must be, in words.
pub(crate) fn differences(names: &[&str], found: &[Value], told: &[Value]) -> Option<String> {
    let wrong: Vec<String> = names
        .iter()
        .zip(found)
        .zip(told)
        .filter(|((_, found), told)| found != told)
        .map(|((name, found), told)| format!("{name} is {}, the log says {}", shown(found), shown(told)))
        .collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// As a person can read it.
fn shown(value: &Value) -> String {
    match value {
        Value::Nothing => "nothing".into(),
        Value::Whole(number) => number.to_string(),
        Value::Text(text) => {
            let mut short: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            if short.len() < text.len() {
                short.push('…');
            }
            format!("{short:?}")
        }
        Value::Bytes(bytes) => {
            let begin: String =
                bytes.iter().take(SHOWN_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect();
            format!("{} bytes {begin}…", bytes.len())
        }
        Value::Odd(words) => words.clone(),
    }
}
