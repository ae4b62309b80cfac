//! The process after a restart, or a node beside others: opens a fleet that it has never seen, reports when it is
//! ready, and wakes some of its runs.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Engine;
use engine::deciding::Decide;
use engine::store::{Store, Tenant};
use machine::event::Fact;
use machine::id::{CallId, RunId};
use machine::inbox::Verdict;
use machine::termination::Termination;
use serde_json::{Value, json};
use stores::sqlite::SqliteStore;

use crate::approval::{Entries, approvals};
use crate::bare_postgres::{BareClient, BareTable};
use crate::commits::APPROVAL_COMMIT_BYTES;
use crate::database::{Database, store_in};
use crate::disk::BareDisk;
use crate::environment::{many_threads, on, parked, until};
use crate::failure::Failure;
use crate::pace::milliseconds;
use crate::process;
use crate::recording_store::RecordingStore;

/// A process that takes longer is stuck in a loop.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
const CLOSE_TIME_MAX: Duration = Duration::from_secs(20);

/// Where the fleet is.
#[derive(Debug, PartialEq)]
pub(crate) enum FleetPlace {
    File(PathBuf),
    Tables { address: String, schema: String },
}

impl FleetPlace {
    async fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        match self {
            Self::File(file) => Ok(Arc::new(SqliteStore::open(file)?)),
            Self::Tables { address, schema } => Ok(Arc::new(store_in(address, schema).await?)),
        }
    }

    async fn bare(&self) -> Result<BareCommits, Failure> {
        match self {
            Self::File(file) => {
                let folder = file.parent().ok_or_else(|| Failure::new("the file lies in no folder"))?;
                Ok(BareCommits::Disk(BareDisk::within(folder, APPROVAL_COMMIT_BYTES)?))
            }
            Self::Tables { address, .. } => {
                let database = Database::open(Some(address), Path::new("")).await?;
                let table = BareTable::make(&database).await?;
                let client = table.client(APPROVAL_COMMIT_BYTES).await?;
                Ok(BareCommits::Tables { table, client })
            }
        }
    }
}

/// Measures a commit without Holdpoint.
enum BareCommits {
    Disk(BareDisk),
    Tables { table: BareTable, client: BareClient },
}

impl BareCommits {
    async fn commit(&mut self) -> Result<f64, Failure> {
        match self {
            Self::Disk(disk) => disk.commit(1),
            Self::Tables { client, .. } => client.commit().await,
        }
    }

    async fn remove(self) -> Result<(), Failure> {
        match self {
            Self::Disk(_) => Ok(()),
            Self::Tables { table, .. } => table.remove().await,
        }
    }
}

/// The measurements of one woken run.
pub(crate) struct Woken {
    /// Milliseconds from the decision on A until its tool's body is entered.
    pub(crate) to_tool_start: f64,
    /// Milliseconds from the decision on A until the run has ended; B is decided once it is the only call held.
    pub(crate) to_end: f64,
    /// Commits counted by the store from the decision on A until the run has ended.
    pub(crate) commit_count: u64,
}

/// The process's report.
pub(crate) struct Report {
    pub(crate) woken: Vec<Woken>,
    /// Milliseconds of bare commits, one after each run.
    pub(crate) bare_commits: Vec<f64>,
    pub(crate) memory_after: Option<u64>,
    pub(crate) memory_peak: Option<u64>,
}

impl Report {
    fn to_json(&self) -> Value {
        let woken: Vec<Value> =
            self.woken.iter().map(|one| json!([one.to_tool_start, one.to_end, one.commit_count])).collect();
        json!({
            "woken": woken,
            "bare_commits": self.bare_commits,
            "memory_after": self.memory_after,
            "memory_peak": self.memory_peak,
        })
    }

    pub(crate) fn of_json(text: &str) -> Option<Self> {
        let report: Value = serde_json::from_str(text).ok()?;
        let woken = report["woken"].as_array()?.iter().map(|one| {
            let (to_tool_start, to_end) = (one[0].as_f64()?, one[1].as_f64()?);
            Some(Woken { to_tool_start, to_end, commit_count: one[2].as_u64()? })
        });
        let bare_commits = report["bare_commits"].as_array()?.iter().map(Value::as_f64);
        Some(Self {
            woken: woken.collect::<Option<Vec<_>>>()?,
            bare_commits: bare_commits.collect::<Option<Vec<_>>>()?,
            memory_after: report["memory_after"].as_u64(),
            memory_peak: report["memory_peak"].as_u64(),
        })
    }
}

/// Prints its memory as soon as it is ready. Then reads run ids, one per line, and prints a report when these runs have
/// ended.
pub(crate) fn run(place: FleetPlace) -> Result<(), Failure> {
    on(&many_threads()?, async move {
        let store = place.open().await?;
        let (recording, notes) = RecordingStore::around(store.clone());
        let entries = Entries::of(&store);
        let engine = Engine::on(recording).agent(approvals(&entries)).start().await?;
        let looked = tokio::time::timeout(READY_TIME_MAX, notes.looked_around()).await;
        looked.map_err(|_| Failure::new("the dispatcher does not come to the end of what is ready"))??;
        if engine.runs_in_memory() > 0 {
            return Err(Failure::new("a held run was taken into memory"));
        }
        say(&json!({ "memory": process::memory() }))?;
        let mut report =
            Report { woken: Vec::new(), bare_commits: Vec::new(), memory_after: None, memory_peak: None };
        // On the blocking pool, because the wait would block a thread that the store needs.
        let runs =
            tokio::task::spawn_blocking(|| io::stdin().lock().lines().collect::<io::Result<Vec<String>>>());
        let runs = runs.await??;
        let mut bare = place.bare().await?;
        for run in runs {
            report.woken.push(wake(&engine, &entries, &store, &RunId::from(run)).await?);
            report.bare_commits.push(bare.commit().await?);
        }
        (report.memory_after, report.memory_peak) = (process::memory(), process::peak_memory());
        say(&report.to_json())?;
        drop(entries);
        bare.remove().await?;
        engine.close(CLOSE_TIME_MAX).await;
        Ok(())
    })
}

fn say(line: &Value) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

async fn wake(
    engine: &Engine,
    entries: &Entries,
    store: &Arc<dyn Store>,
    run: &RunId,
) -> Result<Woken, Failure> {
    let before = store.metrics().commits;
    let asked = Instant::now();
    approve(engine, run, "a").await?;
    let mut watched = engine.subscribe(&Tenant::default(), run, 0);
    let mut pauses = 0;
    until(&mut watched, |committed| {
        pauses += usize::from(matches!(committed.event.fact, Fact::RunWaiting { .. }));
        pauses == 2
    })
    .await?;
    approve(engine, run, "b").await?;
    let ended =
        until(&mut watched, |committed| matches!(committed.event.fact, Fact::RunEnded { .. })).await?;
    let to_end = milliseconds(asked.elapsed());
    if !matches!(&ended.event.fact, Fact::RunEnded { termination: Termination::NaturalEnd, .. }) {
        return Err(Failure::new(format!("run {run} ended otherwise: {:?}", ended.event.fact)));
    }
    parked(engine).await;
    let entered = entries.take(run, Some(&CallId::from("a")))?;
    entries.take(run, Some(&CallId::from("b")))?;
    entries.take(run, None)?;
    let to_tool_start = milliseconds(entered.at.duration_since(asked));
    Ok(Woken { to_tool_start, to_end, commit_count: store.metrics().commits - before })
}

async fn approve(engine: &Engine, run: &RunId, call: &str) -> Result<(), Failure> {
    match engine.decide(Decide::approve(run, &CallId::from(call), "ann")).await? {
        Verdict::Accepted => Ok(()),
        verdict @ (Verdict::ToolChanged | Verdict::AlreadyApplied | Verdict::Refused(_)) => {
            Err(Failure::new(format!("the decision on {call} of {run} is {verdict}")))
        }
    }
}
