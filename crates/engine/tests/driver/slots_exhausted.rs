//! While every slot is taken: expiries and interrupts are processed at once, and nothing more executes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::agent::Agent;
use engine::clock::Clock;
use engine::deciding::Decide;
use engine::feed::Subscription;
use engine::model::{ModelAnswer, ModelRequest};
use engine::posting::{Message, Posted};
use engine::store::Tenant;
use engine::tool::{FunctionTool, OnExpiry, ToolDefinition, ToolRequest};
use engine::{Engine, Settings};
use machine::Timestamp;
use machine::id::{Principal, RunId};
use machine::policy::{DecisionTiming, OnBusy, Policy};
use machine::projection_rows::PublicRunStatus;
use machine::termination::{Cancelled, Termination};
use serde_json::json;
use tokio::sync::Notify;

use crate::harness::{
    BEGIN, FunctionModel, Harness, Sent, accepted, ask, call, remaining_events, transfer_definition,
    until_named, wait_until_released,
};

/// Models and tools that are at work, and the most that ever were.
#[derive(Clone, Default)]
struct AtWork(Arc<(AtomicUsize, AtomicUsize)>);

impl AtWork {
    fn begin(&self) -> Working {
        let count = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(count, Ordering::SeqCst);
        Working(self.clone())
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

struct Working(AtWork);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One place, and a run that keeps it until its door is opened.
struct FullEngine {
    harness: Harness,
    engine: Engine,
    sent: Sent,
    at_work: AtWork,
    door: Arc<Notify>,
}

const EXPIRES: Duration = Duration::from_secs(60);

impl FullEngine {
    /// "work" goes through the door; for each letter of anything else there is a transfer that expires.
    async fn new(policy: Policy) -> Self {
        let (harness, sent, at_work) = (Harness::new(), Sent::default(), AtWork::default());
        let door = Arc::new(Notify::new());
        let working = at_work.clone();
        let model = FunctionModel(move |request: ModelRequest, _| {
            let _working = working.begin();
            let text = request.last_user_text().unwrap().to_owned();
            let calls: Vec<_> = match (text.as_str(), request.step) {
                ("work", 1) => vec![("w".to_owned(), "slow", json!({}))],
                (letters, 1) => letters.chars().map(|id| (id.to_string(), "transfer", json!({}))).collect(),
                _ => Vec::new(),
            };
            let calls: Vec<_> =
                calls.iter().map(|(id, tool, arguments)| (&**id, *tool, arguments.clone())).collect();
            let answer = if calls.is_empty() { ModelAnswer::text("Done.") } else { ask(&calls) };
            async move { Ok(answer) }
        });
        let (working, opened) = (at_work.clone(), door.clone());
        let slow = FunctionTool::new(ToolDefinition::new("slow", "Waits").read(), move |_: ToolRequest| {
            let (working, opened) = (working.begin(), opened.clone());
            async move {
                opened.notified().await;
                drop(working);
                json!("went through")
            }
        });
        let transfer = transfer_definition().expires_in(EXPIRES, OnExpiry::Deny);
        let agent = Agent::new("assistant", model)
            .tool(slow)
            .tool(sent.tool(transfer, |_| json!("sent")))
            .policy(policy);
        let settings = Settings { running_runs_max: 1, ..Settings::default() };
        let engine = harness.engine().settings(settings).agent(agent).start().await.unwrap();
        Self { harness, engine, sent, at_work, door }
    }

    async fn post(&self, text: &str) -> (Posted, Subscription) {
        self.engine.stream(Message::to("assistant", text)).await.unwrap()
    }

    /// A run with a held call for each letter, that no worker has loaded.
    async fn parked(&self, letters: &str) -> (RunId, Subscription) {
        let (posted, mut watched) = self.post(letters).await;
        until_named(&mut watched, "run.waiting").await;
        wait_until_released(&self.engine).await;
        (posted.run, watched)
    }

    /// From here on there is no place.
    async fn fill(&self) -> Subscription {
        let (_, mut watched) = self.post("work").await;
        until_named(&mut watched, "tool.execution_started").await;
        watched
    }

    async fn interrupt(&self, run: &RunId) {
        accepted(self.engine.interrupt(&Tenant::default(), run, &Principal::from("ann")).await);
    }
}

const EXPIRED: Timestamp = Timestamp(BEGIN.0 + 60_000);

#[tokio::test(start_paused = true)]
async fn a_parked_approval_expires_in_time_and_its_run_continues_when_a_slot_is_free() {
    let full = FullEngine::new(Policy::default()).await;
    let (run, mut watched) = full.parked("a").await;
    let mut worker = full.fill().await;
    let denied = until_named(&mut watched, "tool.denied").await;
    assert_eq!((denied.at, full.harness.pending().await.len()), (EXPIRED, 0));
    // Long after that it is still queued: the only slot is taken.
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!((full.harness.ended(&run).await, full.at_work.most()), (None, 1));
    full.door.notify_one();
    remaining_events(&mut worker).await;
    remaining_events(&mut watched).await;
    assert_eq!(full.harness.ended(&run).await, Some(Termination::NaturalEnd));
    assert_eq!((full.sent.count(), full.at_work.most()), (0, 1));
    // Nothing of it had begun, so nothing was lost on the way.
    assert_eq!(full.harness.count(&run, "run.recovered").await, 0);
}

#[tokio::test(start_paused = true)]
async fn many_approvals_expire_in_time_although_all_their_runs_are_queued_afterwards() {
    let full = FullEngine::new(Policy::default()).await;
    let mut parked = Vec::new();
    for _ in 0..40 {
        parked.push(full.parked("a").await);
    }
    let mut worker = full.fill().await;
    for (_, watched) in &mut parked {
        assert_eq!(until_named(watched, "tool.denied").await.at, EXPIRED);
    }
    full.door.notify_one();
    remaining_events(&mut worker).await;
    for (run, mut watched) in parked {
        remaining_events(&mut watched).await;
        assert_eq!(full.harness.ended(&run).await, Some(Termination::NaturalEnd));
        assert_eq!(full.harness.count(&run, "run.recovered").await, 0);
    }
    assert_eq!(full.at_work.most(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_ends_a_waiting_and_a_queued_run_at_once() {
    let full = FullEngine::new(Policy::default()).await;
    let (waiting, mut watched) = full.parked("a").await;
    let _worker = full.fill().await;
    let (queued, mut line) = full.post("b").await;
    assert_eq!(queued.status, PublicRunStatus::Queued);
    let behind = Message::to("assistant", "c").on_thread(queued.thread.clone());
    let behind = Message { on_busy: Some(OnBusy::Enqueue), ..behind };
    let (behind, mut last) = full.engine.stream(behind).await.unwrap();
    for (run, watched) in [(&waiting, &mut watched), (&behind.run, &mut last), (&queued.run, &mut line)] {
        full.interrupt(run).await;
        remaining_events(watched).await;
        let ended = full.harness.ended(run).await;
        assert_eq!(ended, Some(Termination::Cancelled(Cancelled::Interrupted)));
    }
    assert_eq!((full.at_work.most(), full.harness.clock.now()), (1, BEGIN));
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_meanwhile_waits_for_a_slot_and_is_sent_once() {
    for decisions in [DecisionTiming::Immediate, DecisionTiming::AtBoundary] {
        let full = FullEngine::new(Policy { decisions, ..Policy::default() }).await;
        let (run, mut watched) = full.parked("abc").await;
        let mut worker = full.fill().await;
        for id in ["a", "c"] {
            accepted(full.engine.decide(Decide::approve(&run, &call(id), "ann")).await);
        }
        let denied = until_named(&mut watched, "tool.denied").await;
        assert_eq!((denied.at, full.sent.count()), (EXPIRED, 0));
        full.door.notify_one();
        remaining_events(&mut worker).await;
        remaining_events(&mut watched).await;
        assert_eq!(full.harness.ended(&run).await, Some(Termination::NaturalEnd));
        assert_eq!((full.sent.count(), full.at_work.most()), (2, 1));
        assert_eq!(full.harness.count(&run, "tool.suspended").await, 0, "nothing is in doubt");
    }
}
