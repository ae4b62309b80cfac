//! Rule 4: no wake-up is lost, and the inbox keeps the order of arrival.

use std::sync::Arc;

use engine::store::StoreError;
use machine::event::InterruptCause;
use machine::inbox::{Item, Verdict};
use tokio::sync::Barrier;

use crate::fixture::Fixture;
use crate::worker::{approve, claim, held, next, next_workers, parked, reject, started};

pub(crate) async fn rule_04_a_run_with_an_item_is_not_released<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = Item::Decision(worker.decision("call_run", None, reject()));
    world.submit_accepted("run", decision).await;
    assert_eq!(world.store.release(&worker.lease).await, Ok(false));
    assert!(world.store.may_send(&worker.lease), "the lease is kept");
    worker.reload(&world).await;
    worker.drain();
    worker.asks(&[("b", "transfer")]);
    worker.commit(&world).await.unwrap();
    assert_eq!(world.store.release(&worker.lease).await, Ok(true));
    assert!(!world.store.may_send(&worker.lease));
}

pub(crate) async fn rule_04_a_lease_is_given_back_once<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = parked(&world, "thr", "run", "transfer").await;
    assert_eq!(world.store.release(&worker.lease).await, Err(StoreError::Fenced));
    let other = claim(&world, "run").await.unwrap();
    assert_eq!(world.store.release(&worker.lease).await, Err(StoreError::Fenced));
    assert!(world.store.may_send(&other.lease), "the lease of the later claim is not changed");
}

pub(crate) async fn rule_04_rows_come_back_in_the_order_of_arrival<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let calls = ["c", "a", "d", "b"];
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&calls.map(|call| (call, "transfer")));
    worker.commit(&world).await.unwrap();
    let mut items: Vec<Item> =
        calls.iter().map(|call| Item::Decision(worker.decision(call, None, approve()))).collect();
    items.push(Item::Interrupt { cause: InterruptCause::Person("bob".into()) });
    for item in &items {
        let verdict = world.store.submit(&world.tenant, &"run".into(), item.clone()).await;
        assert_eq!(verdict, Ok(Verdict::Accepted));
    }
    let inbox = world.store.load(&worker.lease).await.unwrap().inbox;
    assert!(inbox.windows(2).all(|pair| pair[0].0 < pair[1].0), "tickets grow");
    assert_eq!(inbox.into_iter().map(|(_, item)| item).collect::<Vec<_>>(), items);
}

pub(crate) async fn rule_04_a_submit_that_races_a_release_is_never_lost<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut races = Vec::new();
    for index in 0..100 {
        let run = format!("run_{index}");
        let worker = held(&world, &format!("thr_{index}"), &run, "transfer").await;
        let item = Item::Decision(worker.decision(&format!("call_{run}"), None, approve()));
        let world = world.clone();
        races.push(tokio::spawn(async move {
            let start = Arc::new(Barrier::new(2));
            let (there, their_world, lease) = (start.clone(), world.clone(), worker.lease.clone());
            let release = tokio::spawn(async move {
                there.wait().await;
                their_world.store.release(&lease).await.unwrap()
            });
            start.wait().await;
            let verdict = world.store.submit(&world.tenant, &worker.lease.run, item.clone()).await;
            assert_eq!(verdict, Ok(Verdict::Accepted));
            if release.await.unwrap() {
                return Some(run);
            }
            let inbox = world.store.load(&worker.lease).await.unwrap().inbox;
            assert_eq!(inbox.into_iter().map(|(_, item)| item).collect::<Vec<_>>(), [item]);
            None
        }));
    }
    let mut released = Vec::new();
    for race in races {
        released.extend(race.await.unwrap());
    }
    let mut found: Vec<String> = next_workers(&world, 1_000)
        .await
        .into_iter()
        .filter(|worker| worker.inbox.len() == 1)
        .map(|worker| worker.lease.run.to_string())
        .collect();
    found.sort();
    released.sort();
    assert_eq!(found, released, "a released run with a submitted item can be claimed");
}

pub(crate) async fn rule_04_a_run_that_waits_for_nothing_else_is_left_alone<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr", "run", "transfer").await;
    assert!(next(&world, 10).await.is_empty());
}
