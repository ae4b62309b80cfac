//! Rule 14: a key of a posted message is bound with its run, once in a thread.

use std::collections::BTreeSet;

use engine::Engine;
use engine::agent::Agent;
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::posting::{Message, OnBusy, PostError};
use engine::store::{BoxFuture, Create, Page, PostKey, RunFilter, SCOPE_BYTES_MAX, StoreError};
use machine::event::InterruptCause;
use machine::id::{Digest, RunId};
use machine::inbox::Item;
use machine::projection_rows::PublicRunStatus;

use crate::fixture::{Fixture, World};
use crate::snapshot::snapshot;
use crate::worker::{claim, creation, order, started};

fn key(scope: &str, body: &str) -> PostKey {
    PostKey { scope: scope.into(), body: Digest::sha256(body.as_bytes()) }
}

async fn keyed(world: &World, thread: &str, run: &str, on_busy: OnBusy, key: PostKey) -> Create {
    let create = creation(world, order(thread, run), on_busy, false).await;
    Create { key: Some(key), ..create }
}

async fn posted(world: &World, thread: &str, scope: &str) -> Option<(RunId, Digest)> {
    world.store.posted(&world.tenant, &thread.into(), scope).await.unwrap()
}

pub(crate) async fn rule_14_a_key_is_bound_with_its_run<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    assert_eq!(posted(&world, "thr", "ana k").await, None);
    let create = keyed(&world, "thr", "run", OnBusy::Reject, key("ana k", "hello")).await;
    world.store.create(create).await.unwrap();
    let bound = Some((RunId::from("run"), Digest::sha256(b"hello")));
    assert_eq!(posted(&world, "thr", "ana k").await, bound);
    assert_eq!(posted(&world, "thr", "ana").await, None);
    assert_eq!(posted(&world, "thr_2", "ana k").await, None, "a key is valid within its thread only");
    assert_eq!(posted(&world.for_tenant("thief"), "thr", "ana k").await, None);
    let world = fixture.crash(world).await;
    assert_eq!(posted(&world, "thr", "ana k").await, bound);
    let other = keyed(&world, "thr_2", "run_2", OnBusy::Reject, key("ana k", "other")).await;
    world.store.create(other).await.unwrap();
    assert_eq!(
        posted(&world, "thr_2", "ana k").await,
        Some((RunId::from("run_2"), Digest::sha256(b"other")))
    );
}

pub(crate) async fn rule_14_a_creation_whose_key_is_taken_is_stale<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    world.store.put_thread(&world.tenant, &"thr".into(), &serde_json::Value::Null).await.unwrap();
    let late = keyed(&world, "thr", "late", OnBusy::Reject, key("k", "hello")).await;
    let first = keyed(&world, "thr", "first", OnBusy::Reject, key("k", "hello")).await;
    world.store.create(first).await.unwrap();
    // The run ends without having started, so the thread is again as the second creator saw it.
    let mut worker = claim(&world, "first").await.unwrap();
    worker.accept(Item::Interrupt { cause: InterruptCause::Person("bob".into()) });
    worker.commit(&world).await.unwrap();
    let now = world.store.thread(&world.tenant, &"thr".into()).await.unwrap();
    assert_eq!(now, late.seen);
    let before = snapshot(&world, &[]).await;
    assert_eq!(world.store.create(late.clone()).await, Err(StoreError::Stale));
    assert_eq!(snapshot(&world, &[]).await, before);
    assert_eq!(posted(&world, "thr", "k").await.unwrap().0.as_str(), "first");
    world.store.create(Create { key: Some(key("k2", "hello")), ..late }).await.unwrap();
    assert_eq!(posted(&world, "thr", "k2").await.unwrap().0.as_str(), "late");
}

pub(crate) async fn rule_14_a_creation_that_is_refused_binds_no_key<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let stale = keyed(&world, "thr", "stale", OnBusy::Reject, key("k", "hello")).await;
    started(&world, "thr", "front").await;
    assert_eq!(world.store.create(stale).await, Err(StoreError::Stale));
    let mut again = keyed(&world, "thr", "again", OnBusy::Enqueue, key("k", "hello")).await;
    // The message id of another run: the rows contradict what is stored.
    let mut order = order("thr", "again");
    order.message.as_mut().unwrap().id = "msg_user_front".into();
    let clash = creation(&world, order, OnBusy::Enqueue, false).await;
    again.append = clash.append;
    assert!(matches!(world.store.create(again).await, Err(StoreError::Impossible(_))));
    assert_eq!(posted(&world, "thr", "k").await, None);
    let good = keyed(&world, "thr", "good", OnBusy::Enqueue, key("k", "hello")).await;
    world.store.create(good).await.unwrap();
    assert_eq!(posted(&world, "thr", "k").await.unwrap().0.as_str(), "good");
}

pub(crate) async fn rule_14_of_many_creations_under_one_key_one_is_made<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    started(&world, "thr", "front").await;
    let creations: Vec<_> = (0..50)
        .map(|number| {
            let world = world.clone();
            tokio::spawn(async move {
                // A creator that is refused looks the key up again.
                loop {
                    if posted(&world, "thr", "k").await.is_some() {
                        return false;
                    }
                    let run = format!("run_{number}");
                    let create = keyed(&world, "thr", &run, OnBusy::Enqueue, key("k", "hello")).await;
                    match world.store.create(create).await {
                        Ok(_) => return true,
                        Err(refused) => assert_eq!(refused, StoreError::Stale),
                    }
                }
            })
        })
        .collect();
    let mut made = 0;
    for creation in creations {
        made += usize::from(creation.await.unwrap());
    }
    assert_eq!(made, 1);
    let runs = world.store.runs(&world.tenant, &RunFilter::default(), &Page::default()).await.unwrap();
    assert_eq!(runs.items.len(), 2);
}

/// Gives every request the same answer.
struct AnswersAtOnce;

impl Model for AnswersAtOnce {
    fn answer<'a>(&'a self, _: ModelRequest, _: Deltas) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(std::future::ready(Ok(ModelAnswer::text("done"))))
    }
}

pub(crate) async fn rule_14_a_hundred_posts_under_one_key_start_one_run<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let agent = Agent::new("assistant", AnswersAtOnce);
    let engine = Engine::on_shared(world.store.clone()).agent(agent).start().await.unwrap();
    for on_busy in [OnBusy::Reject, OnBusy::Enqueue] {
        let thread = format!("thr_{on_busy:?}");
        let says = |text: &str| {
            let message = Message::to("assistant", text).on_thread(thread.as_str()).if_busy(on_busy);
            message.for_tenant(world.tenant.clone()).with_key(key("ana k", text))
        };
        let posts: Vec<_> = (0..100)
            .map(|_| {
                let (engine, message) = (engine.clone(), says("hello"));
                tokio::spawn(async move { engine.post(message).await })
            })
            .collect();
        let mut runs = BTreeSet::new();
        for post in posts {
            runs.insert(post.await.unwrap().unwrap().run);
        }
        assert_eq!(runs.len(), 1, "every post returned the same run");
        let filter = RunFilter { thread: Some(thread.as_str().into()), ..RunFilter::default() };
        let stored = world.store.runs(&world.tenant, &filter, &Page::default()).await.unwrap();
        assert_eq!(stored.items.len(), 1, "no other run exists");
        let run = runs.pop_first().unwrap();
        engine.wait_until_ended(&world.tenant, &run).await.unwrap();
        let repeat = engine.post(says("hello")).await.unwrap();
        assert_eq!((repeat.run, repeat.status), (run.clone(), PublicRunStatus::Completed));
        let other = Message { key: Some(key("ana k", "bye")), ..says("hello") };
        assert_eq!(engine.post(other).await, Err(PostError::KeyUsed { run }));
    }
    engine.abort();
}

pub(crate) async fn rule_17_a_key_has_a_largest_size_and_goes_with_its_thread<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let scope = "\0".repeat(SCOPE_BYTES_MAX);
    let too_long = keyed(&world, "thr", "run", OnBusy::Reject, key(&format!("{scope}x"), "hello")).await;
    let before = snapshot(&world, &[]).await;
    assert!(matches!(world.store.create(too_long).await, Err(StoreError::Impossible(_))));
    assert_eq!(snapshot(&world, &[]).await, before);
    let longest = keyed(&world, "thr", "run", OnBusy::Reject, key(&scope, "hello")).await;
    world.store.create(longest).await.unwrap();
    assert_eq!(posted(&world, "thr", &scope).await.unwrap().0.as_str(), "run");
    let mut worker = claim(&world, "run").await.unwrap();
    worker.accept(Item::Interrupt { cause: InterruptCause::Person("bob".into()) });
    worker.commit(&world).await.unwrap();
    world.store.delete_thread(&world.tenant, &"thr".into(), &"tester".into()).await.unwrap();
    assert_eq!(posted(&world, "thr", &scope).await, None);
    let anew = keyed(&world, "thr", "second", OnBusy::Reject, key(&scope, "other")).await;
    world.store.create(anew).await.unwrap();
    assert_eq!(
        posted(&world, "thr", &scope).await.unwrap().0.as_str(),
        "second",
        "the key can be used again"
    );
}
