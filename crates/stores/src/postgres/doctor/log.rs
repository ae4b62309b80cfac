//! Reads the stored log of a run, page by page.

use engine::store::EVENTS_BYTES_MAX;
use tokio_postgres::Row;

use crate::columns::{to_i64, to_u64};
use crate::doctor::Commit;
use crate::postgres::errors::PostgresError;
use crate::postgres::snapshot::Snapshot;

/// Commits requested at once; they have not many more bytes than are read at once.
const COMMIT_COUNT_MAX: usize = 256;
const COMMITS: &str = "SELECT tenant, first_seq, last_seq, checkpoint, body FROM (
        SELECT *, sum(octet_length(body)) OVER (ORDER BY last_seq) - octet_length(body) AS bytes_before FROM (
            SELECT * FROM commits WHERE run = $1 AND last_seq > $2 ORDER BY last_seq LIMIT $3
        ) AS next
    ) AS counted
    WHERE bytes_before < $4 ORDER BY last_seq";

/// The next commits of a log.
pub(in crate::postgres) struct CommitPage {
    pub(in crate::postgres) rows: Vec<Row>,
    pub(in crate::postgres) is_last: bool,
}

impl CommitPage {
    pub(in crate::postgres) async fn read(
        snapshot: &Snapshot<'_>,
        run: i64,
        after: u64,
    ) -> Result<Self, PostgresError> {
        let (count, bytes) = (to_i64(COMMIT_COUNT_MAX as u64), to_i64(EVENTS_BYTES_MAX as u64));
        let rows = snapshot.read(COMMITS, &[&run, &to_i64(after), &count, &bytes]).await?;
        let mut sent = 0;
        for row in &rows {
            sent += row.try_get::<_, &str>(4)?.len();
        }
        let is_last = rows.len() < COMMIT_COUNT_MAX && sent < EVENTS_BYTES_MAX;
        Ok(Self { rows, is_last })
    }
}

/// A row of a page; its first column is the tenant.
pub(in crate::postgres) fn parse_commit<'r>(
    row: &'r Row,
    tenant: &'r str,
) -> Result<Commit<'r>, PostgresError> {
    Ok(Commit {
        tenant,
        first_seq: to_u64(row.try_get(1)?),
        last_seq: to_u64(row.try_get(2)?),
        checkpoint: row.try_get(3)?,
        body: row.try_get(4)?,
    })
}
