//! An engine that stops: what executes may finish, nothing new is taken, and another engine continues the rest.

use std::sync::Arc;
use std::time::Duration;

use engine::agent::Agent;
use engine::posting::PostError;
use engine::store::{BoxFuture, Notification, RunStore, Store, Tenant, Wrapper};
use machine::event::{Fact, InterruptCause};
use machine::inbox::Item;
use machine::termination::{Cancelled, Termination};
use serde_json::json;
use stores::memory::MemoryStore;
use tokio::sync::{Mutex, Notify, mpsc};

use crate::harness::{Harness, accepted, asking, gated, remaining_events, to_assistant, until_named};

#[tokio::test(start_paused = true)]
async fn an_engine_that_drains_lets_a_tool_finish_and_takes_nothing_new() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let agent = Agent::new("assistant", asking(&[("a", "slow", json!({}))])).tool(gated("slow", &gate));
    let engine = harness.start(agent).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    let stopping = engine.clone();
    let drained = tokio::spawn(async move { stopping.drain(Duration::from_secs(60)).await });
    tokio::task::yield_now().await;
    assert_eq!(engine.post(to_assistant()).await.unwrap_err(), PostError::Draining);
    gate.notify_one();
    drained.await.unwrap();
    assert_eq!(harness.count(&posted.run, "tool.execution_succeeded").await, 1);
    assert_eq!(engine.runs_in_memory(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_finish_in_time_continues_in_the_next_process() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let agent = || Agent::new("assistant", asking(&[("a", "slow", json!({}))])).tool(gated("slow", &gate));
    let engine = harness.start(agent()).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    let began = tokio::time::Instant::now();
    engine.drain(Duration::from_secs(10)).await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    let harness = harness.reopen();
    let engine = harness.start(agent()).await;
    gate.notify_one();
    let events = remaining_events(&mut engine.subscribe(&Tenant::default(), &posted.run, 0)).await;
    let attempts: Vec<u32> = events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::ExecutionStarted { attempt, .. } => Some(*attempt),
            _ => None,
        })
        .collect();
    assert_eq!((attempts, harness.ended(&posted.run).await), (vec![1, 2], Some(Termination::NaturalEnd)));
}

/// As a store of several processes: what happens in another one rings here.
struct SharedStore {
    inner: MemoryStore,
    rings: Mutex<mpsc::Receiver<Notification>>,
}

impl Wrapper for SharedStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn next_notification(&self) -> BoxFuture<'_, Notification> {
        Box::pin(async {
            match self.rings.lock().await.recv().await {
                Some(ring) => ring,
                None => std::future::pending().await,
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_drains_processes_what_another_process_submits_to_its_runs() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let (elsewhere, rings) = mpsc::channel(1);
    let store = SharedStore { inner: harness.store.clone(), rings: Mutex::new(rings) };
    let agent = Agent::new("assistant", asking(&[("a", "slow", json!({}))])).tool(gated("slow", &gate));
    let engine = harness.engine_on(Arc::new(store)).agent(agent).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    let began = tokio::time::Instant::now();
    let stopping = engine.clone();
    let drained = tokio::spawn(async move { stopping.drain(Duration::from_secs(60)).await });
    tokio::task::yield_now().await;
    let stop = Item::Interrupt { cause: InterruptCause::Person("ann".into()) };
    accepted(harness.store.submit(&Tenant::default(), &posted.run, stop).await);
    elsewhere.send(Notification::Run { tenant: Tenant::default(), run: posted.run.clone() }).await.unwrap();
    drained.await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    let interrupted = Termination::Cancelled(Cancelled::Interrupted);
    assert_eq!(harness.ended(&posted.run).await, Some(interrupted));
}
