//! The environment of a workload: a store, an engine on it, and the models and tools that all workloads use.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use engine::agent::{Agent, StopCondition};
use engine::feed::{FeedItem, Subscription};
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::posting::Message;
use engine::store::{BoxFuture, CommittedEvent, Store};
use engine::tool::{FunctionTool, Tool, ToolDefinition, ToolRequest};
use engine::{Engine, Settings};
use machine::event::Fact;
use serde_json::json;
use stores::memory::MemoryStore;
use stores::sqlite::SqliteStore;
use tokio::runtime::{Builder, Runtime};

use crate::bytes_on_disk::Folder;
use crate::database::{Database, Schema};
use crate::failure::Failure;
use crate::postmaster::Postmaster;
use crate::process;
use crate::recording_store::{RecordingStore, StoreRecords};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Memory,
    Sqlite,
    Postgres,
}

impl StoreKind {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Sqlite, Self::Postgres];
    /// The stores that need no server.
    pub(crate) const EMBEDDED: [Self; 2] = [Self::Memory, Self::Sqlite];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    pub(crate) const fn durability(self) -> &'static str {
        match self {
            Self::Memory => "none",
            Self::Sqlite => "every commit synced before it is acknowledged; a power cut loses nothing of it",
            Self::Postgres => {
                "every commit synced by the server before it is acknowledged; a power cut loses nothing of it"
            }
        }
    }
}

/// Where a workload runs.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) kind: StoreKind,
    /// The folder whose disk is measured.
    pub(crate) folder: PathBuf,
    /// None if no database is measured.
    pub(crate) database: Option<Arc<Database>>,
    /// True if this process has measured nothing before.
    pub(crate) is_first: bool,
}

impl Setting {
    /// Opens an empty store.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        let (store, home): (Arc<dyn Store>, _) = match self.kind {
            StoreKind::Memory => (Arc::new(MemoryStore::new()), Home::Memory),
            StoreKind::Sqlite => {
                let folder = Folder::within(&self.folder)?;
                let store = SqliteStore::open(folder.file("runs.db"))?;
                (Arc::new(store), Home::File(folder))
            }
            StoreKind::Postgres => {
                let schema = Schema::of(self.database()?);
                let store = schema.store().await?;
                (Arc::new(store), Home::Tables(schema))
            }
        };
        Ok(Opened { store, home })
    }

    pub(crate) fn database(&self) -> Result<&Arc<Database>, Failure> {
        self.database.as_ref().ok_or_else(|| Failure::new("there is no database"))
    }

    /// Peak memory of the process, in MiB. Empty unless first, because what earlier workloads left in the heap would
    /// count.
    pub(crate) fn peak_memory(&self) -> Vec<f64> {
        let peak = if self.is_first { process::peak_memory() } else { None };
        peak.map(|bytes| bytes as f64 / 1_048_576.0).into_iter().collect()
    }
}

/// A store and its data, which is removed after the store is closed.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    home: Home,
}

enum Home {
    Memory,
    File(Folder),
    Tables(Schema),
}

impl Opened {
    /// Wraps the store in one that takes notes.
    pub(crate) fn recording(&mut self) -> Arc<StoreRecords> {
        let (recording, notes) = RecordingStore::around(self.store.clone());
        self.store = Arc::new(recording);
        notes
    }

    pub(crate) async fn start(&self, agent: Agent) -> Result<Engine, Failure> {
        self.start_with(agent, Settings::default()).await
    }

    pub(crate) async fn start_with(&self, agent: Agent, settings: Settings) -> Result<Engine, Failure> {
        Ok(Engine::on_shared(self.store.clone()).agent(agent).settings(settings).start().await?)
    }

    /// The database server behind the store, if it is on this machine.
    pub(crate) fn postmaster(&self) -> Option<Postmaster> {
        match &self.home {
            Home::Memory | Home::File(_) => None,
            Home::Tables(schema) => schema.database.postmaster,
        }
    }

    /// Bytes of log that the database server behind the store has written so far.
    pub(crate) async fn log_position(&self) -> Result<Option<u64>, Failure> {
        match &self.home {
            Home::Memory | Home::File(_) => Ok(None),
            Home::Tables(schema) => Ok(Some(schema.database.log_position().await?)),
        }
    }

    /// Stops the engine and closes the store. Returns the bytes on disk afterwards.
    pub(crate) async fn close(self, engine: Engine) -> Result<Option<u64>, Failure> {
        engine.abort();
        drop(engine);
        // Aborted tasks drop the store only when the runtime polls them.
        while Arc::strong_count(&self.store) > 1 {
            tokio::task::yield_now().await;
        }
        let Self { store, home } = self;
        drop(store);
        match home {
            Home::Memory => Ok(None),
            Home::File(folder) => Ok(Some(folder.byte_count()?)),
            Home::Tables(schema) => {
                let bytes = schema.byte_count().await?;
                schema.remove().await?;
                Ok(Some(bytes))
            }
        }
    }
}

/// The runtime that an embedder would use: a thread for each core.
pub(crate) fn many_threads() -> Result<Runtime, Failure> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

/// Runs everything on the calling thread: no task is ever handed to another thread.
pub(crate) fn one_thread() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Runs the work as a task of the runtime. Waiting outside of it would add a thread switch to every wait.
pub(crate) fn on<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    runtime.block_on(async { tokio::spawn(work).await? })
}

pub(crate) const AGENT: &str = "assistant";
/// 64 bytes each, like those of the peers.
pub(crate) const USER: &str = "please do the thing uuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu";
const FINAL: &str = "done fffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
pub(crate) const ECHOED: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// An agent without a limit on the number of rounds.
pub(crate) fn agent(model: impl Model) -> Agent {
    let no_limit: [StopCondition; 0] = [];
    Agent::new(AGENT, model).stop_when(no_limit)
}

/// Starts a thread of its own.
pub(crate) fn user_message() -> Message {
    Message::to(AGENT, USER)
}

/// Returns its arguments at once.
pub(crate) fn echo() -> impl Tool {
    let definition = ToolDefinition::new("echo", "Says it again").read();
    FunctionTool::new(definition, |request: ToolRequest| async move { (*request.arguments).clone() })
}

/// An answer that asks for these calls, each a pair of id and tool.
pub(crate) fn asking(calls: &[(&str, &str)]) -> ModelAnswer {
    let arguments = json!({"text": ECHOED});
    calls.iter().fold(ModelAnswer::default(), |answer, (id, tool)| answer.calling(id, tool, &arguments))
}

pub(crate) fn last_answer() -> ModelAnswer {
    ModelAnswer::text(FINAL)
}

/// Asks for calls once, and then gives its final answer.
pub(crate) struct AskOnce {
    asking: ModelAnswer,
    last: ModelAnswer,
}

impl AskOnce {
    pub(crate) fn new(calls: &[(&str, &str)]) -> Self {
        Self { asking: asking(calls), last: last_answer() }
    }
}

impl Model for AskOnce {
    fn answers_at_once(&self) -> bool {
        true
    }

    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        let answer = if request.ordinal == 1 { &self.asking } else { &self.last };
        Box::pin(std::future::ready(Ok(answer.clone())))
    }
}

/// The next event that matches; skips those before it.
pub(crate) async fn until(
    watched: &mut Subscription,
    mut is_it: impl FnMut(&CommittedEvent) -> bool,
) -> Result<CommittedEvent, Failure> {
    while let Some(item) = watched.next().await {
        match item? {
            FeedItem::Event(committed) if is_it(&committed) => return Ok(committed),
            FeedItem::Event(committed) => {
                if let Fact::RunEnded { termination, .. } = &committed.event.fact {
                    return Err(Failure::new(format!("the run ended too early: {termination:?}")));
                }
            }
            FeedItem::Unreadable(_) | FeedItem::Live(_) => {}
        }
    }
    Err(Failure::new("the events of a run stopped before its end"))
}

/// Waits until no run is in memory: each has ended or is parked.
pub(crate) async fn parked(engine: &Engine) {
    while engine.runs_in_memory() > 0 {
        tokio::task::yield_now().await;
    }
}
