//! The log of a run as it stands in the database, page by page.

use engine::store::EVENTS_BYTES_MAX;
use tokio_postgres::Row;

use crate::doctor::Commit;
use crate::postgres::look::Look;
use crate::postgres::trouble::Stop;
use crate::words::{number, unsigned};

/// Commits that are asked for at once, and not many more bytes than are read at once.
const COMMIT_COUNT_MAX: usize = 256;
const COMMITS: &str = "SELECT tenant, first_seq, last_seq, checkpoint, body FROM (
        SELECT *, sum(octet_length(body)) OVER (ORDER BY last_seq) - octet_length(body) AS bytes_before FROM (
            SELECT * FROM commits WHERE run = $1 AND last_seq > $2 ORDER BY last_seq LIMIT $3
        ) AS next
    ) AS counted
    WHERE bytes_before < $4 ORDER BY last_seq";

/// The next commits of a log.
pub(in crate::postgres) struct Page {
    pub(in crate::postgres) rows: Vec<Row>,
    pub(in crate::postgres) is_last: bool,
}

impl Page {
    pub(in crate::postgres) async fn read(look: &Look<'_>, run: i64, after: u64) -> Result<Self, Stop> {
        let (count, bytes) = (number(COMMIT_COUNT_MAX as u64), number(EVENTS_BYTES_MAX as u64));
        let rows = look.read(COMMITS, &[&run, &number(after), &count, &bytes]).await?;
        let mut sent = 0;
        for row in &rows {
            sent += row.try_get::<_, &str>(4)?.len();
        }
        let is_last = rows.len() < COMMIT_COUNT_MAX && sent < EVENTS_BYTES_MAX;
        Ok(Self { rows, is_last })
    }
}

/// A row of a page; its first column is whom it belongs to.
pub(in crate::postgres) fn commit_of<'r>(row: &'r Row, tenant: &'r str) -> Result<Commit<'r>, Stop> {
    Ok(Commit {
        tenant,
        first_seq: unsigned(row.try_get(1)?),
        last_seq: unsigned(row.try_get(2)?),
        checkpoint: row.try_get(3)?,
        body: row.try_get(4)?,
    })
}
