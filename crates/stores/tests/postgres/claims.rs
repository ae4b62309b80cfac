//! Two nodes claim concurrently: each skips the runs that the other is about to claim.

use std::collections::BTreeSet;

use engine::store::Claim;
use machine::event::InterruptCause;
use machine::inbox::{Item, Refusal, Verdict};

use crate::nodes::Cluster;
use crate::worker::{approve, arguments_of, claim, claimed_side_by_side, next, parked, queued};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_that_claim_together_get_all_and_nothing_twice() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node().await, cluster.node().await);
    let tenants = ["a", "b", "c"];
    for index in 0..60 {
        queued(&one.world.for_tenant(tenants[index % 3]), &format!("thr_{index}"), &format!("run_{index}"))
            .await;
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
        node.world.submit_accepted(run, interrupt).await;
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
        queued(&one.world.for_tenant("crowd"), &format!("thr_{index}"), &format!("crowd_{index}")).await;
    }
    for index in 0..2 {
        queued(&two.world.for_tenant("lonely"), &format!("thr_{index}"), &format!("lonely_{index}")).await;
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
    let held = claim(&one.world, "run").await.expect("no other node holds the run");
    assert!(claim(&two.world, "run").await.is_none());
    assert!(two.world.store.claim(Claim::Next { limit: 10, skip_tenant: None }).await.unwrap().is_empty());
    assert!(one.world.store.release(&held.lease).await.unwrap());
    let again = claim(&two.world, "run").await.expect("the run was released");
    assert_eq!(again.lease.epoch, held.lease.epoch + 1);
}

#[tokio::test]
async fn a_decision_on_a_run_that_was_ended_by_its_columns_is_answered_as_ended() {
    let cluster = Cluster::new();
    let world = cluster.node().await.world;
    let worker = parked(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", Some("d1"), approve());
    let client = cluster.client().await;
    let damage = r"UPDATE runs SET control = '\xffffff'; UPDATE commits SET body = 'x'";
    client.batch_execute(damage).await.unwrap();
    world.submit_accepted("run", Item::Interrupt { cause: InterruptCause::Person("ann".into()) }).await;
    let claim = Claim::Run { tenant: world.tenant.clone(), run: "run".into() };
    let claimed = world.store.claim(claim).await.unwrap().remove(0);
    world.store.end_undecoded(&claimed.lease).await.unwrap();
    let digest = arguments_of("call_run").digest();
    for item in [Item::Decision(decision.clone()), Item::Early { decision, digest }] {
        let verdict = world.store.submit(&world.tenant, &"run".into(), item).await;
        assert_eq!(verdict, Ok(Verdict::Refused(Refusal::RunOver)));
    }
}

/// The control of a completed run as commit 1ae1317 stored it, with fold version 1.
const VERSION_1: &str = "012872756e5f30316131653564662d373438362d373661342d386132392d306239656266343465313038097468725f656e64656405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d373438362d376333352d613336612d646135663839383835363235000e88e9fdae9e340400070200000000000101ef107e9df6db159088e9fdae9e34140a00000288e9fdae9e34000400";

#[tokio::test]
async fn a_control_of_an_earlier_version_is_shown_without_reading_the_log() {
    let cluster = Cluster::new();
    let world = cluster.node().await.world;
    parked(&world, "thr", "run", "transfer").await;
    let client = cluster.client().await;
    // That version stored no hashes.
    let old = format!(
        r"UPDATE runs SET control = '\x{VERSION_1}', chain_head = NULL, chain_from = NULL;
        UPDATE commits SET body = 'x', hash = NULL"
    );
    client.batch_execute(&old).await.unwrap();
    let control = world.run("run").await.control.expect("the control is readable without the log");
    assert_eq!((control.seq, control.ended().is_some()), (14, true));
}
