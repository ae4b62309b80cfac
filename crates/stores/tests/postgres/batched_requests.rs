//! Requests of many runs that share a batch: commits with suspensions and decisions, releases, and lookups of call ids.

use std::collections::BTreeSet;

use engine::store::{Appended, RunStore, StoreError, ViewStore};
use machine::decision::DecisionAction;
use machine::id::{CallId, DecisionId};
use machine::inbox::{Item, Verdict};
use machine::projection_rows::PublicRunStatus;

use crate::batching::at_once;
use crate::nodes::Cluster;
use crate::worker::{Worker, approve, claim, held, parked, reject, started};

#[tokio::test]
async fn batched_decisions_share_a_sync_and_each_has_its_own_answer() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let world = &node.world;
    let mut workers: Vec<Worker> = Vec::new();
    for index in 0..10 {
        let mut worker = started(world, &format!("thr_{index}"), &format!("run_{index}")).await;
        worker.asks(&[("a", "transfer"), ("b", "transfer")]);
        worker.commit(world).await.unwrap();
        // 4: the decision id has been used for the other call.
        if index == 4 {
            worker.accept(Item::Decision(worker.decision("b", Some("d"), reject())));
            worker.commit(world).await.unwrap();
        }
        // 2: another approver was faster.
        if index == 2 {
            world.submit_accepted("run_2", Item::Decision(worker.decision("a", None, reject()))).await;
        }
        worker.accept(Item::Decision(worker.decision("a", Some("d"), approve())));
        workers.push(worker);
    }

    let before = node.store.metrics();
    let outcomes =
        at_once(workers.iter().map(|worker| node.store.append(&worker.lease, worker.append()))).await;
    let counts = node.store.metrics();
    for (outcome, index) in outcomes.iter().zip(0..) {
        match index {
            2 | 4 => assert_eq!(*outcome, Err(StoreError::Behind), "run_{index}"),
            _ => assert_eq!(*outcome, Ok(Appended { woken: Vec::new(), version: 3 }), "run_{index}"),
        }
    }
    assert_eq!((counts.commits - before.commits, counts.syncs - before.syncs), (8, 1));
    for (worker, index) in workers.iter().zip(0..) {
        let kept =
            node.store.decision(&world.tenant, &worker.lease.run, &DecisionId::from("d")).await.unwrap();
        let shown = node.store.run(&world.tenant, &worker.lease.run).await.unwrap().unwrap();
        match index {
            2 => assert!(kept.is_none() && shown.status == PublicRunStatus::WaitingApproval, "{shown:?}"),
            4 => assert_eq!(kept.unwrap().call, CallId::from("b")),
            _ => {
                assert_eq!((kept.unwrap().call, shown.status), (CallId::from("a"), PublicRunStatus::Running));
                let open = Item::Decision(worker.decision("b", Some("d"), approve()));
                let verdict = node.store.submit(&world.tenant, &worker.lease.run, open).await.unwrap();
                assert!(!matches!(verdict, Verdict::Accepted), "the decision id is in use: {verdict:?}");
            }
        }
        let log = node.store.events(&world.tenant, &worker.lease.run, 0, 100).await.unwrap();
        assert_eq!(
            log.last().map(|last| last.readable().unwrap().event.seq),
            Some(shown.control.as_ref().unwrap().seq),
            "run_{index}"
        );
    }
}

#[tokio::test]
async fn batched_releases_each_get_their_own_answer() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let world = &node.world;
    let mut workers: Vec<Worker> = Vec::new();
    for index in 0..8 {
        workers.push(held(world, &format!("thr_{index}"), &format!("run_{index}"), "transfer").await);
    }
    // 3: a decision is pending. 5: the run was released before, and another worker has claimed it.
    world.submit_accepted("run_3", Item::Decision(workers[3].decision("call_run_3", None, approve()))).await;
    assert_eq!(node.store.release(&workers[5].lease).await, Ok(true));
    let again = claim(world, "run_5").await.expect("run_5 was released");

    let before = node.store.metrics().syncs;
    let outcomes = at_once(workers.iter().map(|worker| node.store.release(&worker.lease))).await;
    for (outcome, index) in outcomes.iter().zip(0..) {
        match index {
            3 => assert_eq!(*outcome, Ok(false)),
            5 => assert_eq!(*outcome, Err(StoreError::Fenced)),
            _ => assert_eq!(*outcome, Ok(true), "run_{index}"),
        }
    }
    assert_eq!(node.store.metrics().syncs - before, 1, "all releases share one statement");
    assert!(node.store.may_send(&again.lease) && node.store.may_send(&workers[3].lease));
    for index in [0, 7] {
        assert!(!node.store.may_send(&workers[index].lease));
        assert!(claim(world, &format!("run_{index}")).await.is_some(), "run_{index} was released");
    }
}

#[tokio::test]
async fn batched_call_id_lookups_each_get_their_own_answer() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let world = &node.world;
    let mut workers: Vec<Worker> = Vec::new();
    for index in 0..6 {
        let mut worker = started(world, &format!("thr_{index}"), &format!("run_{index}")).await;
        worker.asks(&[(format!("call_{index}").as_str(), "transfer"), ("call_x~1", "transfer")]);
        worker.commit(world).await.unwrap();
        workers.push(worker);
    }
    let asked: Vec<String> = ["call_0", "call_1", "call_x", "call"].map(str::to_owned).into();
    let told = at_once(workers.iter().map(|worker| node.store.taken_call_ids(&worker.lease, &asked))).await;
    for (told, index) in told.into_iter().zip(0..) {
        let mut expected: BTreeSet<CallId> = [CallId::from("call_x~1")].into();
        if index < 2 {
            expected.insert(CallId::from(format!("call_{index}")));
        }
        assert_eq!(told.unwrap(), expected, "run_{index}");
    }
}

/// A claim of one run also returns its inbox. A long inbox is read by another statement.
#[tokio::test]
async fn a_long_inbox_is_loaded_like_a_short_one() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let world = &node.world;
    for (run, reason) in [("short", "x".repeat(10)), ("long", "x".repeat(40_000))] {
        let worker = parked(world, &format!("thr_{run}"), run, "transfer").await;
        let action = DecisionAction::Cancel { reason: Some(reason), then: None };
        let item = Item::Decision(worker.decision(&format!("call_{run}"), None, action));
        world.submit_accepted(run, item.clone()).await;
        let claimed = claim(world, run).await.expect("no worker holds the run");
        let heard: Vec<&Item> = claimed.inbox.iter().map(|(_, item)| item).collect();
        assert_eq!(heard, [&item], "{run}");
        assert_eq!(Some(claimed.run.control), world.run(run).await.control);
    }
}
