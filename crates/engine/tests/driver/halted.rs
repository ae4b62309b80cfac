//! A run that cannot continue blocks no other run, an engine that stops does not wait for it, and an interrupt ends it.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use engine::agent::Agent;
use engine::deciding::Decide;
use engine::plugin::Phase;
use engine::store::{
    Append, Appended, BoxFuture, Lease, Loaded, LogEntry, RunStore, Store, StoreError, StoreFailure, Tenant,
    ViewStore, Wrapper,
};
use engine::{Engine, Settings};
use machine::apply::apply;
use machine::event::{Event, Fact, Usage};
use machine::id::{Digest, RunId, ThreadId};
use machine::inbox::Item;
use machine::input::{ChildEnd, ChildEnded};
use machine::suspension::SuspensionKind;
use machine::termination::{Cancelled, Termination};
use serde_json::json;
use stores::memory::MemoryStore;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

use crate::function_plugin::FunctionPlugin;
use crate::harness::{
    Harness, Sent, accepted, asking, call, held, remaining_events, to_assistant, until, until_named,
    wait_until_released,
};

/// A store in which something of one run is damaged.
struct Damaged {
    inner: MemoryStore,
    run: Mutex<Option<RunId>>,
    log_is_damaged: AtomicBool,
    event_is_lost: AtomicBool,
    result_is_lost: AtomicBool,
    is_out_of_reach: AtomicBool,
    /// A result contradicts what is stored.
    result_is_impossible: AtomicBool,
    revisions_are_damaged: AtomicBool,
}

impl Damaged {
    fn on(inner: &MemoryStore) -> Arc<Self> {
        Arc::new(Self {
            inner: inner.clone(),
            run: Mutex::default(),
            log_is_damaged: AtomicBool::default(),
            event_is_lost: AtomicBool::default(),
            result_is_lost: AtomicBool::default(),
            is_out_of_reach: AtomicBool::default(),
            result_is_impossible: AtomicBool::default(),
            revisions_are_damaged: AtomicBool::default(),
        })
    }

    fn damage(&self, what: &AtomicBool, run: &RunId) {
        *self.run.lock().unwrap() = Some(run.clone());
        what.store(true, Ordering::Release);
    }

    fn is(&self, what: &AtomicBool, run: &RunId) -> bool {
        what.load(Ordering::Acquire) && self.run.lock().unwrap().as_ref() == Some(run)
    }

    /// Why the machine refuses the log in which the call of this result begins once more.
    async fn begun_after_its_end(&self, lease: &Lease, append: &Append) -> String {
        let view = self.inner.run(&lease.tenant, &lease.run).await.unwrap().unwrap();
        let log = self.inner.events(&lease.tenant, &lease.run, 0, usize::MAX).await.unwrap();
        let starts = |event: &&Event| matches!(event.fact, Fact::ExecutionStarted { .. });
        let started = log.iter().map(|logged| &*logged.decoded().unwrap().event).find(starts).unwrap();
        let mut control = view.control.unwrap();
        let result =
            append.events.iter().position(|event| matches!(event.fact, Fact::ExecutionSucceeded { .. }));
        for event in &append.events[..=result.unwrap()] {
            apply(&mut control, event).unwrap();
        }
        let mut again = Event { seq: control.seq + 1, at: control.at, ..started.clone() };
        if let Fact::ExecutionStarted { attempt, .. } = &mut again.fact {
            *attempt += 1;
        }
        apply(&mut control, &again).unwrap_err().to_string()
    }
}

/// Keeps what is logged as an error, by every test of this process. A listener of one thread would miss what another
/// thread was the first to log: whether anybody listens is asked once for each place in the code, on that thread.
#[derive(Clone, Default)]
struct ErrorLog(Arc<Mutex<Vec<String>>>);

impl ErrorLog {
    fn listen() -> Self {
        static LOG: OnceLock<ErrorLog> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Self::default();
            tracing::subscriber::set_global_default(log.clone()).expect("no other test listens");
            log
        });
        tracing::callsite::rebuild_interest_cache();
        log.clone()
    }

    fn lines_about(&self, run: &RunId) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.contains(run.as_str())).cloned().collect()
    }
}

impl Subscriber for ErrorLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = LogLine::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct LogLine(String);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").expect("a text takes every line");
    }
}

fn corrupt<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, StoreError>> {
    Box::pin(std::future::ready(Err(StoreFailure::Corrupt("a page is damaged".into()).into())))
}

impl Wrapper for Damaged {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> BoxFuture<'_, Result<Option<String>, StoreError>> {
        if self.revisions_are_damaged.load(Ordering::Acquire) {
            return corrupt();
        }
        self.inner.revision(tenant, thread, digest)
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>> {
        if self.is(&self.log_is_damaged, run) {
            return corrupt();
        }
        self.inner.events(tenant, run, after, limit)
    }

    fn event(&self, lease: &Lease, seq: u64) -> BoxFuture<'_, Result<Arc<Event>, StoreError>> {
        if self.is(&self.event_is_lost, &lease.run) {
            return Box::pin(std::future::ready(Err(StoreError::NotFound)));
        }
        let is_lost = self.is(&self.result_is_lost, &lease.run);
        let event = self.inner.event(lease, seq);
        Box::pin(async move {
            let event = event.await?;
            let is_result = matches!(event.fact, Fact::ExecutionSucceeded { .. });
            if is_lost && is_result { Err(StoreError::NotFound) } else { Ok(event) }
        })
    }

    fn load(&self, lease: &Lease) -> BoxFuture<'_, Result<Loaded, StoreError>> {
        if self.is(&self.is_out_of_reach, &lease.run) {
            let trouble = StoreFailure::Unavailable("the database does not answer".into());
            return Box::pin(std::future::ready(Err(trouble.into())));
        }
        self.inner.load(lease)
    }

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let has_result =
            append.events.iter().any(|event| matches!(event.fact, Fact::ExecutionSucceeded { .. }));
        if has_result && self.is(&self.result_is_impossible, &lease.run) {
            let lease = lease.clone();
            return Box::pin(async move {
                Err(StoreError::Impossible(self.begun_after_its_end(&lease, &append).await))
            });
        }
        self.inner.append(lease, append)
    }
}

/// One place, and an agent that wants to transfer money. What was let go is read again.
async fn with_one_slot(harness: &Harness, store: &Arc<Damaged>, sent: &Sent) -> Engine {
    with_one_slot_for(harness, store, transferring(sent)).await
}

fn transferring(sent: &Sent) -> Agent {
    Agent::new("assistant", asking(&[("a", "transfer", json!({}))])).tool(sent.transfer())
}

async fn with_one_slot_for(harness: &Harness, store: &Arc<Damaged>, agent: Agent) -> Engine {
    let settings = Settings { running_runs_max: 1, transcript_cache_bytes: 0, ..Settings::default() };
    harness.engine_on(store.clone()).settings(settings).agent(agent).start().await.unwrap()
}

/// Without the time going on.
async fn ends(harness: &Harness, run: &RunId) -> Termination {
    for _ in 0..10_000 {
        if let Some(how) = harness.ended(run).await {
            return how;
        }
        tokio::task::yield_now().await;
    }
    panic!("{run} does not end");
}

/// While the clock is paused, another run gets as far as a held call.
async fn has_a_free_slot(engine: &Engine) {
    let began = tokio::time::Instant::now();
    held(engine, to_assistant()).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}

async fn drains_at_once(engine: &Engine) {
    let began = tokio::time::Instant::now();
    engine.drain(Duration::from_secs(60)).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}

async fn interrupt(engine: &Engine, run: &RunId) {
    accepted(engine.interrupt(&Tenant::default(), run, &"ann".into()).await);
}

const INTERRUPTED: Termination = Termination::Cancelled(Cancelled::Interrupted);

/// A run that has an inbox item to process, and whose agent cannot be read.
async fn with_an_unreadable_agent() -> (Harness, Engine, RunId) {
    let (harness, sent) = (Harness::new(), Sent::default());
    let old = Agent::new("old", asking(&[("a", "transfer", json!({}))])).tool(sent.transfer());
    let engine = harness.start(old).await;
    let (run, _) = held(&engine, engine::posting::Message::to("old", "go")).await;
    wait_until_released(&engine).await;
    engine.abort();
    let harness = harness.reopen();
    let (call, usage) = ("missing".into(), Usage::default());
    let end = ChildEnd::Interrupted;
    let ended = ChildEnded { call, run: "child".into(), end, usage, descendants: 0 };
    accepted(harness.store.submit(&Tenant::default(), &run, Item::ChildEnded(ended)).await);
    let store = Damaged::on(&harness.store);
    store.revisions_are_damaged.store(true, Ordering::Release);
    let engine = with_one_slot(&harness, &store, &sent).await;
    (harness, engine, run)
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_agent_cannot_be_read_releases_its_slot_and_an_interrupt_ends_it() {
    let (harness, engine, run) = with_an_unreadable_agent().await;
    has_a_free_slot(&engine).await;
    assert_eq!((harness.ended(&run).await, engine.runs_in_memory()), (None, 1));
    interrupt(&engine, &run).await;
    remaining_events(&mut engine.subscribe(&Tenant::default(), &run, 0)).await;
    assert_eq!(harness.ended(&run).await, Some(INTERRUPTED));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stops_does_not_wait_for_a_run_whose_agent_cannot_be_read() {
    let (_stage, engine, _) = with_an_unreadable_agent().await;
    has_a_free_slot(&engine).await;
    assert_eq!(engine.runs_in_memory(), 1);
    drains_at_once(&engine).await;
}

/// A run whose call was approved and sent, and whose log cannot be read for the next model call.
async fn with_a_damaged_log() -> (Harness, Engine, RunId) {
    let (harness, sent) = (Harness::new(), Sent::default());
    let store = Damaged::on(&harness.store);
    let engine = with_one_slot(&harness, &store, &sent).await;
    let (run, _) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    store.damage(&store.log_is_damaged, &run);
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    has_a_free_slot(&engine).await;
    assert_eq!(sent.count(), 1);
    (harness, engine, run)
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_log_cannot_be_read_releases_its_slot_and_accepts_an_interrupt() {
    let (harness, engine, run) = with_a_damaged_log().await;
    interrupt(&engine, &run).await;
    assert_eq!(ends(&harness, &run).await, INTERRUPTED);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stops_does_not_wait_for_a_run_whose_log_cannot_be_read() {
    let (_, engine, _) = with_a_damaged_log().await;
    drains_at_once(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_misses_one_event_is_not_forgotten() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let store = Damaged::on(&harness.store);
    let engine = with_one_slot(&harness, &store, &sent).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    store.damage(&store.event_is_lost, &run);
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    has_a_free_slot(&engine).await;
    store.event_is_lost.store(false, Ordering::Release);
    remaining_events(&mut watched).await;
    assert_eq!((harness.ended(&run).await, sent.count()), (Some(Termination::NaturalEnd), 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_result_is_lost_before_a_plugin_sees_it_is_not_forgotten() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let store = Damaged::on(&harness.store);
    let listens = FunctionPlugin::answering(Phase::AfterToolExecute, Vec::new());
    let engine = with_one_slot_for(&harness, &store, transferring(&sent).plugin(listens)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    store.damage(&store.result_is_lost, &run);
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    has_a_free_slot(&engine).await;
    assert_eq!((sent.count(), harness.ended(&run).await), (1, None));
    store.result_is_lost.store(false, Ordering::Release);
    remaining_events(&mut watched).await;
    assert_eq!((harness.ended(&run).await, sent.count()), (Some(Termination::NaturalEnd), 1));
}

/// A run whose result the store can never take.
async fn with_an_impossible_result() -> (Harness, Engine, RunId) {
    let (harness, engine, run, _) = on_a_store_with_an_impossible_result().await;
    (harness, engine, run)
}

async fn on_a_store_with_an_impossible_result() -> (Harness, Engine, RunId, Arc<Damaged>) {
    let (harness, sent) = (Harness::new(), Sent::default());
    let store = Damaged::on(&harness.store);
    let engine = with_one_slot(&harness, &store, &sent).await;
    let (run, _) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    store.damage(&store.result_is_impossible, &run);
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    has_a_free_slot(&engine).await;
    assert_eq!((sent.count(), harness.ended(&run).await), (1, None));
    (harness, engine, run, store)
}

#[tokio::test(start_paused = true)]
async fn a23_an_illegal_transition_is_reported_and_stores_nothing_and_only_an_interrupt_ends_its_run() {
    let errors = ErrorLog::listen();
    let (harness, engine, run) = with_an_impossible_result().await;
    let lines = errors.lines_about(&run);
    let both = "call a: a call that is Succeeded cannot become Running";
    assert!(lines.iter().any(|line| line.contains(both)), "{lines:?}");
    let before = harness.names(&run).await;
    assert_eq!(before.last().map(String::as_str), Some("tool.execution_started"), "{before:?}");
    // Time does not end it, and neither does another decision.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let again = engine.decide(Decide::approve(&run, &call("a"), "ann")).await;
    assert!(!again.is_ok_and(|verdict| verdict.is_taken()));
    assert_eq!((harness.names(&run).await, harness.ended(&run).await), (before.clone(), None));
    interrupt(&engine, &run).await;
    assert_eq!(ends(&harness, &run).await, INTERRUPTED);
    let after = harness.names(&run).await;
    assert_eq!(after[..before.len()], before);
    assert!(!after.contains(&"tool.execution_succeeded".to_owned()), "{after:?}");
    wait_until_released(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_a_bug_has_halted_is_continued_by_a_process_without_the_bug() {
    let (harness, engine, run) = with_an_impossible_result().await;
    engine.abort();
    let harness = harness.reopen();
    let sent = Sent::default();
    let engine = harness.start(transferring(&sent)).await;
    let mut watched = engine.subscribe(&Tenant::default(), &run, 0);
    until(&mut watched, |fact| matches!(fact, Fact::RunRecovered { .. })).await;
    until_named(&mut watched, "run.waiting").await;
    let doubt =
        harness.pending().await.into_iter().find(|open| open.run == run).expect("its write is in doubt");
    assert_eq!((doubt.kind, sent.count()), (SuspensionKind::InDoubt, 0));
    let settle = Decide::result(&run, &call("a"), "ann", json!("checked")).for_suspension(&doubt.id);
    accepted(engine.decide(settle).await);
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn a_halted_run_processes_an_interrupt_that_came_while_the_store_did_not_answer() {
    let (harness, engine, run, store) = on_a_store_with_an_impossible_result().await;
    store.damage(&store.is_out_of_reach, &run);
    let interrupted = tokio::time::timeout(Duration::from_secs(60), interrupt(&engine, &run)).await;
    assert!(interrupted.is_ok(), "the interrupting caller is not kept waiting");
    // The worker wakes, and cannot read the interrupt that woke it.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(harness.ended(&run).await, None);
    store.is_out_of_reach.store(false, Ordering::Release);
    let mut watched = engine.subscribe(&Tenant::default(), &run, 0);
    let ended = tokio::time::timeout(Duration::from_secs(600), remaining_events(&mut watched)).await;
    assert!(ended.is_ok(), "the worker processes the interrupt later");
    assert_eq!(harness.ended(&run).await, Some(INTERRUPTED));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stops_does_not_wait_for_a_run_that_is_halted() {
    let (_, engine, _) = with_an_impossible_result().await;
    drains_at_once(&engine).await;
}
