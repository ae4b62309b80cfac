//! Reads the log of a run as it is stored in the file.

use machine::projection_rows::ProjectionRows;
use rusqlite::Connection;

use crate::columns::to_u64;
use crate::doctor::{Commit, ExpectedRun, Fault, LogFold};

const COMMITS: &str = "SELECT row, tenant, first_seq, last_seq, checkpoint, body FROM commits WHERE run = ?1 \
                       ORDER BY last_seq";

/// `each` receives the rows that every commit writes beside the log, with the number of the commit.
pub(super) fn read(
    connection: &Connection,
    run: i64,
    tenant: &str,
    mut each: impl FnMut(i64, &ProjectionRows) -> Result<(), Fault>,
) -> Result<ExpectedRun, Fault> {
    let mut statement = connection.prepare_cached(COMMITS)?;
    let mut commits = statement.query([run])?;
    let mut log = LogFold::default();
    while let Some(columns) = commits.next()? {
        let text = |index| columns.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
        let commit = Commit {
            tenant: text(1)?,
            first_seq: to_u64(columns.get(2)?),
            last_seq: to_u64(columns.get(3)?),
            checkpoint: text(4)?,
            body: text(5)?,
        };
        let rows = log.fold_commit(tenant, &commit)?;
        each(columns.get(0)?, &rows)?;
    }
    log.finish()
}
