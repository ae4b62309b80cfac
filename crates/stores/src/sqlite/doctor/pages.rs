//! SQLite's own checks of pages and references.

use rusqlite::Connection;

use crate::doctor::{Fault, FindingCode, Findings};

/// Further complaints add no information.
const COMPLAINT_COUNT_MAX: usize = 100;

/// Checks pages, indexes, and the types of columns.
pub(super) fn integrity(connection: &Connection, findings: &mut Findings) -> Result<(), Fault> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({COMPLAINT_COUNT_MAX})"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let said: String = row.get(0)?;
        if said != "ok" {
            findings.add(FindingCode::FileDamaged, "the file", said);
        }
    }
    Ok(())
}

/// Checks every foreign key.
pub(super) fn references(connection: &Connection, findings: &mut Findings) -> Result<(), Fault> {
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let (table, number, to): (String, Option<i64>, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let number = number.map_or_else(String::new, |number| format!(", row {number}"));
        findings.add(
            FindingCode::Orphan,
            format!("{table}{number}"),
            format!("it belongs to no row of {to}"),
        );
        count += 1;
        if count == COMPLAINT_COUNT_MAX {
            break;
        }
    }
    Ok(())
}

/// How often the file was opened.
pub(super) fn openings(connection: &Connection) -> Result<u64, Fault> {
    let count: i64 =
        connection.query_row("SELECT count FROM openings WHERE only = 1", [], |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or(0))
}
