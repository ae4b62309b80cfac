//! Columns as they must be, beside columns as they are.

use machine::Timestamp;

use crate::columns::{millis, to_i64};

/// Of a text that is shown.
const DISPLAY_CHARS_MAX: usize = 80;
/// Of bytes that are shown.
const DISPLAY_BYTES_MAX: usize = 8;

/// What stands in a column, whichever database has it. What is true or false is 1 or 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnValue {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
    /// Something that no column of ours holds, in words.
    Other(String),
}

pub(crate) fn text(text: &str) -> ColumnValue {
    ColumnValue::Text(text.into())
}

pub(crate) fn maybe_text(found: Option<&str>) -> ColumnValue {
    found.map_or(ColumnValue::Null, text)
}

pub(crate) fn bytes(bytes: &[u8]) -> ColumnValue {
    ColumnValue::Bytes(bytes.into())
}

pub(crate) fn integer(count: u64) -> ColumnValue {
    ColumnValue::Integer(to_i64(count))
}

pub(crate) fn time(at: Timestamp) -> ColumnValue {
    ColumnValue::Integer(millis(at))
}

pub(crate) fn maybe_time(at: Option<Timestamp>) -> ColumnValue {
    at.map_or(ColumnValue::Null, time)
}

/// The columns that are not what they must be, in words.
pub(crate) fn differences(names: &[&str], found: &[ColumnValue], expected: &[ColumnValue]) -> Option<String> {
    let wrong: Vec<String> = names
        .iter()
        .zip(found)
        .zip(expected)
        .filter(|((_, found), expected)| found != expected)
        .map(|((name, found), expected)| {
            format!("{name} is {}, the log says {}", display(found), display(expected))
        })
        .collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// As a person can read it.
fn display(value: &ColumnValue) -> String {
    match value {
        ColumnValue::Null => "nothing".into(),
        ColumnValue::Integer(number) => number.to_string(),
        ColumnValue::Text(text) => {
            let mut short: String = text.chars().take(DISPLAY_CHARS_MAX).collect();
            if short.len() < text.len() {
                short.push('…');
            }
            format!("{short:?}")
        }
        ColumnValue::Bytes(bytes) => {
            let begin: String =
                bytes.iter().take(DISPLAY_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect();
            format!("{} bytes {begin}…", bytes.len())
        }
        ColumnValue::Other(words) => words.clone(),
    }
}
