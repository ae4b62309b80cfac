//! Rule 22: a run never brings a thread back, and never joins another thread of the same id.

use engine::store::{Deleted, StoreError};
use machine::id::ThreadId;
use machine::policy::OnBusy;
use machine::thread::ThreadState;
use serde_json::{Value, json};

use crate::fixture::{Fixture, World};
use crate::snapshot::snapshot;
use crate::worker::{creation, order, rounds, started};

async fn put(world: &World, metadata: &Value) {
    assert!(world.store.put_thread(&world.tenant, &"thr".into(), metadata).await.unwrap());
}

async fn delete(world: &World) {
    world.store.delete_thread(&world.tenant, &"thr".into(), &"tester".into()).await.unwrap();
}

pub(crate) async fn rule_22_a_thread_that_is_gone_stays_gone<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for (round, on_busy) in [OnBusy::Reject, OnBusy::Enqueue, OnBusy::Interrupt].into_iter().enumerate() {
        for starts in [true, false] {
            let mut worker = started(&world, "thr", &format!("run_{round}_{starts}")).await;
            worker.finish_with("done");
            worker.commit(&world).await.unwrap();
            let late = creation(&world, order("thr", "late"), on_busy, starts).await;
            delete(&world).await;
            let before = snapshot(&world, &[]).await;
            assert_eq!(world.store.create(late).await, Err(StoreError::NotFound), "{on_busy:?}");
            assert_eq!(snapshot(&world, &[]).await, before);
            let thread = world.store.thread(&world.tenant, &"thr".into()).await.unwrap();
            assert_eq!(thread.created_at, None);
        }
    }
}

pub(crate) async fn rule_22_another_thread_of_the_same_id_is_not_the_one_that_was_seen<F: Fixture>() {
    for starts in [true, false] {
        let (_fixture, world) = F::open().await;
        put(&world, &json!({"is": "seen"})).await;
        let late = creation(&world, order("thr", "late"), OnBusy::Enqueue, starts).await;
        delete(&world).await;
        world.clock.advance(1);
        put(&world, &json!({"is": "new"})).await;
        assert_eq!(world.store.create(late).await, Err(StoreError::Stale));
        let thread = world.store.thread(&world.tenant, &"thr".into()).await.unwrap();
        assert_eq!((thread.state, thread.metadata), (ThreadState::Free, Some(json!({"is": "new"}))));
    }
}

pub(crate) async fn rule_22_a_thread_that_was_absent_is_created_once<F: Fixture>() {
    for starts in [true, false] {
        let (_fixture, world) = F::open().await;
        let first = creation(&world, order("thr", "first"), OnBusy::Enqueue, starts).await;
        let second = creation(&world, order("thr", "second"), OnBusy::Enqueue, starts).await;
        world.store.create(first).await.unwrap();
        assert_eq!(world.store.create(second).await, Err(StoreError::Stale), "the thread exists by now");
    }
}

/// When a deletion and a creation race, one wins and the other is refused.
pub(crate) async fn rule_22_a_deletion_and_a_creation_at_once_do_not_both_succeed<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for round in 0..rounds(40) {
        let thread = ThreadId::from(format!("thr_{round}"));
        world.store.put_thread(&world.tenant, &thread, &json!({"kept": true})).await.unwrap();
        let order = order(thread.as_str(), &format!("run_{round}"));
        let create = creation(&world, order, OnBusy::Reject, round % 2 == 0).await;
        let (posting, deleting, id) = (world.clone(), world.clone(), thread.clone());
        let created = tokio::spawn(async move { posting.store.create(create).await });
        let deleted = tokio::spawn(async move {
            deleting.store.delete_thread(&deleting.tenant, &id, &"tester".into()).await
        });
        let (created, deleted) = (created.await.unwrap(), deleted.await.unwrap());
        let found = world.store.thread(&world.tenant, &thread).await.unwrap();
        match (created, deleted) {
            (Ok(_), Err(StoreError::Stale)) => assert_eq!(found.metadata, Some(json!({"kept": true}))),
            (Err(StoreError::NotFound), Ok(Deleted::Thread)) => assert_eq!(found.created_at, None),
            (created, deleted) => panic!("round {round}: {created:?} and {deleted:?}"),
        }
    }
}
