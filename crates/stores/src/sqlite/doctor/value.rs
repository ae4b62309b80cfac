//! Columns as SQLite gives them.

use rusqlite::Row;
use rusqlite::types::Value as Stored;

use crate::doctor::{Value, differences};

fn value(stored: Stored) -> Value {
    match stored {
        Stored::Null => Value::Nothing,
        Stored::Integer(number) => Value::Whole(number),
        Stored::Real(number) => Value::Odd(number.to_string()),
        Stored::Text(text) => Value::Text(text),
        Stored::Blob(bytes) => Value::Bytes(bytes),
    }
}

/// The columns of a row that are not what they must be, from this column on, in words.
pub(super) fn differing(
    row: &Row<'_>,
    first: usize,
    names: &[&str],
    told: &[Value],
) -> rusqlite::Result<Option<String>> {
    let found = (first..first + names.len()).map(|index| row.get(index).map(value));
    Ok(differences(names, &found.collect::<rusqlite::Result<Vec<_>>>()?, told))
}
