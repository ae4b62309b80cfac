//! Rule 12: what was acknowledged survives a crash of the process.

use std::sync::Arc;

use engine::store::{AutoApproval, Claim, StoreError};
use machine::event::InterruptCause;
use machine::id::{Digest, RunId};
use machine::inbox::{Item, Refusal, Verdict};
use machine::projection_rows::PublicRunStatus;
use serde_json::json;

use crate::fixture::Fixture;
use crate::worker::{
    EXPIRES_IN_MS, Worker, approve, claim, enqueued, held, next, next_workers, parked, reject, started,
};

pub(crate) async fn rule_12_logs_threads_and_approvals_are_there_again<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let metadata = json!({"title": "rent"});
    world.store.put_thread(&world.tenant, &"thr".into(), &metadata).await.unwrap();
    let given = AutoApproval { id: "grt_1".into(), by: "ana".into() };
    world.store.set_auto_approve(&world.tenant, &"thr".into(), Some(&given), &"tester".into()).await.unwrap();
    world.store.put_revision(&Digest::sha256(b"one"), "one").await.unwrap();
    let parked = parked(&world, "thr", "run", "urgent").await;
    enqueued(&world, "thr", "behind").await;
    let views = (
        world.run("run").await,
        world.store.thread(&world.tenant, &"thr".into()).await.unwrap(),
        world.store.events(&world.tenant, &"run".into(), 0, 1_000).await.unwrap(),
        world.store.next_wake().await.unwrap(),
    );

    let world = fixture.crash(world).await;
    let again = (
        world.run("run").await,
        world.store.thread(&world.tenant, &"thr".into()).await.unwrap(),
        world.store.events(&world.tenant, &"run".into(), 0, 1_000).await.unwrap(),
        world.store.next_wake().await.unwrap(),
    );
    assert_eq!(again, views);
    assert_eq!(again.1.metadata.as_ref(), Some(&metadata));
    let frozen = async |text: &[u8]| {
        world.store.revision(&world.tenant, &"thr".into(), &Digest::sha256(text)).await.unwrap()
    };
    assert_eq!(frozen(b"one").await.as_deref(), Some("one"));
    assert_eq!(frozen(b"two").await, None);
    let open = &parked.call("call_run").suspension().unwrap().id;
    assert!(world.store.suspension(&world.tenant, open).await.unwrap().is_some());
}

pub(crate) async fn rule_12_an_accepted_decision_survives_and_no_other_is_accepted<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let worker = held(&world, "thr", "run", "transfer").await;
    let first = worker.decision("call_run", Some("d1"), approve());
    let second = worker.decision("call_run", Some("d2"), reject());
    let submitted = world.store.submit(&world.tenant, &"run".into(), Item::Decision(first.clone())).await;
    assert_eq!(submitted, Ok(Verdict::Accepted));
    let world = fixture.crash(world).await;
    let submit = |item| world.store.submit(&world.tenant, &worker.lease.run, item);
    assert_eq!(submit(Item::Decision(second)).await, Ok(Verdict::Refused(Refusal::Answered)));
    assert_eq!(submit(Item::Decision(first.clone())).await, Ok(Verdict::AlreadyApplied));
    let mut worker = next_workers(&world, 10).await.remove(0);
    assert_eq!(worker.inbox.len(), 1);
    worker.take_over();
    assert!(worker.call("call_run").running_attempt().is_some());
    worker.commit(&world).await.unwrap();
    let world = fixture.crash(world).await;
    let remembered = world.store.decision(&world.tenant, &"run".into(), &"d1".into()).await.unwrap();
    assert_eq!(remembered, Some(first));
}

pub(crate) async fn rule_12_an_accepted_interrupt_survives<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let parked = parked(&world, "thr", "run", "transfer").await;
    let interrupt = Item::Interrupt { cause: InterruptCause::Person("bob".into()) };
    world.submit_accepted("run", interrupt.clone()).await;
    let world = fixture.crash(world).await;
    assert!(world.run("run").await.interrupt_accepted);
    let decision = Item::Decision(parked.decision("call_run", None, approve()));
    let submit = |item| world.store.submit(&world.tenant, &parked.lease.run, item);
    assert_eq!(submit(decision).await, Ok(Verdict::Refused(Refusal::RunOver)));
    assert_eq!(submit(interrupt).await, Ok(Verdict::AlreadyApplied));
    assert_eq!(next(&world, 10).await, ["run"]);
}

pub(crate) async fn rule_12_a_lease_dies_with_its_process<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let mut lost = started(&world, "thr", "run").await;
    lost.asks(&[("a", "transfer")]);
    let world = fixture.crash(world).await;
    assert!(!world.store.may_send(&lost.lease));
    assert_eq!(world.store.load(&lost.lease).await, Err(StoreError::Fenced));
    assert_eq!(lost.commit(&world).await, Err(StoreError::Fenced));
    assert_eq!(world.store.release(&lost.lease).await, Err(StoreError::Fenced));
    let claimed = world.store.claim(Claim::Next { limit: 10, skip_tenant: None }).await.unwrap().remove(0);
    assert!(claimed.lease.epoch > lost.lease.epoch, "epochs keep increasing");
    let doubt_at = world.clock.now().plus_ms(F::LATE_MS);
    assert_eq!(claimed.doubt_at, doubt_at, "the old process cannot send after this time");
    assert_eq!(lost.commit(&world).await, Err(StoreError::Fenced));
    assert!(!world.store.may_send(&lost.lease));
    let mut second = Worker::from_claim(&world, claimed);
    second.take_over();
    second.commit(&world).await.unwrap();
    let world = fixture.crash(world).await;
    let again = claim(&world, "run").await.unwrap();
    assert!(again.lease.epoch > second.lease.epoch);
    assert_eq!(lost.commit(&world).await, Err(StoreError::Fenced));
}

pub(crate) async fn rule_12_the_queue_of_a_thread_survives<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    started(&world, "thr", "front").await;
    for run in ["z", "a"] {
        enqueued(&world, "thr", run).await;
    }
    let world = fixture.crash(world).await;
    let mut front = next_workers(&world, 10).await;
    assert_eq!(front.len(), 1, "only the front may run");
    front[0].take_over();
    front[0].finish_with("done");
    assert_eq!(front[0].commit(&world).await.unwrap().woken, [RunId::from("z")]);
    let world = fixture.crash(world).await;
    assert_eq!(next(&world, 10).await, ["z"]);
}

pub(crate) async fn rule_12_a_deadline_survives<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    held(&world, "thr", "run", "urgent").await;
    let due = world.clock.now().plus_ms(EXPIRES_IN_MS);
    let world = fixture.crash(world).await;
    assert_eq!(world.store.next_wake().await.unwrap(), Some(due));
    assert!(next(&world, 10).await.is_empty());
    world.clock.advance(EXPIRES_IN_MS);
    assert_eq!(next(&world, 10).await, ["run"]);
}

pub(crate) async fn rule_12_what_plugins_keep_and_calls_used_survive<F: Fixture>() {
    use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Scope};
    let (mut fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    let set = |key: &str, scope, value| Action::SetState { key: key.into(), scope, value: Arc::new(value) };
    let actions = vec![
        set("k", Scope::Run, json!("first")),
        set("k", Scope::Thread, json!({"n": 1})),
        set("k", Scope::Run, json!("last")),
    ];
    let answers = vec![HookAnswer { plugin: "guard".into(), outcome: HookOutcome::Actions(actions) }];
    let hooks = HookAnswers { answers, state_bytes_after: 10 };
    worker.asks_knowing(&[("a", "echo")], std::collections::BTreeSet::new(), hooks);
    worker.commit(&world).await.unwrap();
    worker.succeeds("a");
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    let later = started(&world, "thr", "later").await;
    let kept = world.store.plugin_state(&later.lease).await.unwrap();
    assert_eq!(kept.len(), 1, "run-scoped state of the first run is not visible to this run");
    let world = fixture.crash(world).await;
    let later = claim(&world, "later").await.unwrap();
    assert_eq!(world.store.plugin_state(&later.lease).await.unwrap(), kept);
    assert_eq!(*kept[0].value, json!({"n": 1}));
    let taken = world.store.taken_call_ids(&later.lease, &["a".to_owned()]).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(world.run("run").await.status, PublicRunStatus::Completed);
}

pub(crate) async fn rule_12_a_call_under_way_is_in_doubt_after_the_crash<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "post")]);
    worker.commit(&world).await.unwrap();
    assert!(worker.call("a").running_attempt().is_some());
    let world = fixture.crash(world).await;
    let mut worker = next_workers(&world, 10).await.remove(0);
    worker.take_over();
    worker.commit(&world).await.unwrap();
    assert_eq!(world.run("run").await.status, PublicRunStatus::WaitingApproval);
    let shown = worker.call("a").suspension().unwrap().held.kind();
    assert_eq!(shown, machine::suspension::SuspensionKind::InDoubt);
}
