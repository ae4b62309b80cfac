//! Compares columns as they should be with columns as they are.

use machine::Timestamp;

use crate::columns::{millis, to_i64};

/// Characters shown of a text.
const DISPLAY_CHARS_MAX: usize = 80;
/// Bytes shown of a blob.
const DISPLAY_BYTES_MAX: usize = 8;

/// The value of a column, in any of the databases. Booleans are 1 or 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnValue {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
    /// A value of a type that none of our columns has, described in words.
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

/// Describes the columns that differ from their expected values.
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

/// The value in readable form.
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
