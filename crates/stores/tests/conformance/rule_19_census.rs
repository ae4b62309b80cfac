//! Rule 19: counts of runs per status, and of accepted inbox items that no worker has processed yet.

use std::collections::BTreeMap;

use engine::store::{Countable, RunCounts};
use machine::event::InterruptCause;
use machine::inbox::Item;
use machine::projection_rows::PublicRunStatus;

use crate::fixture::{Fixture, World};
use crate::worker::{approve, claim, enqueued, held, parked, queued, reject, started};

async fn census(world: &World) -> (Vec<(PublicRunStatus, u64)>, u64) {
    let RunCounts { runs, inbox, .. } = world.store.run_counts().await.unwrap();
    (runs.into_iter().filter(|(_, count)| *count > 0).collect(), inbox)
}

pub(crate) async fn rule_19_unended_runs_of_all_tenants_are_counted_by_status<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    assert_eq!(census(&world).await, (Vec::new(), 0));
    started(&world, "thr_1", "run_1").await;
    enqueued(&world, "thr_1", "run_2").await;
    for tenant in ["atlas", "bond", "zoo"] {
        let other = world.for_tenant(tenant);
        parked(&other, "thr_1", "run_1", "transfer").await;
        queued(&other, "thr_2", "run_2").await;
    }
    let mut ended = started(&world.for_tenant("zoo"), "thr_3", "run_3").await;
    ended.finish_with("Done.");
    ended.commit(&world.for_tenant("zoo")).await.unwrap();
    let expected = BTreeMap::from([
        (PublicRunStatus::Queued, 4),
        (PublicRunStatus::Running, 1),
        (PublicRunStatus::WaitingApproval, 3),
    ]);
    assert_eq!(census(&world).await, (expected.into_iter().collect(), 0));
}

pub(crate) async fn rule_19_approved_calls_are_counted_until_their_run_has_processed_it<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for (tenant, run, action) in
        [("a", "run_1", approve()), ("a", "run_2", reject()), ("b", "run_1", approve())]
    {
        let world = world.for_tenant(tenant);
        let thread = format!("thr_{run}");
        let worker = parked(&world, &thread, run, "transfer").await;
        world
            .submit_accepted(run, Item::Decision(worker.decision(&format!("call_{run}"), None, action)))
            .await;
    }
    assert_eq!(world.store.run_counts().await.unwrap().approved, 2);
    let a = world.for_tenant("a");
    let mut worker = claim(&a, "run_1").await.unwrap();
    worker.drain();
    worker.commit(&a).await.unwrap();
    assert_eq!(world.store.run_counts().await.unwrap().approved, 1);
}

pub(crate) async fn rule_19_unprocessed_inbox_items_are_counted<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    world.submit_accepted("run", Item::Decision(worker.decision("call_run", None, approve()))).await;
    world.submit_accepted("run", Item::Interrupt { cause: InterruptCause::Person("bob".into()) }).await;
    assert_eq!(census(&world).await.1, 2);
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    assert_eq!(census(&world).await.1, 0);
}

pub(crate) async fn rule_19_things_of_one_tenant_are_counted_up_to_a_bound<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let (store, acme) = (&world.store, &world.tenant);
    let count = |what, max| async move { store.count_up_to(acme, what, max).await.unwrap() };
    assert_eq!((count(Countable::Threads, 9).await, count(Countable::PendingApprovals, 9).await), (0, 0));
    for number in 1..=3 {
        parked(&world, &format!("thr_{number}"), &format!("run_{number}"), "transfer").await;
        parked(&world.for_tenant("zoo"), &format!("thr_{number}"), &format!("run_{number}"), "transfer")
            .await;
    }
    store.put_thread(acme, &"thr_4".into(), &serde_json::Value::Null).await.unwrap();
    for (max, threads, pending) in [(9, 4, 3), (3, 3, 3), (1, 1, 1), (0, 0, 0), (u64::MAX, 4, 3)] {
        assert_eq!(count(Countable::Threads, max).await, threads);
        assert_eq!(count(Countable::PendingApprovals, max).await, pending);
    }
}
