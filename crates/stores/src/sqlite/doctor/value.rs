//! Column values as SQLite returns them.

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

/// Describes the columns of a row, from `first` on, that differ from the expected values.
pub(super) fn row_differences(
    row: &Row<'_>,
    first: usize,
    names: &[&str],
    expected: &[ColumnValue],
) -> rusqlite::Result<Option<String>> {
    let found = (first..first + names.len()).map(|index| row.get(index).map(value));
    Ok(differences(names, &found.collect::<rusqlite::Result<Vec<_>>>()?, expected))
}
