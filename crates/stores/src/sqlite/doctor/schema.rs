//! Checks that the tables have this version's schema, and that no row violates its constraints.
//!
//! SQLite ignores the `CHECK` constraints of a file opened read-only, even in its own integrity check. So this module
//! evaluates them as this version's tables define them.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use crate::doctor::{Fault, FindingCode, Findings};
use crate::sqlite::file::MIGRATIONS;

/// By kind and name. An index that SQLite creates for a table has no text.
type Definitions = BTreeMap<(String, String), Option<String>>;

pub(super) fn examine(connection: &Connection, findings: &mut Findings) -> Result<(), Fault> {
    let ours = Connection::open_in_memory()?;
    for migration in MIGRATIONS {
        ours.execute_batch(migration)?;
    }
    let expected = definitions(&ours)?;
    let found = definitions(connection)?;
    for (kind_and_name @ (kind, name), definition) in &expected {
        if found.get(kind_and_name) != Some(definition) {
            findings.add(
                FindingCode::FileDamaged,
                format!("{kind} {name}"),
                "it is not as this software makes it",
            );
        }
    }
    for (kind, name) in found.keys().filter(|key| !expected.contains_key(*key)) {
        findings.add(FindingCode::FileDamaged, format!("{kind} {name}"), "this software makes no such thing");
    }
    for ((kind, table), definition) in &expected {
        if let Some(definition) = definition
            && kind == "table"
        {
            constraints(connection, table, definition, findings)?;
        }
    }
    Ok(())
}

fn definitions(connection: &Connection) -> rusqlite::Result<Definitions> {
    let mut statement =
        connection.prepare("SELECT type, name, sql FROM sqlite_schema WHERE name <> 'sqlite_sequence'")?;
    let rows = statement.query_map(params![], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    rows.collect()
}

/// Checks all constraints in one pass over the table.
fn constraints(
    connection: &Connection,
    table: &str,
    definition: &str,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let checks = checks(definition);
    if checks.is_empty() {
        return Ok(());
    }
    let cases: String =
        checks.iter().enumerate().map(|(index, check)| format!("WHEN NOT ({check}) THEN {index} ")).collect();
    let all: Vec<String> = checks.iter().map(|check| format!("({check})")).collect();
    let sql = format!(
        "SELECT CASE {cases}END AS broken, count(*) FROM {table} WHERE NOT ({}) GROUP BY broken",
        all.join(" AND ")
    );
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (index, count): (u16, i64) = (row.get(0)?, row.get(1)?);
        let check = checks.get(usize::from(index)).copied().unwrap_or_default();
        let what =
            format!("{count} rows break CHECK ({})", check.split_whitespace().collect::<Vec<_>>().join(" "));
        findings.add(FindingCode::ConstraintBroken, format!("table {table}"), what);
    }
    Ok(())
}

/// The text between the parentheses of every `CHECK`. No string literal in it contains a parenthesis.
fn checks(definition: &str) -> Vec<&str> {
    let mut checks = Vec::new();
    for (_, rest) in
        definition.match_indices("CHECK (").map(|(place, found)| definition.split_at(place + found.len()))
    {
        let mut open = 1_u32;
        let end = rest.char_indices().find(|(_, character)| {
            match character {
                '(' => open += 1,
                ')' => open -= 1,
                _ => {}
            }
            open == 0
        });
        checks.extend(end.and_then(|(end, _)| rest.get(..end)));
    }
    checks
}
