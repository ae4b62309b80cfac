//! Rows whose owner does not exist.
//!
//! The tables that commits write to have no foreign keys, so only this check finds rows whose run or thread is gone.

use crate::doctor::{ExamineError, FindingCode, Findings};
use crate::postgres::connection::Connections;

/// Owners checked in one statement, and so in one snapshot.
const OWNER_COUNT_MAX: i32 = 1_024;

/// A table, the column that names the owner of its rows, and the owner's table.
type Owned = (&'static str, &'static str, &'static str);

/// Every table whose rows have an owner. Each has an index that begins with the column.
pub(super) const OWNED: [Owned; 12] = [
    ("runs", "thread", "threads"),
    ("messages", "thread", "threads"),
    ("call_ids", "thread", "threads"),
    ("grants", "thread", "threads"),
    ("plugin_state", "thread", "threads"),
    ("post_keys", "thread", "threads"),
    ("brought", "thread", "threads"),
    ("commits", "run", "runs"),
    ("inbox", "run", "runs"),
    ("suspensions", "run", "runs"),
    ("decisions", "run", "runs"),
    ("remembered", "run", "runs"),
];

/// Reports the rows of one table whose owner does not exist.
pub(super) async fn references(
    connections: &Connections,
    (table, column, of): Owned,
    findings: &mut Findings,
) -> Result<(), ExamineError> {
    // Jumps from owner to owner, without reading every row.
    let sql = format!(
        "WITH RECURSIVE owners AS (
            (SELECT {column} AS owner, 1 AS place FROM {table} WHERE {column} > $1 ORDER BY {column} LIMIT 1)
            UNION ALL
            SELECT (SELECT t.{column} FROM {table} t WHERE t.{column} > o.owner ORDER BY t.{column} LIMIT 1), o.place + 1
            FROM owners o WHERE o.owner IS NOT NULL AND o.place < $2
        )
        SELECT o.owner, (SELECT true FROM {of} w WHERE w.{column} = o.owner LIMIT 1) IS NOT NULL
        FROM owners o WHERE o.owner IS NOT NULL ORDER BY o.owner"
    );
    let mut after = i64::MIN;
    loop {
        let rows = connections.read(&sql, &[&after, &OWNER_COUNT_MAX]).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        let last: i64 = last.try_get(0)?;
        for row in &rows {
            if !row.try_get::<_, bool>(1)? {
                let owner: i64 = row.try_get(0)?;
                findings.add(
                    FindingCode::Orphan,
                    format!("{table} of {column} {owner}"),
                    format!("they belong to no row of {of}"),
                );
            }
        }
        // A damaged index could return the same owners again and again.
        if last <= after {
            return Ok(());
        }
        after = last;
    }
}
