//! A fleet of held runs in one file: some were held by the engine, the rest are copies of these with other ids.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::store::{ApprovalFilter, Page, Store, Tenant, decoded};
use engine::{Engine, RunOutcome};
use machine::id::RunId;
use machine::projection_rows::PublicRunStatus;
use machine::{Control, fold};
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params};
use stores::sqlite::SqliteStore;

use crate::approval::{Entries, approvals};
use crate::bytes_on_disk::Folder;
use crate::effort::Effort;
use crate::environment::user_message;
use crate::failure::Failure;
use crate::pace::repeat;
use crate::time_shift::TimeShift;

/// Number of runs that the engine works on at the same time.
pub(crate) const AT_ONCE: usize = 64;
/// How long the last workers may take to release the store.
pub(crate) const CLOSE_TIME_MAX: Duration = Duration::from_secs(20);
const FILE_NAME: &str = "runs.db";

/// Runs in a file, none of them held by a worker.
pub(crate) struct Fleet {
    folder: Folder,
    pub(crate) run_count: usize,
}

impl Fleet {
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.file(FILE_NAME)
    }

    pub(crate) fn bytes_per_run(&self, parent: &Path) -> Result<f64, Failure> {
        let empty = Folder::within(parent)?;
        drop(SqliteStore::open(empty.file(FILE_NAME))?);
        let bytes = self.folder.byte_count()?.saturating_sub(empty.byte_count()?);
        Ok(bytes as f64 / self.run_count as f64)
    }

    /// Creates real runs: a message came in, the model asked for three calls, one was performed, two are held.
    pub(crate) async fn held(parent: &Path, effort: Effort, run_count: usize) -> Result<Self, Failure> {
        let folder = Folder::within(parent)?;
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.file(FILE_NAME))?);
        let entries = Entries::of(&store);
        let engine = Engine::on_shared(store.clone()).agent(approvals(&entries)).start().await?;
        let exactly = Effort { run_count_min: run_count, run_count_max: run_count, ..effort };
        let one = {
            let engine = engine.clone();
            move || hold(engine.clone())
        };
        repeat(&store, None, exactly, AT_ONCE.min(run_count), one.clone()).await?;
        drop((one, entries));
        engine.close(CLOSE_TIME_MAX).await;
        Ok(Self { folder, run_count })
    }

    /// Copies the runs until there are `run_count`, oldest first, the real ones last.
    pub(crate) fn copied(&self, parent: &Path, run_count: usize) -> Result<Self, Failure> {
        let folder = Folder::within(parent)?;
        let path = folder.file(FILE_NAME);
        // The store creates its own tables.
        drop(SqliteStore::open(&path)?);
        let copy = FleetCopy::of(&self.file(), &path)?;
        let generations = run_count.div_ceil(self.run_count);
        for generation in 0..generations {
            let before = generation * self.run_count;
            let count = self.run_count.min(run_count - before);
            copy.generation(before, count, generations - 1 - generation)?;
        }
        drop(copy);
        File::open(&path)?.sync_all()?;
        Ok(Self { folder, run_count })
    }

    /// Ids of `count` different runs; the same seed selects the same numbers.
    pub(crate) fn any(&self, count: usize, seed: u64) -> Result<Vec<RunId>, Failure> {
        let connection = Connection::open(self.file())?;
        let mut select = connection.prepare("SELECT id FROM runs WHERE row = ?1")?;
        let mut taken = BTreeSet::new();
        let mut ids = Vec::new();
        let mut state = seed;
        while ids.len() < count.min(self.run_count) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let row = scattered(state) % self.run_count as u64 + 1;
            if taken.insert(row) {
                let id: String = select.query_row([i64::try_from(row)?], |columns| columns.get(0))?;
                ids.push(RunId::from(id));
            }
        }
        Ok(ids)
    }

    pub(crate) async fn check(&self, runs: &[RunId]) -> Result<(), Failure> {
        check_each(&SqliteStore::open(self.file())?, runs).await
    }
}

/// Checks that each run is held, its log folds to its control, and its approvals are listed.
pub(crate) async fn check_each(store: &dyn Store, runs: &[RunId]) -> Result<(), Failure> {
    let tenant = Tenant::default();
    for run in runs {
        let wrong = |what: &str| Failure::new(format!("run {run} of the fleet: {what}"));
        let view = store.run(&tenant, run).await?.ok_or_else(|| wrong("is not there"))?;
        let mut log = Vec::new();
        loop {
            let page = store.events(&tenant, run, log.len() as u64, usize::MAX).await?;
            if page.is_empty() {
                break;
            }
            log.extend(decoded(page)?);
        }
        let folded = fold(log.iter().map(|committed| &*committed.event));
        let control = view.decoded()?;
        if folded.map_err(|why| wrong(&format!("{why:?}")))? != *control {
            return Err(wrong("its log does not fold to its control"));
        }
        if control.run != *run || view.status != PublicRunStatus::WaitingApproval {
            return Err(wrong(&format!("is {:?} and calls itself {}", view.status, control.run)));
        }
        let listed = store.approvals(&tenant, &ApprovalFilter::for_run(run), &Page::default()).await?;
        let shown: BTreeSet<_> = listed.items.iter().map(|approval| approval.id.clone()).collect();
        let open: BTreeSet<_> = control.pending().into_iter().map(|pending| pending.suspension_id).collect();
        if open.len() != 2 || shown != open {
            return Err(wrong("its approvals are not those that are listed"));
        }
    }
    Ok(())
}

/// Posts one message and waits until the run is held.
pub(crate) async fn hold(engine: Engine) -> Result<(), Failure> {
    let finished = engine.run(user_message()).await?;
    match finished.outcome {
        RunOutcome::Suspended(pending) if pending.len() == 2 => Ok(()),
        other @ (RunOutcome::Suspended(_) | RunOutcome::Ended(_)) => {
            Err(Failure::new(format!("run {} is not held: {other:?}", finished.run)))
        }
    }
}

/// SplitMix64: neighbouring inputs give scattered outputs.
pub(crate) const fn scattered(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Copies from one file, attached as `real`, to another. No other process has either of them open.
struct FleetCopy {
    connection: Connection,
    statements: Vec<String>,
    /// Milliseconds from the first creation to the last event.
    window: RangeInclusive<i64>,
}

impl FleetCopy {
    fn of(from: &Path, to: &Path) -> Result<Self, Failure> {
        let connection = Connection::open(to)?;
        // A lost copy is simply made again. The store applies its own settings when it opens the file.
        connection.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update(None, "cache_size", -256 * 1_024)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        let from = from.to_str().ok_or_else(|| Failure::new("the folder's name is no text"))?;
        connection.execute("ATTACH ?1 AS real", [from])?;
        let strangers: i64 =
            connection
                .query_row("SELECT count(*) FROM real.runs WHERE row <> thread", [], |row| row.get(0))?;
        if strangers > 0 {
            return Err(Failure::new("a run of the fleet does not have the number of its thread"));
        }
        let first: i64 =
            connection.query_row("SELECT min(created_at) FROM real.runs", [], |row| row.get(0))?;
        let last = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let window = first..=i64::try_from(last)?;
        for (name, convert) in [("earlier", text as Convert), ("earlier_control", control as Convert)] {
            let window = window.clone();
            let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
            connection.create_scalar_function(name, 2, flags, move |context| {
                convert(context, TimeShift { by: context.get(1)?, window: window.clone() })
            })?;
        }
        connection.execute_batch("INSERT INTO main.revisions SELECT * FROM real.revisions")?;
        let statements = tables_of_tenants(&connection)?
            .into_iter()
            .map(|table| statement(&connection, &table))
            .collect::<Result<Vec<String>, Failure>>()?;
        Ok(Self { connection, statements, window })
    }

    /// Copies the first `count` real runs, numbered after the existing `before`, and `windows` windows earlier.
    fn generation(&self, before: usize, count: usize, windows: usize) -> Result<(), Failure> {
        let by = (self.window.end() - self.window.start() + 1) * i64::try_from(windows)?;
        self.connection.execute_batch("BEGIN")?;
        for statement in &self.statements {
            let numbers = params![i64::try_from(before)?, by, i64::try_from(count)?];
            self.connection.prepare_cached(statement)?.execute(numbers)?;
        }
        self.connection.execute_batch("COMMIT")?;
        Ok(())
    }
}

/// Threads and runs come before the tables that refer to them. The audit record belongs to no run.
fn tables_of_tenants(connection: &Connection) -> Result<Vec<String>, Failure> {
    let mut select = connection.prepare(
        "SELECT name FROM real.sqlite_schema AS found WHERE type = 'table'
         AND EXISTS (SELECT 1 FROM pragma_table_info(found.name, 'real') WHERE name = 'tenant')
         AND name NOT IN ('audit', 'audit_chains', 'audit_sinks')
         ORDER BY name <> 'threads', name <> 'runs', name",
    )?;
    let names = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    Ok(names)
}

/// Copies a table: adds `?1` to the numbers of threads and runs, subtracts `?2` milliseconds from every time and id,
/// and leaves out runs with a number above `?3`.
fn statement(connection: &Connection, table: &str) -> Result<String, Failure> {
    let mut select =
        connection.prepare("SELECT name, type FROM pragma_table_info(?1, 'real') ORDER BY cid")?;
    let columns = select
        .query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(String, String)>>>()?;
    let has_own_number = matches!(table, "threads" | "runs");
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (name, kind) in &columns {
        let value = match (name.as_str(), kind.as_str()) {
            ("row", _) if has_own_number => "row + ?1".to_owned(),
            // Numbers that no row refers to are assigned again.
            ("row" | "ticket", _) => continue,
            ("run" | "thread" | "parent", _) => format!("{name} + ?1"),
            ("control", _) => "earlier_control(control, ?2)".to_owned(),
            // A hash covers the ids. A copy is like a run from before there were hashes: its next commit starts a chain.
            ("hash" | "chain_head" | "chain_from", _) => "NULL".to_owned(),
            (name, "INTEGER") if name.ends_with("_at") => format!("{name} - ?2"),
            (name, "TEXT") => format!("earlier({name}, ?2)"),
            (name, _) => name.to_owned(),
        };
        names.push(name.as_str());
        values.push(value);
    }
    let number = ["row", "run", "thread"].into_iter().find(|number| match *number {
        "row" => has_own_number,
        other => names.contains(&other),
    });
    let number = number.ok_or_else(|| Failure::new(format!("table {table} belongs to no run")))?;
    let (names, values) = (names.join(", "), values.join(", "));
    Ok(format!("INSERT INTO main.{table} ({names}) SELECT {values} FROM real.{table} WHERE {number} <= ?3"))
}

type Convert = fn(&Context<'_>, TimeShift) -> rusqlite::Result<Value>;

fn text(context: &Context<'_>, earlier: TimeShift) -> rusqlite::Result<Value> {
    match context.get_raw(0) {
        ValueRef::Text(bytes) => Ok(Value::Text(earlier.text(&String::from_utf8_lossy(bytes)))),
        other @ (ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_)) => {
            Value::try_from(other).map_err(unfit)
        }
    }
}

/// Rewrites the control through its readable form, in which ids are strings and times are numbers.
fn control(context: &Context<'_>, earlier: TimeShift) -> rusqlite::Result<Value> {
    let stored: Vec<u8> = context.get(0)?;
    let control = Control::decode(&stored).map_err(|why| unfit(Failure::new(format!("{why:?}"))))?;
    let text = serde_json::to_string(&control).map_err(unfit)?;
    let control: Control = serde_json::from_str(&earlier.text(&text)).map_err(unfit)?;
    Ok(Value::Blob(control.encode().map_err(|why| unfit(Failure::new(why)))?))
}

fn unfit(why: impl Into<Failure>) -> rusqlite::Error {
    rusqlite::Error::UserFunctionError(why.into().to_string().into())
}
