//! Leases of nodes: when a lease expires, its node loses its runs and may send nothing. Other nodes are not affected.

use std::time::{Duration, Instant};

use engine::store::{Claim, ClusterStore, Notification, RunStore, StoreError, ViewStore};
use machine::Timestamp;
use machine::policy::OnBusy;
use stores::postgres::PostgresSettings;

use crate::nodes::{Cluster, NEVER, Node, is_unavailable, until, with_timeout};
use crate::worker::{claim, creation, next_workers, order, parked, queued, started};

const LEASE: Duration = Duration::from_secs(2);
const LEASE_MS: u64 = 2_000;
/// Extra time on a busy machine, after the lease has expired.
const SLACK: Duration = Duration::from_secs(8);
const SLACK_MS: u64 = 8_000;

fn short(cluster: &Cluster<'_>) -> PostgresSettings {
    PostgresSettings { lease: LEASE, renew_every: LEASE / 4, ..cluster.settings() }
}

/// A node that acts like a paused process: it does not renew its lease.
fn paused(cluster: &Cluster<'_>) -> PostgresSettings {
    PostgresSettings { renew_every: NEVER, poll_every: NEVER, ..short(cluster) }
}

async fn claims_next(node: &Node) -> engine::store::Claimed {
    with_timeout("a claim", async {
        loop {
            if let Some(claimed) =
                node.world.store.claim(Claim::Next { limit: 1, skip_tenant: None }).await.unwrap().pop()
            {
                return claimed;
            }
            node.receives(|ring| *ring == Notification::Ready).await;
        }
    })
    .await
}

#[tokio::test]
async fn the_runs_of_a_dead_node_are_taken_over_when_its_lease_has_run_out() {
    let cluster = Cluster::new();
    let (dies, lives) = (cluster.node_with(short(&cluster)).await, cluster.node_with(short(&cluster)).await);
    let lost = started(&dies.world, "thr", "run").await;
    parked(&dies.world, "thr_2", "waits", "transfer").await;
    let died = Instant::now();
    drop(dies);
    let client = cluster.client().await;
    let held_until = "SELECT expires_at FROM nodes n JOIN runs r ON r.node = n.node";
    let expires_at: i64 = client.query_one(held_until, &[]).await.unwrap().get(0);
    assert!(
        lives.world.store.claim(Claim::Next { limit: 10, skip_tenant: None }).await.unwrap().is_empty(),
        "the node may still be alive"
    );
    let claimed = claims_next(&lives).await;
    let (took, now) = (died.elapsed(), lives.store.now());
    assert_eq!(claimed.lease.run, lost.lease.run);
    assert!(claimed.lease.epoch > lost.lease.epoch);
    assert!(took < LEASE + SLACK, "the takeover took {took:?}");
    // One more lease time after another node has seen that the lease is expired.
    let earliest = Timestamp(u64::try_from(expires_at).unwrap()).plus_ms(LEASE_MS);
    let latest = now.plus_ms(LEASE_MS + SLACK_MS);
    assert!((earliest..=latest).contains(&claimed.doubt_at), "{}", claimed.doubt_at);
    let waits = claim(&lives.world, "waits").await.expect("no node held the run");
    assert!(lives.world.store.release(&waits.lease).await.unwrap());
}

#[tokio::test]
async fn a_paused_node_neither_writes_nor_sends_after_a_takeover() {
    let cluster = Cluster::new();
    let (sleeps, lives) =
        (cluster.node_with(paused(&cluster)).await, cluster.node_with(short(&cluster)).await);
    let mut lost = started(&sleeps.world, "thr", "run").await;
    lost.asks(&[("a", "transfer")]);
    assert!(sleeps.world.store.may_send(&lost.lease));
    let claimed = claims_next(&lives).await;
    assert!(
        !sleeps.world.store.may_send(&lost.lease),
        "the node's own clock ends the lease before any notification"
    );
    let mut worker = crate::worker::Worker::from_claim(&lives.world, claimed);
    assert_eq!(lost.commit(&sleeps.world).await, Err(StoreError::Fenced));
    assert_eq!(sleeps.world.store.load(&lost.lease).await, Err(StoreError::Fenced));
    worker.take_over();
    worker.commit(&lives.world).await.unwrap();
    assert!(lives.world.store.may_send(&worker.lease));
    // The paused node resumes: it joins as a new node, and can hold runs again.
    queued(&sleeps.world, "thr_2", "later").await;
    until("another lease", || async {
        sleeps.world.store.claim(Claim::Next { limit: 1, skip_tenant: None }).await.is_ok()
    })
    .await;
    assert_eq!(lost.commit(&sleeps.world).await, Err(StoreError::Fenced));
    assert!(!sleeps.world.store.may_send(&lost.lease));
}

#[tokio::test]
async fn an_expired_lease_that_no_node_took_is_renewed() {
    let cluster = Cluster::new();
    let node = cluster.node_with(paused(&cluster)).await;
    let mut worker = started(&node.world, "thr", "run").await;
    let client = cluster.client().await;
    until("the end of the lease", || async {
        let over: bool =
            client.query_one("SELECT expires_at <= now_ms(NULL) FROM nodes", &[]).await.unwrap().get(0);
        assert!(
            !over || !node.world.store.may_send(&worker.lease),
            "the node ends its lease no later than the database"
        );
        over
    })
    .await;
    worker.asks(&[("a", "transfer")]);
    let refused = node.world.store.append(&worker.lease, worker.append()).await;
    assert!(is_unavailable(&refused, "lease"), "{refused:?}");
    assert!(is_unavailable(
        &node.world.store.claim(Claim::Next { limit: 1, skip_tenant: None }).await,
        "lease"
    ));
    // Renew the lease as the heartbeat would.
    client.execute("UPDATE nodes SET expires_at = now_ms(NULL) + 60000", &[]).await.unwrap();
    worker.commit(&node.world).await.unwrap();
    assert!(
        !node.world.store.may_send(&worker.lease),
        "the node does not rely on a renewal that it has not seen"
    );
}

#[tokio::test]
async fn the_heartbeat_keeps_a_lease() {
    let cluster = Cluster::new();
    let node = cluster.node_with(short(&cluster)).await;
    let worker = started(&node.world, "thr", "run").await;
    let client = cluster.client().await;
    let expiry = || async {
        let row = client.query_one("SELECT expires_at - started_at FROM nodes", &[]).await.unwrap();
        row.get::<_, i64>(0)
    };
    until("three renewals of the lease", || async { expiry().await > 3 * i64::try_from(LEASE_MS).unwrap() })
        .await;
    assert!(node.world.store.may_send(&worker.lease));
}

#[tokio::test]
async fn a_node_that_leaves_hands_over_at_once() {
    let cluster = Cluster::new();
    // With this lease no other node would take over for an hour.
    let (leaves, stays) = (cluster.node().await, cluster.node().await);
    let lost = started(&leaves.world, "thr", "run").await;
    leaves.store.release_all().await.unwrap();
    assert!(!leaves.world.store.may_send(&lost.lease));
    let claimed = claims_next(&stays).await;
    assert_eq!(claimed.lease.run, lost.lease.run);
    assert!(
        claimed.doubt_at <= stays.store.now(),
        "the old node sends nothing more, so there is no need to wait"
    );
    // The node may join again.
    queued(&leaves.world, "thr_2", "later").await;
    assert_eq!(next_workers(&leaves.world, 10).await.len(), 1);
}

#[tokio::test]
async fn a_run_released_unfinished_is_offered_to_other_nodes_at_once() {
    let cluster = Cluster::new();
    let deaf_but_for_the_bell = PostgresSettings { poll_every: NEVER, ..cluster.settings() };
    let (one, two) = (cluster.node().await, cluster.node_with(deaf_but_for_the_bell).await);
    two.wait_until_listening(&cluster).await;
    let worker = started(&one.world, "thr", "run").await;
    assert!(one.world.store.release(&worker.lease).await.unwrap());
    assert_eq!(claims_next(&two).await.lease.run, worker.lease.run);
}

#[tokio::test]
async fn the_database_refuses_a_late_commit_of_another_epoch() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let first = started(&node.world, "thr", "run").await;
    assert!(node.world.store.release(&first.lease).await.unwrap());
    let second = claim(&node.world, "run").await.expect("the run was released");
    let client = cluster.client().await;
    let number: i64 = client.query_one("SELECT node FROM nodes", &[]).await.unwrap().get(0);
    let (run, seq) = (second.lease.row, i64::try_from(second.run.control.seq).unwrap());
    let version = i64::try_from(second.version).unwrap();
    let epoch = |lease: &engine::store::Lease| i64::try_from(lease.epoch).unwrap();
    let entry = "{\"tenant\": \"acme\", \"id\": \"run\", \"of_run\": \"another\", \"of_thread\": \"thr\"}";
    let outcome = async |node: i64, epoch: i64, seq: i64| {
        let sql =
            "SELECT outcome FROM append($1, $2, $3, $4, $5, $6::text::jsonb, '', NULL, NULL, NULL, NULL)";
        let row = client.query_one(sql, &[&run, &node, &epoch, &seq, &version, &entry]).await;
        row.map(|row| row.get::<_, String>(0))
            .map_err(|error| error.as_db_error().unwrap().message().to_owned())
    };
    let fenced = Ok("fenced".to_owned());
    assert_eq!(outcome(number, epoch(&first.lease), seq).await, fenced, "an older lease of the same node");
    assert_eq!(outcome(number, epoch(&second.lease) + 1, seq).await, fenced, "an epoch that never existed");
    assert_eq!(outcome(number + 1, epoch(&second.lease), seq).await, fenced, "another node");
    assert_eq!(outcome(number, epoch(&second.lease), seq - 1).await, fenced, "the log is longer by now");
    let let_through = outcome(number, epoch(&second.lease), seq).await;
    assert_eq!(
        let_through,
        Err("the control is of another on thr".to_owned()),
        "only the holder passes the fence"
    );
}

/// A server that lost its last commits has replaced another one, and has given the row number of a run to another run.
#[tokio::test]
async fn a_run_is_known_by_its_name_too() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let mut worker = started(&node.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    let client = cluster.client().await;
    for (now, then) in [("tenant = 'other'", "tenant = 'acme'"), ("id = 'another'", "id = 'run'")] {
        client.execute(&format!("UPDATE runs SET {now}"), &[]).await.unwrap();
        let append = node.world.store.append(&worker.lease, worker.append()).await;
        assert_eq!(append, Err(StoreError::Fenced), "{now}");
        assert_eq!(node.world.store.load(&worker.lease).await, Err(StoreError::Fenced), "{now}");
        // After a refused load the store forgets the lease, so the run has to be claimed again.
        client.execute(&format!("UPDATE runs SET {then}"), &[]).await.unwrap();
        client.execute("UPDATE runs SET node = NULL, ready = 1, ready_at = 1", &[]).await.unwrap();
        worker = claim(&node.world, "run").await.expect("no node holds the run");
        worker.take_over();
        client.execute(&format!("UPDATE runs SET {now}"), &[]).await.unwrap();
        assert_eq!(node.world.store.release(&worker.lease).await, Err(StoreError::Fenced), "{now}");
        client.execute(&format!("UPDATE runs SET {then}"), &[]).await.unwrap();
        client.execute("UPDATE runs SET node = NULL, ready = 1, ready_at = 1", &[]).await.unwrap();
        worker = claim(&node.world, "run").await.expect("no node holds the run");
        worker.take_over();
    }
    let commits = client.query_one("SELECT count(*) FROM commits", &[]).await.unwrap();
    assert_eq!(commits.get::<_, i64>(0), 1, "nothing was written into the log of another run");
    worker.commit(&node.world).await.unwrap();
}

#[tokio::test]
async fn a_locked_run_blocks_no_other_takeover() {
    let cluster = Cluster::new();
    let (dies, lives) = (cluster.node_with(short(&cluster)).await, cluster.node_with(short(&cluster)).await);
    let locked = started(&dies.world, "thr", "locked").await;
    let free = started(&dies.world, "thr_2", "free").await;
    let mut client = cluster.client().await;
    let elsewhere = client.transaction().await.unwrap();
    elsewhere.execute("SELECT 1 FROM runs WHERE id = 'locked' FOR UPDATE", &[]).await.unwrap();
    drop(dies);
    assert_eq!(claims_next(&lives).await.lease.run, free.lease.run);
    elsewhere.rollback().await.unwrap();
    assert_eq!(claims_next(&lives).await.lease.run, locked.lease.run);
}

#[tokio::test]
async fn a_lease_that_expired_while_its_node_waited_is_refused() {
    let cluster = Cluster::new();
    let asleep = PostgresSettings { renew_every: NEVER, poll_every: NEVER, ..cluster.settings() };
    let node = cluster.node_with(asleep).await;
    parked(&node.world, "thr", "run", "transfer").await;
    node.store.put_thread(&node.world.tenant, &"thr_2".into(), &"mine".into()).await.unwrap();
    let (watch, mut client) = (cluster.client().await, cluster.client().await);
    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
    let create = creation(&node.world, order("thr_2", "second"), OnBusy::Reject, true).await;
    for (locked, word) in [("runs", "%claim_run%"), ("threads", "%create_run%")] {
        watch.execute("UPDATE nodes SET expires_at = now_ms(NULL) + 3600000", &[]).await.unwrap();
        let elsewhere = client.transaction().await.unwrap();
        elsewhere.execute(&format!("SELECT 1 FROM {locked} FOR NO KEY UPDATE"), &[]).await.unwrap();
        let asks = async {
            if locked == "runs" {
                let asked = Claim::Run { tenant: node.world.tenant.clone(), run: "run".into() };
                node.store.claim(asked).await.map(|claimed| claimed.len())
            } else {
                node.store.create(create.clone()).await.map(|_| 1)
            }
        };
        let runs_out = async {
            until("a request that waits for the lock", || async {
                watch.query_one(waits, &[&word]).await.unwrap().get(0)
            })
            .await;
            watch.execute("UPDATE nodes SET expires_at = started_at", &[]).await.unwrap();
            elsewhere.rollback().await.unwrap();
        };
        let (refused, ()) = tokio::join!(asks, runs_out);
        assert!(is_unavailable(&refused, "lease"), "{locked}: {refused:?}");
    }
    let held = watch.query_one("SELECT count(*), count(node) FROM runs", &[]).await.unwrap();
    assert_eq!((held.get::<_, i64>(0), held.get::<_, i64>(1)), (1, 0));
}
