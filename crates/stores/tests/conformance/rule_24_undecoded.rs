//! Rule 24: the store can end an interrupted run by its plain columns. The tests of the `holdpoint` program damage
//! stored rows to show that nothing has to be decoded for this.

use engine::store::{ApprovalFilter, LogEntry, Page, StoreError};
use machine::event::{Fact, InterruptCause};
use machine::inbox::Item;
use machine::projection_rows::{ApprovalStatus, PublicRunStatus};

use crate::fixture::{Fixture, World};
use crate::worker::{claim, enqueued, parked};

async fn interrupted(world: &World, run: &str) {
    world.submit_accepted(run, Item::Interrupt { cause: InterruptCause::Person("ann".into()) }).await;
}

pub(crate) async fn rule_24_an_interrupted_run_ends_by_its_columns<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr", "run", "transfer").await;
    enqueued(&world, "thr", "behind").await;
    let worker = claim(&world, "run").await.unwrap();
    let early = world.store.end_undecoded(&worker.lease).await;
    assert_eq!(early.unwrap_err(), StoreError::Stale, "the run is not interrupted");
    interrupted(&world, "run").await;
    let ended = world.store.end_undecoded(&worker.lease).await.unwrap();
    assert_eq!(ended.woken, ["behind".into()], "the next queued run holds the thread");
    let run = world.run("run").await;
    assert_eq!((run.status, run.ended_at.is_some()), (PublicRunStatus::Interrupted, true));
    let log = world.store.events(&world.tenant, &"run".into(), 0, 1_000).await.unwrap();
    let last = log.last().and_then(LogEntry::readable).unwrap();
    assert!(matches!(last.event.fact, Fact::RunEnded { .. }) && last.event.seq == run.seq, "{last:?}");
    let filter = ApprovalFilter { status: None, ..ApprovalFilter::for_run(&"run".into()) };
    let held = world.store.approvals(&world.tenant, &filter, &Page::default()).await.unwrap().items;
    assert_eq!((held[0].status, held[0].reason.as_deref()), (ApprovalStatus::Rejected, Some("interrupted")));
    assert_eq!(world.store.run_counts().await.unwrap().inbox, 0, "the inbox of the ended run is discarded");
    let again = world.store.end_undecoded(&worker.lease).await;
    assert_eq!(again.unwrap_err(), StoreError::Fenced, "a run ends only once");
    assert!(claim(&world, "behind").await.is_some());
}

pub(crate) async fn rule_24_only_the_lease_holder_ends_the_run<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    parked(&world, "thr", "run", "transfer").await;
    let worker = claim(&world, "run").await.unwrap();
    interrupted(&world, "run").await;
    let world = fixture.crash(world).await;
    let late = world.store.end_undecoded(&worker.lease).await;
    assert_eq!(late.unwrap_err(), StoreError::Fenced, "the lease ended with its process");
    let worker = claim(&world, "run").await.unwrap();
    world.store.end_undecoded(&worker.lease).await.unwrap();
    assert_eq!(world.run("run").await.status, PublicRunStatus::Interrupted);
}
