//! Two nodes claim side by side: what one is about to take, the other passes over.

use std::collections::BTreeSet;

use engine::store::Claim;
use machine::event::InterruptCause;
use machine::inbox::Item;

use crate::nodes::Cluster;
use crate::worker::{claim, claimed_side_by_side, next, parked, queued};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_that_claim_together_get_all_and_nothing_twice() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node().await, cluster.node().await);
    let tenants = ["a", "b", "c"];
    for index in 0..60 {
        queued(&one.world.of(tenants[index % 3]), &format!("thr_{index}"), &format!("run_{index}")).await;
    }
    let claimers = [&one, &two, &one, &two].map(|node| node.world.clone());
    let claimed = claimed_side_by_side(claimers, 4).await;
    assert_eq!(claimed.len(), 60);
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>().len(), 60);
}

#[tokio::test]
async fn what_another_is_about_to_take_is_passed_over_in_the_order_of_claims() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    for run in ["first", "second", "third"] {
        parked(&node.world, &format!("thr_{run}"), run, "transfer").await;
        let interrupt = Item::Interrupt { cause: InterruptCause::Person("bob".into()) };
        node.world.tell(run, interrupt).await;
    }
    for run in ["fourth", "fifth"] {
        queued(&node.world, &format!("thr_{run}"), run).await;
    }
    let mut client = cluster.client().await;
    let elsewhere = client.transaction().await.unwrap();
    let about_to = "SELECT 1 FROM runs WHERE id IN ('first', 'fourth') FOR UPDATE";
    elsewhere.execute(about_to, &[]).await.unwrap();
    assert_eq!(next(&node.world, 1).await, ["second"]);
    assert_eq!(next(&node.world, 10).await, ["third", "fifth"]);
    elsewhere.rollback().await.unwrap();
    assert_eq!(next(&node.world, 10).await, ["first", "fourth"]);
}

#[tokio::test]
async fn each_node_serves_one_tenant_after_the_other() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node().await, cluster.node().await);
    for index in 0..6 {
        queued(&one.world.of("crowd"), &format!("thr_{index}"), &format!("crowd_{index}")).await;
    }
    for index in 0..2 {
        queued(&two.world.of("lonely"), &format!("thr_{index}"), &format!("lonely_{index}")).await;
    }
    assert_eq!(next(&one.world, 2).await, ["crowd_0", "lonely_0"]);
    assert_eq!(next(&two.world, 1).await, ["crowd_1"]);
    assert_eq!(next(&two.world, 2).await, ["lonely_1", "crowd_2"]);
    assert_eq!(next(&one.world, 10).await, ["crowd_3", "crowd_4", "crowd_5"]);
}

#[tokio::test]
async fn a_run_that_another_node_holds_is_not_given_out() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node().await, cluster.node().await);
    queued(&one.world, "thr", "run").await;
    let held = claim(&one.world, "run").await.expect("nobody else has it");
    assert!(claim(&two.world, "run").await.is_none());
    assert!(two.world.store.claim(Claim::Next { limit: 10, pass_over: None }).await.unwrap().is_empty());
    assert!(one.world.store.release(&held.lease).await.unwrap());
    let again = claim(&two.world, "run").await.expect("it was let go");
    assert_eq!(again.lease.epoch, held.lease.epoch + 1);
}
