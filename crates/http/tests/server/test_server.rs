//! The server under test: an engine with a scripted model and a few tools, behind a server on a port of its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use engine::agent::Agent;
use engine::store::{Store, Tenant};
use engine::tool::{
    Approval, Callback, FunctionTool, Outcome, ResumeMode, SuspendRequest, Tool, ToolAnswer, ToolDefinition,
    ToolRequest,
};
use engine::{Engine, Settings};
use holdpoint_http::{
    AgentScope, AgentShown, AgentTenants, Approvers, Auth, Key, Limits, Origins, Reloaded, Role, Roles,
    Server, Setup, ToolShown, WebOrigin,
};
use models::scripted::{Reply, ScriptedModel};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stores::memory::MemoryStore;
use stores::postgres::PostgresStore;
use stores::postgres::upkeep::Upkeep as PostgresUpkeep;
use stores::sqlite::SqliteStore;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tools::builtin::{Options, builtin};

use crate::client::Client;
use crate::postgres_server;
use crate::probe_store::{ProbedStore, StoreProbe};

/// Where runs are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Memory,
    Sqlite,
    Postgres,
}

/// Each story on each store.
macro_rules! on_both_stores {
    ($($name:ident;)*) => {
        mod in_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name($crate::test_server::StoreKind::Memory).await }
            )*
        }
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name($crate::test_server::StoreKind::Sqlite).await }
            )*
        }
    };
}
pub(crate) use on_both_stores;

/// The same with PostgreSQL, where the store makes a difference.
macro_rules! on_all_stores {
    ($($name:ident;)*) => {
        $crate::test_server::on_both_stores! { $($name;)* }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name($crate::test_server::StoreKind::Postgres).await }
            )*
        }
    };
}
pub(crate) use on_all_stores;

/// The callback address that tools get; a test that acts as a tool sends to the test server instead.
pub(crate) const CALLBACKS: &str = "https://runs.example.org/v1/callbacks";

/// What a test server is made of.
pub(crate) struct TestPlan {
    pub(crate) store_kind: StoreKind,
    pub(crate) replies: Vec<Reply>,
    pub(crate) auth: Auth,
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
    pub(crate) change: fn(Agent) -> Agent,
    /// Agents beside `assistant` that say and do the same.
    pub(crate) others: &'static [&'static str],
    /// Origins whose pages may call.
    pub(crate) allow_origins: Vec<WebOrigin>,
}

impl TestPlan {
    pub(crate) fn new(store_kind: StoreKind, replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            store_kind,
            replies: replies.into_iter().collect(),
            auth: Auth::open(OPEN_TOKEN),
            limits: Limits::default(),
            settings: Settings { callbacks_at: Some(CALLBACKS.into()), ..Settings::default() },
            change: |agent| agent,
            others: &[],
            allow_origins: Vec::new(),
        }
    }

    /// One held write, and then a word.
    pub(crate) fn one_write(store_kind: StoreKind) -> Self {
        Self::new(store_kind, [write_call(), Reply::text("Done.")])
    }

    pub(crate) fn with_keys(mut self, keys: &[(&str, &str, &[Role])]) -> Self {
        self.auth = keys_of(keys);
        self
    }

    pub(crate) async fn build(self) -> TestServer {
        TestServer::new(self).await
    }
}

/// Keys by name, tenant and roles.
pub(crate) fn keys_of(keys: &[(&str, &str, &[Role])]) -> Auth {
    let keys = keys.iter().map(|(name, tenant, roles)| Key {
        name: (*name).to_owned(),
        sha256: Sha256::digest(token(name)).into(),
        tenant: Tenant::from(*tenant),
        roles: Roles::from_list(roles),
        agents: AgentScope::All,
        acts_for: false,
    });
    Auth::Keys(keys.collect())
}

/// No keys: deciding needs this token, which the client of a test server sends unless a test gives it another.
pub(crate) const OPEN_TOKEN: &str = "drawn-by-the-server";

/// The token of the key with this name.
pub(crate) fn token(name: &str) -> String {
    format!("token-of-{name}")
}

pub(crate) fn write_call() -> Reply {
    Reply::call("call_0", "write_file", json!({"path": "note.txt", "text": "written"}))
}

pub(crate) struct TestServer {
    pub(crate) client: Client,
    pub(crate) engine: Engine,
    pub(crate) server: Arc<Server>,
    pub(crate) draining: CancellationToken,
    /// Calls of `count` that ran.
    pub(crate) counted: Arc<AtomicU32>,
    /// Lets one call of `block` go on.
    pub(crate) gate: Arc<Notify>,
    /// Rings when a call of `block` has begun.
    pub(crate) begun: Arc<Notify>,
    /// With what each call of `later` may report.
    pub(crate) callbacks: Arc<Mutex<Vec<Callback>>>,
    /// What was read of the store.
    pub(crate) probe: Arc<StoreProbe>,
    /// What the next reload finds.
    pub(crate) next_reload: Arc<Mutex<NextReload>>,
    /// Why the sink of the audit record does not work.
    pub(crate) sink_fault: Arc<Mutex<Option<String>>>,
    upkeep: Upkeep,
    replies: Vec<Reply>,
    folder: PathBuf,
}

/// The store as an operator has it.
enum Upkeep {
    InMemory,
    OnSqlite(Arc<SqliteStore>),
    OnPostgres(Box<PostgresUpkeep>),
}

async fn open_store(store_kind: StoreKind, folder: &Path, number: u32) -> (Arc<dyn Store>, Upkeep) {
    match store_kind {
        StoreKind::Memory => (Arc::new(MemoryStore::new()), Upkeep::InMemory),
        StoreKind::Sqlite => {
            let store = Arc::new(SqliteStore::open(folder.join("runs.db")).expect("a store"));
            (store.clone(), Upkeep::OnSqlite(store))
        }
        StoreKind::Postgres => {
            let (address, schema) = (postgres_server::server().address(), format!("stage_{number}"));
            let settings = stores::postgres::PostgresSettings { schema, ..Default::default() };
            let store = PostgresStore::open_with(&address, settings.clone()).await.expect("a store");
            let upkeep = PostgresUpkeep::open(&address, settings).await.expect("its upkeep");
            (Arc::new(store), Upkeep::OnPostgres(Box::new(upkeep)))
        }
    }
}

#[derive(Clone)]
pub(crate) struct NextReload {
    pub(crate) agents: Vec<AgentShown>,
    pub(crate) auth: Auth,
    pub(crate) allow_origins: Vec<WebOrigin>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.server.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl TestServer {
    async fn new(plan: TestPlan) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("holdpoint-http-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (store, upkeep) = open_store(plan.store_kind, &folder, number).await;
        let probe = Arc::<StoreProbe>::default();
        let store = Arc::new(ProbedStore { store, probe: probe.clone() });
        let (counted, gate, begun) = (Arc::default(), Arc::default(), Arc::default());
        let callbacks = Arc::<Mutex<Vec<Callback>>>::default();
        let mut tools = tools(&folder, &counted, &gate, &begun);
        tools.push(later(&callbacks, &gate, &begun));
        let replies = plan.replies.clone();
        let agents: Vec<Agent> = ["assistant"]
            .iter()
            .chain(plan.others)
            .map(|name| {
                let mut agent = Agent::new(name, ScriptedModel::replying(plan.replies.clone()));
                agent.tools.clone_from(&tools);
                (plan.change)(agent)
            })
            .collect();
        let shown: Vec<AgentShown> = agents.iter().map(describe_agent).collect();
        let approvers = Approvers::new(&plan.auth);
        let engine = Engine::on_shared(store).settings(plan.settings).approvers(approvers.for_engine());
        let engine = agents.into_iter().fold(engine, |engine, agent| engine.agent(agent));
        let engine = engine.start().await.expect("it starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let is_open = matches!(plan.auth, Auth::Open { .. });
        let again = NextReload {
            agents: shown.clone(),
            auth: plan.auth.clone(),
            allow_origins: plan.allow_origins.clone(),
        };
        let next_reload = Arc::new(Mutex::new(again));
        let read = next_reload.clone();
        let sink_fault = Arc::<Mutex<Option<String>>>::default();
        let setup = Setup {
            engine: engine.clone(),
            auth: plan.auth,
            agents: shown,
            reload: Arc::new(move || {
                let NextReload { agents, auth, allow_origins } =
                    read.lock().expect("the lock is not poisoned").clone();
                Box::pin(async move {
                    let apply = Box::new(|| ());
                    Ok(Reloaded { agents, auth, allow_origins, file: None, apply })
                })
            }),
            origins: Origins { listen: address, public_url: None, allow_origins: plan.allow_origins },
            approvers,
            sink_fault: {
                let fault = sink_fault.clone();
                Arc::new(move |_| fault.lock().expect("the lock is not poisoned").clone())
            },
            log_lines_dropped: Arc::default(),
        };
        let server = Server::with_limits(setup, plan.limits);
        let draining = CancellationToken::new();
        tokio::spawn(server.clone().serve(listener, draining.clone()));
        let client = Client::new(address);
        let client = if is_open { client.with_token(OPEN_TOKEN) } else { client };
        Self {
            client,
            engine,
            server,
            draining,
            counted,
            gate,
            begun,
            callbacks,
            probe,
            next_reload,
            sink_fault,
            upkeep,
            replies,
            folder,
        }
    }

    /// Deletes every thread whose runs have all ended, one in each commit, and counts them.
    pub(crate) async fn prune(&self) -> u64 {
        let (ever, mut count) = (self.engine.store().now().plus_ms(60_000), 0);
        match &self.upkeep {
            Upkeep::InMemory => panic!("nothing is pruned in memory"),
            Upkeep::OnSqlite(store) => {
                let mut sweep = store.sweep(ever, 1);
                while let Some(pruned) = sweep.next().await.expect("it is swept") {
                    count += pruned.threads;
                }
            }
            Upkeep::OnPostgres(upkeep) => {
                let mut sweep = upkeep.sweep(ever, 1);
                while let Some(pruned) = sweep.next().await.expect("it is swept") {
                    count += pruned.threads;
                }
            }
        }
        count
    }

    pub(crate) fn as_key(&self, name: &str) -> Client {
        self.client.with_token(&token(name))
    }

    /// What `write_file` has written.
    pub(crate) fn note(&self) -> Option<String> {
        std::fs::read_to_string(self.folder.join("notes/note.txt")).ok()
    }

    pub(crate) fn count(&self) -> u32 {
        self.counted.load(Ordering::SeqCst)
    }

    /// A number that the server shows.
    pub(crate) async fn number(&self, name: &str) -> f64 {
        let shown = self.client.get("/metrics").await.text;
        let value = shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("no {name} in {shown}"));
        value.parse().expect("a number")
    }

    /// Another tool of this name from here on, which answers otherwise.
    pub(crate) async fn change_tool(&self, name: &str) {
        let definition = ToolDefinition::new(name, "It is another one now");
        let tool = FunctionTool::new(definition, |_: ToolRequest| async { json!("otherwise") });
        let model = ScriptedModel::replying(self.replies.clone());
        let agent = Agent::new("assistant", model).tool(tool);
        self.engine.replace_agents(vec![agent]).await.expect("they are taken");
    }
}

fn tools(
    folder: &Path,
    counted: &Arc<AtomicU32>,
    gate: &Arc<Notify>,
    begun: &Arc<Notify>,
) -> Vec<Arc<dyn Tool>> {
    let options = Options { folder: Some(folder.join("notes")) };
    let mut tools: Vec<Arc<dyn Tool>> = ["echo", "write_file", "ask_user"]
        .iter()
        .map(|name| builtin(name, &options).expect("there is such a tool"))
        .collect();
    let counted = counted.clone();
    let definition = ToolDefinition::new("count", "Counts how often it ran")
        .parameters(json!({"type": "object", "properties": {"by": {"type": "integer"}}}));
    tools.push(Arc::new(FunctionTool::new(definition, move |_: ToolRequest| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { json!("counted") }
    })));
    let (gate, begun) = (gate.clone(), begun.clone());
    let definition = ToolDefinition::new("block", "Works until it is let go").read();
    tools.push(Arc::new(FunctionTool::new(definition, move |request: ToolRequest| {
        let (gate, begun) = (gate.clone(), begun.clone());
        async move {
            begun.notify_one();
            tokio::select! {
                () = gate.notified() => json!("let go"),
                () = request.cancelled.cancelled() => json!("stopped"),
            }
        }
    })));
    tools
}

/// Writes, unasked, and keeps its callback. It answers as its arguments say: `later` unless they say something else.
fn later(callbacks: &Arc<Mutex<Vec<Callback>>>, gate: &Arc<Notify>, begun: &Arc<Notify>) -> Arc<dyn Tool> {
    let (callbacks, gate, begun) = (callbacks.clone(), gate.clone(), begun.clone());
    let definition = ToolDefinition::new("later", "Works somewhere else").approval(Approval::Never);
    Arc::new(FunctionTool::new(definition, move |request: ToolRequest| {
        let callback = request.callback.clone().expect("the request has a callback");
        callbacks.lock().expect("the lock is not poisoned").push(callback);
        let (gate, begun) = (gate.clone(), begun.clone());
        async move {
            begun.notify_one();
            let mut asks = SuspendRequest::external("It takes a while.");
            if request.resume.is_some() {
                return Outcome::Answered(ToolAnswer::Success { value: request.arguments, warning: None });
            }
            match request.arguments["answer"].as_str() {
                Some("at once") => {
                    return Outcome::Answered(ToolAnswer::Success {
                        value: request.arguments,
                        warning: None,
                    });
                }
                Some("lost at first") if request.attempt == 1 => {
                    return Outcome::Unknown { why: "lost".into(), retry_after_ms: None };
                }
                Some("lost") => return Outcome::Unknown { why: "lost".into(), retry_after_ms: None },
                Some("slowly") => gate.notified().await,
                Some("number") => asks = asks.schema(json!({"type": "number"})),
                Some("replay") => {
                    asks = asks.mode(ResumeMode::ReplayToolCall).resume_state(json!({"ticket": 7}))
                }
                Some(_) | None => {}
            }
            Outcome::Answered(ToolAnswer::Pending(asks))
        }
    }))
}

fn describe_agent(agent: &Agent) -> AgentShown {
    let tool = |tool: &Arc<dyn Tool>| {
        let definition = tool.definition();
        ToolShown {
            name: definition.name.to_string(),
            kind: "builtin".into(),
            description: definition.description.clone(),
            parameters: (*definition.parameters).clone(),
            effect: "write".into(),
            approval: "ask".into(),
        }
    };
    AgentShown {
        name: agent.name.to_string(),
        model: agent.model_name.clone(),
        instructions: agent.instructions.clone(),
        tools: agent.tools.iter().map(tool).collect(),
        policy: Value::Object(serde_json::Map::new()),
        tenants: AgentTenants::All,
    }
}
