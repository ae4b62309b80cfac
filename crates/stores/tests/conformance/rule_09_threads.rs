//! Rule 9: one run holds a thread, and whoever is next holds it from the commit that ended the last.

use std::collections::BTreeSet;

use engine::store::{Claim, Create, Page, Refused};
use machine::Input;
use machine::event::InterruptCause;
use machine::id::{MessageId, RunId};
use machine::inbox::Item;
use machine::rows::ShownStatus;
use machine::thread::{Admission, Busy, Front, Thread};
use serde_json::{Value, json};

use crate::fixture::{Fixture, World};
use crate::snapshot::snapshot;
use crate::worker::{
    Worker, claim, creation, enqueued, held, next, next_workers, order, parked, queued, started,
};

async fn state(world: &World, thread: &str) -> Thread {
    world.store.thread(&world.tenant, &thread.into()).await.unwrap().state
}

fn busy(front: &str, front_is: Front, queued: usize) -> Thread {
    Thread::Busy { front: RunId::from(front), front_is, in_doubt: false, queued }
}

async fn takes_over(world: &World, thread: &str, run: &str, from: &str) -> Vec<RunId> {
    let admission = Admission::TakeOver { from: RunId::from(from) };
    let create = creation(world, order(thread, run), admission, false).await;
    world.store.create(create).await.unwrap().woken
}

pub(crate) async fn rule_09_metadata_that_could_not_be_read_back_is_refused<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let put = |id: &'static str, metadata: Value| {
        let (store, tenant) = (world.store.clone(), world.tenant.clone());
        async move { store.put_thread(&tenant, &id.into(), &metadata).await }
    };
    let reserved = json!({"a": 1, "$serde_json::private::RawValue": "1"});
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    for bad in [reserved, deep] {
        assert!(matches!(put("bad", bad).await, Err(Refused::Impossible(_))));
    }
    let good = json!({"a": "$serde_json::private::RawValue"});
    assert!(put("good", good.clone()).await.unwrap());
    let listed = world.store.threads(&world.tenant, &Page { cursor: None, limit: 10 }).await.unwrap();
    assert_eq!(listed.items.iter().map(|view| &view.metadata).collect::<Vec<_>>(), [&Some(good)]);
}

pub(crate) async fn rule_09_a_thread_shows_who_is_in_front<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    assert_eq!(state(&world, "thr").await, Thread::Free);
    queued(&world, "thr", "front").await;
    assert_eq!(state(&world, "thr").await, busy("front", Front::Queued, 0));
    enqueued(&world, "thr", "behind").await;
    let mut worker = claim(&world, "front").await.unwrap();
    worker.say(&Input::Start { after: None });
    worker.commit(&world).await.unwrap();
    assert_eq!(state(&world, "thr").await, busy("front", Front::Executes, 1));
    worker.asks(&[("a", "transfer")]);
    worker.commit(&world).await.unwrap();
    assert_eq!(state(&world, "thr").await, busy("front", Front::Waits, 1));
}

pub(crate) async fn rule_09_a_thread_shows_that_its_front_is_in_doubt<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "post")]);
    worker.commit(&world).await.unwrap();
    let world = fixture.crash(world).await;
    let mut worker = claim(&world, "run").await.unwrap();
    worker.take_over();
    worker.commit(&world).await.unwrap();
    let Thread::Busy { in_doubt, front_is, .. } = state(&world, "thr").await else { panic!("it is free") };
    assert!(in_doubt && front_is == Front::Waits);
}

pub(crate) async fn rule_09_a_creation_judged_on_another_thread_is_stale<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let absent = creation(&world, order("thr", "run_1"), Admission::Hold, false).await;
    world.store.put_thread(&world.tenant, &"thr".into(), &Value::Null).await.unwrap();
    let free = creation(&world, order("thr", "run_2"), Admission::Hold, false).await;
    let before = snapshot(&world, &[]).await;
    assert_eq!(world.store.create(absent).await, Err(Refused::Stale), "the thread has come into being");
    assert_eq!(snapshot(&world, &[]).await, before);
    let mut worker = started(&world, "thr", "run_3").await;
    assert_eq!(world.store.create(free).await, Err(Refused::Stale), "somebody holds it");
    let behind = creation(&world, order("thr", "run_4"), Admission::Enqueue, false).await;
    worker.asks(&[("a", "echo")]);
    worker.commit(&world).await.unwrap();
    assert_eq!(world.store.create(behind).await, Err(Refused::Stale), "it has another head");
    let behind = creation(&world, order("thr", "run_4"), Admission::Enqueue, false).await;
    worker.succeeds("a");
    worker.says("done");
    worker.commit(&world).await.unwrap();
    assert_eq!(world.store.create(behind).await, Err(Refused::Stale), "it is free");
    assert_eq!(world.store.run(&world.tenant, &"run_4".into()).await.unwrap(), None);
}

pub(crate) async fn rule_09_an_admission_that_cannot_be_is_impossible<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    started(&world, "thr", "front").await;
    let before = snapshot(&world, &[]).await;
    let refusal = Admission::Refuse(Busy::ActiveRun("front".into()));
    for admission in [Admission::Hold, refusal] {
        let create = creation(&world, order("thr", "run"), admission, false).await;
        let refused = world.store.create(create).await;
        assert!(matches!(refused, Err(Refused::Impossible(_))), "{refused:?}");
    }
    let twice = creation(&world, order("other", "front"), Admission::Hold, false).await;
    let refused = world.store.create(twice).await;
    assert!(matches!(refused, Err(Refused::Impossible(_))), "a run is created once: {refused:?}");
    assert_eq!(snapshot(&world, &[]).await, before);
}

pub(crate) async fn rule_09_a_lease_is_given_only_where_the_run_holds_its_thread<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let first = creation(&world, order("thr", "front"), Admission::Hold, false).await;
    let created = world.store.create(Create { lease: true, ..first }).await.unwrap();
    let lease = created.lease.unwrap();
    assert_eq!((lease.run.as_str(), lease.epoch), ("front", 1));
    assert!(world.store.may_send(&lease));
    assert!(created.woken.is_empty());
    let second = creation(&world, order("thr", "behind"), Admission::Enqueue, false).await;
    // Whether that is a mistake or a wish that cannot be granted is left to the store.
    let refused = world.store.create(Create { lease: true, ..second }).await.unwrap_err();
    assert!(matches!(refused, Refused::Impossible(_)), "{refused:?}");
}

pub(crate) async fn rule_09_the_end_of_the_holder_promotes_the_first_in_line<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "front").await;
    // Neither the name nor the time decides.
    for run in ["z", "m", "a"] {
        enqueued(&world, "thr", run).await;
    }
    for (ended, promoted) in [("front", Some("z")), ("z", Some("m")), ("m", Some("a")), ("a", None)] {
        assert_eq!(worker.lease.run.as_str(), ended);
        worker.says("done");
        let woken = worker.commit(&world).await.unwrap().woken;
        assert_eq!(woken, promoted.map(RunId::from).into_iter().collect::<Vec<_>>());
        let Some(run) = promoted else { continue };
        let asked = Claim::Run { tenant: world.tenant.clone(), run: run.into() };
        let claimed = world.store.claim(asked).await.unwrap().remove(0);
        assert!(claimed.loaded.as_ref().unwrap().holds_thread);
        let after = claimed.loaded.as_ref().unwrap().begins_after.clone();
        worker = Worker::of(&world, claimed);
        worker.take_over();
        worker.say(&Input::Start { after });
    }
    assert_eq!(state(&world, "thr").await, Thread::Free);
}

pub(crate) async fn rule_09_whoever_supersedes_the_front_comes_before_the_line<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr", "front", "transfer").await;
    enqueued(&world, "thr", "patient").await;
    assert_eq!(takes_over(&world, "thr", "pushy", "front").await, [RunId::from("front")]);
    assert_eq!(state(&world, "thr").await, busy("front", Front::Waits, 2));
    let mut worker = next_workers(&world, 1).await.remove(0);
    assert_eq!(worker.lease.run.as_str(), "front", "it has something to hear");
    let cause = InterruptCause::Superseded("pushy".into());
    let items: Vec<Item> = worker.inbox.iter().map(|(_, item)| item.clone()).collect();
    assert_eq!(items, [Item::Interrupt { cause }]);
    worker.drain();
    assert_eq!(worker.commit(&world).await.unwrap().woken, [RunId::from("pushy")]);
    assert_eq!(world.run("front").await.status, ShownStatus::Interrupted);
    assert_eq!(state(&world, "thr").await, busy("pushy", Front::Queued, 1));
    assert_eq!(next(&world, 10).await, ["pushy"]);
}

pub(crate) async fn rule_09_a_run_is_superseded_once<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "front", "transfer").await;
    takes_over(&world, "thr", "first", "front").await;
    assert!(takes_over(&world, "thr", "second", "front").await.is_empty(), "it hears one interrupt");
    worker.reload(&world).await;
    assert_eq!(worker.inbox.len(), 1);
    worker.drain();
    assert_eq!(worker.commit(&world).await.unwrap().woken, [RunId::from("first")]);
    assert_eq!(state(&world, "thr").await, busy("first", Front::Queued, 1));
}

pub(crate) async fn rule_09_a_superseder_that_has_ended_is_not_promoted<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut front = held(&world, "thr", "front", "transfer").await;
    enqueued(&world, "thr", "patient").await;
    takes_over(&world, "thr", "pushy", "front").await;
    let mut pushy = claim(&world, "pushy").await.unwrap();
    pushy.accept(Item::Interrupt { cause: InterruptCause::Person("bob".into()) });
    assert!(pushy.commit(&world).await.unwrap().woken.is_empty());
    front.reload(&world).await;
    front.drain();
    assert_eq!(front.commit(&world).await.unwrap().woken, [RunId::from("patient")]);
}

pub(crate) async fn rule_09_a_queued_run_that_ends_leaves_the_line<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut front = started(&world, "thr", "front").await;
    enqueued(&world, "thr", "first").await;
    enqueued(&world, "thr", "second").await;
    let mut first = claim(&world, "first").await.unwrap();
    first.accept(Item::Interrupt { cause: InterruptCause::Person("bob".into()) });
    first.commit(&world).await.unwrap();
    assert_eq!(state(&world, "thr").await, busy("front", Front::Executes, 1));
    front.says("done");
    assert_eq!(front.commit(&world).await.unwrap().woken, [RunId::from("second")]);
}

pub(crate) async fn rule_09_a_run_begins_after_the_last_message_or_the_one_asked_for<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "front").await;
    enqueued(&world, "thr", "behind").await;
    let asked = creation(&world, order("thr", "branch"), Admission::Enqueue, false).await;
    let root = Some(MessageId::from("msg_user_front"));
    world.store.create(Create { begins_after: root.clone(), ..asked }).await.unwrap();
    worker.says("done");
    worker.commit(&world).await.unwrap();
    let begins = |run: &str| {
        let asked = Claim::Run { tenant: world.tenant.clone(), run: run.into() };
        let world = world.clone();
        async move { world.store.claim(asked).await.unwrap().remove(0).loaded.unwrap().begins_after }
    };
    assert_eq!(begins("behind").await, Some(MessageId::from("msg_front_1")));
    assert_eq!(begins("branch").await, root);
}

pub(crate) async fn rule_09_of_many_creations_on_one_thread_one_holds<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut judged = Vec::new();
    for index in 0..100 {
        judged.push(creation(&world, order("thr", &format!("run_{index}")), Admission::Hold, true).await);
    }
    let race = |create| {
        let world = world.clone();
        tokio::spawn(async move { world.store.create(create).await })
    };
    let tasks: Vec<_> = judged.into_iter().map(race).collect();
    let mut leases = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(created) => leases.extend(created.lease),
            Err(refused) => assert_eq!(refused, Refused::Stale),
        }
    }
    assert_eq!(leases.len(), 1);
    assert_eq!(state(&world, "thr").await, busy(leases[0].run.as_str(), Front::Executes, 0));
}

pub(crate) async fn rule_09_whoever_looks_again_gets_into_the_line<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let tasks: Vec<_> = (0..20)
        .map(|index| {
            let world = world.clone();
            tokio::spawn(async move {
                let run = format!("run_{index}");
                loop {
                    let create = creation(&world, order("thr", &run), Admission::Hold, false).await;
                    let admission = match create.seen.state {
                        Thread::Free => Admission::Hold,
                        Thread::Busy { .. } => Admission::Enqueue,
                    };
                    match world.store.create(Create { admission, ..create }).await {
                        Ok(_) => return,
                        Err(refused) => assert_eq!(refused, Refused::Stale),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut order = Vec::new();
    while let [worker] = next_workers(&world, 10).await.as_mut_slice() {
        order.push(worker.lease.run.to_string());
        worker.say(&Input::Start { after: None });
        worker.says("done");
        worker.commit(&world).await.unwrap();
    }
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 20, "each holds the thread once: {order:?}");
}
