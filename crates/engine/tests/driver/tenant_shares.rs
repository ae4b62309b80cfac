//! Several tenants on one engine: none of them takes all the slots in which runs execute.

use std::sync::Arc;

use engine::agent::Agent;
use engine::deciding::Decide;
use engine::feed::Subscription;
use engine::model::{ModelAnswer, ModelRequest};
use engine::posting::{Message, Posted};
use engine::store::Tenant;
use engine::{Engine, Settings};
use machine::id::{Principal, RunId};
use machine::projection_rows::PublicRunStatus;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::harness::{FunctionModel, Harness, Sent, accepted, ask, call, remaining_events, until_named};

/// Of 20 slots 18 are for the starting runs of one tenant, and one more for its decided ones.
const SLOTS: usize = 20;
const SHARE: usize = 18;

/// A run whose message says "sleep" does so until one is woken; one that says "pay" asks first; others answer.
struct Shared {
    harness: Harness,
    engine: Engine,
    sent: Sent,
    sleep: Arc<Semaphore>,
}

impl Shared {
    async fn with(several_tenants: bool, running_runs_max: usize) -> Self {
        let (harness, sent, sleep) = (Harness::new(), Sent::default(), Arc::new(Semaphore::new(0)));
        let wakes = sleep.clone();
        let model = FunctionModel(move |request: ModelRequest, _| {
            let sleep = wakes.clone();
            async move {
                let text = request.last_user_text().unwrap().to_owned();
                match (text.as_str(), request.step) {
                    ("sleep", _) => sleep.acquire().await.unwrap().forget(),
                    ("pay", 1) => return Ok(ask(&[("a", "transfer", json!({}))])),
                    ("pay and sleep", 1) => return Ok(ask(&[("a", "transfer", json!({}))])),
                    ("pay and sleep", _) => sleep.acquire().await.unwrap().forget(),
                    _ => {}
                }
                Ok(ModelAnswer::text("Done."))
            }
        });
        let agent = Agent::new("assistant", model).tool(sent.transfer());
        let settings = Settings { running_runs_max, several_tenants, ..Settings::default() };
        let engine = harness.engine().settings(settings).agent(agent).start().await.unwrap();
        Self { harness, engine, sent, sleep }
    }

    async fn post(&self, tenant: &str, text: &str) -> (Posted, Subscription) {
        let message = Message::to("assistant", text).for_tenant(Tenant::from(tenant));
        self.engine.stream(message).await.unwrap()
    }

    async fn held(&self, tenant: &str, text: &str) -> (RunId, Subscription) {
        let (posted, mut watched) = self.post(tenant, text).await;
        until_named(&mut watched, "run.waiting").await;
        (posted.run, watched)
    }

    async fn approve(&self, tenant: &str, run: &RunId) {
        let decision = Decide::approve(run, &call("a"), "ann").for_tenant(Tenant::from(tenant));
        accepted(self.engine.decide(decision).await);
    }

    /// How many of these posts begin at once.
    async fn begun(&self, tenant: &str, text: &str, count: usize) -> usize {
        let mut begun = 0;
        for _ in 0..count {
            begun += usize::from(self.post(tenant, text).await.0.status == PublicRunStatus::Running);
        }
        begun
    }

    /// Until nothing moves any more.
    async fn settle(&self) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }

    async fn approved_not_started(&self) -> u64 {
        self.engine.store().run_counts().await.unwrap().approved
    }
}

#[tokio::test(start_paused = true)]
async fn one_tenant_gets_nine_tenths_of_the_slots_and_another_one_starts_at_once() {
    let shared = Shared::with(true, SLOTS).await;
    assert_eq!(shared.begun("greedy", "sleep", 40).await, SHARE);
    shared.settle().await;
    assert_eq!(shared.engine.runs_in_memory(), SHARE);
    let (posted, mut watched) = shared.post("other", "hello").await;
    assert_eq!(posted.status, PublicRunStatus::Running, "it does not wait for the other tenant's runs");
    remaining_events(&mut watched).await;
    let (run, mut watched) = shared.held("other", "pay").await;
    shared.approve("other", &run).await;
    remaining_events(&mut watched).await;
    assert_eq!(shared.sent.count(), 1, "the approved call has run");
    assert_eq!(
        shared.engine.runs_in_memory(),
        SHARE,
        "no run of the greedy tenant has ended or begun meanwhile"
    );
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_waiting_and_256_sleeping_runs_of_one_tenant_keep_no_other_waiting() {
    let shared = Shared::with(true, 256).await;
    let mut waiting = Vec::new();
    for _ in 0..100 {
        waiting.push(shared.held("greedy", "pay and sleep").await.0);
    }
    assert_eq!(shared.begun("greedy", "sleep", 256).await, 230);
    assert_eq!(shared.begun("greedy", "queued", 10_000 - 100).await, 0);
    for run in &waiting {
        shared.approve("greedy", run).await;
    }
    shared.settle().await;
    assert_eq!(shared.engine.runs_in_memory(), 243, "13 decided runs have got a place of the reserve");
    assert_eq!(shared.approved_not_started().await, 87);
    let (run, mut watched) = shared.held("other", "pay").await;
    shared.approve("other", &run).await;
    remaining_events(&mut watched).await;
    assert_eq!(
        shared.sent.count(),
        13 + 1,
        "the approved calls of both tenants have run as far as there is room"
    );
    assert_eq!(shared.engine.runs_in_memory(), 243, "no run of the greedy tenant has ended meanwhile");
}

#[tokio::test(start_paused = true)]
async fn with_few_slots_one_is_left_to_other_tenants() {
    for slots in 2..=10 {
        let shared = Shared::with(true, slots).await;
        let (approved, _) = shared.held("greedy", "pay and sleep").await;
        shared.begun("greedy", "sleep", slots).await;
        shared.approve("greedy", &approved).await;
        shared.settle().await;
        assert_eq!(shared.engine.runs_in_memory(), slots - 1, "of {slots}");
        assert_eq!(shared.post("other", "hello").await.0.status, PublicRunStatus::Running, "of {slots}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_decided_run_of_the_greedy_tenant_itself_gets_a_slot_of_the_reserve() {
    let shared = Shared::with(true, SLOTS).await;
    let (first, mut watched) = shared.held("greedy", "pay").await;
    let (second, _) = shared.held("greedy", "pay and sleep").await;
    let (third, mut last) = shared.held("greedy", "pay").await;
    shared.begun("greedy", "sleep", 40).await;
    shared.settle().await;
    shared.approve("greedy", &first).await;
    remaining_events(&mut watched).await;
    assert_eq!(shared.sent.count(), 1);
    // The next one keeps the place, so the one after it waits; other tenants still have theirs.
    shared.approve("greedy", &second).await;
    shared.approve("greedy", &third).await;
    shared.settle().await;
    assert_eq!(shared.engine.runs_in_memory(), SHARE + 1);
    assert_eq!(shared.approved_not_started().await, 1);
    assert_eq!(shared.post("other", "hello").await.0.status, PublicRunStatus::Running);
    // Before those that have not begun.
    shared.sleep.add_permits(1);
    remaining_events(&mut last).await;
    assert_eq!(shared.approved_not_started().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_released_by_a_tenant_at_its_bound_goes_to_the_first_run_in_its_queue() {
    let shared = Shared::with(true, SLOTS).await;
    shared.begun("greedy", "sleep", SHARE).await;
    let (first, mut watched) = shared.post("greedy", "first").await;
    assert_eq!(first.status, PublicRunStatus::Queued);
    shared.begun("greedy", "sleep", 5).await;
    shared.sleep.add_permits(1);
    remaining_events(&mut watched).await;
    shared.settle().await;
    assert_eq!(shared.engine.runs_in_memory(), SHARE, "and then to the next ones");
    shared.sleep.add_permits(100);
    shared.settle().await;
    assert_eq!(shared.engine.runs_in_memory(), 0);
    assert_eq!(shared.harness.pending().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_of_a_tenant_at_its_bound_is_interrupted_at_once() {
    let shared = Shared::with(true, SLOTS).await;
    shared.begun("greedy", "sleep", SHARE).await;
    let (queued, mut watched) = shared.post("greedy", "sleep").await;
    let by = Principal::from("ann");
    accepted(shared.engine.interrupt(&Tenant::from("greedy"), &queued.run, &by).await);
    remaining_events(&mut watched).await;
    assert_eq!(shared.engine.runs_in_memory(), SHARE);
}

#[tokio::test(start_paused = true)]
async fn with_one_tenant_no_slot_is_kept_free() {
    let shared = Shared::with(false, SLOTS).await;
    assert_eq!(shared.begun("default", "sleep", 40).await, SLOTS);
    shared.engine.share_slots(true);
    shared.sleep.add_permits(10);
    shared.settle().await;
    assert_eq!(shared.engine.runs_in_memory(), SHARE, "with several of them some are");
    shared.engine.share_slots(false);
    shared.settle().await;
    assert_eq!(shared.engine.runs_in_memory(), SLOTS);
}
