//! The server is lost and a standby takes its place: what was acknowledged is there, and the nodes go on.

use engine::store::Ring;
use machine::inbox::Item;

use crate::nodes::{Cluster, is_unavailable, until};
use crate::postgres_server::Server;
use crate::worker::{approve, next, parked, started};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_goes_on_with_the_standby_that_was_promoted() {
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
    assert!(is_unavailable(&refused, ""), "a server that only reads takes nothing: {refused:?}");
    standby.control(&["promote"]);
    let tenant = &node.world.tenant;
    until("the standby", || async { node.world.store.run(tenant, &"run".into()).await.is_ok() }).await;
    assert_eq!(node.world.run("run").await, shown);
    assert!(node.world.store.may_send(&worker.lease), "nobody has taken anything over");
    worker.accept(Item::Decision(worker.decision("a", None, approve())));
    worker.commit(&node.world).await.unwrap();
    node.world.tell("waits", Item::Decision(parked.decision("call_waits", None, approve()))).await;
    node.hears(|ring| *ring == Ring::Ready).await;
    assert_eq!(next(&node.world, 10).await, ["waits"]);
}
