//! Maintenance beside running nodes: it deletes threads that ended long ago and measures the tables. The read-only
//! reports are in `held_calls` and `doctor`.
//!
//! A maintenance process is not a node: it holds no runs and creates no tables. The retention rules are documented at
//! the database function `prune`.

use std::time::Duration;

use engine::store::StoreError;
use machine::Timestamp;
use tokio_postgres::Row;

use super::connection::{Address, Connections, Parameters, StatementKind};
use super::errors::{PostgresError, PostgresOpenError, unavailable};
use super::nul_escape::unescape;
use super::{PostgresSettings, migrate};
use crate::columns::{millis, timestamp, to_u64};
use crate::pruned::Pruned;

/// Threads examined in one short transaction.
const EXAMINE_COUNT_MAX: i32 = 256;
/// One batch deletes not many more events than this.
const BATCH_EVENT_COUNT_MAX: i64 = 20_000;
/// Runs counted in one short transaction.
const RUN_COUNT_MAX: i64 = 4_096;
/// A family of threads is deleted in one statement, and a large one takes long on a slow disk. No request waits for it.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(300);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(330);
/// Stuck threads that are listed individually; further ones are only counted.
const STUCK_COUNT_MAX: usize = 20;

/// A store that is being maintained.
pub struct Upkeep {
    pub(super) connections: Connections,
    schema: String,
}

impl std::fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upkeep").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// Disk usage of the tables, dead rows included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostgresSize {
    /// The largest first.
    pub tables: Vec<PostgresTableSize>,
    pub runs: u64,
    pub events: u64,
    /// Total size of all control states.
    pub control_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresTableSize {
    pub name: String,
    pub bytes: u64,
    pub index_bytes: u64,
}

impl PostgresSize {
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes + table.index_bytes).sum()
    }

    /// None without runs.
    #[must_use]
    pub fn bytes_per_run(&self) -> Option<u64> {
        self.bytes().checked_div(self.runs)
    }
}

/// Settings with longer statement timeouts than a node has.
#[must_use]
pub fn settings() -> PostgresSettings {
    PostgresSettings {
        statement_timeout: STATEMENT_TIMEOUT,
        answer_timeout: ANSWER_TIMEOUT,
        ..PostgresSettings::default()
    }
}

impl Upkeep {
    /// Connects to an existing store of this software's version. Changes nothing.
    pub async fn open(address: &str, settings: PostgresSettings) -> Result<Self, PostgresOpenError> {
        let address = Address::new(address, &settings)?;
        let settings = PostgresSettings { connection_count_max: 1, ..settings };
        let connections = Connections::new(address, &settings)?;
        migrate::check(&connections, &settings.schema).await?;
        Ok(Self { connections, schema: settings.schema })
    }

    /// By the database's clock, like all times in the store.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        let rows = self.read("SELECT now_ms(NULL)", &[]).await?;
        let row = rows.first().ok_or_else(no_answer)?;
        Ok(timestamp(row.try_get(0).map_err(refused)?))
    }

    /// Deletes threads whose runs all ended before this time: not many more than `batch_thread_count_max` per commit.
    #[must_use]
    pub fn sweep(&self, ended_before: Timestamp, batch_thread_count_max: usize) -> PostgresSweep<'_> {
        self.new_sweep(ended_before, batch_thread_count_max, true)
    }

    /// Counts what a sweep would delete, and changes nothing.
    #[must_use]
    pub fn survey(&self, ended_before: Timestamp) -> PostgresSweep<'_> {
        self.new_sweep(ended_before, usize::MAX, false)
    }

    fn new_sweep(
        &self,
        ended_before: Timestamp,
        batch_thread_count_max: usize,
        deletes: bool,
    ) -> PostgresSweep<'_> {
        let batch_thread_count_max = i32::try_from(batch_thread_count_max.max(1)).unwrap_or(i32::MAX);
        PostgresSweep {
            upkeep: self,
            ended_before,
            batch_thread_count_max,
            deletes,
            after: 0,
            threads_examined: 0,
            one_by_one: 0,
            stuck: Stuck::default(),
        }
    }

    pub async fn size(&self) -> Result<PostgresSize, StoreError> {
        let mut size = PostgresSize::default();
        for row in self.read(include_str!("sql/table_sizes.sql"), &[&self.schema]).await? {
            size.tables.push(PostgresTableSize {
                name: row.try_get(0).map_err(refused)?,
                bytes: to_u64(row.try_get(1).map_err(refused)?),
                index_bytes: to_u64(row.try_get(2).map_err(refused)?),
            });
        }
        let sql = "SELECT max(run), count(*), coalesce(sum(seq), 0)::bigint, coalesce(sum(length(control)), 0)::bigint
            FROM (SELECT run, seq, control FROM runs WHERE run > $1 ORDER BY run LIMIT $2) AS r";
        let mut after = 0_i64;
        loop {
            let rows = self.read(sql, &[&after, &RUN_COUNT_MAX]).await?;
            let row = rows.first().ok_or_else(no_answer)?;
            let Some(last) = row.try_get::<_, Option<i64>>(0).map_err(refused)? else { return Ok(size) };
            after = last;
            let count = |column: usize| row.try_get(column).map(to_u64).map_err(refused);
            size.runs += count(1)?;
            size.events += count(2)?;
            size.control_bytes += count(3)?;
        }
    }

    async fn read(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, StoreError> {
        self.connections.read(sql, parameters).await.map_err(|PostgresError(refused)| refused)
    }
}

/// A sweep over all threads. It may be dropped at any time.
#[derive(Debug)]
pub struct PostgresSweep<'u> {
    upkeep: &'u Upkeep,
    ended_before: Timestamp,
    batch_thread_count_max: i32,
    deletes: bool,
    /// The last thread that was examined.
    after: i64,
    threads_examined: u64,
    /// A batch failed: this many threads are now examined one at a time, to find the one that made it fail.
    one_by_one: i32,
    stuck: Stuck,
}

/// Threads that could not be deleted with their families, and stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stuck {
    pub count: u64,
    /// The first of them.
    pub threads: Vec<StuckThread>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckThread {
    pub tenant: String,
    pub id: String,
    pub why: StoreError,
}

impl PostgresSweep<'_> {
    /// The next batch, in one commit. `None` after the last thread. Threads that cannot be deleted are skipped.
    pub async fn next(&mut self) -> Result<Option<Pruned>, StoreError> {
        loop {
            match self.batch().await {
                Ok(pruned) => {
                    self.one_by_one = (self.one_by_one - 1).max(0);
                    return Ok(pruned);
                }
                Err(refused) => self.pass_over(refused).await?,
            }
        }
    }

    /// Continues after the next thread, if that thread is what made the last batch fail.
    async fn pass_over(&mut self, refused: StoreError) -> Result<(), StoreError> {
        let next = "SELECT thread, tenant, id FROM threads WHERE thread > $1 ORDER BY thread LIMIT 1";
        // If this query fails too, the database itself is in trouble.
        let Ok(rows) = self.upkeep.read(next, &[&self.after]).await else { return Err(refused) };
        let Some(row) = rows.first() else { return Err(refused) };
        if self.one_by_one == 0 {
            self.one_by_one = EXAMINE_COUNT_MAX;
            return Ok(());
        }
        self.after = row.try_get(0).map_err(self::refused)?;
        self.threads_examined += 1;
        self.one_by_one = 0;
        self.stuck.count += 1;
        if self.stuck.threads.len() < STUCK_COUNT_MAX {
            let text = |column: usize| row.try_get(column).map(unescape).map_err(self::refused);
            self.stuck.threads.push(StuckThread { tenant: text(1)?, id: text(2)?, why: refused });
        }
        Ok(())
    }

    async fn batch(&mut self) -> Result<Option<Pruned>, StoreError> {
        let examine_max = if self.one_by_one > 0 { 1 } else { EXAMINE_COUNT_MAX };
        let sql = "SELECT * FROM prune($1, $2, $3, $4, $5, $6)";
        let before = millis(self.ended_before);
        let parameters: Parameters<'_> = &[
            &self.after,
            &examine_max,
            &self.batch_thread_count_max,
            &BATCH_EVENT_COUNT_MAX,
            &before,
            &self.deletes,
        ];
        let asked = self.upkeep.connections.query(StatementKind::Write, sql, parameters).await;
        let rows = asked.map_err(|PostgresError(refused)| refused)?;
        let row = rows.first().ok_or_else(no_answer)?;
        let Some(seen) = row.try_get::<_, Option<i64>>(0).map_err(refused)? else { return Ok(None) };
        let count = |column: usize| row.try_get(column).map(to_u64).map_err(refused);
        self.after = seen;
        self.threads_examined += count(1)?;
        Ok(Some(Pruned { threads: count(2)?, runs: count(3)?, events: count(4)?, unreadable: 0 }))
    }

    /// The threads skipped so far.
    #[must_use]
    pub const fn stuck(&self) -> &Stuck {
        &self.stuck
    }

    /// Number of threads examined so far.
    #[must_use]
    pub const fn threads_examined(&self) -> u64 {
        self.threads_examined
    }
}

fn refused(error: tokio_postgres::Error) -> StoreError {
    PostgresError::from(error).0
}

fn no_answer() -> StoreError {
    unavailable("the database answered nothing").0
}
