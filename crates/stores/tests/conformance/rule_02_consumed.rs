//! Rule 2: the commit that processes an inbox row removes it. A decision with an id is remembered permanently.

use engine::store::StoreError;
use machine::decision::Decision;
use machine::id::DecisionId;
use machine::inbox::{Item, Refusal, Verdict};

use crate::fixture::{Fixture, World};
use crate::snapshot::snapshot;
use crate::worker::{approve, arguments_of, claim, held, parked, reject, started};

async fn remembered(world: &World, run: &str, id: &str) -> Option<Decision> {
    world.store.decision(&world.tenant, &run.into(), &DecisionId::from(id)).await.unwrap()
}

pub(crate) async fn rule_02_consumed_rows_leave_the_inbox_with_the_commit<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let parked = parked(&world, "thr", "run", "transfer").await;
    let decision = Item::Decision(parked.decision("call_run", None, approve()));
    assert_eq!(
        world.store.submit(&world.tenant, &"run".into(), decision.clone()).await,
        Ok(Verdict::Accepted)
    );
    let mut worker = claim(&world, "run").await.unwrap();
    let items: Vec<Item> = worker.inbox.iter().map(|(_, item)| item.clone()).collect();
    assert_eq!(items, [decision]);
    worker.take_over();
    let again = world.store.load(&worker.lease).await.unwrap().inbox;
    assert_eq!(again, worker.inbox, "no row is removed before the commit");
    worker.commit(&world).await.unwrap();
    assert!(world.store.load(&worker.lease).await.unwrap().inbox.is_empty());
}

pub(crate) async fn rule_02_a_row_that_changed_nothing_is_consumed_without_events<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "echo"), ("b", "transfer")]);
    let held = worker.decision("b", Some("early"), approve());
    worker.commit(&world).await.unwrap();
    let decision = Decision { call: "a".into(), suspension: "sus_none".into(), ..held };
    let early = Item::Early { decision, digest: arguments_of("a").digest() };
    assert_eq!(world.store.submit(&world.tenant, &"run".into(), early).await, Ok(Verdict::Accepted));
    worker.poll_inbox(&world).await;
    worker.succeeds("a");
    worker.commit(&world).await.unwrap();
    worker.reload(&world).await;
    assert_eq!(worker.inbox.len(), 1);
    worker.drain();
    let append = worker.append();
    assert!(append.events.is_empty() && append.consumed.len() == 1);
    let seq = append.expected_seq;
    worker.commit(&world).await.unwrap();
    let loaded = world.store.load(&worker.lease).await.unwrap();
    assert!(loaded.inbox.is_empty());
    assert_eq!(loaded.control.seq, seq);
    assert!(remembered(&world, "run", "early").await.is_some());
}

pub(crate) async fn rule_02_a_row_is_consumed_once<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let parked = parked(&world, "thr", "run", "transfer").await;
    let decision = Item::Decision(parked.decision("call_run", None, approve()));
    world.submit_accepted("run", decision).await;
    let mut worker = claim(&world, "run").await.unwrap();
    let ticket = worker.inbox[0].0;
    worker.take_over();
    worker.commit(&world).await.unwrap();
    let before = snapshot(&world, &[&worker.lease]).await;
    worker.consume(ticket);
    let refused = worker.commit(&world).await;
    assert!(matches!(refused, Err(StoreError::Impossible(_))), "{refused:?}");
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
}

pub(crate) async fn rule_02_a_submitted_decision_is_remembered_permanently<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let parked = parked(&world, "thr", "run", "transfer").await;
    let first = parked.decision("call_run", Some("d1"), reject());
    let submit =
        |decision: Decision| world.store.submit(&world.tenant, &parked.lease.run, Item::Decision(decision));
    assert_eq!(remembered(&world, "run", "d1").await, None);
    assert_eq!(submit(first.clone()).await, Ok(Verdict::Accepted));
    assert_eq!(remembered(&world, "run", "d1").await, Some(first.clone()));
    let other = Decision { action: approve(), ..first.clone() };
    let later = Decision { accepted_at: first.accepted_at.plus_ms(9), ..first.clone() };
    for ended in [false, true] {
        assert_eq!(submit(later.clone()).await, Ok(Verdict::AlreadyApplied), "ended: {ended}");
        assert_eq!(submit(other.clone()).await, Ok(Verdict::Refused(Refusal::IdUsed)), "ended: {ended}");
        assert_eq!(remembered(&world, "run", "d1").await, Some(first.clone()));
        if !ended {
            let mut worker = claim(&world, "run").await.unwrap();
            worker.take_over();
            worker.finish_with("then not");
            worker.commit(&world).await.unwrap();
        }
    }
    assert_eq!(remembered(&world, "run", "d2").await, None);
}

pub(crate) async fn rule_02_a_decision_accepted_at_the_worker_is_remembered_permanently<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "transfer"), ("b", "transfer")]);
    worker.commit(&world).await.unwrap();
    let first = worker.decision("a", Some("d1"), reject());
    worker.accept(Item::Decision(first.clone()));
    assert_eq!(remembered(&world, "run", "d1").await, None, "a decision counts only once it is committed");
    worker.commit(&world).await.unwrap();
    assert_eq!(remembered(&world, "run", "d1").await, Some(first.clone()));
    let repeated = world.store.submit(&world.tenant, &"run".into(), Item::Decision(first)).await;
    assert_eq!(repeated, Ok(Verdict::AlreadyApplied));
}

pub(crate) async fn rule_02_a_second_decision_under_a_used_id_is_not_accepted<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "transfer"), ("b", "transfer"), ("c", "transfer")]);
    worker.commit(&world).await.unwrap();
    let first = worker.decision("a", Some("d1"), reject());
    world.submit_accepted("run", Item::Decision(first.clone())).await;
    let before = snapshot(&world, &[&worker.lease]).await;

    let second = worker.decision("b", Some("d1"), approve());
    worker.accept(Item::Decision(second));
    assert_eq!(worker.commit(&world).await, Err(StoreError::Behind));
    worker.reload(&world).await;
    let both = [worker.decision("b", Some("d2"), approve()), worker.decision("c", Some("d2"), approve())];
    both.into_iter().for_each(|decision| worker.accept(Item::Decision(decision)));
    assert_eq!(worker.commit(&world).await, Err(StoreError::Behind));
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
    assert_eq!(remembered(&world, "run", "d1").await, Some(first));
    assert_eq!(remembered(&world, "run", "d2").await, None);
}

pub(crate) async fn rule_02_a_decision_id_counts_within_its_run<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for run in ["run_1", "run_2"] {
        let mut worker = held(&world, &format!("thr_{run}"), run, "transfer").await;
        let decision = worker.decision(&format!("call_{run}"), Some("same"), reject());
        worker.accept(Item::Decision(decision.clone()));
        worker.commit(&world).await.unwrap();
        assert_eq!(remembered(&world, run, "same").await, Some(decision));
    }
}
