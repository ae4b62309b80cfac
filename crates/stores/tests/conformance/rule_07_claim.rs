//! Rule 7: the order in which runs are claimed. No run is claimed twice.

use std::collections::BTreeSet;

use engine::store::{Claim, SkipTenant, Tenant};
use machine::event::InterruptCause;
use machine::inbox::Item;

use crate::fixture::{Fixture, World};
use crate::worker::{
    EXPIRES_IN_MS, claim, claimed_side_by_side, enqueued, next, next_workers, parked, queued, reject, started,
};

async fn interrupt(world: &World, run: &str) {
    let item = Item::Interrupt { cause: InterruptCause::Person("bob".into()) };
    world.submit_accepted(run, item).await;
}

pub(crate) async fn rule_07_woken_due_and_lost_runs_come_before_queued_ones<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    queued(&world, "thr_queued", "queued").await;
    started(&world, "thr_lost", "lost").await;
    parked(&world, "thr_woken", "woken", "transfer").await;
    parked(&world, "thr_interrupted", "interrupted", "transfer").await;
    parked(&world, "thr_due", "due", "urgent").await;
    parked(&world, "thr_waits", "waits", "transfer").await;
    let world = fixture.crash(world).await;
    let held = claim(&world, "woken").await.unwrap();
    let decision = Item::Decision(held.decision("call_woken", None, reject()));
    assert!(world.store.release(&held.lease).await.unwrap());
    world.submit_accepted("woken", decision).await;
    interrupt(&world, "interrupted").await;
    world.clock.advance(EXPIRES_IN_MS);
    let mut first = next(&world, 4).await;
    first.sort();
    assert_eq!(first, ["due", "interrupted", "lost", "woken"]);
    assert_eq!(next(&world, 10).await, ["queued"]);
    assert!(next(&world, 10).await.is_empty(), "a run that waits for a person is not claimed");
}

pub(crate) async fn rule_07_only_what_is_interrupted_or_due_is_urgent<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    queued(&world, "thr_queued", "queued").await;
    started(&world, "thr_lost", "lost").await;
    parked(&world, "thr_woken", "woken", "transfer").await;
    parked(&world, "thr_interrupted", "interrupted", "transfer").await;
    parked(&world, "thr_due", "due", "urgent").await;
    enqueued(&world, "thr_queued", "behind").await;
    let world = fixture.crash(world).await;
    let held = claim(&world, "woken").await.unwrap();
    let decision = Item::Decision(held.decision("call_woken", None, reject()));
    assert!(world.store.release(&held.lease).await.unwrap());
    world.submit_accepted("woken", decision).await;
    assert!(urgent(&world, 10).await.is_empty());
    interrupt(&world, "interrupted").await;
    world.clock.advance(1);
    interrupt(&world, "behind").await;
    assert_eq!(urgent(&world, 1).await, ["interrupted"]);
    assert_eq!(urgent(&world, 10).await, ["behind"]);
    world.clock.advance(EXPIRES_IN_MS);
    assert_eq!(urgent(&world, 10).await, ["due"]);
    assert!(urgent(&world, 10).await.is_empty(), "a run under a lease is not claimed");
    assert_eq!(next(&world, 10).await, ["lost", "woken", "queued"]);
}

async fn urgent(world: &World, limit: usize) -> Vec<String> {
    let claimed = world.store.claim(Claim::Urgent { limit }).await.unwrap();
    claimed.into_iter().map(|claimed| claimed.lease.run.to_string()).collect()
}

pub(crate) async fn rule_07_never_more_than_asked_for<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for index in 0..5 {
        queued(&world, &format!("thr_{index}"), &format!("queued_{index}")).await;
        parked(&world, &format!("thr_p{index}"), &format!("parked_{index}"), "transfer").await;
        interrupt(&world, &format!("parked_{index}")).await;
    }
    assert!(next(&world, 0).await.is_empty());
    let mut sizes = Vec::new();
    loop {
        let size = next(&world, 3).await.len();
        sizes.push(size);
        if size == 0 {
            break;
        }
    }
    assert_eq!(sizes, [3, 3, 3, 1, 0]);
}

pub(crate) async fn rule_07_a_run_that_is_held_is_not_given_out<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = started(&world, "thr", "run").await;
    interrupt(&world, "run").await;
    assert!(next(&world, 10).await.is_empty());
    assert!(claim(&world, "run").await.is_none());
    assert!(world.store.may_send(&worker.lease));
    assert_eq!(world.store.next_wake().await.unwrap(), None);
}

pub(crate) async fn rule_07_one_tenant_after_the_other<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for (tenant, count) in [("a", 6), ("b", 2), ("c", 1)] {
        let world = world.for_tenant(tenant);
        for index in 0..count {
            queued(&world, &format!("thr_{index}"), &format!("{tenant}{index}")).await;
            world.clock.advance(1);
        }
    }
    let mut first = next(&world, 3).await;
    first.sort();
    assert_eq!(first, ["a0", "b0", "c0"]);
    let mut second = next(&world, 2).await;
    second.sort();
    assert_eq!(second, ["a1", "b1"]);
    assert_eq!(next(&world, 10).await, ["a2", "a3", "a4", "a5"]);
}

pub(crate) async fn rule_07_no_tenant_starves_behind_a_long_queue<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for index in 0..20 {
        queued(&world.for_tenant("long"), &format!("thr_{index}"), &format!("long_{index}")).await;
    }
    world.clock.advance(1);
    queued(&world.for_tenant("short"), "thr", "short").await;
    let mut claimed = Vec::new();
    for _ in 0..3 {
        claimed.extend(next(&world, 1).await);
    }
    assert!(claimed.contains(&"short".to_owned()), "{claimed:?}");
}

async fn next_but(world: &World, tenant: &str, woken: bool) -> Vec<String> {
    let pass_over = Some(SkipTenant { tenant: Tenant::from(tenant), woken });
    let claimed = world.store.claim(Claim::Next { limit: 10, skip_tenant: pass_over }).await.unwrap();
    claimed.into_iter().map(|claimed| claimed.lease.run.to_string()).collect()
}

pub(crate) async fn rule_07_runs_of_a_tenant_that_is_passed_over_stay_queued<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for tenant in ["a", "greedy", "z"] {
        let world = world.for_tenant(tenant);
        queued(&world, "thr_queued", &format!("{tenant}_queued")).await;
        parked(&world, "thr_due", &format!("{tenant}_due"), "urgent").await;
        parked(&world, "thr_woken", &format!("{tenant}_woken"), "transfer").await;
        interrupt(&world, &format!("{tenant}_woken")).await;
        world.clock.advance(1);
    }
    world.clock.advance(EXPIRES_IN_MS);
    let mut others = next_but(&world, "greedy", true).await;
    others.sort();
    assert_eq!(others, ["a_due", "a_queued", "a_woken", "z_due", "z_queued", "z_woken"]);
    assert!(next_but(&world, "greedy", true).await.is_empty());
    let mut begun = next_but(&world, "greedy", false).await;
    begun.sort();
    assert_eq!(begun, ["greedy_due", "greedy_woken"]);
    assert!(next_but(&world, "greedy", false).await.is_empty());
    assert_eq!(next_but(&world, "other", true).await, ["greedy_queued"]);
}

pub(crate) async fn rule_07_a_run_behind_another_is_claimed_once_it_holds_the_thread<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "front").await;
    enqueued(&world, "thr", "behind").await;
    assert!(next(&world, 10).await.is_empty());
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    assert_eq!(next(&world, 10).await, ["behind"]);
}

pub(crate) async fn rule_07_a_run_is_claimed_by_its_name<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let waits = parked(&world, "thr", "waits", "transfer").await;
    enqueued(&world, "thr", "behind").await;
    let mut ended = started(&world, "thr_2", "ended").await;
    ended.finish_with("done");
    ended.commit(&world).await.unwrap();
    let again = claim(&world, "waits").await.unwrap();
    assert_eq!(again.run.control, waits.run.control);
    assert!(again.lease.epoch > waits.lease.epoch);
    let asked = Claim::Run { tenant: world.tenant.clone(), run: "behind".into() };
    let claimed = world.store.claim(asked).await.unwrap().remove(0);
    assert!(!claimed.loaded.as_ref().unwrap().holds_thread, "a queued run may only be ended");
    assert!(claim(&world, "ended").await.is_none());
}

pub(crate) async fn rule_07_a_queued_run_that_is_interrupted_is_claimed_and_may_end<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let _front = started(&world, "thr", "front").await;
    enqueued(&world, "thr", "behind").await;
    interrupt(&world, "behind").await;
    let mut worker = next_workers(&world, 10).await.remove(0);
    worker.take_over();
    assert!(worker.commit(&world).await.unwrap().woken.is_empty());
    assert!(world.run("behind").await.status.ended());
}

pub(crate) async fn rule_07_a_run_falls_due_when_its_deadline_has_come<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr_1", "first", "urgent").await;
    let due = world.clock.now().plus_ms(EXPIRES_IN_MS);
    world.clock.advance(10);
    parked(&world, "thr_2", "second", "urgent").await;
    assert_eq!(world.store.next_wake().await.unwrap(), Some(due));
    world.clock.advance(EXPIRES_IN_MS - 11);
    assert!(next(&world, 10).await.is_empty());
    world.clock.advance(1);
    assert_eq!(next(&world, 10).await, ["first"]);
    assert_eq!(
        world.store.next_wake().await.unwrap(),
        Some(due.plus_ms(10)),
        "the deadline of a run under a lease is left to its worker"
    );
    world.clock.advance(10);
    assert_eq!(next(&world, 10).await, ["second"]);
    assert_eq!(world.store.next_wake().await.unwrap(), None);
}

pub(crate) async fn rule_07_a_released_run_is_awaited_again<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr", "run", "urgent").await;
    let due = world.store.next_wake().await.unwrap();
    let mut worker = claim(&world, "run").await.unwrap();
    assert_eq!(world.store.next_wake().await.unwrap(), None);
    assert!(world.store.release(&worker.lease).await.unwrap());
    assert_eq!(world.store.next_wake().await.unwrap(), due);
    worker = claim(&world, "run").await.unwrap();
    worker.accept(Item::Decision(worker.decision("call_run", None, reject())));
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    assert_eq!(world.store.next_wake().await.unwrap(), None, "an ended run has no deadline");
}

pub(crate) async fn rule_07_a_released_run_that_is_under_way_is_found_again<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = started(&world, "thr", "run").await;
    assert!(world.store.release(&worker.lease).await.unwrap());
    assert_eq!(next(&world, 10).await, ["run"]);
}

pub(crate) async fn rule_07_concurrent_claims_never_get_the_same_run<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for index in 0..100 {
        let world = world.for_tenant(if index % 3 == 0 { "a" } else { "b" });
        queued(&world, &format!("thr_{index}"), &format!("run_{index}")).await;
    }
    let claimed = claimed_side_by_side(std::iter::repeat_n(world, 8), 3).await;
    assert_eq!(claimed.len(), 100);
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>().len(), 100);
}

pub(crate) async fn rule_07_of_many_claims_of_one_run_one_gets_it<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr", "run", "transfer").await;
    let claimers: Vec<_> = (0..50)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move { claim(&world, "run").await.is_some() })
        })
        .collect();
    let mut count = 0;
    for claimer in claimers {
        count += usize::from(claimer.await.unwrap());
    }
    assert_eq!(count, 1);
}
