//! Reads rows from a snapshot of the file.

use std::collections::BTreeMap;

use engine::store::EVENTS_BYTES_MAX;
use machine::id::Digest;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::columns::{timestamp, to_i64, to_u64};
use crate::doctor::{
    AgentRow, ColumnValue, Commit, CommitPage, CountedTable, DecisionRow, ExamineError, Fault, FindingCode,
    INBOX_COLUMNS, InboxRow, MESSAGE_COLUMNS, PostKeyRow, RUN_COLUMNS, RunRow, SUSPENSION_COLUMNS,
    SnapshotRows, StateRow, StoredGrant, StoredHead, StoredResponseRow, SuspensionRow, ThreadRow,
};
use crate::sqlite::chain::{blob, chain_columns};
use crate::sqlite::grants;
use crate::sqlite::keys::{seal_of_answer, seal_of_key};

/// Runs of a thread read at once, each with its control.
const RUN_COUNT_MAX: i64 = 16;
/// The columns that follow from the log come first, in the order of [`RUN_COLUMNS`]. Ordered by age, which has an index.
const RUNS: &str = "SELECT r.id, r.agent, r.status, r.seq, r.in_doubt, r.wake_at, r.created_at, r.started_at, \
        r.ended_at, r.promised, r.tenant, r.parent_call, \
        r.row, r.parent, p.tenant, p.id, r.holds, r.epoch, r.interrupt_accepted, r.ready = 1, r.control, r.chain_from, r.chain_head \
    FROM runs r LEFT JOIN runs p ON p.row = r.parent \
    WHERE r.thread = ?1 AND (r.created_at, r.id) > (?2, ?3) ORDER BY r.created_at, r.id LIMIT ?4";
const COMMITS: &str = "SELECT tenant, first_seq, last_seq, checkpoint, body, hash FROM commits \
    WHERE run = ?1 AND last_seq > ?2 ORDER BY last_seq";
/// A thread's commits are in the file in the order in which they were written.
const OUT_OF_ORDER: &str = "SELECT count(*) FROM ( \
        SELECT m.place, row_number() OVER (ORDER BY ( \
            SELECT c.row FROM commits c WHERE c.run = m.run AND c.last_seq >= m.seq ORDER BY c.last_seq LIMIT 1 \
        ), m.seq) AS due FROM messages m WHERE m.thread = ?1 \
    ) WHERE place <> due";
const RUN_ORDER: &str = "SELECT r.row, max(c.row) FROM runs r JOIN commits c ON c.run = r.row \
    WHERE r.thread = ?1 GROUP BY r.row";
/// Decisions read at once.
const DECISION_COUNT_MAX: i64 = 64;
const DECISIONS: &str =
    "SELECT tenant, id, decision FROM decisions WHERE run = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
const HAS_REVISION: &str = "SELECT EXISTS (SELECT 1 FROM brought WHERE thread = ?1 AND digest = ?2) \
    OR EXISTS (SELECT 1 FROM revisions WHERE digest = ?2)";
const GRANTS: &str =
    "SELECT id, given_by, tool, agent, definition, reasons, since, tenant FROM grants WHERE thread = ?1";
/// Frozen agents read at once, each with its text.
const AGENT_COUNT_MAX: i64 = 16;
const INLINE_AGENTS: &str =
    "SELECT digest, text, tenant FROM brought WHERE thread = ?1 AND digest > ?2 ORDER BY digest LIMIT ?3";
const KEYS: &str = "SELECT k.scope, k.tenant = ?2, r.thread, k.run, k.body, k.seal \
    FROM post_keys k LEFT JOIN runs r ON r.row = k.run WHERE k.thread = ?1";
const RESPONSES: &str = "SELECT a.scope, a.tenant = ?2, r.id, a.body, a.status, a.seal, a.answer \
    FROM runs r JOIN remembered a ON a.run = r.row WHERE r.thread = ?1";

/// The rows that an open transaction of the connection sees.
pub(super) struct SqliteRows<'c> {
    pub(super) connection: &'c Connection,
    /// How often the file was opened.
    pub(super) openings: u64,
}

impl SqliteRows<'_> {
    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        parse: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ExamineError> {
        all(self.connection, sql, params, parse)
    }

    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        parse: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, ExamineError> {
        Ok(self.connection.prepare_cached(sql)?.query_row(params, parse)?)
    }
}

impl SnapshotRows for SqliteRows<'_> {
    fn openings(&self) -> Option<u64> {
        Some(self.openings)
    }

    async fn last_unchained_run(&self) -> Result<Option<i64>, ExamineError> {
        let sql = "SELECT last_run FROM chain_introduction WHERE only = 1";
        Ok(self.all(sql, [], |row| row.get(0))?.pop())
    }

    async fn threads(&self, after: i64, count_max: u32) -> Result<Vec<i64>, ExamineError> {
        let sql = "SELECT row FROM threads WHERE row > ?1 ORDER BY row LIMIT ?2";
        self.all(sql, params![after, count_max], |row| row.get(0))
    }

    async fn thread(&self, thread: i64) -> Result<ThreadRow, ExamineError> {
        let sql = "SELECT tenant, id, metadata, head FROM threads WHERE row = ?1";
        self.one(sql, [thread], |row| {
            Ok(ThreadRow {
                tenant: row.get(0)?,
                id: row.get(1)?,
                metadata: row.get(2)?,
                head: Some(StoredHead(row.get(3)?)),
            })
        })
    }

    async fn runs(&self, thread: i64, after: &(i64, String)) -> Result<Vec<RunRow>, ExamineError> {
        self.all(RUNS, params![thread, after.0, after.1, RUN_COUNT_MAX], |row| {
            let (parent_tenant, parent_id): (Option<String>, Option<String>) = (row.get(14)?, row.get(15)?);
            Ok(RunRow {
                row: row.get(12)?,
                id: row.get(0)?,
                created_at: row.get(6)?,
                derived: columns(row, RUN_COLUMNS.len())?,
                ended: row.get::<_, Option<i64>>(8)?.is_some(),
                holds: row.get(16)?,
                parent: row.get(13)?,
                parent_found: parent_tenant.zip(parent_id),
                epoch: to_u64(row.get(17)?),
                interrupt_accepted: row.get(18)?,
                inbox_is_noticed: row.get(19)?,
                control: row.get(20)?,
                seq: to_u64(row.get(3)?),
                chain: chain_columns(row, 21)?,
            })
        })
    }

    async fn commits(&self, run: i64, after: u64) -> Result<CommitPage, ExamineError> {
        let mut statement = self.connection.prepare_cached(COMMITS)?;
        let mut rows = statement.query(params![run, to_i64(after)])?;
        let (mut commits, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let body: String = row.get(4)?;
            bytes += body.len();
            commits.push(Commit {
                tenant: row.get(0)?,
                first_seq: to_u64(row.get(1)?),
                last_seq: to_u64(row.get(2)?),
                checkpoint: row.get(3)?,
                body,
                hash: blob(row, 5)?,
            });
            if bytes >= EVENTS_BYTES_MAX {
                return Ok(CommitPage { commits, is_last: false });
            }
        }
        Ok(CommitPage { commits, is_last: true })
    }

    async fn messages(
        &self,
        thread: i64,
        ids: &[&str],
    ) -> Result<Vec<Option<Vec<ColumnValue>>>, ExamineError> {
        let sql = "SELECT tenant, run, seq, role FROM messages WHERE thread = ?1 AND id = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut find = |id: &&str| {
            let found = statement.query_row(params![thread, id], |row| columns(row, MESSAGE_COLUMNS.len()));
            found.optional()
        };
        Ok(ids.iter().map(&mut find).collect::<rusqlite::Result<_>>()?)
    }

    async fn call_tenants(&self, thread: i64, ids: &[&str]) -> Result<Vec<Option<String>>, ExamineError> {
        let sql = "SELECT tenant FROM call_ids WHERE thread = ?1 AND id = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut find = |id: &&str| statement.query_row(params![thread, id], |row| row.get(0)).optional();
        Ok(ids.iter().map(&mut find).collect::<rusqlite::Result<_>>()?)
    }

    async fn row_count(&self, table: CountedTable, thread: i64) -> Result<u64, ExamineError> {
        let sql = format!("SELECT count(*) FROM {} WHERE thread = ?1", table.as_str());
        self.one(&sql, [thread], |row| row.get(0).map(to_u64))
    }

    async fn messages_out_of_order(&self, thread: i64) -> Result<u64, ExamineError> {
        self.one(OUT_OF_ORDER, [thread], |row| row.get(0).map(to_u64))
    }

    /// The position of each run's last commit in the file.
    async fn run_order(&self, thread: i64) -> Result<BTreeMap<i64, i64>, ExamineError> {
        Ok(self.all(RUN_ORDER, [thread], |row| Ok((row.get(0)?, row.get(1)?)))?.into_iter().collect())
    }

    async fn inbox(&self, run: i64) -> Result<Vec<InboxRow>, ExamineError> {
        let sql =
            "SELECT tenant, kind, call, arguments, ticket, item FROM inbox WHERE run = ?1 ORDER BY ticket";
        self.all(sql, [run], |row| {
            let columns = columns(row, INBOX_COLUMNS.len())?;
            Ok(InboxRow { ticket: row.get(4)?, item: row.get(5)?, columns })
        })
    }

    async fn suspensions(&self, run: i64) -> Result<Vec<SuspensionRow>, ExamineError> {
        let names = SUSPENSION_COLUMNS.join(", ");
        let sql = format!("SELECT {names}, id, answered_by FROM suspensions WHERE run = ?1");
        self.all(&sql, [run], |row| {
            let columns = columns(row, SUSPENSION_COLUMNS.len())?;
            Ok(SuspensionRow { id: row.get(13)?, answered_by: row.get(14)?, columns })
        })
    }

    async fn decisions(&self, run: i64, after: &str) -> Result<Vec<DecisionRow>, ExamineError> {
        self.all(DECISIONS, params![run, after, DECISION_COUNT_MAX], |row| {
            Ok(DecisionRow { tenant: row.get(0)?, id: row.get(1)?, decision: row.get(2)? })
        })
    }

    async fn is_under_way(&self, tenant: &str, run: &str) -> Result<Option<bool>, ExamineError> {
        let sql = "SELECT ended_at IS NULL FROM runs WHERE tenant = ?1 AND id = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.query_row([tenant, run], |row| row.get(0)).optional()?)
    }

    async fn has_revision(&self, thread: i64, digest: &Digest) -> Result<bool, ExamineError> {
        self.one(HAS_REVISION, params![thread, digest.0], |row| row.get(0))
    }

    async fn grants(&self, thread: i64) -> Result<Vec<StoredGrant>, ExamineError> {
        self.all(GRANTS, [thread], |row| {
            let (since, columns) = (timestamp(row.get(6)?), grants::columns(row)?);
            Ok(StoredGrant { tenant: row.get(7)?, since, columns })
        })
    }

    async fn plugin_state(&self, thread: i64) -> Result<Vec<StateRow>, ExamineError> {
        let sql = "SELECT run, plugin, key, tenant, value FROM plugin_state WHERE thread = ?1";
        self.all(sql, [thread], |row| {
            Ok(StateRow {
                run: row.get(0)?,
                plugin: row.get(1)?,
                key: row.get(2)?,
                tenant: row.get(3)?,
                value: row.get(4)?,
            })
        })
    }

    async fn inline_agents(
        &self,
        thread: i64,
        after: &[u8],
    ) -> Result<Vec<(String, AgentRow)>, ExamineError> {
        self.all(INLINE_AGENTS, params![thread, after, AGENT_COUNT_MAX], |row| Ok((row.get(2)?, agent(row)?)))
    }

    async fn post_keys(&self, thread: i64, tenant: &str) -> Result<Vec<PostKeyRow>, ExamineError> {
        self.all(KEYS, params![thread, tenant], |row| {
            let scope: String = row.get(0)?;
            let (run, body, seal): (i64, Vec<u8>, Vec<u8>) = (row.get(3)?, row.get(4)?, row.get(5)?);
            let is_intact = seal_of_key(&scope, run, &body).0[..] == seal;
            Ok(PostKeyRow { scope, is_of_tenant: row.get(1)?, run_thread: row.get(2)?, is_intact })
        })
    }

    async fn stored_responses(
        &self,
        thread: i64,
        tenant: &str,
    ) -> Result<Vec<StoredResponseRow>, ExamineError> {
        self.all(RESPONSES, params![thread, tenant], |row| {
            let scope: String = row.get(0)?;
            let (body, status, seal): (Vec<u8>, i64, Vec<u8>) = (row.get(3)?, row.get(4)?, row.get(5)?);
            let answer = row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?;
            let is_intact = seal_of_answer(&scope, &body, status, answer).0[..] == seal;
            Ok(StoredResponseRow { scope, run: row.get(2)?, is_of_tenant: row.get(1)?, is_intact })
        })
    }
}

/// The next frozen agents of the configuration.
pub(super) fn revisions(connection: &Connection, after: &[u8]) -> Result<Vec<AgentRow>, ExamineError> {
    let sql = "SELECT digest, text FROM revisions WHERE digest > ?1 ORDER BY digest LIMIT ?2";
    all(connection, sql, params![after, AGENT_COUNT_MAX], agent)
}

fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    parse: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, ExamineError> {
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_map(params, parse)?.collect::<rusqlite::Result<_>>()?)
}

/// A row whose first columns are the digest and the text of a frozen agent.
fn agent(row: &Row<'_>) -> rusqlite::Result<AgentRow> {
    Ok(AgentRow { digest: row.get(0)?, text: row.get_ref(1)?.as_bytes()?.to_vec() })
}

/// The first columns of a row.
fn columns(row: &Row<'_>, count: usize) -> rusqlite::Result<Vec<ColumnValue>> {
    let value = |index| {
        Ok(match row.get(index)? {
            Value::Null => ColumnValue::Null,
            Value::Integer(number) => ColumnValue::Integer(number),
            Value::Real(number) => ColumnValue::Other(number.to_string()),
            Value::Text(text) => ColumnValue::Text(text),
            Value::Blob(bytes) => ColumnValue::Bytes(bytes),
        })
    };
    (0..count).map(value).collect()
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        // Without a code it is not an error of SQLite: a column has another type than it was written with.
        let code = match error.sqlite_error_code() {
            Some(_) => FindingCode::FileDamaged,
            None => FindingCode::Unreadable,
        };
        Self { code, what: error.to_string() }
    }
}

impl From<rusqlite::Error> for ExamineError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Broken(error.into())
    }
}
