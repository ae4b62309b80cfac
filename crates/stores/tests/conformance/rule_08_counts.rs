//! Rule 8: commits are counted, and only commits.

use engine::store::StoreError;
use machine::inbox::{Item, Refusal, Verdict};

use crate::fixture::Fixture;
use crate::worker::{approve, claim, queued, reject, started};

pub(crate) async fn rule_08_creation_claim_and_start_are_one_commit<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    assert_eq!(world.store.metrics().commits, 0);
    let worker = started(&world, "thr", "run").await;
    assert_eq!(world.store.metrics().commits, 1);
    assert_eq!(worker.lease.epoch, 1);
    assert!(worker.run.control.seq > 1, "the run has started");
}

pub(crate) async fn rule_08_a_claim_a_release_and_a_read_are_no_commit<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    queued(&world, "thr", "run").await;
    let before = world.store.metrics();
    let worker = claim(&world, "run").await.unwrap();
    world.store.load(&worker.lease).await.unwrap();
    world.run("run").await;
    world.store.release(&worker.lease).await.unwrap();
    assert_eq!(world.store.metrics().commits, before.commits);
    assert_eq!(world.store.metrics().bytes, before.bytes);
}

pub(crate) async fn rule_08_a_taken_item_and_an_append_count_one_each<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&world).await.unwrap();
    assert_eq!(world.store.metrics().commits, 2);
    let decision = worker.decision("a", None, approve());
    world.submit_accepted("run", Item::Decision(decision.clone())).await;
    assert_eq!(world.store.metrics().commits, 3);
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    assert_eq!(world.store.metrics().commits, 4, "from a decision to the start of its tool");
}

pub(crate) async fn rule_08_what_was_refused_does_not_count<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&world).await.unwrap();
    let first = Item::Decision(worker.decision("a", Some("d1"), approve()));
    let second = Item::Decision(worker.decision("a", Some("d2"), reject()));
    let submit = |item: &Item| world.store.submit(&world.tenant, &worker.lease.run, item.clone());
    assert_eq!(submit(&first).await, Ok(Verdict::Accepted));
    let before = world.store.metrics();
    assert_eq!(submit(&first).await, Ok(Verdict::AlreadyApplied));
    assert_eq!(submit(&second).await, Ok(Verdict::Refused(Refusal::Answered)));
    worker.accept(second);
    assert_eq!(worker.commit(&world).await, Err(StoreError::Behind));
    assert_eq!(world.store.metrics().commits, before.commits);
}

pub(crate) async fn rule_08_the_writing_of_a_decision_and_its_tool_start_is_one_commit<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&world).await.unwrap();
    let before = world.store.metrics().commits;
    worker.accept(Item::Decision(worker.decision("a", None, approve())));
    assert!(worker.call("a").running_attempt().is_some());
    worker.commit(&world).await.unwrap();
    assert_eq!(world.store.metrics().commits, before + 1);
}
