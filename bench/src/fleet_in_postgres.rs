//! A fleet of held runs in one schema: some were held by the engine, the rest are copies of these with other ids.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::Engine;
use engine::store::Store;
use machine::Control;
use machine::id::RunId;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::approval::{Entries, approvals};
use crate::database::{Database, Schema};
use crate::effort::Effort;
use crate::failure::Failure;
use crate::fleet::{AT_ONCE, CLOSE_TIME_MAX, check_each, hold, scattered};
use crate::pace::repeat;
use crate::time_shift::uuid_in_front;

/// A version 7 UUID without its first eight digits, which encode the time.
const BEHIND_TIME: &str = "(-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})";

/// Runs that no worker holds.
pub(crate) struct FleetInPostgres {
    pub(crate) schema: Schema,
    run_count: usize,
    /// The highest run number.
    last: i64,
}

impl FleetInPostgres {
    /// Creates real runs: a message came in, the model asked for three calls, one was performed, two are held.
    pub(crate) async fn held(
        database: &Arc<Database>,
        effort: Effort,
        run_count: usize,
    ) -> Result<Self, Failure> {
        let schema = Schema::of(database);
        let store: Arc<dyn Store> = Arc::new(schema.store().await?);
        let entries = Entries::of(&store);
        let engine = Engine::on_shared(store.clone()).agent(approvals(&entries)).start().await?;
        let exactly = Effort { run_count_min: run_count, run_count_max: run_count, ..effort };
        let one = {
            let engine = engine.clone();
            move || hold(engine.clone())
        };
        repeat(&store, database.postmaster, exactly, AT_ONCE.min(run_count), one.clone()).await?;
        drop((one, entries));
        engine.close(CLOSE_TIME_MAX).await;
        let sql = format!("SELECT max(run), count(node) FROM {}.runs", schema.name);
        let row = database.connect().await?.query_one(&sql, &[]).await?;
        if row.try_get::<_, i64>(1)? > 0 {
            return Err(Failure::new("a node that has left still holds a run"));
        }
        Ok(Self { schema, run_count, last: row.try_get(0)? })
    }

    /// Copies the runs until there are `run_count`. Vacuums afterwards, so that the database has no work left.
    pub(crate) async fn copied(&self, run_count: usize) -> Result<Self, Failure> {
        let database = &self.schema.database;
        let schema = Schema::of(database);
        // The store creates its own tables.
        drop(schema.store().await?);
        let client = database.connect().await?;
        // Rows are copied after the rows they refer to, so no checks are needed, and a lost copy is simply made again.
        client.batch_execute("SET session_replication_role = replica; SET synchronous_commit = off").await?;
        let copy = SchemaCopy { client, from: &self.schema.name, to: &schema.name };
        let tables = copy.tables_of_tenants().await?;
        copy.revisions().await?;
        let generations = run_count.div_ceil(self.run_count);
        for generation in 0..generations {
            let count = self.run_count.min(run_count - generation * self.run_count);
            copy.generation(&tables, generation, count).await?;
        }
        let last = copy.finish(&tables).await?;
        Ok(Self { schema, run_count, last })
    }

    pub(crate) async fn bytes_per_run(&self) -> Result<f64, Failure> {
        let empty = Schema::of(&self.schema.database);
        drop(empty.store().await?);
        let bytes_empty = empty.byte_count().await?;
        empty.remove().await?;
        let bytes = self.schema.byte_count().await?;
        Ok(bytes.saturating_sub(bytes_empty) as f64 / self.run_count as f64)
    }

    /// Ids of `count` different runs; the same seed selects the same numbers.
    pub(crate) async fn any(&self, count: usize, seed: u64) -> Result<Vec<RunId>, Failure> {
        let client = self.schema.database.connect().await?;
        let select =
            client.prepare(&format!("SELECT id FROM {}.runs WHERE run = $1", self.schema.name)).await?;
        let (mut taken, mut ids) = (BTreeSet::new(), Vec::new());
        let mut state = seed;
        while ids.len() < count.min(self.run_count) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let number = i64::try_from(scattered(state) % u64::try_from(self.last)?)? + 1;
            // Not every number was assigned.
            if taken.insert(number)
                && let Some(row) = client.query_opt(&select, &[&number]).await?
            {
                ids.push(RunId::from(row.try_get::<_, String>(0)?));
            }
        }
        Ok(ids)
    }

    pub(crate) async fn check(&self, runs: &[RunId]) -> Result<(), Failure> {
        check_each(&self.schema.store().await?, runs).await
    }
}

/// Copies from one schema to another.
struct SchemaCopy<'a> {
    client: Client,
    from: &'a str,
    to: &'a str,
}

struct Table {
    name: String,
    /// The statement that copies a generation's rows. Its parameters are described at `SchemaCopy::insert`.
    insert: String,
}

impl SchemaCopy<'_> {
    /// Threads and runs come before the tables that refer to them. The audit record belongs to no run.
    async fn tables_of_tenants(&self) -> Result<Vec<Table>, Failure> {
        let sql = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition
                AND EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant')
                AND c.relname NOT IN ('audit', 'audit_chains', 'audit_sinks')
            ORDER BY c.relname <> 'threads', c.relname <> 'runs', c.relname";
        let mut tables = Vec::new();
        for row in self.client.query(sql, &[&self.from]).await? {
            let name: String = row.try_get(0)?;
            tables.push(Table { insert: self.insert(&name).await?, name });
        }
        Ok(tables)
    }

    /// `$1` is added to the run numbers and `$2` to the thread numbers. `$3` replaces the time digits of every id. Runs
    /// with a number above `$4` are left out. Controls are not text: `$5` has run numbers, and `$6` the controls of
    /// their copies.
    async fn insert(&self, table: &str) -> Result<String, Failure> {
        let sql = "SELECT column_name::text, data_type::text FROM information_schema.columns
            WHERE table_schema = $1 AND table_name = $2 ORDER BY ordinal_position";
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for row in self.client.query(sql, &[&self.from, &table]).await? {
            let (name, kind): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let value = match (name.as_str(), kind.as_str()) {
                // Numbers that no row refers to are assigned again.
                ("ticket", _) => continue,
                ("run" | "parent", _) => format!("{name} + $1"),
                ("thread", _) => "thread + $2".to_owned(),
                ("control", _) => "renamed_control".to_owned(),
                // A hash covers the ids. A copy is like a run from before there were hashes: its next commit starts a
                // chain.
                ("hash" | "chain_head" | "chain_from", _) => "NULL".to_owned(),
                (_, "text") => {
                    format!("regexp_replace({name}, '[0-9a-f]{{8}}{BEHIND_TIME}', $3 || '\\1', 'g')")
                }
                (_, _) => name.clone(),
            };
            names.push(name);
            values.push(value);
        }
        let chosen = if names.iter().any(|name| name == "run") {
            "run <= $4".to_owned()
        } else {
            format!("thread IN (SELECT thread FROM {}.runs WHERE run <= $4)", self.from)
        };
        let controls = if table == "runs" { "JOIN controls ON of_run = run" } else { "" };
        let (names, values) = (names.join(", "), values.join(", "));
        // Every statement gets the same parameters, whether it uses them or not.
        Ok(format!(
            "WITH given AS (SELECT $1::bigint, $2::bigint, $3::text, $4::bigint),
                 controls AS (SELECT * FROM unnest($5::bigint[], $6::bytea[]) AS c (of_run, renamed_control))
             INSERT INTO {}.{table} ({names}) OVERRIDING SYSTEM VALUE
             SELECT {values} FROM {}.{table} {controls} WHERE {chosen}",
            self.to, self.from
        ))
    }

    /// Revisions belong to no tenant.
    async fn revisions(&self) -> Result<(), Failure> {
        let sql = format!("INSERT INTO {}.revisions SELECT * FROM {}.revisions", self.to, self.from);
        Ok(self.client.batch_execute(&sql).await?)
    }

    /// Copies the first `count` of the real runs.
    async fn generation(&self, tables: &[Table], generation: usize, count: usize) -> Result<(), Failure> {
        let sql = format!(
            "SELECT
                (SELECT max(run) FROM {from}.runs), (SELECT max(thread) FROM {from}.threads),
                (SELECT max(run) FROM (SELECT run FROM {from}.runs ORDER BY run LIMIT $1) AS chosen)",
            from = self.from
        );
        let row = self.client.query_one(&sql, &[&i64::try_from(count)?]).await?;
        let before = i64::try_from(generation)?;
        let runs_before = before * row.try_get::<_, i64>(0)?;
        let threads_before = before * row.try_get::<_, i64>(1)?;
        let (time, last): (String, i64) = (format!("{generation:08x}"), row.try_get(2)?);
        let (runs, controls) = self.controls(&time).await?;
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&runs_before, &threads_before, &time, &last, &runs, &controls];
        for table in tables {
            self.client.execute(&table.insert, &parameters).await?;
        }
        Ok(())
    }

    /// Rewrites controls through their readable form, in which ids are strings.
    async fn controls(&self, time: &str) -> Result<(Vec<i64>, Vec<Vec<u8>>), Failure> {
        let (mut runs, mut controls) = (Vec::new(), Vec::new());
        let sql = format!("SELECT run, control FROM {}.runs", self.from);
        for row in self.client.query(&sql, &[]).await? {
            let control = Control::decode(row.try_get(1)?).map_err(|why| Failure::new(format!("{why:?}")))?;
            let text = renamed(&serde_json::to_string(&control)?, time);
            let control: Control = serde_json::from_str(&text)?;
            runs.push(row.try_get(0)?);
            controls.push(control.encode().map_err(Failure::new)?);
        }
        Ok((runs, controls))
    }

    /// Makes the sequences continue after the assigned numbers. Returns the last run number.
    async fn finish(&self, tables: &[Table]) -> Result<i64, Failure> {
        let to = self.to;
        let sql = format!(
            "SELECT setval(pg_get_serial_sequence('{to}.threads', 'thread'), (SELECT max(thread) FROM {to}.threads)),
                setval(pg_get_serial_sequence('{to}.runs', 'run'), (SELECT max(run) FROM {to}.runs))"
        );
        let last = self.client.query_one(&sql, &[]).await?.try_get(1)?;
        for table in tables {
            self.client.batch_execute(&format!("VACUUM (ANALYZE) {to}.{}", table.name)).await?;
        }
        self.client.batch_execute("CHECKPOINT").await?;
        Ok(last)
    }
}

/// The text with another time in the ids it contains.
fn renamed(text: &str, time: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = if let Some(uuid) = uuid_in_front(rest) {
            told += time;
            told += &uuid[time.len()..];
            uuid.len()
        } else {
            told.push(next);
            next.len_utf8()
        };
        rest = &rest[length..];
    }
    told
}

#[cfg(test)]
mod tests {
    use super::renamed;

    #[test]
    fn an_id_keeps_all_but_its_time() {
        let text = r#"{"id":"msg_run_019a8f00-0005-7c22-b1a5-0123456789ab_1","ü":1794765831695}"#;
        let expected = r#"{"id":"msg_run_00000002-0005-7c22-b1a5-0123456789ab_1","ü":1794765831695}"#;
        assert_eq!(renamed(text, "00000002"), expected);
    }
}
