//! Columns as SQLite gives them.

use rusqlite::Row;
use rusqlite::types::Value as Stored;

use crate::doctor::{ColumnValue, differences};

fn value(stored: Stored) -> ColumnValue {
    match stored {
        Stored::Null => ColumnValue::Null,
        Stored::Integer(number) => ColumnValue::Integer(number),
        Stored::Real(number) => ColumnValue::Other(number.to_string()),
        Stored::Text(text) => ColumnValue::Text(text),
        Stored::Blob(bytes) => ColumnValue::Bytes(bytes),
    }
}

/// The columns of a row that are not what they must be, from this column on, in words.
pub(super) fn row_differences(
    row: &Row<'_>,
    first: usize,
    names: &[&str],
    expected: &[ColumnValue],
) -> rusqlite::Result<Option<String>> {
    let found = (first..first + names.len()).map(|index| row.get(index).map(value));
    Ok(differences(names, &found.collect::<rusqlite::Result<Vec<_>>>()?, expected))
}
