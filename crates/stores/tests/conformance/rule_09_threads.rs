//! Rule 9: one run holds a thread. The commit that ends the holder makes the next queued run the holder.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::store::{Claim, Create, Page, StoreError};
use machine::event::{Event, InterruptCause};
use machine::id::{AgentName, MessageId, RunId, ThreadId};
use machine::inbox::Item;
use machine::policy::OnBusy;
use machine::projection_rows::PublicRunStatus;
use machine::thread::{
    Admission, Busy, FrontState, IfBusy, QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX, ThreadState,
};
use machine::{Input, Timestamp};
use serde_json::{Value, json};

use crate::fixture::{Fixture, World};
use crate::snapshot::snapshot;
use crate::worker::{
    Worker, claim, creation, enqueued, held, next, next_workers, order, parked, queued, started,
};

async fn state(world: &World, thread: &str) -> ThreadState {
    world.store.thread(&world.tenant, &thread.into()).await.unwrap().state
}

fn busy(front: &str, front_is: FrontState, queued: usize) -> ThreadState {
    ThreadState::Busy { front: RunId::from(front), front_is, in_doubt: false, queued }
}

/// Creates a run that interrupts the runs before it, and returns their ids.
async fn supersedes(world: &World, thread: &str, run: &str) -> Vec<String> {
    let create = creation(world, order(thread, run), OnBusy::Interrupt, false).await;
    let created = world.store.create(create).await.unwrap();
    assert_eq!(created.admission, Admission::Supersede);
    created.woken.iter().map(ToString::to_string).collect()
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
        assert!(matches!(put("bad", bad).await, Err(StoreError::Impossible(_))));
    }
    let good = json!({"a": "$serde_json::private::RawValue"});
    assert!(put("good", good.clone()).await.unwrap());
    let listed = world.store.threads(&world.tenant, &Page { cursor: None, limit: 10 }).await.unwrap();
    assert_eq!(listed.items.iter().map(|view| &view.metadata).collect::<Vec<_>>(), [&Some(good)]);
}

pub(crate) async fn rule_09_a_thread_shows_who_is_in_front<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    assert_eq!(state(&world, "thr").await, ThreadState::Free);
    queued(&world, "thr", "front").await;
    assert_eq!(state(&world, "thr").await, busy("front", FrontState::Queued, 0));
    enqueued(&world, "thr", "behind").await;
    let mut worker = claim(&world, "front").await.unwrap();
    worker.apply_input(&Input::Start { after: None });
    worker.commit(&world).await.unwrap();
    assert_eq!(state(&world, "thr").await, busy("front", FrontState::Executing, 1));
    worker.asks(&[("a", "transfer")]);
    worker.commit(&world).await.unwrap();
    assert_eq!(state(&world, "thr").await, busy("front", FrontState::Waiting, 1));
}

pub(crate) async fn rule_09_a_thread_has_other_agents_or_only_these<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let own = order("thr", "run").agent;
    queued(&world, "thr", "run").await;
    let other = |thread: &'static str, agents: BTreeSet<AgentName>| {
        let (store, tenant) = (world.store.clone(), world.tenant.clone());
        async move { store.has_other_agents(&tenant, &thread.into(), &agents).await.unwrap() }
    };
    assert!(!other("thr", BTreeSet::from([own.clone(), "porter".into()])).await);
    assert!(other("thr", BTreeSet::from(["porter".into()])).await);
    assert!(other("thr", BTreeSet::new()).await);
    assert!(!other("elsewhere", BTreeSet::new()).await);
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
    let ThreadState::Busy { in_doubt, front_is, .. } = state(&world, "thr").await else {
        panic!("it is free")
    };
    assert!(in_doubt && front_is == FrontState::Waiting);
}

pub(crate) async fn rule_09_a_run_that_starts_at_once_needs_the_thread_as_it_was_seen<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    world.store.put_thread(&world.tenant, &"thr".into(), &Value::Null).await.unwrap();
    let create = |run: &'static str, on_busy| {
        let world = world.clone();
        async move { creation(&world, order("thr", run), on_busy, true).await }
    };
    let at_first = create("run_1", OnBusy::Enqueue).await;
    let mut worker = started(&world, "thr", "run_2").await;
    assert_eq!(
        world.store.create(at_first.clone()).await,
        Err(StoreError::Stale),
        "another run holds the thread"
    );
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    let before = snapshot(&world, &[]).await;
    assert_eq!(
        world.store.create(at_first).await,
        Err(StoreError::Stale),
        "the thread has another last message"
    );
    assert_eq!(snapshot(&world, &[]).await, before);
    let created = world.store.create(create("run_1", OnBusy::Reject).await).await.unwrap();
    assert!(created.lease.is_some() && created.admission == Admission::Hold);
}

pub(crate) async fn rule_09_a_run_is_admitted_to_the_thread_as_it_is_and_not_as_it_was_seen<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    world.store.put_thread(&world.tenant, &"thr".into(), &Value::Null).await.unwrap();
    let [holds, lines_up, is_refused, takes_over] = [
        ("holds", OnBusy::Reject),
        ("lines_up", OnBusy::Enqueue),
        ("is_refused", OnBusy::Reject),
        ("takes_over", OnBusy::Interrupt),
    ]
    .map(|(run, on_busy)| (order("thr", run), on_busy));
    // All creators saw a free thread.
    let mut creations = Vec::new();
    for (order, on_busy) in [holds, lines_up, is_refused, takes_over] {
        creations.push(creation(&world, order, on_busy, false).await);
    }
    let mut admissions = Vec::new();
    for create in creations {
        admissions.push(world.store.create(create).await.map(|created| created.admission));
    }
    let refused = Err(StoreError::Busy(Busy::ActiveRun("holds".into())));
    let expected = [Ok(Admission::Hold), Ok(Admission::Enqueue), refused, Ok(Admission::Supersede)];
    assert_eq!(admissions, expected);
    assert_eq!(state(&world, "thr").await, busy("holds", FrontState::Queued, 2));
    assert_eq!(world.store.run(&world.tenant, &"is_refused".into()).await.unwrap(), None);
}

pub(crate) async fn rule_09_a_run_that_waits_and_one_that_executes_are_asked_for_apart<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let if_busy = IfBusy { executes: OnBusy::Enqueue, waits: OnBusy::Reject };
    let create = |run: &'static str, on_busy| {
        let world = world.clone();
        async move {
            let create = creation(&world, order("thr", run), OnBusy::Reject, false).await;
            let created = world.store.create(Create { if_busy: on_busy, ..create }).await;
            created.map(|created| created.admission)
        }
    };
    let mut front = started(&world, "thr", "front").await;
    assert_eq!(create("run_1", if_busy).await, Ok(Admission::Enqueue));
    front.asks(&[("a", "transfer")]);
    front.commit(&world).await.unwrap();
    let refused = Err(StoreError::Busy(Busy::ActiveRun("front".into())));
    assert_eq!(create("run_2", if_busy).await, refused);
    let other_way = IfBusy { executes: OnBusy::Reject, waits: OnBusy::Enqueue };
    assert_eq!(create("run_3", other_way).await, Ok(Admission::Enqueue));

    let mut doubted = started(&world, "thr_2", "doubted").await;
    doubted.asks(&[("b", "post")]);
    doubted.commit(&world).await.unwrap();
    let world = fixture.crash(world).await;
    let mut doubted = claim(&world, "doubted").await.unwrap();
    doubted.take_over();
    doubted.commit(&world).await.unwrap();
    let pushy = creation(&world, order("thr_2", "pushy"), OnBusy::Interrupt, false).await;
    let refused = world.store.create(pushy).await;
    assert_eq!(refused, Err(StoreError::Busy(Busy::InDoubt("doubted".into()))));
}

pub(crate) async fn rule_09_the_queue_is_bounded_and_the_refusal_names_the_bound<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut front = started(&world, "thr", "front").await;
    let full = |max| Err(StoreError::Busy(Busy::QueueFull { max }));
    for index in 0..QUEUE_MAX {
        enqueued(&world, "thr", &format!("run_{index}")).await;
    }
    let one_more = creation(&world, order("thr", "one_more"), OnBusy::Enqueue, false).await;
    assert_eq!(world.store.create(one_more).await, full(QUEUE_MAX));
    for index in QUEUE_MAX..QUEUE_WITH_SUPERSEDING_MAX {
        supersedes(&world, "thr", &format!("run_{index}")).await;
    }
    let one_more = creation(&world, order("thr", "one_more"), OnBusy::Interrupt, false).await;
    assert_eq!(world.store.create(one_more).await, full(QUEUE_WITH_SUPERSEDING_MAX));
    front.reload(&world).await;
    front.drain();
    let last = RunId::from(format!("run_{}", QUEUE_WITH_SUPERSEDING_MAX - 1));
    assert_eq!(
        front.commit(&world).await.unwrap().woken,
        [last],
        "the last superseding run holds the thread"
    );
}

pub(crate) async fn rule_09_a_run_is_created_once<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    started(&world, "thr", "front").await;
    let before = snapshot(&world, &[]).await;
    let twice = creation(&world, order("other", "front"), OnBusy::Reject, false).await;
    let refused = world.store.create(twice).await;
    assert!(matches!(refused, Err(StoreError::Impossible(_))), "{refused:?}");
    assert_eq!(snapshot(&world, &[]).await, before);
}

pub(crate) async fn rule_09_a_lease_is_given_only_where_the_run_holds_its_thread<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let first = creation(&world, order("thr", "front"), OnBusy::Reject, false).await;
    let created = world.store.create(Create { lease: true, ..first }).await.unwrap();
    let lease = created.lease.unwrap();
    assert_eq!((lease.run.as_str(), lease.epoch), ("front", 1));
    assert!(world.store.may_send(&lease));
    assert!(created.woken.is_empty());
    let second = creation(&world, order("thr", "behind"), OnBusy::Enqueue, false).await;
    assert_eq!(world.store.create(Create { lease: true, ..second }).await, Err(StoreError::Stale));
}

pub(crate) async fn rule_09_the_end_of_the_holder_promotes_the_first_in_the_queue<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "front").await;
    // Neither the id nor the creation time decides the order.
    for run in ["z", "m", "a"] {
        enqueued(&world, "thr", run).await;
    }
    for (ended, promoted) in [("front", Some("z")), ("z", Some("m")), ("m", Some("a")), ("a", None)] {
        assert_eq!(worker.lease.run.as_str(), ended);
        worker.finish_with("done");
        let woken = worker.commit(&world).await.unwrap().woken;
        assert_eq!(woken, promoted.map(RunId::from).into_iter().collect::<Vec<_>>());
        let Some(run) = promoted else { continue };
        let asked = Claim::Run { tenant: world.tenant.clone(), run: run.into() };
        let claimed = world.store.claim(asked).await.unwrap().remove(0);
        assert!(claimed.loaded.as_ref().unwrap().holds_thread);
        let after = claimed.loaded.as_ref().unwrap().begins_after.clone();
        worker = Worker::from_claim(&world, claimed);
        worker.take_over();
        worker.apply_input(&Input::Start { after });
    }
    assert_eq!(state(&world, "thr").await, ThreadState::Free);
}

/// Ends a run that was superseded while it was queued.
async fn ends_unstarted(world: &World, run: &str) {
    let mut worker = claim(world, run).await.unwrap();
    worker.drain();
    worker.commit(world).await.unwrap();
    let view = world.run(run).await;
    assert_eq!((view.status, view.started_at), (PublicRunStatus::Interrupted, None), "{run}");
}

pub(crate) async fn rule_09_a_superseding_run_takes_the_place_of_all_before_it<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr", "front", "transfer").await;
    enqueued(&world, "thr", "patient").await;
    assert_eq!(supersedes(&world, "thr", "pushy").await, ["front", "patient"]);
    assert_eq!(state(&world, "thr").await, busy("front", FrontState::Waiting, 2));
    enqueued(&world, "thr", "later").await;
    let mut worker = claim(&world, "front").await.unwrap();
    let cause = InterruptCause::Superseded("pushy".into());
    let items: Vec<Item> = worker.inbox.iter().map(|(_, item)| item.clone()).collect();
    assert_eq!(items, [Item::Interrupt { cause }]);
    worker.drain();
    assert_eq!(worker.commit(&world).await.unwrap().woken, [RunId::from("pushy")]);
    assert_eq!(world.run("front").await.status, PublicRunStatus::Interrupted);
    assert_eq!(state(&world, "thr").await, busy("pushy", FrontState::Queued, 2));
    assert_eq!(next(&world, 10).await, ["patient", "pushy"], "both have something to do");
}

pub(crate) async fn rule_09_of_several_superseding_runs_the_last_one_runs<F: Fixture>() {
    for front_ends_first in [true, false] {
        let (_fixture, world) = F::open().await;
        let mut front = held(&world, "thr", "front", "transfer").await;
        assert_eq!(supersedes(&world, "thr", "first").await, ["front"]);
        assert_eq!(supersedes(&world, "thr", "second").await, ["first"], "each run gets one interrupt");
        assert_eq!(supersedes(&world, "thr", "third").await, ["second"]);
        front.reload(&world).await;
        assert_eq!(front.inbox.len(), 1);
        front.drain();
        if front_ends_first {
            assert_eq!(front.commit(&world).await.unwrap().woken, [RunId::from("third")]);
        }
        ends_unstarted(&world, "first").await;
        ends_unstarted(&world, "second").await;
        if !front_ends_first {
            assert_eq!(front.commit(&world).await.unwrap().woken, [RunId::from("third")]);
        }
        assert_eq!(state(&world, "thr").await, busy("third", FrontState::Queued, 0));
        assert_eq!(next(&world, 10).await, ["third"]);
    }
}

pub(crate) async fn rule_09_a_run_interrupted_by_a_person_is_passed_over_by_a_superseding_one<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut front = held(&world, "thr", "front", "transfer").await;
    let by_bob = Item::Interrupt { cause: InterruptCause::Person("bob".into()) };
    world.submit_accepted("front", by_bob).await;
    enqueued(&world, "thr", "patient").await;
    assert_eq!(supersedes(&world, "thr", "pushy").await, ["patient"]);
    front.reload(&world).await;
    front.drain();
    assert_eq!(front.commit(&world).await.unwrap().woken, [RunId::from("pushy")]);
}

pub(crate) async fn rule_09_interrupted_runs_pass_the_thread_on<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut front = held(&world, "thr", "front", "transfer").await;
    supersedes(&world, "thr", "pushy").await;
    let by_bob = Item::Interrupt { cause: InterruptCause::Person("bob".into()) };
    world.submit_accepted("pushy", by_bob).await;
    front.reload(&world).await;
    front.drain();
    assert_eq!(front.commit(&world).await.unwrap().woken, [RunId::from("pushy")], "no other run is queued");
    enqueued(&world, "thr", "patient").await;
    let mut pushy = claim(&world, "pushy").await.unwrap();
    pushy.drain();
    assert_eq!(pushy.commit(&world).await.unwrap().woken, [RunId::from("patient")]);
}

pub(crate) async fn rule_09_a_queued_run_that_ends_leaves_the_queue<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut front = started(&world, "thr", "front").await;
    enqueued(&world, "thr", "first").await;
    enqueued(&world, "thr", "second").await;
    let mut first = claim(&world, "first").await.unwrap();
    first.accept(Item::Interrupt { cause: InterruptCause::Person("bob".into()) });
    first.commit(&world).await.unwrap();
    assert_eq!(state(&world, "thr").await, busy("front", FrontState::Executing, 1));
    front.finish_with("done");
    assert_eq!(front.commit(&world).await.unwrap().woken, [RunId::from("second")]);
}

pub(crate) async fn rule_09_a_run_begins_after_the_last_message_or_the_one_asked_for<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "front").await;
    enqueued(&world, "thr", "behind").await;
    let asked = creation(&world, order("thr", "branch"), OnBusy::Enqueue, false).await;
    let root = Some(MessageId::from("msg_user_front"));
    world.store.create(Create { begins_after: root.clone(), ..asked }).await.unwrap();
    worker.finish_with("done");
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
        judged.push(creation(&world, order("thr", &format!("run_{index}")), OnBusy::Reject, true).await);
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
            Err(refused) => assert_eq!(refused, StoreError::Stale),
        }
    }
    assert_eq!(leases.len(), 1);
    assert_eq!(state(&world, "thr").await, busy(leases[0].run.as_str(), FrontState::Executing, 0));
}

pub(crate) async fn rule_09_concurrent_creations_fill_the_queue_up_to_its_bound<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    world.store.put_thread(&world.tenant, &"thr".into(), &Value::Null).await.unwrap();
    let tasks: Vec<_> = (0..=QUEUE_MAX)
        .map(|index| {
            let world = world.clone();
            tokio::spawn(async move {
                let run = format!("run_{index}");
                // The thread exists, so concurrent creations on it are queued and none is refused.
                let create = creation(&world, order("thr", &run), OnBusy::Enqueue, false).await;
                world.store.create(create).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut order = Vec::new();
    while let [worker] = next_workers(&world, 10).await.as_mut_slice() {
        order.push(worker.lease.run.to_string());
        worker.apply_input(&Input::Start { after: None });
        worker.finish_with("done");
        worker.commit(&world).await.unwrap();
    }
    assert_eq!(
        order.iter().collect::<BTreeSet<_>>().len(),
        QUEUE_MAX + 1,
        "each holds the thread once: {order:?}"
    );
}

pub(crate) async fn rule_09_the_runs_of_a_thread_are_listed_as_they_were_admitted<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let thread = ThreadId::from("thr");
    let runs = async |after: Option<&str>, limit: usize| {
        let after = after.map(RunId::from);
        let found = world.store.runs_of_thread(&world.tenant, &thread, after.as_ref(), limit).await;
        found.map(|runs| runs.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(runs(None, 10).await, Err(StoreError::NotFound));
    world.store.put_thread(&world.tenant, &thread, &Value::Null).await.unwrap();
    assert_eq!(runs(None, 10).await, Ok(Vec::new()));
    // Neither the ids nor the clock follow the order.
    let mut front = held(&world, "thr", "z", "transfer").await;
    let mut early = creation(&world, order("thr", "b"), OnBusy::Enqueue, false).await;
    for event in &mut early.append.events {
        *event = Arc::new(Event { at: Timestamp(1), ..(**event).clone() });
    }
    world.store.create(early).await.unwrap();
    supersedes(&world, "thr", "a").await;
    queued(&world, "elsewhere", "other").await;
    assert_eq!(runs(None, 10).await.unwrap(), ["z", "b", "a"]);
    front.reload(&world).await;
    front.drain();
    front.commit(&world).await.unwrap();
    for limit in [1, 2, 3] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let next = runs(after.as_deref(), limit).await.unwrap();
            assert!(next.len() <= limit);
            let Some(last) = next.last() else { break };
            after = Some(last.clone());
            found.extend(next);
        }
        assert_eq!(found, ["z", "b", "a"], "ended or not, in pages of {limit}");
    }
    assert_eq!(runs(Some("other"), 10).await, Err(StoreError::NotFound), "a run of another thread");
    assert_eq!(runs(Some("missing"), 10).await, Err(StoreError::NotFound));
    let thief = world.for_tenant("thief");
    let theirs = thief.store.runs_of_thread(&thief.tenant, &thread, None, 10).await;
    assert_eq!(theirs, Err(StoreError::NotFound));
}
