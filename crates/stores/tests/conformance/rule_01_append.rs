//! Rule 1: an append is one transaction, fenced by sequence number and epoch.

use std::sync::Arc;

use engine::store::{ApprovalFilter, Lease, Page, StoreError};
use machine::checkpoint::Checkpoint;
use machine::id::{CallId, MessageId};
use machine::inbox::Item;
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Scope};
use machine::projection_rows::{PublicRunStatus, Role, StateRow};
use machine::suspension::SuspensionKind;
use serde_json::json;

use crate::fixture::Fixture;
use crate::snapshot::snapshot;
use crate::worker::{EXPIRES_IN_MS, approve, claim, held, parked, started};

fn keeps(key: &str, scope: Scope) -> Action {
    Action::SetState { key: key.into(), scope, value: Arc::new(json!(key)) }
}

pub(crate) async fn rule_01_an_append_writes_all_that_its_events_say<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    world.clock.advance(500);
    let actions = vec![keeps("of the run", Scope::Run), keeps("of the thread", Scope::Thread)];
    let answer = HookAnswer { plugin: "guard".into(), outcome: HookOutcome::Actions(actions) };
    let hooks = HookAnswers { answers: vec![answer], state_bytes_after: 100 };
    let asked = [("a", "urgent"), ("b", "pick_file")];
    worker.asks_knowing(&asked, std::collections::BTreeSet::new(), hooks);
    worker.commit(&world).await.unwrap();

    let run = world.run("run").await;
    assert_eq!(run.control.as_ref(), Some(&worker.run.control));
    assert_eq!(run.status, PublicRunStatus::WaitingApproval);
    assert_eq!((run.created_at.0, run.started_at.unwrap().0, run.ended_at), (1_000_000, 1_000_000, None));
    let log = world.store.events(&world.tenant, &run.id, 0, 1_000).await.unwrap();
    let numbers: Vec<u64> = log.iter().map(|committed| committed.readable().unwrap().event.seq).collect();
    assert_eq!(numbers, (1..=run.control.as_ref().unwrap().seq).collect::<Vec<u64>>());
    let names: Vec<Checkpoint> = log.iter().filter_map(|committed| committed.checkpoint()).collect();
    assert_eq!(names, [Checkpoint::UserMessage, Checkpoint::Waiting]);
    assert_eq!(log.last().unwrap().checkpoint(), Some(Checkpoint::Waiting));
    let third = world.store.event(&worker.lease, 3).await.unwrap();
    assert_eq!(third, log[2].readable().unwrap().event);
    assert_eq!(world.store.event(&worker.lease, 1_000).await, Err(StoreError::NotFound));

    let thread = world.store.thread(&world.tenant, &"thr".into()).await.unwrap();
    assert_eq!(thread.head, Some(MessageId::from("msg_run_1")));
    let place =
        world.store.message(&world.tenant, &"thr".into(), &"msg_run_1".into()).await.unwrap().unwrap();
    assert_eq!((place.run.as_str(), place.role), ("run", Role::Assistant));
    let place = world.store.message(&world.tenant, &"thr".into(), &"msg_user_run".into()).await.unwrap();
    assert_eq!(place.unwrap().role, Role::User);
    let asked = ["a".to_owned(), "c".to_owned()];
    let taken = world.store.taken_call_ids(&worker.lease, &asked).await.unwrap();
    assert_eq!(taken, [CallId::from("a")].into());

    let listed =
        world.store.approvals(&world.tenant, &ApprovalFilter::default(), &Page::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let approval = &listed.items[0];
    assert_eq!((approval.call.as_str(), approval.step, approval.kind), ("a", 1, SuspensionKind::Approval));
    assert_eq!(approval.opened.as_ref().unwrap().tool.as_str(), "urgent");
    assert_eq!(approval.created_at, world.clock.now());
    let open = &worker.call("b").suspension().unwrap().id;
    let other = world.store.suspension(&world.tenant, open).await.unwrap().unwrap();
    assert_eq!(other.kind, SuspensionKind::ClientTool);

    let mut kept = world.store.plugin_state(&worker.lease).await.unwrap();
    kept.sort_by(|one, other| one.key.cmp(&other.key));
    let row = |key: &str, scope| StateRow {
        plugin: "guard".into(),
        scope,
        key: key.into(),
        value: Arc::new(json!(key)),
    };
    assert_eq!(kept, [row("of the run", Scope::Run), row("of the thread", Scope::Thread)]);
    assert!(world.store.release(&worker.lease).await.unwrap());
    let wake_at = world.clock.now().plus_ms(EXPIRES_IN_MS);
    assert_eq!(world.store.next_wake().await.unwrap(), Some(wake_at));
}

pub(crate) async fn rule_01_another_sequence_number_is_fenced_and_changes_nothing<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "urgent"), ("b", "researcher")]);
    let before = snapshot(&world, &[&worker.lease]).await;
    let first = worker.append();
    worker.forget_draft();
    worker.accept(Item::Decision(worker.decision("a", None, approve())));
    let second = worker.append();
    assert_eq!(
        world.store.append(&worker.lease, second.clone()).await,
        Err(StoreError::Fenced),
        "an event is missing"
    );
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
    world.store.append(&worker.lease, first.clone()).await.unwrap();
    let after = snapshot(&world, &[&worker.lease]).await;
    assert_ne!(after, before);
    assert_eq!(
        world.store.append(&worker.lease, first).await,
        Err(StoreError::Fenced),
        "the event is already stored"
    );
    assert_eq!(snapshot(&world, &[&worker.lease]).await, after);
    world.store.append(&worker.lease, second).await.unwrap();
}

pub(crate) async fn rule_01_another_epoch_is_fenced_and_changes_nothing<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut old = parked(&world, "thr", "run", "transfer").await;
    let decision = old.decision("call_run", None, approve());
    old.accept(Item::Decision(decision));
    assert_eq!(old.commit(&world).await, Err(StoreError::Fenced), "the lease was released");
    let new = claim(&world, "run").await.unwrap();
    assert!(new.lease.epoch > old.lease.epoch);
    let before = snapshot(&world, &[&new.lease]).await;
    assert_eq!(old.commit(&world).await, Err(StoreError::Fenced));
    assert_eq!(world.store.load(&old.lease).await, Err(StoreError::Fenced));
    assert_eq!(world.store.release(&old.lease).await, Err(StoreError::Fenced));
    assert!(!world.store.may_send(&old.lease));
    assert!(world.store.may_send(&new.lease));
    let later = Lease { epoch: new.lease.epoch + 1, ..new.lease.clone() };
    assert_eq!(world.store.append(&later, old.append()).await, Err(StoreError::Fenced));
    assert_eq!(snapshot(&world, &[&new.lease]).await, before);
}

pub(crate) async fn rule_01_a_log_with_a_gap_is_impossible_and_changes_nothing<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "urgent")]);
    let before = snapshot(&world, &[&worker.lease]).await;
    let good = worker.append();
    let [mut gap, mut shuffled] = [good.clone(), good];
    gap.events.remove(1);
    shuffled.events.swap(0, 1);
    for append in [gap, shuffled] {
        let refused = world.store.append(&worker.lease, append).await;
        assert!(matches!(refused, Err(StoreError::Impossible(_))), "{refused:?}");
        assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
    }
}

pub(crate) async fn rule_01_the_lease_of_an_ended_run_is_released<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    world.clock.advance(70);
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    let run = world.run("run").await;
    assert_eq!((run.status, run.ended_at), (PublicRunStatus::Completed, Some(world.clock.now())));
    assert!(!world.store.may_send(&worker.lease));
    assert_eq!(world.store.release(&worker.lease).await, Err(StoreError::Fenced));
    assert_eq!(worker.commit(&world).await, Err(StoreError::Fenced));
    assert!(claim(&world, "run").await.is_none());
}

pub(crate) async fn rule_01_of_many_equal_appends_one_is_stored<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let lost = parked(&world, "thr", "run", "transfer").await.lease;
    let mut worker = claim(&world, "run").await.unwrap();
    let decision = worker.decision("call_run", None, approve());
    worker.accept(Item::Decision(decision));
    let append = worker.append();
    let tasks: Vec<_> = (0..50)
        .map(|index| {
            let (world, append) = (world.clone(), append.clone());
            // Every other one comes from a worker that has lost its run.
            let lease = if index % 2 == 0 { worker.lease.clone() } else { lost.clone() };
            tokio::spawn(async move { (index % 2 == 0, world.store.append(&lease, append).await) })
        })
        .collect();
    let mut stored = 0;
    for task in tasks {
        match task.await.unwrap() {
            (true, Ok(_)) => stored += 1,
            (false, Ok(_)) => panic!("an old epoch was stored"),
            (_, Err(refused)) => assert_eq!(refused, StoreError::Fenced),
        }
    }
    assert_eq!(stored, 1);
    let log = world.store.events(&world.tenant, &"run".into(), 0, 1_000).await.unwrap();
    assert_eq!(log.len() as u64, worker.run.control.seq);
}

pub(crate) async fn rule_01_many_runs_append_side_by_side<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let tasks: Vec<_> = (0..40)
        .map(|index| {
            let world = world.clone();
            tokio::spawn(async move {
                let name = format!("run_{index}");
                let mut worker = started(&world, &format!("thr_{index}"), &name).await;
                for round in 0..5 {
                    let call = format!("call_{round}");
                    worker.asks(&[(&call, "echo")]);
                    worker.commit(&world).await.unwrap();
                    worker.succeeds(&call);
                    worker.commit(&world).await.unwrap();
                }
                worker.finish_with("done");
                worker.commit(&world).await.unwrap();
                (name, worker.run.control)
            })
        })
        .collect();
    for task in tasks {
        let (name, control) = task.await.unwrap();
        assert_eq!(world.run(&name).await.control.as_ref(), Some(&control));
        let log = world.store.events(&world.tenant, &control.run, 0, 1_000).await.unwrap();
        let folded =
            machine::fold(log.iter().map(|committed| &*committed.readable().unwrap().event)).unwrap();
        assert_eq!(folded, control);
    }
    assert_eq!(world.store.metrics().commits, 40 * 12);
}

pub(crate) async fn rule_01_a_log_is_read_in_parts<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = held(&world, "thr", "run", "transfer").await;
    let last = worker.run.control.seq;
    let mut read: Vec<u64> = Vec::new();
    loop {
        let after = read.last().copied().unwrap_or_default();
        let part = world.store.events(&world.tenant, &"run".into(), after, 2).await.unwrap();
        if part.is_empty() {
            break;
        }
        read.extend(part.iter().map(|committed| committed.readable().unwrap().event.seq));
    }
    assert_eq!(read, (1..=last).collect::<Vec<u64>>());
    assert!(world.store.events(&world.tenant, &"run".into(), last + 5, 2).await.unwrap().is_empty());
}
