//! How many runs execute together, and who is next.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::{ModelAnswer, ModelRequest};
use engine::posting::Message;
use engine::store::{BoxFuture, Claim, Claimed, RunStore, Store, StoreError, Tenant, Wrapper};
use engine::{Engine, Settings};
use machine::inbox::Verdict;
use machine::projection_rows::PublicRunStatus;
use serde_json::json;
use stores::memory::MemoryStore;
use tokio::sync::{Semaphore, watch};

use crate::harness::{
    FunctionModel, Harness, Sent, accepted, ask, call, remaining_events, until_named, wait_until_released,
};

/// A model that keeps the order in which it is asked, and answers when it gets a permit.
struct Queue {
    asked: Arc<Mutex<Vec<String>>>,
    permits: Arc<Semaphore>,
}

impl Queue {
    fn new() -> Self {
        Self { asked: Arc::default(), permits: Arc::new(Semaphore::new(0)) }
    }

    /// Asks for approval of a message that says "pay"; answers every other one.
    fn agent(&self, sent: &Sent) -> Agent {
        let (asked, permits) = (self.asked.clone(), self.permits.clone());
        let model = FunctionModel(move |request: ModelRequest, _| {
            let (asked, permits) = (asked.clone(), permits.clone());
            async move {
                let text = request.last_user_text().unwrap().to_owned();
                asked.lock().unwrap().push(format!("{text} {}", request.step));
                permits.acquire().await.unwrap().forget();
                Ok(match (text.as_str(), request.step) {
                    ("pay", 1) => ask(&[("a", "transfer", json!({}))]),
                    _ => ModelAnswer::text("Done."),
                })
            }
        });
        Agent::new("assistant", model).tool(sent.transfer())
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn with_slots(harness: &Harness, agent: Agent, running_runs_max: usize) -> Engine {
    let settings = Settings { running_runs_max, ..Settings::default() };
    harness.engine().settings(settings).agent(agent).start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_more_runs_execute_than_there_are_slots_and_the_others_are_queued() {
    let (harness, queue) = (Harness::new(), Queue::new());
    let engine = with_slots(&harness, queue.agent(&Sent::default()), 2).await;
    let mut feeds = Vec::new();
    let mut statuses = Vec::new();
    for number in 0..6 {
        let (posted, watched) =
            engine.stream(Message::to("assistant", format!("run{number}"))).await.unwrap();
        statuses.push(posted.status);
        feeds.push(watched);
    }
    assert_eq!(statuses[..2], [PublicRunStatus::Running; 2]);
    assert_eq!(statuses[2..], [PublicRunStatus::Queued; 4]);
    for _ in 0..6 {
        assert!(engine.runs_in_memory() <= 2);
        queue.permits.add_permits(1);
        tokio::task::yield_now().await;
    }
    for mut watched in feeds {
        remaining_events(&mut watched).await;
    }
    assert_eq!(queue.asked(), ["run0 1", "run1 1", "run2 1", "run3 1", "run4 1", "run5 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_decided_gets_the_next_slot_before_those_that_have_not_begun() {
    let (harness, queue, sent) = (Harness::new(), Queue::new(), Sent::default());
    let engine = with_slots(&harness, queue.agent(&sent), 1).await;
    let (held, mut watched) = engine.stream(Message::to("assistant", "pay")).await.unwrap();
    queue.permits.add_permits(1);
    until_named(&mut watched, "run.waiting").await;
    wait_until_released(&engine).await;
    let (_, mut first) = engine.stream(Message::to("assistant", "first")).await.unwrap();
    let (later, mut last) = engine.stream(Message::to("assistant", "later")).await.unwrap();
    assert_eq!(later.status, PublicRunStatus::Queued);
    let decision = Decide::approve(&held.run, &call("a"), "ann");
    assert_eq!(engine.decide(decision).await.unwrap(), Verdict::Accepted);
    queue.permits.add_permits(3);
    remaining_events(&mut watched).await;
    remaining_events(&mut first).await;
    remaining_events(&mut last).await;
    assert_eq!(queue.asked(), ["pay 1", "first 1", "pay 2", "later 1"]);
    assert_eq!(sent.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn queued_runs_of_two_tenants_take_turns() {
    let (harness, queue) = (Harness::new(), Queue::new());
    let engine = with_slots(&harness, queue.agent(&Sent::default()), 1).await;
    let mut feeds = Vec::new();
    for (tenant, text) in
        [("x", "x0"), ("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2"), ("b", "b3")]
    {
        let message = Message::to("assistant", text).for_tenant(Tenant::from(tenant));
        feeds.push(engine.stream(message).await.unwrap().1);
    }
    queue.permits.add_permits(7);
    for mut watched in feeds {
        remaining_events(&mut watched).await;
    }
    let wanted = ["x0 1", "a1 1", "b1 1", "a2 1", "b2 1", "a3 1", "b3 1"];
    assert_eq!(queue.asked(), wanted);
}

/// A store in which the search for ready runs can be made to wait.
struct SlowToClaim {
    store: MemoryStore,
    may_look: watch::Sender<bool>,
}

impl Wrapper for SlowToClaim {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, StoreError>> {
        Box::pin(async move {
            self.may_look.subscribe().wait_for(|may| *may).await.expect("the store is there");
            self.store.claim(claim).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_posted_message_does_not_pass_queued_runs() {
    let (harness, queue) = (Harness::new(), Queue::new());
    let store = SlowToClaim { store: harness.store.clone(), may_look: watch::Sender::new(true) };
    let store = Arc::new(store);
    let settings = Settings { running_runs_max: 1, ..Settings::default() };
    let agent = queue.agent(&Sent::default());
    let engine = harness.engine_on(store.clone()).settings(settings).agent(agent).start().await.unwrap();
    let post = |tenant: &str, text: &str| {
        engine.stream(Message::to("assistant", text).for_tenant(Tenant::from(tenant)))
    };
    let (_, mut running) = post("x", "x0").await.unwrap();
    store.may_look.send_replace(false);
    let (first, mut in_line) = post("a", "a1").await.unwrap();
    assert_eq!(first.status, PublicRunStatus::Queued);
    queue.permits.add_permits(3);
    remaining_events(&mut running).await;
    wait_until_released(&engine).await;
    // The slot is free, and the search for queued runs has not found the next one yet.
    let (later, mut last) = post("b", "b1").await.unwrap();
    assert_eq!(later.status, PublicRunStatus::Queued);
    store.may_look.send_replace(true);
    remaining_events(&mut in_line).await;
    remaining_events(&mut last).await;
    assert_eq!(queue.asked(), ["x0 1", "a1 1", "b1 1"]);
    // On a paused clock this sleep ends when no task has anything left to do.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let (alone, _watched) = post("a", "a2").await.unwrap();
    assert_eq!(alone.status, PublicRunStatus::Running, "with an empty queue a run begins as it is posted");
}

#[tokio::test(start_paused = true)]
async fn a_parked_run_takes_no_slot() {
    let (harness, queue, sent) = (Harness::new(), Queue::new(), Sent::default());
    let engine = with_slots(&harness, queue.agent(&sent), 1).await;
    queue.permits.add_permits(100);
    let mut held = Vec::new();
    for _ in 0..20 {
        let (posted, mut watched) = engine.stream(Message::to("assistant", "pay")).await.unwrap();
        until_named(&mut watched, "run.waiting").await;
        held.push((posted.run, watched));
    }
    wait_until_released(&engine).await;
    assert_eq!(harness.pending().await.len(), 20);
    for (run, watched) in &mut held {
        accepted(engine.decide(Decide::approve(run, &call("a"), "ann")).await);
        remaining_events(watched).await;
    }
    assert_eq!(sent.count(), 20);
}
