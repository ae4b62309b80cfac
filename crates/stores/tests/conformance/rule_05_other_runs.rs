//! Rule 5: children and items for other runs are part of the commit.

use engine::store::{ApprovalFilter, Lease, Page, PathEntry, StoreError};
use machine::Input;
use machine::event::InterruptCause;
use machine::id::RunId;
use machine::inbox::{Item, Verdict};
use machine::input::ChildEnd;
use machine::projection_rows::PublicRunStatus;
use machine::suspension::Held;

use crate::fixture::{Fixture, World};
use crate::snapshot::snapshot;
use crate::worker::{Worker, claim, held, next, next_workers, started};

fn interrupt() -> Item {
    Item::Interrupt { cause: InterruptCause::Person("bob".into()) }
}

pub(crate) fn child_of(parent: &Worker, call: &str) -> RunId {
    match &parent.call(call).suspension().unwrap().held {
        Held::ChildRun { run, .. } => run.clone(),
        other => panic!("held by {other:?}"),
    }
}

/// A parent that waits for its child, and the child's worker, which has started the child.
pub(crate) async fn family(world: &World) -> (Worker, Worker) {
    let mut parent = started(world, "thr", "parent").await;
    parent.asks(&[("delegate", "researcher")]);
    parent.commit(world).await.unwrap();
    let child = child_of(&parent, "delegate");
    let mut child = claim(world, child.as_str()).await.unwrap();
    child.take_over();
    child.apply_input(&Input::Start { after: None });
    child.commit(world).await.unwrap();
    (parent, child)
}

pub(crate) async fn rule_05_a_child_is_created_in_its_parents_commit<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut parent = started(&world, "thr", "parent").await;
    parent.asks(&[("delegate", "researcher")]);
    let child = child_of(&parent, "delegate");
    assert_eq!(world.store.run(&world.tenant, &child).await.unwrap(), None);
    let commits = world.store.metrics().commits;
    let appended = parent.commit(&world).await.unwrap();
    assert_eq!(appended.woken, std::slice::from_ref(&child));
    assert_eq!(world.store.metrics().commits, commits + 1);
    let shown = world.run(child.as_str()).await;
    assert_eq!((shown.status, shown.control.as_ref().unwrap().seq), (PublicRunStatus::Queued, 1));
    assert_eq!(shown.control.as_ref().unwrap().parent.clone().unwrap().run_id.as_str(), "parent");
    let log = world.store.events(&world.tenant, &child, 0, 10).await.unwrap();
    assert_eq!(log.len(), 1);
    assert!(world.store.thread(&world.tenant, &shown.thread).await.unwrap().created_at.is_some());
    assert_eq!(next(&world, 10).await, [child.to_string()], "it holds its thread, so it may start");
}

pub(crate) async fn rule_05_a_refused_append_creates_and_delivers_nothing<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let (parent, mut child) = family(&world).await;
    child.asks(&[("deeper", "researcher")]);
    child.apply_input(&Input::Interrupt { cause: InterruptCause::Person("bob".into()) });
    let append = child.append();
    assert!(!append.spawn.is_empty() && append.deliver.len() == 2);
    let before = snapshot(&world, &[&parent.lease, &child.lease]).await;
    let stale = Lease { epoch: child.lease.epoch - 1, ..child.lease.clone() };
    assert_eq!(world.store.append(&stale, append).await, Err(StoreError::Fenced));
    assert_eq!(snapshot(&world, &[&parent.lease, &child.lease]).await, before);
}

pub(crate) async fn rule_05_the_end_of_a_child_is_delivered_in_its_last_commit<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let (parent, mut child) = family(&world).await;
    assert_eq!(world.store.release(&parent.lease).await, Ok(true));
    child.finish_with("found it");
    let appended = child.commit(&world).await.unwrap();
    assert_eq!(appended.woken, [RunId::from("parent")]);
    let mut parent = next_workers(&world, 10).await.remove(0);
    assert_eq!(parent.lease.run.as_str(), "parent", "the item makes the parent ready");
    let [(_, Item::ChildEnded(ended))] = parent.inbox.as_slice() else { panic!("{:?}", parent.inbox) };
    assert_eq!(ended.end, ChildEnd::Completed { answer: std::sync::Arc::new("found it".into()) });
    parent.drain();
    parent.commit(&world).await.unwrap();
}

pub(crate) async fn rule_05_an_interrupt_reaches_the_children_once<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let (mut parent, mut child) = family(&world).await;
    let run = child.lease.run.clone();
    assert_eq!(world.store.submit(&world.tenant, &run, interrupt()).await, Ok(Verdict::Accepted));
    parent.accept(interrupt());
    assert_eq!(parent.append().deliver.len(), 1);
    let appended = parent.commit(&world).await.unwrap();
    assert!(appended.woken.is_empty(), "the second interrupt is dropped");
    child.reload(&world).await;
    let items: Vec<Item> = child.inbox.iter().map(|(_, item)| item.clone()).collect();
    assert_eq!(items, [interrupt()]);
}

pub(crate) async fn rule_05_an_interrupt_of_the_parent_is_an_accepted_one<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let (mut parent, mut child) = family(&world).await;
    let run = child.lease.run.clone();
    parent.accept(interrupt());
    assert_eq!(parent.commit(&world).await.unwrap().woken, std::slice::from_ref(&run));
    assert!(world.run(run.as_str()).await.interrupt_accepted);
    assert_eq!(world.store.submit(&world.tenant, &run, interrupt()).await, Ok(Verdict::AlreadyApplied));
    child.reload(&world).await;
    child.drain();
    let appended = child.commit(&world).await.unwrap();
    assert!(appended.woken.is_empty(), "nothing is delivered to a parent that has ended");
    assert_eq!(world.run(run.as_str()).await.status, PublicRunStatus::Interrupted);
    assert!(next(&world, 10).await.is_empty());
}

pub(crate) async fn rule_05_an_approval_of_a_child_shows_its_path<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let (_parent, mut child) = family(&world).await;
    held(&world, "other", "run", "transfer").await;
    child.asks(&[("pay", "transfer")]);
    child.commit(&world).await.unwrap();
    let filter = ApprovalFilter { run: Some(child.lease.run.clone()), ..ApprovalFilter::default() };
    let listed = world.store.approvals(&world.tenant, &filter, &Page::default()).await.unwrap();
    let child_thread = child.lease.thread.as_str();
    let entry = |run: &str, thread: &str, agent: &str, call: &str| PathEntry {
        run: run.into(),
        thread: thread.into(),
        agent: agent.into(),
        call: call.into(),
    };
    let path = [
        entry("parent", "thr", "assistant", "delegate"),
        entry(child.lease.run.as_str(), child_thread, "research", "pay"),
    ];
    assert_eq!(listed.items.len(), 1);
    assert_eq!(listed.items[0].path, path);
}

pub(crate) async fn rule_05_a_delivery_stays_within_the_tenant<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let stranger = started(&world.for_tenant("other"), "thr", "parent").await;
    let (_parent, mut child) = family(&world).await;
    child.finish_with("found it");
    child.commit(&world).await.unwrap();
    let inbox = world.store.load(&stranger.lease).await.unwrap().inbox;
    assert!(inbox.is_empty(), "another tenant has a run of the same name");
}

pub(crate) async fn rule_05_a_thread_is_deleted_with_those_of_its_child_runs<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let World { store, tenant, .. } = &world;
    let (mut parent, mut child) = family(&world).await;
    let below = child.lease.thread.clone();
    held(&world, "thr_2", "bystander", "transfer").await;
    let thread_names = || async {
        let listed = store.threads(tenant, &Page::default()).await.unwrap().items;
        listed.into_iter().map(|thread| thread.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(store.delete_thread(tenant, &"thr".into(), &"tester".into()).await, Err(StoreError::Stale));
    // The parent has ended, and its child has not processed the interrupt yet.
    parent.accept(interrupt());
    parent.commit(&world).await.unwrap();
    assert_eq!(world.run("parent").await.status, PublicRunStatus::Interrupted);
    assert_eq!(store.delete_thread(tenant, &"thr".into(), &"tester".into()).await, Err(StoreError::Stale));
    assert_eq!(thread_names().await.len(), 3, "nothing was deleted");
    child.reload(&world).await;
    child.drain();
    child.commit(&world).await.unwrap();
    assert!(world.run(child.lease.run.as_str()).await.status.ended());
    store.delete_thread(tenant, &"thr".into(), &"tester".into()).await.unwrap();
    assert_eq!(thread_names().await, ["thr_2"]);
    assert_eq!(store.run(tenant, &child.lease.run).await.unwrap(), None);
    assert_eq!(store.delete_thread(tenant, &below, &"tester".into()).await, Err(StoreError::NotFound));
}
