//! Rule 11: a call id and a message id are used once in a thread.

use engine::store::{Create, StoreError};
use machine::id::{CallId, MessageId};
use machine::phase::HookAnswers;
use machine::policy::OnBusy;

use crate::fixture::Fixture;
use crate::snapshot::snapshot;
use crate::worker::{creation, enqueued, next_workers, order, started, started_with};

pub(crate) async fn rule_11_a_call_id_is_used_once_in_a_thread<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut first = started(&world, "thr", "first").await;
    first.asks(&[("a", "echo"), ("a~2", "echo"), ("ab", "echo")]);
    first.commit(&world).await.unwrap();
    for call in ["a", "a~2", "ab"] {
        first.succeeds(call);
    }
    first.finish_with("done");
    first.commit(&world).await.unwrap();

    let mut second = started(&world, "thr", "second").await;
    let before = snapshot(&world, &[&second.lease]).await;
    second.asks(&[("b", "echo"), ("a", "transfer")]);
    let refused = second.commit(&world).await;
    assert!(matches!(refused, Err(StoreError::Impossible(_))), "{refused:?}");
    assert_eq!(snapshot(&world, &[&second.lease]).await, before);
    let nothing = world.store.taken_call_ids(&second.lease, &["b".to_owned()]).await.unwrap();
    assert!(nothing.is_empty(), "the other call id of the refused commit is unused");

    second.reload(&world).await;
    let taken = world.store.taken_call_ids(&second.lease, &["a".to_owned()]).await.unwrap();
    assert_eq!(taken, [CallId::from("a"), CallId::from("a~2")].into());
    second.asks_knowing(&[("a", "transfer")], taken, HookAnswers::default());
    second.commit(&world).await.unwrap();
}

pub(crate) async fn rule_11_another_thread_may_use_the_same_call_id<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for thread in ["thr_1", "thr_2"] {
        let mut worker = started(&world, thread, &format!("run_{thread}")).await;
        let taken = world.store.taken_call_ids(&worker.lease, &["a".to_owned()]).await.unwrap();
        assert!(taken.is_empty());
        worker.asks(&[("a", "transfer")]);
        worker.commit(&world).await.unwrap();
    }
}

pub(crate) async fn rule_11_names_with_signs_are_compared_as_they_are<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a%", "echo"), ("a_b", "echo"), ("axb~2", "echo"), ("A", "echo"), ("é~1", "echo")]);
    worker.commit(&world).await.unwrap();
    let taken = |asked: &str| {
        let asked = [asked.to_owned()];
        let (world, lease) = (world.clone(), worker.lease.clone());
        async move { world.store.taken_call_ids(&lease, &asked).await.unwrap().into_iter().collect::<Vec<_>>() }
    };
    assert_eq!(taken("a%").await, [CallId::from("a%")]);
    assert_eq!(taken("a_b").await, [CallId::from("a_b")]);
    assert_eq!(taken("a").await, []);
    assert_eq!(taken("axb").await, [CallId::from("axb~2")]);
    assert_eq!(taken("é").await, [CallId::from("é~1")]);
    assert_eq!(taken("%").await, []);
}

pub(crate) async fn rule_11_a_message_id_is_used_once_in_a_thread<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut first = started(&world, "thr", "first").await;
    first.finish_with("done");
    first.commit(&world).await.unwrap();
    let mut again = order("thr", "second");
    again.message.as_mut().unwrap().id = MessageId::from("msg_user_first");
    let create = creation(&world, again, OnBusy::Reject, true).await;
    let before = snapshot(&world, &[]).await;
    let refused = world.store.create(create).await;
    assert!(matches!(refused, Err(StoreError::Impossible(_))), "{refused:?}");
    assert_eq!(snapshot(&world, &[]).await, before);
    started(&world, "thr", "second").await;
}

pub(crate) async fn rule_11_an_append_adds_no_message_under_a_used_id<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut unlucky = order("thr", "first");
    unlucky.message.as_mut().unwrap().id = MessageId::from("msg_second_1");
    let mut first = started_with(&world, unlucky).await;
    first.finish_with("done");
    first.commit(&world).await.unwrap();
    let mut second = started(&world, "thr", "second").await;
    let before = snapshot(&world, &[&second.lease]).await;
    second.asks(&[("a", "transfer")]);
    let refused = second.commit(&world).await;
    assert!(matches!(refused, Err(StoreError::Impossible(_))), "{refused:?}");
    assert_eq!(snapshot(&world, &[&second.lease]).await, before);
    let place = world.store.message(&world.tenant, &"thr".into(), &"msg_second_1".into()).await.unwrap();
    assert_eq!(place.unwrap().run.as_str(), "first");
}

pub(crate) async fn rule_11_another_thread_may_use_the_same_message_id<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    started(&world, "thr_1", "first").await;
    let mut other = order("thr_2", "second");
    other.message.as_mut().unwrap().id = MessageId::from("msg_user_first");
    let create = creation(&world, other, OnBusy::Reject, true).await;
    assert!(world.store.create(create).await.unwrap().lease.is_some());
}

/// Otherwise the store would accept a run that could never start.
pub(crate) async fn rule_11_a_message_id_of_a_queued_run_is_used_too<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut front = started(&world, "thr", "front").await;
    enqueued(&world, "thr", "behind").await;
    for used in ["msg_user_front", "msg_user_behind"] {
        let mut again = order("thr", "again");
        again.message.as_mut().unwrap().id = MessageId::from(used);
        let create = creation(&world, again, OnBusy::Enqueue, false).await;
        let refused = world.store.create(Create { lease: false, ..create }).await;
        assert!(matches!(refused, Err(StoreError::Impossible(_))), "{used}: {refused:?}");
    }
    front.finish_with("done");
    front.commit(&world).await.unwrap();
    let mut behind = next_workers(&world, 1).await.remove(0);
    behind.apply_input(&machine::Input::Start { after: None });
    behind.commit(&world).await.unwrap();
}

/// Otherwise the queued run could never start.
pub(crate) async fn rule_11_a_call_whose_message_id_a_queued_run_has_is_refused<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut front = started(&world, "thr", "front").await;
    let mut behind = order("thr", "behind");
    behind.message.as_mut().unwrap().id = MessageId::from("msg_a");
    let create = creation(&world, behind, OnBusy::Enqueue, false).await;
    world.store.create(create).await.unwrap();
    front.asks(&[("a", "transfer")]);
    let refused = front.commit(&world).await;
    assert!(matches!(refused, Err(StoreError::Impossible(_))), "{refused:?}");
    front.reload(&world).await;
    let taken = world.store.taken_call_ids(&front.lease, &["a".to_owned()]).await.unwrap();
    assert_eq!(taken, [CallId::from("a")].into());
    front.asks_knowing(&[("a", "transfer")], taken, HookAnswers::default());
    front.commit(&world).await.unwrap();
}
