//! Columns as they must be, beside columns as they are.

use machine::Timestamp;
use rusqlite::Row;
use rusqlite::types::Value;

use super::finding::shown;
use crate::sqlite::words::{millis, number};

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.into())
}

pub(super) fn maybe_text(found: Option<&str>) -> Value {
    found.map_or(Value::Null, text)
}

pub(super) fn blob(bytes: &[u8]) -> Value {
    Value::Blob(bytes.into())
}

pub(super) fn whole(count: u64) -> Value {
    Value::Integer(number(count))
}

pub(super) fn time(at: Timestamp) -> Value {
    Value::Integer(millis(at))
}

pub(super) fn maybe_time(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, time)
}

/// The columns of a row that are not what they must be, from this column on, in words.
pub(super) fn differences(
    row: &Row<'_>,
    first: usize,
    names: &[&str],
    told: &[Value],
) -> rusqlite::Result<Option<String>> {
    let mut wrong = Vec::new();
    for ((index, name), told) in names.iter().enumerate().zip(told) {
        let found: Value = row.get(first + index)?;
        if found != *told {
            wrong.push(format!("{name} is {}, the log says {}", shown(&found), shown(told)));
        }
    }
    Ok((!wrong.is_empty()).then(|| wrong.join("; ")))
}
