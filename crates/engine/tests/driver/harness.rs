//! What the driver's tests share: a model that follows a script, tools that keep what they were sent, a store on a
//! paused clock, and functions that wait for an event.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::agent::Agent;
use engine::clock::{Clock, RuntimeClock};
use engine::feed::{FeedItem, Subscription};
use engine::live::Deltas;
use engine::model::{Messages, Model, ModelAnswer, ModelFailure, ModelMessage, ModelRequest};
use engine::posting::Message;
use engine::store::{ApprovalFilter, BoxFuture, Page, Store, StoreError, SuspensionView, Tenant, ViewStore};
use engine::tool::{FunctionTool, IntoOutcome, Outcome, Tool, ToolAnswer, ToolDefinition, ToolRequest};
use engine::{Engine, EngineBuilder};
use machine::event::{Event, Fact};
use machine::id::{CallId, RunId};
use machine::inbox::Verdict;
use machine::termination::Termination;
use machine::{Timestamp, fold};
use serde_json::{Value, json};
use stores::memory::MemoryStore;
use tokio::sync::Notify;

/// Gives these answers in order, the last one again and again, and keeps what it was asked.
#[derive(Clone)]
pub(crate) struct Scripted {
    answers: Arc<Vec<Result<ModelAnswer, ModelFailure>>>,
    pub(crate) calls: Arc<AtomicU32>,
    pub(crate) asked: Arc<Mutex<Vec<ModelRequest>>>,
}

impl Scripted {
    pub(crate) fn new(answers: impl IntoIterator<Item = Result<ModelAnswer, ModelFailure>>) -> Self {
        Self {
            answers: Arc::new(answers.into_iter().collect()),
            calls: Arc::default(),
            asked: Arc::default(),
        }
    }

    /// Each request so far.
    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// What the model was shown the last time, as short texts.
    pub(crate) fn last_read(&self) -> Vec<String> {
        texts_read_by(self.requests().last().unwrap())
    }
}

impl Model for Scripted {
    fn answers_at_once(&self) -> bool {
        true
    }

    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let last = self.answers.len() - 1;
        let answer = self.answers[last.min(request.ordinal as usize - 1)].clone();
        self.asked.lock().unwrap().push(request);
        Box::pin(async move {
            if let Ok(answer) = &answer {
                deltas.text(&answer.text);
            }
            answer
        })
    }
}

/// A model made of a function.
pub(crate) struct FunctionModel<F>(pub(crate) F);

impl<F, A> Model for FunctionModel<F>
where
    F: Fn(ModelRequest, Deltas) -> A + Send + Sync + 'static,
    A: Future<Output = Result<ModelAnswer, ModelFailure>> + Send + 'static,
{
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin((self.0)(request, deltas))
    }
}

/// What a request shows, as short texts.
pub(crate) fn texts_read_by(request: &ModelRequest) -> Vec<String> {
    texts_of(&request.messages)
}

pub(crate) fn texts_of(messages: &Messages) -> Vec<String> {
    let text = |message: &ModelMessage| match message {
        ModelMessage::User { content, .. } => format!("user: {}", content.as_str().unwrap_or("?")),
        ModelMessage::Assistant { text, calls, .. } => {
            let asked: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
            format!("assistant: {text}{asked:?}")
        }
        ModelMessage::Tool { call, text } => format!("tool {call}: {text}"),
        ModelMessage::Note { call, text, .. } => format!("note {call}: {text}"),
        ModelMessage::Notice { text } => format!("notice: {text}"),
    };
    messages.iter().map(text).collect()
}

/// What the tools of a test were sent.
#[derive(Clone, Default)]
pub(crate) struct Sent(Arc<Mutex<Vec<ToolRequest>>>);

impl Sent {
    /// A tool that keeps what it is sent, and answers like this.
    pub(crate) fn tool<R, F>(&self, definition: ToolDefinition, answer: F) -> impl Tool + use<R, F>
    where
        R: IntoOutcome,
        F: Fn(&ToolRequest) -> R + Send + Sync + 'static,
    {
        let sent = self.clone();
        FunctionTool::new(definition, move |request: ToolRequest| {
            let outcome = answer(&request).into_outcome();
            sent.0.lock().unwrap().push(request);
            async move { outcome }
        })
    }

    /// A write that is held for approval.
    pub(crate) fn transfer(&self) -> impl Tool + use<> {
        self.tool(transfer_definition(), |_| json!("sent"))
    }

    pub(crate) fn requests(&self) -> Vec<ToolRequest> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn keep(&self, request: ToolRequest) {
        self.0.lock().unwrap().push(request);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn arguments(&self) -> Vec<Value> {
        self.requests().iter().map(|request| (*request.arguments).clone()).collect()
    }
}

pub(crate) fn transfer_definition() -> ToolDefinition {
    ToolDefinition::new("transfer", "Moves money")
}

pub(crate) fn echo() -> impl Tool {
    let definition = ToolDefinition::new("echo", "Says it again").read();
    FunctionTool::new(definition, |request: ToolRequest| async move { (*request.arguments).clone() })
}

/// A read that comes back once its gate is opened.
pub(crate) fn gated(name: &str, gate: &Arc<Notify>) -> impl Tool + use<> {
    let gate = gate.clone();
    FunctionTool::new(ToolDefinition::new(name, "Waits").read(), move |_: ToolRequest| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            json!("went through")
        }
    })
}

pub(crate) fn success(value: Value) -> Outcome {
    Outcome::Answered(ToolAnswer::Success { value: Arc::new(value), warning: None })
}

pub(crate) fn on(store: &MemoryStore, agent: Agent) -> EngineBuilder {
    let store: Arc<dyn Store> = Arc::new(store.clone());
    Engine::on_shared(store).agent(agent)
}

/// Asks for these calls, then says that it is done.
pub(crate) fn asking(calls: &[(&str, &str, Value)]) -> Scripted {
    Scripted::new([Ok(ask(calls)), Ok(ModelAnswer::text("Done."))])
}

/// An answer that asks for these calls.
pub(crate) fn ask(calls: &[(&str, &str, Value)]) -> ModelAnswer {
    calls
        .iter()
        .fold(ModelAnswer::text(""), |answer, (id, tool, arguments)| answer.calling(id, tool, arguments))
}

pub(crate) fn two_echoes() -> Scripted {
    asking(&[("call_0", "echo", json!({"n": 1})), ("call_1", "echo", json!({"n": 2}))])
}

/// A store and a clock that follows the runtime's: on a paused runtime it advances only when every task waits.
#[derive(Clone)]
pub(crate) struct Harness {
    pub(crate) store: MemoryStore,
    pub(crate) clock: RuntimeClock,
}

pub(crate) const BEGIN: Timestamp = Timestamp(1_000_000);

impl Harness {
    pub(crate) fn new() -> Self {
        let clock = RuntimeClock::starting_at(BEGIN);
        Self { store: MemoryStore::with_clock(Arc::new(move || clock.now())), clock }
    }

    pub(crate) fn engine(&self) -> EngineBuilder {
        self.engine_on(Arc::new(self.store.clone()))
    }

    pub(crate) fn engine_on(&self, store: Arc<dyn Store>) -> EngineBuilder {
        Engine::on_shared(store).clock(self.clock)
    }

    pub(crate) async fn start(&self, agent: Agent) -> Engine {
        self.engine().agent(agent).start().await.unwrap()
    }

    /// As after a crash: nothing that was in memory is left.
    pub(crate) fn reopen(&self) -> Self {
        Self { store: self.store.reopen(), clock: self.clock }
    }

    pub(crate) fn commits(&self) -> u64 {
        self.store.metrics().commits
    }

    pub(crate) async fn log(&self, run: &RunId) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.len() as u64;
            let page = self.store.events(&Tenant::default(), run, after, 100_000).await.unwrap();
            if page.is_empty() {
                break;
            }
            events.extend(page.iter().map(|committed| (*committed.readable().unwrap().event).clone()));
        }
        let stored = self.store.run(&Tenant::default(), run).await.unwrap().unwrap().control;
        assert_eq!(fold(&events).ok(), stored, "the stored state is not what the log says");
        events
    }

    /// The types of all events of a run.
    pub(crate) async fn names(&self, run: &RunId) -> Vec<String> {
        self.log(run).await.iter().map(|event| name(&event.fact)).collect()
    }

    /// The number of events of this type in the log.
    pub(crate) async fn count(&self, run: &RunId, wanted: &str) -> usize {
        self.names(run).await.iter().filter(|name| *name == wanted).count()
    }

    pub(crate) async fn ended(&self, run: &RunId) -> Option<Termination> {
        let view = self.store.run(&Tenant::default(), run).await.unwrap().unwrap();
        view.control.as_ref().unwrap().ended().cloned()
    }

    /// What a person had to answer in a run and is closed.
    pub(crate) async fn closed(&self, run: &RunId) -> Vec<SuspensionView> {
        let filter = ApprovalFilter::changed(run, 0);
        let all = self.store.approvals(&Tenant::default(), &filter, &Page::default()).await.unwrap().items;
        all.into_iter().filter(|shown| shown.decided_at.is_some()).collect()
    }

    /// Everything that a person has to answer.
    pub(crate) async fn pending(&self) -> Vec<SuspensionView> {
        let filter = ApprovalFilter::default();
        self.store.approvals(&Tenant::default(), &filter, &Page::default()).await.unwrap().items
    }
}

/// The stored type of an event, `tool.requested` and the like.
pub(crate) fn name(fact: &Fact) -> String {
    serde_json::to_value(fact).unwrap()["type"].as_str().unwrap().to_owned()
}

/// Longer than anything in a test takes: what comes later never comes.
const WATCHDOG: Duration = Duration::from_secs(3 * 24 * 3600);

pub(crate) async fn next_item(watched: &mut Subscription) -> Option<FeedItem> {
    let item = tokio::time::timeout(WATCHDOG, watched.next()).await.expect("nothing happens any more");
    item.map(|item| item.unwrap())
}

/// The next stored event; what is not stored is passed over.
pub(crate) async fn next_event(watched: &mut Subscription) -> Option<Event> {
    loop {
        if let FeedItem::Event(committed) = next_item(watched).await? {
            return Some((*committed.event).clone());
        }
    }
}

pub(crate) async fn until(watched: &mut Subscription, wanted: impl Fn(&Fact) -> bool) -> Event {
    loop {
        let event = next_event(watched).await.expect("the run is over");
        if wanted(&event.fact) {
            return event;
        }
    }
}

/// The next event of this type.
pub(crate) async fn until_named(watched: &mut Subscription, wanted: &str) -> Event {
    until(watched, |fact| name(fact) == wanted).await
}

/// Every event up to the end.
pub(crate) async fn remaining_events(watched: &mut Subscription) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = next_event(watched).await {
        events.push(event);
    }
    events
}

/// Until no run is in memory.
pub(crate) async fn wait_until_released(engine: &Engine) {
    for _ in 0..100_000 {
        if engine.runs_in_memory() == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} runs stay in memory", engine.runs_in_memory());
}

/// Starts a run and waits until it holds something; gives its events so far.
pub(crate) async fn held(engine: &Engine, message: Message) -> (RunId, Subscription) {
    let (posted, mut watched) = engine.stream(message).await.unwrap();
    until_named(&mut watched, "run.waiting").await;
    (posted.run, watched)
}

/// What was said is taken.
#[track_caller]
pub(crate) fn accepted(verdict: Result<Verdict, StoreError>) {
    assert_eq!(verdict, Ok(Verdict::Accepted));
}

pub(crate) fn to_assistant() -> Message {
    Message::to("assistant", "go")
}

pub(crate) fn call(id: &str) -> CallId {
    CallId::from(id)
}
