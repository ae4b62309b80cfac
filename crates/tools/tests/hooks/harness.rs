//! One run of an agent with a hook: the model asks for one call of a tool that reads, and says that it is done.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use engine::Engine;
use engine::agent::Agent;
use engine::clock::{Clock, RuntimeClock};
use engine::deciding::Decide;
use engine::feed::{FeedItem, Subscription};
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::plugin::{CallErrorCode, Phase};
use engine::posting::Message;
use engine::store::BoxFuture;
use engine::tool::{FunctionTool, Tool, ToolDefinition, ToolRequest};
use machine::Timestamp;
use machine::event::{Event, Fact};
use machine::id::PluginName;
use machine::inbox::Verdict;
use machine::suspension::Held;
use machine::termination::Termination;
use serde_json::{Value, json};
use stores::memory::MemoryStore;
use tools::http::{HookSettings, HttpHook, HttpSettings};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Small, so that a test can exceed it.
pub(crate) const ANSWER_BYTES_MAX: usize = 4096;

/// Keeps the paused clock from advancing by itself while the runtime waits for a socket. After a minute of real time it
/// lets go, so that the timeout of a stuck test fires.
pub(crate) struct HeldClock {
    #[expect(dead_code, reason = "held for its drop")]
    stop: mpsc::Sender<()>,
}

impl HeldClock {
    pub(crate) fn new() -> Self {
        let (stop, stopped) = mpsc::channel();
        // While a blocking task runs, the runtime does not advance its clock.
        tokio::task::spawn_blocking(move || stopped.recv_timeout(Duration::from_secs(60)));
        Self { stop }
    }
}

/// Gives these answers in order, the last one again and again, and records what it was asked.
#[derive(Clone)]
pub(crate) struct Scripted {
    answers: Arc<Vec<ModelAnswer>>,
    pub(crate) requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl Scripted {
    pub(crate) fn new() -> Self {
        let look = ModelAnswer::text("").calling("a", "look", json!({"n": 1}));
        Self { answers: Arc::new(vec![look, ModelAnswer::text("Done.")]), requests: Arc::default() }
    }
}

impl Model for Scripted {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        let answer = self.answers[(request.ordinal as usize - 1).min(self.answers.len() - 1)].clone();
        self.requests.lock().unwrap().push(request);
        Box::pin(async move { Ok(answer) })
    }
}

/// The arguments with which the tool ran.
pub(crate) type Ran = Arc<Mutex<Vec<Value>>>;

pub(crate) fn look(ran: &Ran) -> impl Tool + use<> {
    let ran = ran.clone();
    FunctionTool::new(ToolDefinition::new("look", "Reads").read(), move |request: ToolRequest| {
        ran.lock().unwrap().push((*request.arguments).clone());
        async { json!("seen") }
    })
}

pub(crate) fn settings(url: &str, phases: impl IntoIterator<Item = Phase>) -> HookSettings {
    HookSettings {
        name: PluginName::from("hook"),
        phases: phases.into_iter().collect(),
        timeout: TIMEOUT,
        http: HttpSettings { response_bytes_max: ANSWER_BYTES_MAX, ..HttpSettings::at(url) },
    }
}

pub(crate) fn hook(url: &str, phases: impl IntoIterator<Item = Phase>) -> HttpHook {
    HttpHook::new(&settings(url, phases)).unwrap()
}

pub(crate) fn message() -> Message {
    Message { message_id: Some("m1".into()), ..Message::to("assistant", "go") }
}

/// A store on the runtime's clock.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) store: MemoryStore,
    clock: RuntimeClock,
}

impl Stored {
    pub(crate) fn new() -> Self {
        let clock = RuntimeClock::starting_at(Timestamp(1_000_000));
        Self { store: MemoryStore::with_clock(Arc::new(move || clock.now())), clock }
    }

    /// As after a crash: only what was stored is left.
    pub(crate) fn reopen(&self) -> Self {
        Self { store: self.store.reopen(), clock: self.clock }
    }

    pub(crate) async fn start(&self, agent: Agent) -> Engine {
        let engine = Engine::on_shared(Arc::new(self.store.clone())).clock(self.clock);
        engine.agent(agent).start().await.unwrap()
    }
}

/// Everything that is seen of one run.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) ended: Termination,
    pub(crate) ran: Vec<Value>,
    pub(crate) requests: Vec<ModelRequest>,
    pub(crate) events: Vec<Event>,
}

impl Seen {
    pub(crate) fn call_errors(&self) -> Vec<CallErrorCode> {
        let code = |event: &Event| match &event.fact {
            Fact::ExecutionFailed { error, .. } => Some(error.code),
            _ => None,
        };
        self.events.iter().filter_map(code).collect()
    }

    /// Why the hook failed, each time.
    pub(crate) fn failures(&self) -> Vec<&str> {
        self.events.iter().filter_map(failed).collect()
    }

    /// Keys and values that were stored for the hook.
    pub(crate) fn state(&self) -> Vec<(String, Value)> {
        let changed = |event: &Event| match &event.fact {
            Fact::StateChanged { key, value, .. } => Some((key.clone(), (**value).clone())),
            _ => None,
        };
        self.events.iter().filter_map(changed).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let name =
            |event: &Event| serde_json::to_value(&event.fact).unwrap()["type"].as_str().unwrap().to_owned();
        self.events.iter().map(name).collect()
    }

    pub(crate) fn last_request(&self) -> String {
        format!("{:?}", self.requests.last().unwrap().messages.iter().collect::<Vec<_>>())
    }
}

fn failed(event: &Event) -> Option<&str> {
    match &event.fact {
        Fact::PhaseAnswered { failed, .. } => failed.as_deref(),
        _ => None,
    }
}

const STUCK_AFTER: Duration = Duration::from_secs(3 * 24 * 3600);

pub(crate) async fn next_event(watched: &mut Subscription) -> Option<Event> {
    loop {
        let item = tokio::time::timeout(STUCK_AFTER, watched.next()).await.expect("nothing happens any more");
        if let FeedItem::Event(committed) = item?.unwrap() {
            return Some((*committed.event).clone());
        }
    }
}

/// Runs the agent with this hook to its end. Approvals are given, and questions are answered with `7`.
pub(crate) async fn run(hook: HttpHook) -> Seen {
    let (ran, model) = (Ran::default(), Scripted::new());
    let agent = Agent::new("assistant", model.clone()).tool(look(&ran)).plugin(hook);
    let engine = Stored::new().start(agent).await;
    let (posted, mut watched) = engine.stream(message()).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = next_event(&mut watched).await {
        if let Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) = &event.fact {
            let decide = match &opened.held {
                Held::Approval { .. } => Decide::approve(&posted.run, &opened.call_id, "ann"),
                _ => Decide::result(&posted.run, &opened.call_id, "ann", json!(7)),
            };
            assert_eq!(engine.decide(decide).await, Ok(Verdict::Accepted));
        }
        events.push(event);
    }
    let ended = events.iter().find_map(|event| match &event.fact {
        Fact::RunEnded { termination, .. } => Some(termination.clone()),
        _ => None,
    });
    engine.abort();
    let (ran, requests) = (ran.lock().unwrap().clone(), model.requests.lock().unwrap().clone());
    Seen { ended: ended.expect("the run ended"), ran, requests, events }
}
