//! Columns as PostgreSQL gives them.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::doctor::Value;
use crate::postgres::text::told;
use crate::postgres::trouble::Stop;

/// So many columns of a row, from this one on.
pub(super) fn columns(row: &Row, first: usize, count: usize) -> Result<Vec<Value>, Stop> {
    row.columns()
        .iter()
        .enumerate()
        .skip(first)
        .take(count)
        .map(|(index, column)| value(row, index, column.type_()))
        .collect()
}

fn value(row: &Row, index: usize, column: &Type) -> Result<Value, Stop> {
    let found = match *column {
        Type::INT8 => row.try_get::<_, Option<i64>>(index)?.map(Value::Whole),
        Type::BOOL => row.try_get::<_, Option<bool>>(index)?.map(|is| Value::Whole(i64::from(is))),
        Type::TEXT => row.try_get::<_, Option<String>>(index)?.map(|text| Value::Text(told(text))),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(index)?.map(Value::Bytes),
        _ => Some(Value::Odd(format!("of type {}", column.name()))),
    };
    Ok(found.unwrap_or(Value::Nothing))
}
