//! Concurrent commits of one node share a batch, and each gets its own answer.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use engine::store::{Appended, Create, Created, RunStore, StoreError, ViewStore};
use machine::event::InterruptCause;
use machine::id::{MessageId, Principal};
use machine::inbox::Item;
use machine::policy::OnBusy;

use crate::nodes::Cluster;
use crate::worker::{Worker, creation, enqueued, order, started};

/// Polls all futures before any request is sent: the test has one thread, and no other task runs before it waits.
pub(crate) async fn at_once<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in waiting.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                *done = Some(output);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test]
async fn a_locked_run_is_left_out_of_the_batch_and_waits_alone() {
    for lock in ["runs WHERE id = 'run_1'", "threads WHERE id = 'thr_1'"] {
        let cluster = Cluster::new();
        let node = cluster.node().await;
        let mut workers = Vec::new();
        for index in 0..2 {
            let mut worker = started(&node.world, &format!("thr_{index}"), &format!("run_{index}")).await;
            worker.asks(&[("a", "echo")]);
            workers.push(worker);
        }
        let (somebody, looks) = (cluster.client().await, cluster.client().await);
        let sql = format!("BEGIN; SELECT 1 FROM {lock} FOR NO KEY UPDATE");
        somebody.batch_execute(&sql).await.unwrap();
        let mut tasks = workers.iter().map(|worker| {
            let (store, lease, append) = (node.store.clone(), worker.lease.clone(), worker.append());
            tokio::spawn(async move { store.append(&lease, append).await })
        });
        let (free, locked) = (tasks.next().unwrap(), tasks.next().unwrap());
        assert!(free.await.unwrap().is_ok(), "no transaction locks this run");
        let stored = async |run: i64| {
            let sql = "SELECT r.seq, (SELECT count(*) FROM commits c WHERE c.run = r.run),
                (SELECT count(*) FROM messages m WHERE m.thread = r.thread),
                (SELECT count(*) FROM call_ids c WHERE c.thread = r.thread) FROM runs r WHERE r.run = $1";
            let row = looks.query_one(sql, &[&run]).await.unwrap();
            [0, 1, 2, 3].map(|column| row.get::<_, i64>(column))
        };
        let (here, there) = (stored(workers[0].lease.row).await, stored(workers[1].lease.row).await);
        assert!(there.iter().zip(here).all(|(there, here)| *there < here), "{there:?} of {here:?}");
        assert!(!locked.is_finished(), "the append waits for the lock");
        somebody.batch_execute("COMMIT").await.unwrap();
        assert!(locked.await.unwrap().is_ok(), "{lock}");
        assert_eq!(stored(workers[1].lease.row).await, here);
    }
}

#[tokio::test]
async fn batched_appends_share_a_sync_and_each_has_its_own_answer() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let world = &node.world;
    let mut workers: Vec<Worker> = Vec::new();
    for index in 0..20 {
        workers.push(started(world, &format!("thr_{index}"), &format!("run_{index}")).await);
    }
    // 3: its log is longer by then. 7: a call id is used twice. 11: another run is queued. 13: an interrupt is pending.
    for (worker, index) in workers.iter_mut().zip(0..) {
        if index == 7 {
            worker.asks(&[("a", "echo")]);
            worker.commit(world).await.unwrap();
            worker.succeeds("a");
            worker.commit(world).await.unwrap();
            worker.asks_without_gates(&[("a", "echo")]);
        } else {
            worker.finish_with("done");
        }
    }
    enqueued(world, "thr_11", "next").await;
    let interrupt = Item::Interrupt { cause: InterruptCause::Person(Principal::from("ana")) };
    let run = workers[13].lease.run.clone();
    let taken = node.store.submit(&world.tenant, &run, interrupt).await.unwrap();
    assert!(taken.is_taken(), "{taken:?}");
    node.store.append(&workers[3].lease, workers[3].append()).await.unwrap();

    let before = node.store.metrics();
    let appends = workers.iter().map(|worker| node.store.append(&worker.lease, worker.append()));
    let outcomes = at_once(appends).await;
    let counts = node.store.metrics();

    for (outcome, index) in outcomes.iter().zip(0..) {
        match index {
            3 => assert_eq!(*outcome, Err(StoreError::Fenced)),
            7 => assert!(matches!(outcome, Err(StoreError::Impossible(_))), "{outcome:?}"),
            11 => assert_eq!(*outcome, Ok(Appended { woken: vec!["next".into()], version: 2 })),
            13 => assert_eq!(*outcome, Err(StoreError::Behind)),
            _ => assert_eq!(*outcome, Ok(Appended { woken: Vec::new(), version: 2 }), "run_{index}"),
        }
    }
    assert_eq!(counts.commits - before.commits, 17);
    for (worker, index) in workers.iter().zip(0..) {
        let shown = node.store.run(&world.tenant, &worker.lease.run).await.unwrap().unwrap();
        assert_eq!(shown.status.ended(), ![7, 13].contains(&index), "run_{index} is {:?}", shown.status);
        let log = node.store.events(&world.tenant, &worker.lease.run, 0, 100).await.unwrap();
        assert_eq!(
            log.last().map(|last| last.readable().unwrap().event.seq),
            Some(shown.control.as_ref().unwrap().seq),
            "run_{index}"
        );
    }

    let mut more: Vec<Worker> = Vec::new();
    for index in 0..10 {
        let mut worker = started(world, &format!("more_{index}"), &format!("more_run_{index}")).await;
        worker.finish_with("done");
        more.push(worker);
    }
    let before = node.store.metrics();
    let outcomes = at_once(more.iter().map(|worker| node.store.append(&worker.lease, worker.append()))).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let counts = node.store.metrics();
    assert_eq!((counts.commits - before.commits, counts.syncs - before.syncs), (10, 1));
    let (batches, batched) = (counts.batches, before.batches);
    assert_eq!((batches.sum - batched.sum, batches.count() - batched.count()), (10, 1), "a batch of ten");
}

#[tokio::test]
async fn batched_creations_share_a_sync_and_each_has_its_own_answer() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let world = &node.world;
    let mut first = started(world, "thr_4", "first").await;
    first.finish_with("done");
    first.commit(world).await.unwrap();
    let mut creations: Vec<Create> = Vec::new();
    for index in 0..12 {
        let mut order = order(&format!("thr_{index}"), &format!("run_{index}"));
        // 4: the thread exists. 6: its message exists too. 8: another run takes the thread meanwhile.
        if index == 6 {
            let mut earlier = started(world, "thr_6", "earlier").await;
            earlier.finish_with("done");
            earlier.commit(world).await.unwrap();
            order.message.as_mut().unwrap().id = MessageId::from("msg_user_earlier");
        }
        creations.push(creation(world, order, OnBusy::Reject, true).await);
    }
    started(world, "thr_8", "meanwhile").await;

    let before = node.store.metrics();
    let outcomes: Vec<Result<Created, StoreError>> =
        at_once(creations.into_iter().map(|create| node.store.create(create))).await;
    let counts = node.store.metrics();
    for (outcome, index) in outcomes.iter().zip(0..) {
        match index {
            6 => assert!(matches!(outcome, Err(StoreError::Impossible(_))), "{outcome:?}"),
            8 => assert_eq!(*outcome, Err(StoreError::Stale)),
            _ => {
                let lease = outcome.as_ref().unwrap().lease.as_ref().unwrap();
                assert_eq!((lease.run.as_str(), lease.epoch), (format!("run_{index}").as_str(), 1));
                assert!(node.store.may_send(lease), "run_{index}");
                let log = node.store.events(&world.tenant, &lease.run, 0, 100).await.unwrap();
                assert_eq!(log.first().map(|first| first.readable().unwrap().event.seq), Some(1));
            }
        }
    }
    assert_eq!(counts.commits - before.commits, 10);
    assert_eq!(counts.syncs - before.syncs, 1);
}
