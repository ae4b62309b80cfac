//! Column values as PostgreSQL returns them.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::doctor::ColumnValue;
use crate::postgres::errors::PostgresError;
use crate::postgres::nul_escape::unescape;

/// `count` columns of a row, from the column `first` on.
pub(super) fn columns(row: &Row, first: usize, count: usize) -> Result<Vec<ColumnValue>, PostgresError> {
    row.columns()
        .iter()
        .enumerate()
        .skip(first)
        .take(count)
        .map(|(index, column)| value(row, index, column.type_()))
        .collect()
}

fn value(row: &Row, index: usize, column: &Type) -> Result<ColumnValue, PostgresError> {
    let found = match *column {
        Type::INT8 => row.try_get::<_, Option<i64>>(index)?.map(ColumnValue::Integer),
        Type::BOOL => row.try_get::<_, Option<bool>>(index)?.map(|is| ColumnValue::Integer(i64::from(is))),
        Type::TEXT => row.try_get::<_, Option<String>>(index)?.map(|text| ColumnValue::Text(unescape(text))),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(index)?.map(ColumnValue::Bytes),
        _ => Some(ColumnValue::Other(format!("of type {}", column.name()))),
    };
    Ok(found.unwrap_or(ColumnValue::Null))
}
