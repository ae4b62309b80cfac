//! The server is lost and a standby is promoted: every acknowledged commit is there, and the nodes continue.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use engine::store::Notification;
use machine::inbox::Item;
use stores::postgres::{PostgresSettings, PostgresStore};

use crate::nodes::{Cluster, is_unavailable, until};
use crate::postgres_server::Server;
use crate::worker::{approve, next, parked, started};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_continues_with_the_promoted_standby() {
    let primary = Server::start();
    let standby = primary.standby();
    let address = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=holdpoint dbname=postgres target_session_attrs=read-write",
        primary.port, standby.port
    );
    let cluster = Cluster::on(&primary);
    let node = cluster.node_at(&address, cluster.settings()).await;
    let parked = parked(&node.world, "thr_2", "waits", "transfer").await;
    let mut worker = started(&node.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&node.world).await.unwrap();
    let shown = node.world.run("run").await;

    primary.control(&["stop", "-m", "immediate"]);
    let refused = node.world.store.append(&worker.lease, worker.append()).await;
    assert!(is_unavailable(&refused, ""), "a read-only server accepts no write: {refused:?}");
    standby.control(&["promote"]);
    let tenant = &node.world.tenant;
    until("the standby", || async { node.world.store.run(tenant, &"run".into()).await.is_ok() }).await;
    assert_eq!(node.world.run("run").await, shown);
    assert!(node.world.store.may_send(&worker.lease), "no other node has taken the run over");
    worker.accept(Item::Decision(worker.decision("a", None, approve())));
    worker.commit(&node.world).await.unwrap();
    node.world.submit_accepted("waits", Item::Decision(parked.decision("call_waits", None, approve()))).await;
    node.receives(|ring| *ring == Notification::Ready).await;
    assert_eq!(next(&node.world, 10).await, ["waits"]);
}

/// Like a frozen machine: the system accepts connections, and nothing is ever sent on them.
fn silent() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a free port")
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("the port has a number").port()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unresponsive_server_does_not_block_failover() {
    let cluster = Cluster::new();
    let gone = silent();
    let address = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=holdpoint dbname=postgres target_session_attrs=read-write",
        port_of(&gone),
        cluster.server.port
    );
    let settings = PostgresSettings {
        lease: Duration::from_secs(6),
        renew_every: Duration::from_millis(500),
        ..cluster.settings()
    };
    let node = cluster.node_at(&address, settings).await;
    let mut worker = started(&node.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&node.world).await.unwrap();
    let client = cluster.client().await;
    let left = "SELECT expires_at - started_at FROM nodes";
    until("two renewals of the lease", || async {
        client.query_one(left, &[]).await.unwrap().get::<_, i64>(0) > 12_000
    })
    .await;
    assert!(node.world.store.may_send(&worker.lease));
    // The listener has found the other server too.
    node.wait_until_listening(&cluster).await;
}

#[tokio::test]
async fn a_shorter_time_to_connect_in_the_address_counts() {
    let cluster = Cluster::new();
    let gone = silent();
    let address =
        format!("host=127.0.0.1 port={} user=holdpoint dbname=postgres connect_timeout=1", port_of(&gone));
    let began = Instant::now();
    let opened = PostgresStore::open_with(&address, cluster.settings()).await;
    assert!(opened.is_err(), "{opened:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
