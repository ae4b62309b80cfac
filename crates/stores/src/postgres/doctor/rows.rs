//! Reads rows from a snapshot of the database.

use std::collections::BTreeMap;

use engine::store::{EVENTS_BYTES_MAX, StoreError, StoreFailure};
use machine::id::Digest;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::columns::{timestamp, to_i64, to_u64};
use crate::doctor::{
    AgentRow, ColumnValue, Commit, CommitPage, CountedTable, DecisionRow, ExamineError, INBOX_COLUMNS,
    InboxRow, MESSAGE_COLUMNS, PostKeyRow, RUN_COLUMNS, RunRow, SUSPENSION_COLUMNS, SnapshotRows, StateRow,
    StoredGrant, StoredResponseRow, SuspensionRow, ThreadRow,
};
use crate::postgres::chain::parse_chain_columns;
use crate::postgres::errors::{PostgresError, corrupt};
use crate::postgres::grants;
use crate::postgres::nul_escape::{escape, unescape};
use crate::postgres::snapshot::Snapshot;

/// Runs of a thread read at once, each with its control.
const RUN_COUNT_MAX: i64 = 16;
/// The columns derived from the log come first, in the order of [`RUN_COLUMNS`]. Ordered by age, which has an index.
const RUNS: &str = "SELECT
        r.id, r.agent, r.status, r.seq, r.in_doubt, r.wake_at, r.created_at, r.started_at, r.ended_at, r.promised,
        r.tenant, r.parent_call,
        r.run, r.parent, p.tenant, p.id, r.holds, r.epoch, r.interrupt_accepted, r.ready = 1 OR r.node IS NOT NULL,
        r.control, r.chain_from, r.chain_head
    FROM runs r LEFT JOIN runs p ON p.run = r.parent
    WHERE r.thread = $1 AND (r.created_at, r.id) > ($2, $3) ORDER BY r.created_at, r.id LIMIT $4";
/// Commits requested at once; they have not many more bytes than are read at once.
const COMMIT_COUNT_MAX: usize = 256;
const COMMITS: &str = "SELECT tenant, first_seq, last_seq, checkpoint, body, hash FROM (
        SELECT *, sum(octet_length(body)) OVER (ORDER BY last_seq) - octet_length(body) AS bytes_before FROM (
            SELECT * FROM commits WHERE run = $1 AND last_seq > $2 ORDER BY last_seq LIMIT $3
        ) AS next
    ) AS counted
    WHERE bytes_before < $4 ORDER BY last_seq";
const MESSAGES: &str = "SELECT m.tenant, m.run, m.seq, m.role
    FROM unnest($2::text[]) WITH ORDINALITY AS w (id, place) LEFT JOIN messages m ON m.thread = $1 AND m.id = w.id
    ORDER BY w.place";
const CALLS: &str = "SELECT c.tenant
    FROM unnest($2::text[]) WITH ORDINALITY AS w (id, place) LEFT JOIN call_ids c ON c.thread = $1 AND c.id = w.id
    ORDER BY w.place";
/// Runs hold a thread one after the other: the messages of each are contiguous, in the order of its log, without a gap.
const OUT_OF_ORDER: &str = "SELECT count(*) FROM (
        SELECT place, run, seq, row_number() OVER (ORDER BY place) AS due,
            lag(run) OVER (ORDER BY place) AS run_before, lag(seq) OVER (ORDER BY place) AS seq_before,
            min(place) OVER (PARTITION BY run) AS begins
        FROM messages WHERE thread = $1
    ) AS m
    WHERE place <> due OR (run = run_before AND seq <= seq_before) OR (run <> run_before AND place <> begins)";
const INBOX: &str =
    "SELECT tenant, kind, call, arguments, ticket, item FROM inbox WHERE run = $1 ORDER BY ticket";
const SUSPENSIONS: &str =
    "SELECT tenant, seq, closed_seq, call, kind, status, arguments, created_at, expires_at, decided_at,
        decided_by, reason, note, id, answered_by
    FROM suspensions WHERE run = $1";
/// Decisions read at once.
const DECISION_COUNT_MAX: i64 = 64;
const DECISIONS: &str =
    "SELECT tenant, id, decision FROM decisions WHERE run = $1 AND id > $2 ORDER BY id LIMIT $3";
const HAS_REVISION: &str = "SELECT 1 FROM brought WHERE thread = $1 AND digest = $2
    UNION ALL SELECT 1 FROM revisions WHERE digest = $2 LIMIT 1";
const GRANTS: &str =
    "SELECT id, given_by, tool, agent, definition, reasons, since, tenant FROM grants WHERE thread = $1";
/// Inline agents read at once, each with its text.
const INLINE_AGENT_COUNT_MAX: i64 = 16;
const INLINE_AGENTS: &str =
    "SELECT digest, text, tenant FROM brought WHERE thread = $1 AND digest > $2 ORDER BY digest LIMIT $3";
/// More faults of one thread would not help an operator.
const FAULT_COUNT_MAX: i64 = 100;
const KEYS: &str = "SELECT k.scope, k.tenant = $2, r.thread
    FROM post_keys k LEFT JOIN runs r ON r.run = k.run
    WHERE k.thread = $1 AND (r.run IS NULL OR r.thread <> k.thread OR k.tenant <> $2) ORDER BY k.scope LIMIT $3";
const RESPONSES: &str = "SELECT a.scope, r.id, a.tenant = $2 FROM runs r JOIN remembered a ON a.run = r.run
    WHERE r.thread = $1 AND a.tenant <> $2 ORDER BY r.created_at, r.id LIMIT $3";

impl SnapshotRows for Snapshot<'_> {
    fn openings(&self) -> Option<u64> {
        None
    }

    async fn last_unchained_run(&self) -> Result<Option<i64>, ExamineError> {
        let rows = self.read("SELECT last_run FROM chain_introduction", &[]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    async fn threads(&self, after: i64, count_max: u32) -> Result<Vec<i64>, ExamineError> {
        let sql = "SELECT thread FROM threads WHERE thread > $1 ORDER BY thread LIMIT $2";
        let rows = self.read(sql, &[&after, &i64::from(count_max)]).await?;
        parse(&rows, |row| Ok(row.try_get(0)?))
    }

    async fn thread(&self, thread: i64) -> Result<ThreadRow, ExamineError> {
        let sql = "SELECT tenant, id, metadata::text FROM threads WHERE thread = $1";
        let rows = self.read(sql, &[&thread]).await?;
        let row = rows.first().ok_or_else(|| corrupt(format!("thread {thread} does not exist")))?;
        Ok(ThreadRow { tenant: text(row, 0)?, id: text(row, 1)?, metadata: row.try_get(2)?, head: None })
    }

    async fn runs(&self, thread: i64, after: &(i64, String)) -> Result<Vec<RunRow>, ExamineError> {
        let rows = self.read(RUNS, &[&thread, &after.0, &escape(&after.1), &RUN_COUNT_MAX]).await?;
        parse(&rows, |row| {
            let parent_tenant: Option<String> = row.try_get(14)?;
            let parent_id: Option<String> = row.try_get(15)?;
            Ok(RunRow {
                row: row.try_get(12)?,
                id: text(row, 0)?,
                created_at: row.try_get(6)?,
                derived: columns(row, RUN_COLUMNS.len())?,
                ended: row.try_get::<_, Option<i64>>(8)?.is_some(),
                holds: row.try_get(16)?,
                parent: row.try_get(13)?,
                parent_found: parent_tenant.map(unescape).zip(parent_id.map(unescape)),
                epoch: to_u64(row.try_get(17)?),
                interrupt_accepted: row.try_get(18)?,
                inbox_is_noticed: row.try_get(19)?,
                control: row.try_get(20)?,
                seq: to_u64(row.try_get(3)?),
                chain: parse_chain_columns(row, 21)?,
            })
        })
    }

    async fn commits(&self, run: i64, after: u64) -> Result<CommitPage, ExamineError> {
        Ok(commits(self, run, after).await?)
    }

    async fn messages(
        &self,
        thread: i64,
        ids: &[&str],
    ) -> Result<Vec<Option<Vec<ColumnValue>>>, ExamineError> {
        parse(&self.rows_by_id(MESSAGES, thread, ids).await?, |row| {
            let found = columns(row, MESSAGE_COLUMNS.len())?;
            Ok(found.iter().any(|column| *column != ColumnValue::Null).then_some(found))
        })
    }

    async fn call_tenants(&self, thread: i64, ids: &[&str]) -> Result<Vec<Option<String>>, ExamineError> {
        parse(&self.rows_by_id(CALLS, thread, ids).await?, |row| {
            Ok(row.try_get::<_, Option<String>>(0)?.map(unescape))
        })
    }

    async fn row_count(&self, table: CountedTable, thread: i64) -> Result<u64, ExamineError> {
        let sql = format!("SELECT count(*) FROM {} WHERE thread = $1", table.as_str());
        self.count(&sql, thread).await
    }

    async fn messages_out_of_order(&self, thread: i64) -> Result<u64, ExamineError> {
        self.count(OUT_OF_ORDER, thread).await
    }

    /// The position of each run's last message.
    async fn run_order(&self, thread: i64) -> Result<BTreeMap<i64, i64>, ExamineError> {
        let sql = "SELECT run, max(place) FROM messages WHERE thread = $1 GROUP BY run";
        let rows = self.read(sql, &[&thread]).await?;
        Ok(parse(&rows, |row| Ok((row.try_get(0)?, row.try_get(1)?)))?.into_iter().collect())
    }

    async fn inbox(&self, run: i64) -> Result<Vec<InboxRow>, ExamineError> {
        parse(&self.read(INBOX, &[&run]).await?, |row| {
            let columns = columns(row, INBOX_COLUMNS.len())?;
            Ok(InboxRow { ticket: row.try_get(4)?, item: row.try_get(5)?, columns })
        })
    }

    async fn suspensions(&self, run: i64) -> Result<Vec<SuspensionRow>, ExamineError> {
        parse(&self.read(SUSPENSIONS, &[&run]).await?, |row| {
            let columns = columns(row, SUSPENSION_COLUMNS.len())?;
            Ok(SuspensionRow { id: text(row, 13)?, answered_by: row.try_get(14)?, columns })
        })
    }

    async fn decisions(&self, run: i64, after: &str) -> Result<Vec<DecisionRow>, ExamineError> {
        let rows = self.read(DECISIONS, &[&run, &escape(after), &DECISION_COUNT_MAX]).await?;
        parse(&rows, |row| {
            Ok(DecisionRow { tenant: text(row, 0)?, id: text(row, 1)?, decision: row.try_get(2)? })
        })
    }

    async fn is_under_way(&self, tenant: &str, run: &str) -> Result<Option<bool>, ExamineError> {
        let sql = "SELECT ended_at IS NULL FROM runs WHERE tenant = $1 AND id = $2";
        let rows = self.read(sql, &[&escape(tenant), &escape(run)]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    async fn has_revision(&self, thread: i64, digest: &Digest) -> Result<bool, ExamineError> {
        Ok(!self.read(HAS_REVISION, &[&thread, &digest.0.as_slice()]).await?.is_empty())
    }

    async fn grants(&self, thread: i64) -> Result<Vec<StoredGrant>, ExamineError> {
        parse(&self.read(GRANTS, &[&thread]).await?, |row| {
            let (since, columns) = (timestamp(row.try_get(6)?), grants::columns(row)?);
            Ok(StoredGrant { tenant: text(row, 7)?, since, columns })
        })
    }

    async fn plugin_state(&self, thread: i64) -> Result<Vec<StateRow>, ExamineError> {
        let sql = "SELECT run, plugin, key, tenant, value FROM plugin_state WHERE thread = $1";
        parse(&self.read(sql, &[&thread]).await?, |row| {
            Ok(StateRow {
                run: row.try_get(0)?,
                plugin: text(row, 1)?,
                key: text(row, 2)?,
                tenant: text(row, 3)?,
                value: text(row, 4)?,
            })
        })
    }

    async fn inline_agents(
        &self,
        thread: i64,
        after: &[u8],
    ) -> Result<Vec<(String, AgentRow)>, ExamineError> {
        let rows = self.read(INLINE_AGENTS, &[&thread, &after, &INLINE_AGENT_COUNT_MAX]).await?;
        parse(&rows, |row| Ok((text(row, 2)?, agent(row)?)))
    }

    async fn post_keys(&self, thread: i64, tenant: &str) -> Result<Vec<PostKeyRow>, ExamineError> {
        let rows = self.read(KEYS, &[&thread, &escape(tenant), &FAULT_COUNT_MAX]).await?;
        parse(&rows, |row| {
            Ok(PostKeyRow {
                scope: text(row, 0)?,
                is_of_tenant: row.try_get(1)?,
                run_thread: row.try_get(2)?,
                is_intact: true,
            })
        })
    }

    async fn stored_responses(
        &self,
        thread: i64,
        tenant: &str,
    ) -> Result<Vec<StoredResponseRow>, ExamineError> {
        let rows = self.read(RESPONSES, &[&thread, &escape(tenant), &FAULT_COUNT_MAX]).await?;
        parse(&rows, |row| {
            Ok(StoredResponseRow {
                scope: text(row, 0)?,
                run: text(row, 1)?,
                is_of_tenant: row.try_get(2)?,
                is_intact: true,
            })
        })
    }
}

impl Snapshot<'_> {
    async fn rows_by_id(&self, sql: &str, thread: i64, ids: &[&str]) -> Result<Vec<Row>, PostgresError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<_> = ids.iter().map(|id| escape(id)).collect();
        self.read(sql, &[&thread, &ids]).await
    }

    async fn count(&self, sql: &str, thread: i64) -> Result<u64, ExamineError> {
        let rows = self.read(sql, &[&thread]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.map_or(0, to_u64))
    }
}

/// The next commits of a log.
pub(in crate::postgres) async fn commits(
    snapshot: &Snapshot<'_>,
    run: i64,
    after: u64,
) -> Result<CommitPage, PostgresError> {
    let (count, bytes) = (to_i64(COMMIT_COUNT_MAX as u64), to_i64(EVENTS_BYTES_MAX as u64));
    let rows = snapshot.read(COMMITS, &[&run, &to_i64(after), &count, &bytes]).await?;
    let commits = rows.iter().map(|row| {
        Ok(Commit {
            tenant: text(row, 0)?,
            first_seq: to_u64(row.try_get(1)?),
            last_seq: to_u64(row.try_get(2)?),
            checkpoint: row.try_get(3)?,
            body: row.try_get(4)?,
            hash: row.try_get(5)?,
        })
    });
    let commits: Vec<Commit> = commits.collect::<Result<_, PostgresError>>()?;
    let bytes: usize = commits.iter().map(|commit| commit.body.len()).sum();
    Ok(CommitPage { is_last: commits.len() < COMMIT_COUNT_MAX && bytes < EVENTS_BYTES_MAX, commits })
}

/// A row whose first columns are the digest and the text of a frozen agent.
pub(super) fn agent(row: &Row) -> Result<AgentRow, PostgresError> {
    Ok(AgentRow { digest: row.try_get(0)?, text: text(row, 1)?.into_bytes() })
}

pub(super) fn parse<T>(
    rows: &[Row],
    parse: impl Fn(&Row) -> Result<T, PostgresError>,
) -> Result<Vec<T>, ExamineError> {
    Ok(rows.iter().map(parse).collect::<Result<_, PostgresError>>()?)
}

fn text(row: &Row, index: usize) -> Result<String, PostgresError> {
    Ok(unescape(row.try_get(index)?))
}

/// The first columns of a row.
fn columns(row: &Row, count: usize) -> Result<Vec<ColumnValue>, PostgresError> {
    let first = row.columns().iter().enumerate().take(count);
    first.map(|(index, column)| value(row, index, column.type_())).collect()
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

impl From<PostgresError> for ExamineError {
    fn from(PostgresError(refused): PostgresError) -> Self {
        match refused {
            StoreError::Failed(StoreFailure::Corrupt(what)) => Self::Damaged(what),
            other @ (StoreError::Failed(StoreFailure::Unavailable(_) | StoreFailure::Full(_))
            | StoreError::Fenced
            | StoreError::Behind
            | StoreError::Stale
            | StoreError::Busy(_)
            | StoreError::Impossible(_)
            | StoreError::NotFound) => Self::Refused(other),
        }
    }
}

impl From<tokio_postgres::Error> for ExamineError {
    fn from(error: tokio_postgres::Error) -> Self {
        PostgresError::from(error).into()
    }
}
