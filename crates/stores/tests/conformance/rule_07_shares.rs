//! Rule 7 with an engine that several tenants share: the runs of one tenant do not keep another tenant waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::agent::Agent;
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::posting::Message;
use engine::store::{BoxFuture, Tenant};
use engine::tool::{FunctionTool, ToolDefinition, ToolRequest};
use engine::{Engine, RunOutcome, Settings};
use machine::projection_rows::PublicRunStatus;
use machine::termination::Termination;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::fixture::Fixture;

const PLACES: usize = 10;
const WAITING: usize = 20;
const QUEUED: usize = 200;
/// Much longer than the test takes: a tenant that is blocked by the other one would wait forever.
const PATIENCE: Duration = Duration::from_secs(120);

/// On the message "sleep" it never answers; on "pay" it asks for a call that waits for approval.
struct Sleeper(Arc<Semaphore>);

impl Model for Sleeper {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async move {
            match (request.last_user_text(), request.step) {
                (Some("sleep"), _) => drop(self.0.acquire().await),
                (Some("pay"), 1) => return Ok(ModelAnswer::text("").calling("a", "transfer", json!({}))),
                _ => {}
            }
            Ok(ModelAnswer::text("Done."))
        })
    }
}

pub(crate) async fn rule_07_waiting_and_sleeping_runs_of_one_tenant_keep_no_other_waiting<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let (greedy, other) = (Tenant::from("greedy"), Tenant::from("other"));
    let paid = Arc::new(AtomicU64::new(0));
    let counted = paid.clone();
    let transfer =
        FunctionTool::new(ToolDefinition::new("transfer", "Moves money"), move |_: ToolRequest| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { json!("sent") }
        });
    let agent = Agent::new("assistant", Sleeper(Arc::new(Semaphore::new(0)))).tool(transfer);
    let settings = Settings { running_runs_max: PLACES, several_tenants: true, ..Settings::default() };
    let engine =
        Engine::on_shared(world.store.clone()).settings(settings).agent(agent).start().await.unwrap();
    let says = |tenant: &Tenant, text: &str| Message::to("assistant", text).for_tenant(tenant.clone());
    for _ in 0..WAITING {
        let held = engine.run(says(&greedy, "pay")).await.unwrap();
        assert!(matches!(held.outcome, RunOutcome::Suspended(_)), "{held:?}");
    }
    for _ in 0..PLACES + QUEUED {
        engine.post(says(&greedy, "sleep")).await.unwrap();
    }

    let answered = timeout(PATIENCE, engine.run(says(&other, "hello"))).await.expect("it starts").unwrap();
    assert_eq!(answered.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    let held = timeout(PATIENCE, engine.run(says(&other, "pay"))).await.expect("it starts").unwrap();
    let approval = engine.pending(&other).await.unwrap().remove(0);
    assert!(engine.decide(approval.approve("ann")).await.unwrap().is_taken());
    let ended = timeout(PATIENCE, engine.wait_until_ended(&other, &held.run))
        .await
        .expect("the call starts")
        .unwrap();
    assert_eq!(ended.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    assert_eq!(paid.load(Ordering::SeqCst), 1, "only the approved call has run");
    let census = world.store.run_counts().await.unwrap();
    let count = |status| census.runs.get(&status).copied().unwrap_or(0);
    let of_the_other_tenant =
        [PublicRunStatus::Queued, PublicRunStatus::Running, PublicRunStatus::WaitingApproval]
            .map(count)
            .iter()
            .sum::<u64>();
    assert_eq!(
        of_the_other_tenant,
        (WAITING + PLACES + QUEUED) as u64,
        "none of its runs has ended meanwhile"
    );
    engine.abort();
}
