//! The database stops, restarts, is slow or has no free connection: requests are refused, and no outcome is guessed.

use std::time::{Duration, Instant};

use engine::store::Notification;
use engine::store::{Claim, StoreError};
use machine::inbox::Item;
use machine::policy::OnBusy;
use stores::postgres::PostgresSettings;

use crate::nodes::{Cluster, Node, TEST_TIMEOUT, is_unavailable, until};
use crate::postgres_server::Server;
use crate::proxy::{Cut, Proxy};
use crate::worker::{approve, claim, creation, next, order, parked, queued, started};

async fn behind_proxy(cluster: &Cluster<'_>, settings: PostgresSettings) -> (Proxy, Node) {
    let proxy = Proxy::to(cluster.server.port).await;
    let node = cluster.node_at(&cluster.server.address_by_port(proxy.port), settings).await;
    (proxy, node)
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_stored() {
    let cluster = Cluster::new();
    let (proxy, node) = behind_proxy(&cluster, cluster.settings()).await;
    let mut worker = started(&node.world, "thr", "run").await;
    worker.asks(&[("the_only_call", "transfer")]);
    let (append, seq) = (worker.append(), worker.run.control.seq);
    proxy.set("the_only_call", Cut::After);
    let lost = node.world.store.append(&worker.lease, append.clone()).await;
    assert!(is_unavailable(&lost, ""), "{lost:?}");
    assert!(node.world.store.metrics().failures.unavailable >= 1, "the failure is counted");
    assert!(proxy.has_triggered());
    let loaded = node.world.store.load(&worker.lease).await.unwrap();
    assert_eq!(loaded.control.seq, seq);
    let stored =
        node.world.store.events(&worker.lease.tenant, &worker.lease.run, append.expected_seq, 100).await;
    let stored: Vec<_> =
        stored.unwrap().into_iter().map(|committed| committed.readable().unwrap().event.clone()).collect();
    assert_eq!(stored, append.events);
    assert_eq!(
        node.world.store.append(&worker.lease, append).await,
        Err(StoreError::Fenced),
        "the commit is stored once"
    );
    worker.forget_draft();
    worker.accept(Item::Decision(worker.decision("the_only_call", None, approve())));
    worker.commit(&node.world).await.unwrap();
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_not_there() {
    let cluster = Cluster::new();
    let (proxy, node) = behind_proxy(&cluster, cluster.settings()).await;
    let mut worker = started(&node.world, "thr", "run").await;
    let before = node.world.store.load(&worker.lease).await.unwrap().control.seq;
    worker.asks(&[("the_only_call", "transfer")]);
    let append = worker.append();
    proxy.set("the_only_call", Cut::Before);
    let lost = node.world.store.append(&worker.lease, append.clone()).await;
    assert!(is_unavailable(&lost, ""), "{lost:?}");
    assert_eq!(node.world.store.load(&worker.lease).await.unwrap().control.seq, before);
    node.world.store.append(&worker.lease, append).await.unwrap();
}

#[tokio::test]
async fn a_read_whose_answer_was_lost_is_asked_again() {
    let cluster = Cluster::new();
    let (proxy, node) = behind_proxy(&cluster, cluster.settings()).await;
    queued(&node.world, "thr", "run_that_is_read").await;
    proxy.set("run_that_is_read", Cut::After);
    node.world.run("run_that_is_read").await;
    assert!(proxy.has_triggered());
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_released_by_its_node() {
    let cluster = Cluster::new();
    let settings = PostgresSettings {
        answer_timeout: Duration::from_secs(3),
        renew_every: Duration::from_millis(100),
        ..cluster.settings()
    };
    let (proxy, node) = behind_proxy(&cluster, settings).await;
    queued(&node.world, "thr", "run_without_holder").await;
    proxy.set("run_without_holder", Cut::After);
    let asked = Claim::Run { tenant: node.world.tenant.clone(), run: "run_without_holder".into() };
    let lost = node.world.store.claim(asked).await;
    assert!(is_unavailable(&lost, ""), "{lost:?}");
    let row = cluster.client().await.query_one("SELECT node IS NOT NULL FROM runs", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0), "the node holds the run in the database and does not know it");
    until("the run", || async { claim(&node.world, "run_without_holder").await.is_some() }).await;
}

#[tokio::test]
async fn a_creation_whose_answer_was_lost_is_released_by_its_node() {
    let cluster = Cluster::new();
    let settings = PostgresSettings {
        answer_timeout: Duration::from_secs(3),
        renew_every: Duration::from_millis(100),
        ..cluster.settings()
    };
    let (proxy, node) = behind_proxy(&cluster, settings).await;
    // The claim makes the node join, so that the first statement with this run id is the creation.
    claim(&node.world, "nothing").await;
    let order = order("thr", "run_without_holder");
    let create = creation(&node.world, order, OnBusy::Reject, true).await;
    proxy.set("run_without_holder", Cut::After);
    let lost = node.world.store.create(create).await;
    assert!(is_unavailable(&lost, ""), "{lost:?}");
    until("the run", || async { claim(&node.world, "run_without_holder").await.is_some() }).await;
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_given_up_and_nothing_is_stored() {
    let cluster = Cluster::new();
    let settings = PostgresSettings { statement_timeout: Duration::from_millis(500), ..cluster.settings() };
    let node = cluster.node_with(settings).await;
    let mut worker = started(&node.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    let mut client = cluster.client().await;
    let elsewhere = client.transaction().await.unwrap();
    elsewhere.execute("SELECT 1 FROM runs FOR UPDATE", &[]).await.unwrap();
    let refused = node.world.store.append(&worker.lease, worker.append()).await;
    assert!(is_unavailable(&refused, "statement timeout"), "{refused:?}");
    elsewhere.rollback().await.unwrap();
    worker.commit(&node.world).await.unwrap();
}

#[tokio::test]
async fn a_request_without_a_free_connection_is_refused_within_the_configured_time() {
    let cluster = Cluster::new();
    let settings = PostgresSettings {
        connection_count_max: 1,
        connection_wait_max: Duration::from_millis(300),
        statement_timeout: TEST_TIMEOUT,
        answer_timeout: TEST_TIMEOUT,
        ..cluster.settings()
    };
    let node = cluster.node_with(settings).await;
    let mut worker = started(&node.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    let mut client = cluster.client().await;
    let elsewhere = client.transaction().await.unwrap();
    elsewhere.execute("SELECT 1 FROM runs FOR UPDATE", &[]).await.unwrap();
    let waits = node.world.store.append(&worker.lease, worker.append());
    tokio::pin!(waits);
    let asks = async {
        let began = Instant::now();
        loop {
            // The append may not have a connection yet.
            let read = node.world.store.run(&node.world.tenant, &worker.lease.run).await;
            if let Err(refused) = read {
                return (refused, began.elapsed());
            }
        }
    };
    let (refused, took) = tokio::select! {
        appended = &mut waits => panic!("{appended:?}"),
        refused = asks => refused,
    };
    assert!(is_unavailable::<()>(&Err(refused.clone()), "no connection"), "{refused}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    elsewhere.rollback().await.unwrap();
    waits.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_went_down_at_once_and_came_back_has_everything_that_was_acknowledged() {
    let server = Server::start();
    let cluster = Cluster::on(&server);
    let node = cluster.node().await;
    let parked = parked(&node.world, "thr_2", "waits", "transfer").await;
    let mut worker = started(&node.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&node.world).await.unwrap();
    let shown = node.world.run("run").await;
    server.control(&["stop", "-m", "immediate"]);
    let refused = node.world.store.run(&node.world.tenant, &"run".into()).await;
    assert!(is_unavailable(&refused, ""), "{refused:?}");
    let item = Item::Decision(parked.decision("call_waits", None, approve()));
    let refused = node.world.store.submit(&node.world.tenant, &"waits".into(), item.clone()).await;
    assert!(is_unavailable(&refused, ""), "{refused:?}");
    server.control(&["start"]);
    assert_eq!(node.world.run("run").await, shown);
    node.world.submit_accepted("waits", item).await;
    assert!(node.world.store.may_send(&worker.lease), "no other node has taken the run over");
    worker.accept(Item::Decision(worker.decision("a", None, approve())));
    worker.commit(&node.world).await.unwrap();
    // The heartbeat has a connection again and reports that there are runs to claim.
    node.receives(|ring| *ring == Notification::Ready).await;
    assert_eq!(next(&node.world, 10).await, ["waits"]);
}

/// Every commit to a log waits in the database while a session holds this lock. It waits after its statement has ended,
/// so that no statement timeout applies. A commit would wait in the same way for a synchronous standby that is away.
const LATE: &str = "
    CREATE FUNCTION be_late() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock_shared(hashtext(current_schema())); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER late AFTER UPDATE OF seq ON runs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION be_late();
    SELECT pg_advisory_lock(hashtext(current_schema()))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_comes_in_late_is_waited_for_and_its_worker_keeps_the_run() {
    let cluster = Cluster::new();
    let settings = PostgresSettings {
        answer_timeout: Duration::from_secs(3),
        statement_timeout: TEST_TIMEOUT,
        ..cluster.settings()
    };
    let node = cluster.node_with(settings).await;
    let mut worker = started(&node.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    let seq = worker.run.control.seq;
    let client = cluster.client().await;
    client.batch_execute(LATE).await.unwrap();
    let lost = node.world.store.append(&worker.lease, worker.append()).await;
    assert!(is_unavailable(&lost, "did not answer"), "{lost:?}");
    // Until then the store does not guess whether the commit was stored.
    let unknown = node.world.store.load(&worker.lease).await;
    assert!(is_unavailable(&unknown, "did not answer"), "{unknown:?}");

    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%release_batch%'
        AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()";
    let release = node.world.store.release(&worker.lease);
    let comes = async {
        until("a release that waits", || async { client.query_one(waits, &[]).await.unwrap().get(0) }).await;
        client.batch_execute("SELECT pg_advisory_unlock(hashtext(current_schema()))").await.unwrap();
    };
    let (released, ()) = tokio::join!(release, comes);
    assert_eq!(released, Ok(false), "the log is longer than the worker knows");
    assert!(node.world.store.may_send(&worker.lease), "the worker still holds the run");
    assert_eq!(node.world.store.load(&worker.lease).await.unwrap().control.seq, seq);
    assert_eq!(node.world.store.release(&worker.lease).await, Ok(true), "the run was loaded again");
}
